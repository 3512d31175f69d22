//! What people ask a store: warnings, problems, checksums.

use jiff::Timestamp;

use super::link::{Link, Row, values};
use super::runs::{Counts, Run, time};
use super::{Error, Store, View, algorithm, digest_of};
use crate::algorithm::Digest;
use crate::judge::RunId;
use crate::path::{Key, RelativePath};

/// What is known about a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarningState {
    /// Nobody has looked at it.
    Open,
    /// Somebody knows of it; the file is still damaged.
    Acknowledged,
    /// The file is again what it was.
    Restored,
    /// Somebody has written the file anew.
    Replaced,
    /// Somebody said that the content is right as it is.
    Accepted,
    /// The file is no longer there.
    Gone,
}

impl WarningState {
    const ALL: [Self; 6] = [
        Self::Open,
        Self::Acknowledged,
        Self::Restored,
        Self::Replaced,
        Self::Accepted,
        Self::Gone,
    ];

    /// As stores have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Acknowledged => "acknowledged",
            Self::Restored => "restored",
            Self::Replaced => "replaced",
            Self::Accepted => "accepted",
            Self::Gone => "gone",
        }
    }

    /// Whether the file is damaged as far as is known.
    pub fn is_damage(self) -> bool {
        matches!(self, Self::Open | Self::Acknowledged)
    }
}

/// A warning: a file that is, or was, not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarningRow {
    /// Where it is.
    pub path: RelativePath,
    /// Its size when the damage was found.
    pub size: u64,
    /// When it was changed last, or said to be; nanoseconds since 1970.
    pub mtime: i64,
    /// What it should be.
    pub expected: Digest,
    /// What it was when it was read last.
    pub actual: Digest,
    /// The run that found it.
    pub discovered: RunId,
    /// The run that found it good.
    pub last_read: RunId,
    /// When it was found.
    pub created: Timestamp,
    /// What is known about it.
    pub state: WarningState,
}

/// How many files are damaged as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// All of them.
    pub all: u64,
    /// Those of which nobody has taken note.
    pub open: u64,
}

/// A file that a run could not verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub path: RelativePath,
    /// `unreadable` or `skipped`.
    pub outcome: String,
    /// What the system said.
    pub why: String,
}

/// What a file should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// What it is found by.
    pub key: Key,
    /// Where it is.
    pub path: RelativePath,
    /// The last good checksum; none if it was not read since it was changed last, or never.
    pub digest: Option<Digest>,
}

const WARNING: &str =
    "path, size, mtime, algorithm, expected, actual, discovered, last_read, created, state";
const DAMAGE: &str = "state IN ('open', 'acknowledged')";

impl View {
    /// Warnings about files that are damaged as far as is known, or all there were, by path.
    pub async fn warnings(&self, all: bool, limit: u32) -> Result<Vec<WarningRow>, Error> {
        let only = if all { "1 = 1" } else { DAMAGE };
        let select = format!(
            "SELECT {WARNING} FROM orrery_warnings WHERE fs = ? AND {only} ORDER BY path, id LIMIT ?"
        );
        let mut link = self.links.lend().await?;
        let values = values![self.fs, i64::from(limit)];
        let warnings = link.fetch_as(&select, &values, warning).await?;
        link.give_back();
        Ok(warnings)
    }

    /// How many files are damaged as far as is known.
    pub async fn damage(&self) -> Result<Damage, Error> {
        let select = format!(
            "SELECT COUNT(*), COUNT(CASE WHEN state = 'open' THEN 1 END) FROM orrery_warnings WHERE fs = ? AND {DAMAGE}"
        );
        let mut link = self.links.lend().await?;
        let row = link.fetch_one(&select, &values![self.fs]).await?;
        link.give_back();
        row.map_or(Ok(Damage::default()), |mut row| {
            Ok(Damage {
                all: row.int()?.cast_unsigned(),
                open: row.int()?.cast_unsigned(),
            })
        })
    }

    /// How many of these nobody has taken note of.
    pub async fn open_warnings(&self) -> Result<u64, Error> {
        Ok(self.damage().await?.open)
    }

    /// When the run began that read the file which was not read for longest; none when no file was ever read.
    ///
    /// A run that read every file is the answer. After others every row is looked at, as the run itself did.
    pub async fn oldest_verification(&self, run: &Run) -> Result<Option<Timestamp>, Error> {
        let Counts {
            selected,
            total,
            verified,
            new,
            changed,
            ..
        } = run.counts;
        if total > 0 && selected == total && verified + new + changed == total {
            return Ok(Some(run.began));
        }
        let select = "SELECT began FROM orrery_runs WHERE fs = ? AND id =
                      (SELECT MIN(read_run) FROM orrery_files WHERE fs = ? AND read_run > 0)";
        let mut link = self.links.lend().await?;
        let row = link.fetch_one(select, &values![self.fs, self.fs]).await?;
        link.give_back();
        row.map(|mut row| time(row.int()?)).transpose()
    }

    /// The first files that a run could not verify, by path.
    pub async fn problems(&self, run: RunId, limit: u32) -> Result<Vec<Problem>, Error> {
        let select = "SELECT path, outcome, why FROM orrery_problems WHERE fs = ? AND run = ? ORDER BY path LIMIT ?";
        let mut link = self.links.lend().await?;
        let values = values![self.fs, run, i64::from(limit)];
        let of = |mut row| problem(&mut row);
        let problems = link.fetch_as(select, &values, of).await?;
        link.give_back();
        Ok(problems)
    }

    /// The next files after `after` that a run could not verify, in the order of their keys.
    pub async fn problems_after(
        &self,
        run: RunId,
        after: Option<Key>,
        limit: u32,
    ) -> Result<Vec<(Key, Problem)>, Error> {
        let select = "SELECT hash, path, outcome, why FROM orrery_problems
             WHERE fs = ? AND run = ? AND hash > ? ORDER BY hash LIMIT ?";
        let after = after.map_or_else(Vec::new, |key| key.as_bytes().to_vec());
        let mut link = self.links.lend().await?;
        let values = values![self.fs, run, after.as_slice(), i64::from(limit)];
        let of = |mut row: Row| Ok((row.key()?, problem(&mut row)?));
        let problems = link.fetch_as(select, &values, of).await?;
        link.give_back();
        Ok(problems)
    }

    /// The next files after `after`, in the order of their keys.
    pub async fn checksums(&self, after: Option<Key>, limit: u32) -> Result<Vec<Checksum>, Error> {
        let select =
            "SELECT hash, path, changed_run <= read_run, algorithm, checksum FROM orrery_files
             WHERE fs = ? AND hash > ? ORDER BY hash LIMIT ?";
        let after = after.map_or_else(Vec::new, |key| key.as_bytes().to_vec());
        let mut link = self.links.lend().await?;
        let values = values![self.fs, after.as_slice(), i64::from(limit)];
        let checksum = |mut row: Row| {
            let (key, path) = (row.key()?, RelativePath::new(row.bytes()?));
            let is_right = row.int()? != 0;
            let digest = digest_of(&mut row)?.filter(|_| is_right);
            Ok(Checksum { key, path, digest })
        };
        let checksums = link.fetch_as(select, &values, checksum).await?;
        link.give_back();
        Ok(checksums)
    }
}

impl Store {
    /// Takes note of the damage of a file; says whether there is any.
    pub async fn acknowledge(&self, path: &RelativePath) -> Result<bool, Error> {
        let mut link = self.begin().await?;
        let noted = close(&mut link, self.view.fs, path, WarningState::Acknowledged).await?;
        link.commit().await?;
        link.give_back();
        Ok(noted.is_some())
    }

    /// Takes the content of a damaged file, as it was read last, for right; says whether there is such a file.
    pub async fn accept(&self, path: &RelativePath) -> Result<bool, Error> {
        let mut link = self.begin().await?;
        let fs = self.view.fs;
        let accepted = close(&mut link, fs, path, WarningState::Accepted).await?;
        if let Some(warning) = &accepted {
            let update =
                "UPDATE orrery_files SET algorithm = ?, checksum = ? WHERE fs = ? AND hash = ?";
            let (id, actual) = (warning.actual.algorithm.id(), warning.actual.as_bytes());
            let key = path.key();
            link.execute(update, &values![id, actual, fs, key.as_bytes()])
                .await?;
        }
        link.commit().await?;
        link.give_back();
        Ok(accepted.is_some())
    }
}

async fn close(
    link: &mut Link,
    fs: i64,
    path: &RelativePath,
    state: WarningState,
) -> Result<Option<WarningRow>, Error> {
    let key = path.key();
    let select =
        format!("SELECT {WARNING} FROM orrery_warnings WHERE fs = ? AND hash = ? AND {DAMAGE}");
    let found = link
        .fetch_one(&select, &values![fs, key.as_bytes()])
        .await?;
    let update =
        format!("UPDATE orrery_warnings SET state = ? WHERE fs = ? AND hash = ? AND {DAMAGE}");
    link.execute(&update, &values![state.name(), fs, key.as_bytes()])
        .await?;
    found.map(warning).transpose()
}

fn problem(row: &mut Row) -> Result<Problem, Error> {
    Ok(Problem {
        path: RelativePath::new(row.bytes()?),
        outcome: row.text()?,
        why: row.text()?,
    })
}

/// In the order of [`WARNING`].
fn warning(mut row: Row) -> Result<WarningRow, Error> {
    let path = RelativePath::new(row.bytes()?);
    let (size, mtime) = (row.int()?.cast_unsigned(), row.int()?);
    let algorithm = algorithm(row.int()?)?;
    let expected = Digest::new(algorithm, &row.bytes()?);
    let actual = Digest::new(algorithm, &row.bytes()?);
    let (discovered, last_read, created) = (row.int()?, row.int()?, row.int()?);
    let state = row.text()?;
    let known = WarningState::ALL.into_iter().find(|it| it.name() == state);
    Ok(WarningRow {
        path,
        size,
        mtime,
        expected,
        actual,
        discovered,
        last_read,
        created: time(created)?,
        state: known.ok_or_else(|| Error::Damaged(format!("a warning that is {state:?}")))?,
    })
}
