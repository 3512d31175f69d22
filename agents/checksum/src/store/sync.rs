//! Rows as listings change them, and rows that are to be read.

use std::collections::HashMap;

use super::dialect::list;
use super::link::{Row as Columns, Value, values};
use super::{Error, Run, Store, View, attributes_of, digest_of, runs};
use crate::algorithm::Algorithm;
use crate::entry::Attributes;
use crate::judge::{Known, RunId};
use crate::merge::{Mode, Row, Tally};
use crate::path::{Key, RelativePath};
use crate::read::Task;

/// About so many files are looked at by one statement.
const STRETCH: i64 = 1_000_000;

/// A file that is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// What it is found by.
    pub key: Key,
    /// What to read.
    pub task: Task,
    /// What its reading is judged by.
    pub known: Known,
}

impl Pending {
    /// What a select asks for, to know all of this and whether it is to be read.
    pub(super) const COLUMNS: &str = "hash, size, mtime, ctime, changed_run, suspect_run, read_run, read_mtime, path, algorithm, checksum";

    pub(super) fn of(columns: &mut Columns) -> Result<Self, Error> {
        let row = row_of(columns)?;
        Self::with(&row, columns)
    }

    fn with(row: &Row, rest: &mut Columns) -> Result<Self, Error> {
        Ok(Self {
            key: row.key,
            task: Task {
                path: RelativePath::new(rest.bytes()?),
                attributes: Some(row.attributes),
            },
            known: Known {
                changed_run: row.changed_run,
                read_run: row.read_run,
                checksum: digest_of(rest)?,
            },
        })
    }

    /// What its checksum on record was computed with, if there is one.
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.known.checksum.as_ref().map(|it| it.algorithm)
    }

    /// What it was when it was listed.
    pub fn attributes(&self) -> Attributes {
        self.task.attributes.unwrap_or_default()
    }
}

/// What the comparison of one part came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Files that are there.
    pub listed: Tally,
    /// Files that were not listed.
    pub unseen: Tally,
    /// Files that the store did not know before this run.
    pub new: u64,
}

impl Part {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            listed: self.listed.plus(other.listed),
            unseen: self.unseen.plus(other.unseen),
            new: self.new + other.new,
        }
    }
}

/// What a listing found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// What there is to read.
    pub tally: Tally,
    /// Whether all that is there could be listed.
    pub complete: bool,
    /// How much could not.
    pub unlisted: u64,
    /// One of it, in words.
    pub example: Option<String>,
}

impl Store {
    /// Forgets files that are gone.
    pub async fn forget(&self, run: RunId, keys: &[Key], rows: usize) -> Result<(), Error> {
        let mut link = self.begin().await?;
        let dialect = self.view.dialect;
        for keys in keys.chunks(rows.clamp(1, dialect.named_rows())) {
            let delete = format!(
                "DELETE FROM orrery_files WHERE fs = ? AND hash IN ({})",
                list("?", keys.len())
            );
            let mut values = values![self.view.fs].to_vec();
            values.extend(keys.iter().map(|key| Value::from(key.as_bytes())));
            let gone = link.execute(&delete, &values).await?;
            let update = "UPDATE orrery_runs SET deleted = deleted + ? WHERE fs = ? AND id = ?";
            link.execute(update, &values![gone, self.view.fs, run])
                .await?;
            let close = format!(
                "UPDATE orrery_warnings SET state = 'gone', closed_run = ?
                 WHERE state IN ('open', 'acknowledged') AND fs = ? AND hash IN ({})",
                list("?", keys.len())
            );
            values.insert(0, run.into());
            link.execute(&close, &values).await?;
        }
        link.commit().await?;
        link.give_back();
        Ok(())
    }

    /// Begins to compare a listing. Parts that an earlier attempt has done stay done only of a snapshot, and if both listings
    /// are complete: everything else is compared anew. Whether this one is complete is known to whoever goes on.
    pub async fn begin_to_compare(&self, run: &mut Run, complete: bool) -> Result<(), Error> {
        let stays = run.what.snapshot.is_some() && run.complete && complete;
        let mut link = self.begin().await?;
        if !stays {
            let delete = "DELETE FROM orrery_parts WHERE fs = ? AND run = ?";
            link.execute(delete, &values![self.view.fs, run.id]).await?;
        }
        let update = "UPDATE orrery_runs SET complete = ? WHERE fs = ? AND id = ?";
        link.execute(update, &values![complete, self.view.fs, run.id])
            .await?;
        link.commit().await?;
        link.give_back();
        run.complete = complete;
        Ok(())
    }

    /// Stores what a listing found, all parts together.
    pub async fn listed(&self, run: &mut Run, found: &Listed) -> Result<(), Error> {
        let mut link = self.begin().await?;
        let update = "UPDATE orrery_runs SET total = ?, selected = ?, selected_bytes = ?, complete = ?, unlisted = ?,
                      unlisted_example = ? WHERE fs = ? AND id = ?";
        let values = values![
            found.tally.total,
            found.tally.selected,
            found.tally.selected_bytes,
            found.complete,
            found.unlisted,
            found.example.as_deref(),
            self.view.fs,
            run.id
        ];
        link.execute(update, &values).await?;
        let stored = runs::load(&mut link, self.view.fs, run.id).await?;
        link.commit().await?;
        link.give_back();
        *run = stored;
        Ok(())
    }
}

impl View {
    /// The first rows of a range of keys, in their order, no more than so many.
    pub async fn rows(&self, keys: (Key, Key), most: usize) -> Result<Vec<Row>, Error> {
        let select =
            "SELECT hash, size, mtime, ctime, changed_run, suspect_run, read_run, read_mtime FROM orrery_files
             WHERE fs = ? AND hash BETWEEN ? AND ? ORDER BY hash LIMIT ?";
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let (first, last) = keys;
        let values = values![self.fs, first.as_bytes(), last.as_bytes(), most];
        let mut link = self.links.lend().await?;
        let rows = link.fetch_as(select, &values, |mut row| row_of(&mut row));
        let rows = rows.await?;
        link.give_back();
        Ok(rows)
    }

    /// Whether there are no more rows than so many.
    pub async fn is_at_most(&self, rows: u32) -> Result<bool, Error> {
        let select =
            "SELECT COUNT(*) FROM (SELECT 1 FROM orrery_files WHERE fs = ? LIMIT ?) AS few";
        let mut link = self.links.lend().await?;
        let most = i64::from(rows) + 1;
        let row = link.fetch_one(select, &values![self.fs, most]).await?;
        link.give_back();
        row.map_or(Ok(true), |mut row| Ok(row.int()? < most))
    }

    /// The file that a number stands for, and its size; none if there is no such file, or more than one.
    pub async fn file_of_id(&self, id: u64) -> Result<Option<(Key, u64)>, Error> {
        let select =
            "SELECT hash, size FROM orrery_files WHERE fs = ? AND hash >= ? AND hash <= ? LIMIT 2";
        let (mut first, mut last) = ([0; 16], [0xff; 16]);
        first[..8].copy_from_slice(&id.to_be_bytes());
        last[..8].copy_from_slice(&id.to_be_bytes());
        let mut link = self.links.lend().await?;
        let values = values![self.fs, &first[..], &last[..]];
        let mut rows = link.fetch(select, &values).await?;
        link.give_back();
        match (rows.pop(), rows.pop()) {
            (Some(mut row), None) => Ok(Some((row.key()?, row.int()?.cast_unsigned()))),
            _ => Ok(None),
        }
    }

    /// The parts of a run's listing that were compared already.
    pub async fn parts(&self, run: RunId) -> Result<HashMap<u8, Part>, Error> {
        let select = "SELECT part, total, selected, selected_bytes, unseen, unseen_selected, unseen_bytes, new
                      FROM orrery_parts WHERE fs = ? AND run = ?";
        let mut link = self.links.lend().await?;
        let rows = link.fetch(select, &values![self.fs, run]).await?;
        link.give_back();
        let mut parts = HashMap::new();
        for mut row in rows {
            let part = u8::try_from(row.int()?).map_err(|_| Error::Damaged("a part".into()))?;
            let done = Part {
                listed: tally(&mut row)?,
                unseen: tally(&mut row)?,
                new: row.int()?.cast_unsigned(),
            };
            parts.insert(part, done);
        }
        Ok(parts)
    }

    /// Of these files those that the run has still to read.
    pub async fn pending_of(&self, run: &Run, keys: &[Key]) -> Result<Vec<Pending>, Error> {
        let mut pending = Vec::with_capacity(keys.len());
        let mut link = self.links.lend().await?;
        for keys in keys.chunks(self.dialect.named_rows()) {
            let select = format!(
                "SELECT {} FROM orrery_files{} WHERE fs = ? AND done_run < ? AND hash IN ({})",
                Pending::COLUMNS,
                self.dialect.by_key(),
                list("?", keys.len())
            );
            let mut values = values![self.fs, run.id].to_vec();
            values.extend(keys.iter().map(|key| Value::from(key.as_bytes())));
            let some = link.fetch_as(&select, &values, |mut row| Pending::of(&mut row));
            pending.extend(some.await?);
        }
        link.give_back();
        Ok(pending)
    }

    /// Some of the next files after `after` that the run has still to read, perhaps none, and where to go on; none at the end.
    pub async fn pending(
        &self,
        run: &Run,
        after: Option<Key>,
        limit: usize,
    ) -> Result<(Vec<Pending>, Option<Key>), Error> {
        // What else a mode reads is not for the database to say.
        let only = match run.what.mode {
            Mode::Incremental => "AND (changed_run > read_run OR suspect_run > read_run)",
            Mode::Full | Mode::Sample(_) => "",
        };
        let select = format!(
            "SELECT {} FROM orrery_files WHERE fs = ? AND hash > ? AND hash <= ? AND done_run < ? {only} \
             ORDER BY hash LIMIT ?",
            Pending::COLUMNS
        );
        let end = stretch(after, run.counts.total);
        let after = after.map_or_else(Vec::new, |key| key.as_bytes().to_vec());
        let values = values![
            self.fs,
            after.as_slice(),
            end.as_bytes(),
            run.id,
            i64::try_from(limit).unwrap_or(i64::MAX)
        ];
        let mut link = self.links.lend().await?;
        let rows = link.fetch_as(&select, &values, |mut row| {
            let known = row_of(&mut row)?;
            let is_selected = run.what.mode.selects(&known, run.id);
            let pending = is_selected.then(|| Pending::with(&known, &mut row));
            Ok((known.key, pending.transpose()?))
        });
        let rows = rows.await?;
        link.give_back();
        let is_full = rows.len() >= limit;
        let last = rows.last().filter(|_| is_full).map_or(end, |(key, _)| *key);
        let pending = rows
            .into_iter()
            .filter_map(|(_, pending)| pending)
            .collect();
        Ok((pending, last.following().map(|_| last)))
    }
}

/// Where one statement ends that begins after this key: files that are not wanted are looked at, too, and there may be very many
/// of them.
fn stretch(after: Option<Key>, files: i64) -> Key {
    let statements = (files / STRETCH).clamp(1, 256);
    let parts = u8::try_from(255 / statements).unwrap_or(u8::MAX);
    let first = after.and_then(Key::following).map_or(0, Key::partition);
    let last = first.saturating_add(parts);
    Key::range_of(last, 0, 1).1
}

fn tally(row: &mut Columns) -> Result<Tally, Error> {
    Ok(Tally {
        total: row.int()?.cast_unsigned(),
        selected: row.int()?.cast_unsigned(),
        selected_bytes: row.int()?.cast_unsigned(),
    })
}

fn row_of(row: &mut Columns) -> Result<Row, Error> {
    Ok(Row {
        key: row.key()?,
        attributes: attributes_of(row)?,
        changed_run: row.int()?,
        suspect_run: row.int()?,
        read_run: row.int()?,
        read_mtime: row.int_or_null()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many statements go over a store that knows so many files.
    fn statements(files: i64) -> usize {
        let mut ends = vec![stretch(None, files)];
        while let Some(end) = ends.last()
            && end.following().is_some()
        {
            let next = stretch(Some(*end), files);
            assert!(next > *end);
            ends.push(next);
        }
        ends.len()
    }

    #[test]
    fn more_files_are_asked_for_in_more_statements_but_never_too_many() {
        for (files, expected) in [
            (0, 1),
            (STRETCH, 1),
            (2 * STRETCH, 2),
            (100 * STRETCH, 86),
            (300 * STRETCH, 256),
            (i64::MAX, 256),
        ] {
            assert_eq!(statements(files), expected, "{files}");
        }
    }
}
