//! What was read is stored: in one transaction with the counts, so that they always add up.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;

use super::batch::{Batch, FileResult, KnownFile, Opened, Unverified};
use super::dialect::{Dialect, list};
use super::link::{Link, Value, values};
use super::{Counts, Error, Run, Store, Trouble, attributes_of, digest_of, key_of, runs};
use crate::algorithm::Digest;
use crate::judge::{Known, RunId};
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
        let mut attempt = 1;
        loop {
            match self.try_write_back(run, results, now).await {
                Err(error) if error.trouble() == Trouble::Clash && attempt < ATTEMPTS => {
                    sleep(PAUSE * attempt).await;
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    async fn try_write_back(
        &self,
        run: &Run,
        results: &[FileResult],
        now: Timestamp,
    ) -> Result<Run, Error> {
        let mut link = self.begin().await?;
        let mut scope = Scope {
            link: &mut link,
            fs: self.view.fs,
            run: run.id,
        };
        let mut files = scope.undone(results).await?;
        let mut batch = Batch::default();
        for (key, reading) in results {
            if let Some(file) = files.remove(key) {
                batch.add(*key, file, reading, run.what.algorithm);
            }
        }
        let stored = scope.write(batch, now).await?;
        link.commit().await?;
        link.give_back();
        Ok(stored)
    }
}

impl Scope<'_> {
    /// What is known of these files, without those that this run has done. In the order of their keys, so that two
    /// transactions never wait for each other.
    async fn undone(&mut self, results: &[FileResult]) -> Result<HashMap<Key, KnownFile>, Error> {
        let dialect = Dialect::spoken_by(self.link);
        let mut keys: Vec<Key> = results.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut found = HashMap::with_capacity(keys.len());
        for keys in keys.chunks(dialect.named_rows()) {
            let select = format!(
                "SELECT hash, path, size, mtime, ctime, changed_run, read_run, algorithm, checksum FROM orrery_files{} \
                 WHERE fs = ? AND done_run < ? AND hash IN ({}) ORDER BY hash{}",
                dialect.by_key(),
                list("?", keys.len()),
                dialect.for_update()
            );
            let mut wanted = values![self.fs, self.run].to_vec();
            wanted.extend(keys.iter().map(|key| Value::from(key.as_bytes())));
            for mut row in self.link.fetch(&select, &wanted).await? {
                let key = key_of(&mut row)?;
                let path = row.bytes()?;
                let attributes = attributes_of(&mut row)?;
                let known = Known {
                    changed_run: row.int()?,
                    read_run: row.int()?,
                    checksum: digest_of(&mut row)?,
                };
                found.insert(
                    key,
                    KnownFile {
                        path,
                        attributes,
                        known,
                    },
                );
            }
        }
        Ok(found)
    }

    async fn write(&mut self, batch: Batch, now: Timestamp) -> Result<Run, Error> {
        let Batch {
            good,
            bad,
            problems,
            opened,
            closed,
            counts,
        } = batch;
        self.good(good).await?;
        self.done(&bad).await?;
        for problem in &problems {
            self.problem(problem).await?;
        }
        self.close(&closed).await?;
        for warning in &opened {
            self.open(warning, now).await?;
        }
        self.count(&counts).await
    }

    async fn good(&mut self, mut files: Vec<(Key, Digest)>) -> Result<(), Error> {
        let dialect = Dialect::spoken_by(self.link);
        files.sort_unstable_by_key(|(key, _)| *key);
        for files in files.chunks(dialect.named_rows()) {
            let mut rows = Vec::with_capacity(files.len() * 3 + 3);
            for (key, digest) in files {
                rows.extend(values![
                    key.as_bytes(),
                    digest.algorithm.id(),
                    digest.as_bytes()
                ]);
            }
            let update = dialect.update_checksums(files.len());
            let values = match dialect {
                Dialect::Sqlite => [&values![self.run, self.run][..], &rows, &values![self.fs]],
                Dialect::Mysql => [&rows[..], &values![self.fs], &values![self.run, self.run]],
            };
            self.link.execute(&update, &values.concat()).await?;
        }
        Ok(())
    }

    /// Neither a new checksum nor another attempt in this run.
    async fn done(&mut self, keys: &[Key]) -> Result<(), Error> {
        let dialect = Dialect::spoken_by(self.link);
        for keys in keys.chunks(dialect.named_rows()) {
            let update = format!(
                "UPDATE orrery_files{} SET done_run = ? WHERE fs = ? AND hash IN ({})",
                dialect.by_key(),
                list("?", keys.len())
            );
            let mut values = values![self.run, self.fs].to_vec();
            values.extend(keys.iter().map(|key| Value::from(key.as_bytes())));
            self.link.execute(&update, &values).await?;
        }
        Ok(())
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
                open.insert(key_of(&mut row)?);
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
