//! Runs and their counts.

use crds::checksum_run::status::FileCounts;
use jiff::Timestamp;
use serde::Serialize;

use super::link::{Link, Row, values};
use super::{Error, Store, View, algorithm};
use crate::algorithm::Algorithm;
use crate::judge::RunId;
use crate::merge::Mode;
use crate::state::State;

const COLUMNS: &str = "id, owner, owner_name, snapshot, mode, sample_percent, algorithm, state, began, ended, result, \
    message, complete, unlisted, unlisted_example, total, selected, selected_bytes, deleted, verified, new, changed, \
    corrupt, unreadable, skipped, bytes_read";

/// What a run is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// Whom it is for.
    pub owner: Option<Owner>,
    /// The snapshot that it reads; none means the files as they are.
    pub snapshot: Option<String>,
    /// Which files it reads.
    pub mode: Mode,
    /// How they are hashed.
    pub algorithm: Algorithm,
}

/// The ChecksumRun that a run is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its UID.
    pub uid: String,
    /// `namespace/name`.
    pub name: String,
}

/// A run, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its number.
    pub id: RunId,
    /// What it does.
    pub what: NewRun,
    /// How far it is.
    pub state: State,
    /// When it began.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Why it ended before its time, if it did.
    pub ending: Option<Ending>,
    /// Whether all that is there could be listed.
    pub complete: bool,
    /// How much could not.
    pub unlisted: i64,
    /// The first of it, in words.
    pub unlisted_example: Option<String>,
    /// What was found so far.
    pub counts: Counts,
}

/// Why a run ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// In a word: a reason of the API.
    pub result: String,
    /// In words.
    pub message: String,
}

/// The files of a run by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// All of them.
    pub total: i64,
    /// Those that the run reads.
    pub selected: i64,
    /// How many bytes those have.
    pub selected_bytes: i64,
    /// Gone since the last run; not part of `total`.
    pub deleted: i64,
    /// Read, and as they were.
    pub verified: i64,
    /// Read for the first time.
    pub new: i64,
    /// Changed by somebody since they were read last.
    pub changed: i64,
    /// Not what was written.
    pub corrupt: i64,
    /// Could not be read.
    pub unreadable: i64,
    /// Changed while the run went on.
    pub skipped: i64,
    /// Bytes read.
    pub bytes_read: i64,
}

impl Counts {
    /// Those that the run does not read.
    pub fn not_selected(&self) -> i64 {
        self.total - self.selected
    }

    /// Those that are still to be read.
    pub fn remaining(&self) -> i64 {
        let done = self.verified + self.new + self.changed + self.corrupt;
        self.selected - done - self.unreadable - self.skipped
    }
}

impl From<&Counts> for FileCounts {
    fn from(counts: &Counts) -> Self {
        Self {
            total: counts.total,
            verified: counts.verified,
            new: counts.new,
            changed: counts.changed,
            corrupt: counts.corrupt,
            unreadable: counts.unreadable,
            skipped: counts.skipped,
            not_selected: counts.not_selected(),
            remaining: counts.remaining(),
            deleted: counts.deleted,
        }
    }
}

#[cfg(test)]
impl Run {
    /// One for tests: a full run over no file, that has ended if its state says so.
    pub(crate) fn example(state: State) -> Self {
        Self {
            id: 7,
            what: NewRun {
                owner: None,
                snapshot: None,
                mode: Mode::Full,
                algorithm: Algorithm::Blake3,
            },
            state,
            began: Timestamp::UNIX_EPOCH,
            ended: state.is_resolved().then_some(Timestamp::UNIX_EPOCH),
            ending: None,
            complete: true,
            unlisted: 0,
            unlisted_example: None,
            counts: Counts::default(),
        }
    }
}

impl Store {
    /// Begins a run. Earlier ones must be resolved.
    pub async fn begin_run(&self, what: &NewRun, now: Timestamp) -> Result<Run, Error> {
        if let Some(run) = self.view.last_run().await?
            && !run.state.is_resolved()
        {
            let by = run.what.owner.map(|it| format!(" of {}", it.name));
            return Err(Error::Unresolved {
                id: run.id,
                by: by.unwrap_or_default(),
                state: run.state.to_string(),
            });
        }
        let mut link = self.begin().await?;
        if self.is_half_taken(&mut link).await? {
            return Err(Error::HalfTaken);
        }
        let select = "SELECT COALESCE(MAX(id), 0) + 1 FROM orrery_runs WHERE fs = ?";
        let id = link.fetch_one(select, &values![self.view.fs]).await?;
        let id = id.ok_or(Error::Fenced)?.int()?;
        let insert = "INSERT INTO orrery_runs
            (fs, id, owner, owner_name, snapshot, mode, sample_percent, algorithm, state, began)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let (mode, percent) = written(what.mode);
        let owner = what.owner.as_ref();
        let values = values![
            self.view.fs,
            id,
            owner.map(|it| it.uid.as_str()),
            owner.map(|it| it.name.as_str()),
            what.snapshot.as_deref(),
            mode,
            percent,
            what.algorithm.id(),
            State::Initialised.name(),
            now.as_millisecond()
        ];
        link.execute(insert, &values).await?;
        let run = load(&mut link, self.view.fs, id).await?;
        link.commit().await?;
        link.give_back();
        Ok(run)
    }

    /// Forgets some of what runs before this one could not verify, about so much. Whether there is more.
    pub async fn forget_problems(&self, run: RunId, some: u32) -> Result<bool, Error> {
        let fs = self.view.fs;
        let mut link = self.begin().await?;
        let select = "SELECT run, hash FROM orrery_problems WHERE fs = ? AND run < ? ORDER BY run, hash LIMIT 1 OFFSET ?";
        let values = values![fs, run, i64::from(some)];
        let next = link.fetch_one(select, &values).await?;
        let is_more = next.is_some();
        if let Some(mut next) = next {
            let (of, key) = (next.int()?, next.key()?);
            let delete =
                "DELETE FROM orrery_problems WHERE fs = ? AND (run < ? OR (run = ? AND hash < ?))";
            link.execute(delete, &values![fs, of, of, key.as_bytes()])
                .await?;
        } else {
            let delete = "DELETE FROM orrery_problems WHERE fs = ? AND run < ?";
            link.execute(delete, &values![fs, run]).await?;
        }
        link.commit().await?;
        link.give_back();
        Ok(is_more)
    }

    /// Stores how far a run is. A run that has ended keeps its time.
    pub async fn advance(&self, run: &mut Run, to: State, now: Timestamp) -> Result<(), Error> {
        self.give_up(run, to, None, now).await
    }

    /// The same for a run that ends before its time, with why it does.
    pub async fn give_up(
        &self,
        run: &mut Run,
        to: State,
        why: Option<&Ending>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let ended = to.is_resolved().then(|| now.as_millisecond());
        let mut link = self.begin().await?;
        let update =
            "UPDATE orrery_runs SET state = ?, ended = ? WHERE fs = ? AND id = ? AND state = ?";
        let values = values![to.name(), ended, self.view.fs, run.id, run.state.name()];
        if link.execute(update, &values).await? != 1 {
            return Err(Error::Fenced);
        }
        if let Some(Ending { result, message }) = why {
            let update = "UPDATE orrery_runs SET result = ?, message = ? WHERE fs = ? AND id = ?";
            let values = values![result.as_str(), message.as_str(), self.view.fs, run.id];
            link.execute(update, &values).await?;
        }
        if to.is_resolved() {
            for table in ["orrery_parts", "orrery_pieces"] {
                let delete = format!("DELETE FROM {table} WHERE fs = ? AND run = ?");
                link.execute(&delete, &values![self.view.fs, run.id])
                    .await?;
            }
        }
        let stored = load(&mut link, self.view.fs, run.id).await?;
        link.commit().await?;
        link.give_back();
        *run = stored;
        Ok(())
    }
}

impl View {
    /// Runs, the last first.
    pub async fn runs(&self, limit: u32) -> Result<Vec<Run>, Error> {
        let select =
            format!("SELECT {COLUMNS} FROM orrery_runs WHERE fs = ? ORDER BY id DESC LIMIT ?");
        let mut link = self.links.lend().await?;
        let values = values![self.fs, i64::from(limit)];
        let runs = link.fetch_as(&select, &values, read).await?;
        link.give_back();
        Ok(runs)
    }

    /// The last run that there was.
    pub async fn last_run(&self) -> Result<Option<Run>, Error> {
        Ok(self.runs(1).await?.pop())
    }

    /// The last run that was begun for the ChecksumRun with that UID.
    pub async fn run_for(&self, uid: &str) -> Result<Option<Run>, Error> {
        let select = format!(
            "SELECT {COLUMNS} FROM orrery_runs WHERE fs = ? AND owner = ? ORDER BY id DESC LIMIT 1"
        );
        let mut link = self.links.lend().await?;
        let values = values![self.fs, uid];
        let mut runs = link.fetch_as(&select, &values, read).await?;
        link.give_back();
        Ok(runs.pop())
    }

    /// A run as it is now.
    pub async fn run(&self, id: RunId) -> Result<Run, Error> {
        let mut link = self.links.lend().await?;
        let run = load(&mut link, self.fs, id).await?;
        link.give_back();
        Ok(run)
    }
}

pub(super) async fn load(link: &mut Link, fs: i64, id: RunId) -> Result<Run, Error> {
    let select = format!("SELECT {COLUMNS} FROM orrery_runs WHERE fs = ? AND id = ?");
    let row = link.fetch_one(&select, &values![fs, id]).await?;
    read(row.ok_or_else(|| Error::Damaged(format!("no run {id}")))?)
}

fn written(mode: Mode) -> (&'static str, i64) {
    match mode {
        Mode::Full => ("full", 0),
        Mode::Incremental => ("incremental", 0),
        Mode::Sample(percent) => ("sample", percent.into()),
    }
}

fn mode(name: &str, percent: i64) -> Result<Mode, Error> {
    match name {
        "full" => Ok(Mode::Full),
        "incremental" => Ok(Mode::Incremental),
        "sample" => Ok(Mode::Sample(u8::try_from(percent).unwrap_or(100))),
        other => Err(Error::Damaged(format!("the mode {other:?}"))),
    }
}

pub(super) fn time(milliseconds: i64) -> Result<Timestamp, Error> {
    Timestamp::from_millisecond(milliseconds)
        .map_err(|_| Error::Damaged(format!("the time {milliseconds}")))
}

fn state(name: &str) -> Result<State, Error> {
    State::from_name(name).ok_or_else(|| Error::Damaged(format!("the state {name:?}")))
}

/// In the order of [`COLUMNS`].
fn read(mut row: Row) -> Result<Run, Error> {
    let row = &mut row;
    let id = row.int()?;
    let owner = match (row.text_or_null()?, row.text_or_null()?) {
        (Some(uid), Some(name)) => Some(Owner { uid, name }),
        _ => None,
    };
    Ok(Run {
        id,
        what: NewRun {
            owner,
            snapshot: row.text_or_null()?,
            mode: mode(&row.text()?, row.int()?)?,
            algorithm: algorithm(row.int()?)?,
        },
        state: state(&row.text()?)?,
        began: time(row.int()?)?,
        ended: row.int_or_null()?.map(time).transpose()?,
        ending: match (row.text_or_null()?, row.text_or_null()?) {
            (Some(result), Some(message)) => Some(Ending { result, message }),
            _ => None,
        },
        complete: row.int()? != 0,
        unlisted: row.int()?,
        unlisted_example: row.text_or_null()?,
        counts: counts(row)?,
    })
}

fn counts(row: &mut Row) -> Result<Counts, Error> {
    Ok(Counts {
        total: row.int()?,
        selected: row.int()?,
        selected_bytes: row.int()?,
        deleted: row.int()?,
        verified: row.int()?,
        new: row.int()?,
        changed: row.int()?,
        corrupt: row.int()?,
        unreadable: row.int()?,
        skipped: row.int()?,
        bytes_read: row.int()?,
    })
}
