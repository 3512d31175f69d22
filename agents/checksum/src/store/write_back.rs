//! What was read is stored: in one transaction with the counts, so that they always add up.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;

use super::batch::{Batch, FileResult, Opened, Unverified};
use super::dialect::{Dialect, list};
use super::link::{Link, Value, values};
use super::{Counts, Error, Pending, Run, Store, Trouble, runs};
use crate::algorithm::Digest;
use crate::judge::{Reading, RunId};
use crate::path::Key;

/// How often a transaction that met another is tried again, each time after a longer pause.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// Which run of which file system a transaction is about, and where it speaks.
struct Scope<'a> {
    link: &'a mut Link,
    fs: i64,
    run: RunId,
}

impl Store {
    /// Stores what was read, and returns the run as it is then. What was stored already, and files that nobody knows, are
    /// left out: the same reading may come twice.
    pub async fn write_back(
        &self,
        run: &Run,
        results: &[FileResult],
        now: Timestamp,
    ) -> Result<Run, Error> {
        again(|| self.try_write_back(run, results, now)).await
    }

    /// The same for files as this store told of them, which need not be looked up again.
    pub async fn write_back_pending(
        &self,
        run: &Run,
        results: &[(Pending, Reading)],
        now: Timestamp,
    ) -> Result<Run, Error> {
        let stored = again(|| self.try_write_back_pending(run, results, now)).await?;
        if let Some(stored) = stored {
            return Ok(stored);
        }
        // Something was told twice, or is gone.
        let result = |(file, reading): &(Pending, Reading)| (file.key, reading.clone());
        let results: Vec<FileResult> = results.iter().map(result).collect();
        self.write_back(run, &results, now).await
    }

    async fn try_write_back(
        &self,
        run: &Run,
        results: &[FileResult],
        now: Timestamp,
    ) -> Result<Run, Error> {
        let mut link = self.begin().await?;
        let mut scope = self.scope(&mut link, run);
        let mut files = scope.undone(results).await?;
        let mut batch = Batch::default();
        for (key, reading) in results {
            if let Some(file) = files.remove(key) {
                batch.add(&file, reading, run.what.algorithm);
            }
        }
        let stored = scope.write(batch, now).await?;
        let stored = stored.ok_or(Error::Fenced)?;
        link.commit().await?;
        link.give_back();
        Ok(stored)
    }

    /// None if the run has done one of these files already, or one is there twice.
    async fn try_write_back_pending(
        &self,
        run: &Run,
        results: &[(Pending, Reading)],
        now: Timestamp,
    ) -> Result<Option<Run>, Error> {
        let mut batch = Batch::default();
        for (file, reading) in results {
            batch.add(file, reading, run.what.algorithm);
        }
        let mut link = self.begin().await?;
        let stored = self.scope(&mut link, run).write(batch, now).await?;
        if stored.is_some() {
            link.commit().await?;
            link.give_back();
        }
        Ok(stored)
    }

    fn scope<'a>(&self, link: &'a mut Link, run: &Run) -> Scope<'a> {
        Scope {
            link,
            fs: self.view.fs,
            run: run.id,
        }
    }
}

/// Tries a transaction until it meets no other, but not for ever.
pub(super) async fn again<T, F>(transaction: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut attempt = 1;
    loop {
        match transaction().await {
            Err(error) if error.trouble() == Trouble::Clash && attempt < ATTEMPTS => {
                sleep(PAUSE * attempt).await;
                attempt += 1;
            }
            done => return done,
        }
    }
}

impl Scope<'_> {
    /// What is known of these files, without those that this run has done. In the order of their keys, so that two
    /// transactions never wait for each other.
    async fn undone(&mut self, results: &[FileResult]) -> Result<HashMap<Key, Pending>, Error> {
        let dialect = Dialect::spoken_by(self.link);
        let mut keys: Vec<Key> = results.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut found = HashMap::with_capacity(keys.len());
        for keys in keys.chunks(dialect.named_rows()) {
            let select = format!(
                "SELECT {} FROM orrery_files{} WHERE fs = ? AND done_run < ? AND hash IN ({}) ORDER BY hash{}",
                Pending::COLUMNS,
                dialect.by_key(),
                list("?", keys.len()),
                dialect.for_update()
            );
            let mut wanted = values![self.fs, self.run].to_vec();
            wanted.extend(keys.iter().map(|key| Value::from(key.as_bytes())));
            for mut row in self.link.fetch(&select, &wanted).await? {
                let file = Pending::of(&mut row)?;
                found.insert(file.key, file);
            }
        }
        Ok(found)
    }

    /// The run as it is then; none if not all of these files wait for it, and then nothing of it may be kept.
    async fn write(&mut self, batch: Batch, now: Timestamp) -> Result<Option<Run>, Error> {
        let Batch {
            good,
            bad,
            problems,
            opened,
            closed,
            counts,
        } = batch;
        let files = good.len() + bad.len();
        let written = self.good(good).await? + self.done(&bad).await?;
        if u64::try_from(files) != Ok(written) {
            return Ok(None);
        }
        for problem in &problems {
            self.problem(problem).await?;
        }
        self.close(&closed).await?;
        for warning in &opened {
            self.open(warning, now).await?;
        }
        Ok(Some(self.count(&counts).await?))
    }

    /// How many of these files the run had not done.
    async fn good(&mut self, mut files: Vec<(Key, Digest)>) -> Result<u64, Error> {
        let dialect = Dialect::spoken_by(self.link);
        files.sort_unstable_by_key(|(key, _)| *key);
        let mut written = 0;
        for files in files.chunks(dialect.named_rows()) {
            let mut values = Vec::with_capacity(files.len() * 4 + 4);
            if dialect == Dialect::Sqlite {
                values.extend(values![self.run, self.run]);
            }
            for (key, digest) in files {
                if dialect == Dialect::Sqlite {
                    values.push(self.fs.into());
                }
                let algorithm = digest.algorithm.id();
                values.extend(values![key.as_bytes(), algorithm, digest.as_bytes()]);
            }
            match dialect {
                Dialect::Sqlite => values.push(self.run.into()),
                Dialect::Mysql => values.extend(values![self.fs, self.run, self.run, self.run]),
            }
            let update = dialect.update_checksums(files.len());
            let is_usual = files.len() == dialect.named_rows();
            written += self.link.execute_many(&update, values, is_usual).await?;
        }
        Ok(written)
    }

    /// Neither a new checksum nor another attempt in this run; whatever the next one reads, it reads these. How many of these
    /// files it had not done.
    async fn done(&mut self, keys: &[Key]) -> Result<u64, Error> {
        let dialect = Dialect::spoken_by(self.link);
        let mut written = 0;
        for keys in keys.chunks(dialect.named_rows()) {
            let update = format!(
                "UPDATE orrery_files{} SET done_run = ?, suspect_run = ? WHERE fs = ? AND done_run < ? AND hash IN ({})",
                dialect.by_key(),
                list("?", keys.len())
            );
            let mut values = values![self.run, self.run, self.fs, self.run].to_vec();
            values.extend(keys.iter().map(|key| Value::from(key.as_bytes())));
            written += self.link.execute(&update, &values).await?;
        }
        Ok(written)
    }

    async fn problem(&mut self, problem: &Unverified) -> Result<(), Error> {
        let Unverified {
            key,
            path,
            outcome,
            why,
        } = problem;
        let insert = "INSERT INTO orrery_problems (fs, run, hash, path, outcome, why) VALUES (?, ?, ?, ?, ?, ?)";
        let values = values![
            self.fs,
            self.run,
            key.as_bytes(),
            path.as_slice(),
            *outcome,
            why.as_str()
        ];
        self.link.execute(insert, &values).await?;
        Ok(())
    }

    /// Most files have no warning, so it is asked first whether any has.
    async fn close(&mut self, closed: &[(Key, &'static str)]) -> Result<(), Error> {
        let any = "SELECT id FROM orrery_warnings WHERE fs = ? AND state IN ('open', 'acknowledged') LIMIT 1";
        if closed.is_empty() || self.link.fetch_one(any, &values![self.fs]).await?.is_none() {
            return Ok(());
        }
        let open = self.open_warnings(closed).await?;
        for (key, state) in closed.iter().filter(|(key, _)| open.contains(key)) {
            let update = "UPDATE orrery_warnings SET state = ?, closed_run = ?
                          WHERE fs = ? AND hash = ? AND state IN ('open', 'acknowledged')";
            let values = values![*state, self.run, self.fs, key.as_bytes()];
            self.link.execute(update, &values).await?;
        }
        Ok(())
    }

    async fn open_warnings(&mut self, of: &[(Key, &str)]) -> Result<HashSet<Key>, Error> {
        let most = Dialect::spoken_by(self.link).named_rows();
        let mut open = HashSet::new();
        for files in of.chunks(most) {
            let select = format!(
                "SELECT hash FROM orrery_warnings WHERE fs = ? AND state IN ('open', 'acknowledged') AND hash IN ({})",
                list("?", files.len())
            );
            let mut values = values![self.fs].to_vec();
            values.extend(files.iter().map(|(key, _)| Value::from(key.as_bytes())));
            for mut row in self.link.fetch(&select, &values).await? {
                open.insert(row.key()?);
            }
        }
        Ok(open)
    }

    /// The same file damaged again, or still, is the same warning; what it is now is kept. Who took note of it took note of
    /// that damage, and not of another.
    async fn open(&mut self, warning: &Opened, now: Timestamp) -> Result<(), Error> {
        let actual = warning.actual.as_bytes();
        let key = warning.key.as_bytes();
        let select = "SELECT id FROM orrery_warnings WHERE fs = ? AND hash = ? AND state IN ('open', 'acknowledged')";
        if let Some(mut row) = self.link.fetch_one(select, &values![self.fs, key]).await? {
            let update = "UPDATE orrery_warnings
                SET state = CASE WHEN actual = ? THEN state ELSE 'open' END, actual = ?, expected = ?, algorithm = ?
                WHERE id = ?";
            let values = values![
                actual,
                actual,
                warning.expected.as_bytes(),
                warning.expected.algorithm.id(),
                row.int()?
            ];
            self.link.execute(update, &values).await?;
            return Ok(());
        }
        let insert = "INSERT INTO orrery_warnings
            (fs, hash, path, size, mtime, algorithm, expected, actual, discovered, last_read, created, state)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'open')";
        let values = values![
            self.fs,
            key,
            warning.path.as_slice(),
            warning.attributes.size,
            warning.attributes.mtime,
            warning.expected.algorithm.id(),
            warning.expected.as_bytes(),
            actual,
            self.run,
            warning.last_read,
            now.as_millisecond()
        ];
        self.link.execute(insert, &values).await?;
        Ok(())
    }

    async fn count(&mut self, more: &Counts) -> Result<Run, Error> {
        let update = "UPDATE orrery_runs SET verified = verified + ?, new = new + ?, changed = changed + ?,
            corrupt = corrupt + ?, unreadable = unreadable + ?, skipped = skipped + ?, bytes_read = bytes_read + ?
            WHERE fs = ? AND id = ?";
        let values = values![
            more.verified,
            more.new,
            more.changed,
            more.corrupt,
            more.unreadable,
            more.skipped,
            more.bytes_read,
            self.fs,
            self.run
        ];
        self.link.execute(update, &values).await?;
        runs::load(self.link, self.fs, self.run).await
    }
}
