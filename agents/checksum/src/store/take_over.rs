//! Takes over what lsdf-checksum has kept. In: its tables. Out: the same checksums, runs and warnings in a store of ours.
//! Touches: reads its database, writes the store.

mod theirs;

use std::path::Path;

use jiff::Timestamp;

use super::dialect::list;
use super::link::{Link, Value, values};
use super::{Error, Location, Mysql, Store, Trouble};
use crate::algorithm::Algorithm;
use crate::entry::UNKNOWN;
use crate::judge::RunId;
use crate::path::Key;
use theirs::{File, TheirRun, Warned, file, runs, warned};

/// Rows that are brought over at once.
const PAGE: i64 = 4000;
/// What was taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Files.
    pub files: u64,
    /// Runs.
    pub runs: u64,
    /// Warnings.
    pub warnings: u64,
}

/// What is to be taken over.
#[derive(Clone, Copy, Debug)]
pub struct Theirs<'a> {
    /// Where it is.
    pub server: &'a Mysql,
    /// What the names of its tables begin with.
    pub prefix: &'a str,
    /// The folder of their file system that is read from now on; empty if it is all of it.
    pub folder: &'a Path,
}

/// Takes over all of it. The store must not know of the file system yet.
pub async fn take_over(store: &Store, from: Theirs<'_>) -> Result<Taken, Error> {
    let prefix = from.prefix;
    if !prefix
        .chars()
        .all(|it| it.is_ascii_alphanumeric() || it == '_')
    {
        return Err(Error::Place(format!("{prefix:?} is no prefix of tables")));
    }
    if store.view().last_run().await?.is_some() {
        return Err(Error::Place(
            "the store knows of runs of this file system already: take over into another --file-system".into(),
        ));
    }
    let location = Location::Mysql {
        server: from.server.clone(),
        file_system: String::new(),
    };
    let mut link = Link::connect(&location.place()).await?;
    let runs = runs(&mut link, prefix).await?;
    // Until all is there no run may begin: it would compare with a part, by numbers of runs that come later.
    store.set_half_taken(true).await?;
    clear(store).await?;
    match take_all(store, &mut link, from, runs).await {
        Err(error) if error.trouble() == Trouble::Refused => {
            store.give_up_taking().await?;
            Err(error)
        }
        taken => taken,
    }
}

async fn take_all(
    store: &Store,
    link: &mut Link,
    from: Theirs<'_>,
    mut runs: Vec<TheirRun>,
) -> Result<Taken, Error> {
    let mut taken = Taken {
        runs: runs.len() as u64,
        ..Taken::default()
    };
    let mut last = runs.last().map_or(0, |run| run.id);
    taken.files = files(store, link, from, &mut last).await?;
    taken.warnings = warnings(store, link, from, &mut last).await?;
    if runs.last().map_or(0, |run| run.id) < last {
        runs.push(TheirRun::without_a_row(last));
    }
    store.take_runs(&runs).await?;
    Ok(taken)
}

/// What an earlier attempt has brought. In parts: it may be as much as there is.
async fn clear(store: &Store) -> Result<(), Error> {
    for part in 0..=u8::MAX {
        let (first, last) = Key::range_of(part, 0, 1);
        let of = values![store.view.fs, first.as_bytes(), last.as_bytes()];
        let mut link = store.begin().await?;
        for table in ["orrery_files", "orrery_warnings"] {
            let delete = format!("DELETE FROM {table} WHERE fs = ? AND hash >= ? AND hash <= ?");
            link.execute(&delete, &of).await?;
        }
        link.commit().await?;
        link.give_back();
    }
    Ok(())
}

async fn files(
    store: &Store,
    link: &mut Link,
    from: Theirs<'_>,
    last: &mut RunId,
) -> Result<u64, Error> {
    let prefix = from.prefix;
    let select = format!(
        "SELECT id, path, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', modification_time), file_size, last_seen, last_read,
         to_be_read, to_be_compared, checksum FROM {prefix}files WHERE id > ? ORDER BY id LIMIT ?"
    );
    let (mut after, mut taken) = (0, 0);
    loop {
        let rows = link.fetch(&select, &values![after, PAGE]).await?;
        let mut page = Vec::with_capacity(rows.len());
        for mut row in rows {
            after = row.int()?;
            let file = file(&mut row, from)?;
            *last = (*last).max(file.last_seen).max(file.last_read);
            page.push(file);
        }
        if page.is_empty() {
            return Ok(taken);
        }
        taken += page.len() as u64;
        store.take_files(&page).await?;
    }
}

/// The newest first: where damage was damaged again, each leads back to the one before, and the first to what was written.
async fn warnings(
    store: &Store,
    link: &mut Link,
    from: Theirs<'_>,
    last: &mut RunId,
) -> Result<u64, Error> {
    let prefix = from.prefix;
    let select = format!(
        "SELECT id, path, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', modification_time), file_size, expected_checksum,
         actual_checksum, discovered, last_read, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', created)
         FROM {prefix}checksum_warnings WHERE id < ? ORDER BY id DESC LIMIT ?"
    );
    let (mut before, mut taken) = (i64::MAX, 0);
    loop {
        let rows = link.fetch(&select, &values![before, PAGE]).await?;
        if rows.is_empty() {
            return Ok(taken);
        }
        for mut row in rows {
            before = row.int()?;
            let warning = warned(&mut row, from)?;
            *last = (*last).max(warning.discovered).max(warning.last_read);
            store.take_warning(&warning).await?;
            taken += 1;
        }
    }
}

impl Store {
    /// Gives up a take-over that has not ended, and what it has brought; whether there was one.
    pub async fn give_up_taking(&self) -> Result<bool, Error> {
        let mut link = self.begin().await?;
        let is_half_taken = self.is_half_taken(&mut link).await?;
        link.commit().await?;
        link.give_back();
        if is_half_taken {
            clear(self).await?;
            self.set_half_taken(false).await?;
        }
        Ok(is_half_taken)
    }

    async fn set_half_taken(&self, is_half_taken: bool) -> Result<(), Error> {
        let mut link = self.begin().await?;
        self.note_half_taken(&mut link, is_half_taken).await?;
        link.commit().await?;
        link.give_back();
        Ok(())
    }

    async fn note_half_taken(&self, link: &mut Link, is_half_taken: bool) -> Result<(), Error> {
        let update = "UPDATE orrery_file_systems SET is_half_taken = ? WHERE id = ?";
        link.execute(update, &values![is_half_taken, self.view.fs])
            .await?;
        Ok(())
    }

    /// Whether a take-over was begun that has not ended.
    pub(super) async fn is_half_taken(&self, link: &mut Link) -> Result<bool, Error> {
        let select = "SELECT is_half_taken FROM orrery_file_systems WHERE id = ?";
        let row = link.fetch_one(select, &values![self.view.fs]).await?;
        row.map_or(Ok(false), |mut row| Ok(row.int()? != 0))
    }

    async fn take_files(&self, files: &[File]) -> Result<(), Error> {
        const COLUMNS: usize = 10;
        let mut link = self.begin().await?;
        for files in files.chunks(self.view.dialect.values() / COLUMNS) {
            let insert = format!(
                "INSERT INTO orrery_files
                 (fs, hash, path, size, mtime, ctime, changed_run, read_run, algorithm, checksum) VALUES {}",
                list("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", files.len())
            );
            let mut values = Vec::with_capacity(files.len() * COLUMNS);
            for file in files {
                let key = file.path.key();
                let algorithm = file.checksum.as_ref().map(|_| Algorithm::Sha1.id());
                let read_run = if file.checksum.is_some() {
                    file.last_read
                } else {
                    0
                };
                values.extend(values![
                    self.view.fs,
                    key.as_bytes(),
                    file.path.as_bytes(),
                    file.size,
                    file.mtime,
                    UNKNOWN,
                    file.changed_run(),
                    read_run,
                    algorithm,
                    file.checksum.as_deref()
                ]);
            }
            link.execute(&insert, &values).await?;
        }
        link.commit().await?;
        link.give_back();
        Ok(())
    }

    /// They keep the bad checksum of a damaged file; we keep the good one, and the damage as an open warning. A file that was
    /// written or read as something else since is no longer what the warning is about.
    async fn take_warning(&self, warning: &Warned) -> Result<(), Error> {
        let fs = self.view.fs;
        let key: Key = warning.path.key();
        let mut link = self.begin().await?;
        let expected = Value::from(warning.expected.as_slice());
        let restore = "UPDATE orrery_files SET checksum = ?, read_run = ?, changed_run = ?
                       WHERE fs = ? AND hash = ? AND checksum = ? AND changed_run <= read_run";
        let (read, actual) = (warning.last_read, warning.actual.as_slice());
        let values = [
            expected.clone(),
            read.into(),
            read.into(),
            fs.into(),
            Value::from(key.as_bytes()),
            Value::from(actual),
        ];
        let is_still = link.execute(restore, &values).await? > 0;
        // What a later one found is what the file holds now, and this one knows what it should hold.
        let later =
            "SELECT actual FROM orrery_warnings WHERE fs = ? AND hash = ? AND state = 'open'";
        let of = values![fs, key.as_bytes()];
        let later = link.fetch_one(later, &of).await?.filter(|_| is_still);
        let later = later.map(|mut row| row.bytes()).transpose()?;
        if later.is_some() {
            let close = "UPDATE orrery_warnings SET state = 'replaced' WHERE fs = ? AND hash = ? AND state = 'open'";
            link.execute(close, &of).await?;
        }
        let actual = later.as_deref().unwrap_or(actual);
        let state = match is_still {
            // Theirs warn of that, too.
            true if actual == warning.expected => "restored",
            true => "open",
            false => "replaced",
        };
        let insert = "INSERT INTO orrery_warnings
            (fs, hash, path, size, mtime, algorithm, expected, actual, discovered, last_read, created, state)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let values = values![
            fs,
            key.as_bytes(),
            warning.path.as_bytes(),
            warning.size,
            warning.mtime,
            Algorithm::Sha1.id(),
            warning.expected.as_slice(),
            actual,
            warning.discovered,
            read,
            warning.created,
            state
        ];
        link.execute(insert, &values).await?;
        link.commit().await?;
        link.give_back();
        Ok(())
    }

    async fn take_runs(&self, runs: &[TheirRun]) -> Result<(), Error> {
        let mut link = self.begin().await?;
        for run in runs {
            let insert = "INSERT INTO orrery_runs
                (fs, id, snapshot, mode, algorithm, state, began, ended, result, message, complete)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'TakenOver', ?, 1)";
            let began = Timestamp::from_millisecond(run.began).map_or(0, Timestamp::as_millisecond);
            let values = values![
                self.view.fs,
                run.id,
                run.snapshot.as_deref(),
                run.mode.as_str(),
                Algorithm::Sha1.id(),
                run.state.name(),
                began,
                began,
                "taken over from lsdf-checksum, which does not keep what a run found"
            ];
            link.execute(insert, &values).await?;
        }
        self.note_half_taken(&mut link, false).await?;
        link.commit().await?;
        link.give_back();
        Ok(())
    }
}
