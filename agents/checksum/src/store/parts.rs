//! Parts of a listing as they are written: what is different, and that they are done.

use std::collections::BTreeMap;

use super::dialect::{Dialect, list};
use super::link::{Link, Statement, Value, values};
use super::{Error, Lent, Part, Store};
use crate::entry::{Attributes, Seen};
use crate::judge::RunId;
use crate::merge::Differences;
use crate::path::Key;

/// Columns of a file that a listing knows.
const COLUMNS: usize = 7;

/// Parts of a listing while they are written: all of it in one transaction, with what each came to.
#[derive(Debug)]
pub struct PartWriter<'a> {
    store: &'a Store,
    run: RunId,
    rows: usize,
    link: Option<Lent<'a>>,
    parts: BTreeMap<u8, Part>,
}

impl PartWriter<'_> {
    /// Writes what is different in some parts, or in a piece of one, and adds what each came to; but forgets nothing.
    pub async fn add(
        &mut self,
        parts: &[(u8, Part)],
        found: &Differences<'_>,
    ) -> Result<(), Error> {
        // Nothing would ever correct a row that has the key of one file and the path of another.
        if found.new.iter().any(|it| Key::of(it.path) != it.key) {
            return Err(Error::Listing);
        }
        for (part, more) in parts {
            let sum = self.parts.entry(*part).or_default();
            *sum = sum.plus(*more);
        }
        if found.is_nothing() {
            return self.stay().await;
        }
        if self.link.is_none() {
            self.link = Some(self.store.begin().await?);
        }
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        let fs = self.store.view.fs;
        let inserts = Inserts {
            dialect: self.store.view.dialect,
            fs,
            run: self.run,
            usual: self.rows,
        };
        let mut chunks = found.new.chunks(self.rows);
        let mut insert = || chunks.next().map(|new| inserts.of(new));
        let mut next = insert();
        while let Some(statement) = next.take() {
            // While the database is busy with one, the next is made.
            let writing = link.carry_out(statement);
            let (written, made) = tokio::join!(writing, async { insert() });
            written?;
            next = made;
        }
        change(link, fs, self.run, found).await
    }

    /// A server ends transactions of which it hears nothing: what is the same may be long.
    async fn stay(&mut self) -> Result<(), Error> {
        match &mut self.link {
            Some(link) => link.ping().await,
            None => Ok(()),
        }
    }

    /// Writes that the parts are done; what each came to.
    pub async fn finish(mut self) -> Result<BTreeMap<u8, Part>, Error> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.store.begin().await?,
        };
        note(&mut link, self.store.view.fs, self.run, &self.parts).await?;
        link.commit().await?;
        link.give_back();
        Ok(self.parts)
    }
}

impl Store {
    /// Begins to write parts, with at most so many rows in a statement.
    pub fn write_parts(&self, run: RunId, rows: usize) -> PartWriter<'_> {
        PartWriter {
            store: self,
            run,
            rows: rows.clamp(1, self.view.dialect.added_rows()),
            link: None,
            parts: BTreeMap::new(),
        }
    }
}

async fn change(
    link: &mut Link,
    fs: i64,
    run: RunId,
    found: &Differences<'_>,
) -> Result<(), Error> {
    for (what, files) in [
        ("changed_run = ?", &found.changed),
        ("suspect_run = ?", &found.suspect),
        ("changed_run = read_run, suspect_run = ?", &found.returned),
    ] {
        let update = format!(
            "UPDATE orrery_files SET size = ?, mtime = ?, ctime = ?, {what} WHERE fs = ? AND hash = ?"
        );
        for Seen {
            key, attributes, ..
        } in files
        {
            let Attributes { size, mtime, ctime } = *attributes;
            let values = values![size, mtime, ctime, run, fs, key.as_bytes()];
            link.execute(&update, &values).await?;
        }
    }
    let update = "UPDATE orrery_files SET mtime = ?, ctime = ? WHERE fs = ? AND hash = ?";
    for Seen {
        key, attributes, ..
    } in &found.refined
    {
        let values = values![attributes.mtime, attributes.ctime, fs, key.as_bytes()];
        link.execute(update, &values).await?;
    }
    Ok(())
}

/// How files are added.
struct Inserts {
    dialect: Dialect,
    fs: i64,
    run: RunId,
    /// How many by most statements.
    usual: usize,
}

impl Inserts {
    fn of(&self, new: &[Seen<'_>]) -> Statement {
        let sql = format!(
            "INSERT INTO orrery_files (fs, hash, path, size, mtime, ctime, changed_run) VALUES {}",
            list("(?, ?, ?, ?, ?, ?, ?)", new.len())
        );
        let mut values = Vec::with_capacity(new.len() * COLUMNS);
        for Seen {
            key,
            path,
            attributes,
        } in new
        {
            let Attributes { size, mtime, ctime } = *attributes;
            values.extend(values![
                self.fs,
                key.as_bytes(),
                *path,
                size,
                mtime,
                ctime,
                self.run
            ]);
        }
        Statement::new(self.dialect, &sql, values, new.len() == self.usual)
    }
}

async fn note(
    link: &mut Link,
    fs: i64,
    run: RunId,
    parts: &BTreeMap<u8, Part>,
) -> Result<(), Error> {
    let delete = format!(
        "DELETE FROM orrery_parts WHERE fs = ? AND run = ? AND part IN ({})",
        list("?", parts.len())
    );
    let mut values = values![fs, run].to_vec();
    values.extend(parts.keys().map(|part| Value::from(i64::from(*part))));
    link.execute(&delete, &values).await?;
    let insert = format!(
        "INSERT INTO orrery_parts VALUES {}",
        list("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", parts.len())
    );
    let mut values = Vec::new();
    for (part, sum) in parts {
        let Part {
            listed,
            unseen,
            new,
        } = sum;
        values.extend(values![
            fs,
            run,
            i64::from(*part),
            listed.total,
            listed.selected,
            listed.selected_bytes,
            unseen.total,
            unseen.selected,
            unseen.selected_bytes,
            *new
        ]);
    }
    link.execute(&insert, &values).await?;
    Ok(())
}
