//! What is known of files, between runs. In: differences and readings. Out: rows, counts and warnings.
//! Touches: a SQLite file and a lock file beside it, or a MySQL or MariaDB server.
//!
//! One process writes at a time. A lock keeps a second one from beginning; should both believe to hold it, the number that
//! every opening raises, and that every transaction of a writer checks, lets only the later one write.

mod batch;
mod dialect;
mod error;
mod link;
mod links;
mod lock;
mod parts;
mod pieces;
mod place;
mod report;
mod runs;
mod sync;
mod take_over;
mod write_back;

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use dialect::Dialect;
use link::{Link, Row, values};
use links::{Lent, Links};
use lock::Lock;

use crate::algorithm::{Algorithm, Digest};
use crate::entry::Attributes;

pub use batch::FileResult;
pub use error::{Error, Trouble};
pub use parts::PartWriter;
pub use place::{Location, Mysql, Password, Tls};
pub use report::{Checksum, Damage, Problem, WarningRow, WarningState};
pub use runs::{Counts, Ending, NewRun, Owner, Run};
pub use sync::{Listed, Part, Pending};
pub use take_over::{Taken, Theirs, take_over};

/// Connections for reading.
const READERS: usize = 4;
/// How often it is seen to that the lock is held.
const KEEP: Duration = Duration::from_secs(10);

/// Reads a store, beside its writer if there is one.
#[derive(Debug)]
pub struct View {
    links: Links,
    dialect: Dialect,
    /// Which of the file systems in it.
    fs: i64,
}

/// The only writer of one file system in a store.
#[derive(Debug)]
pub struct Store {
    view: View,
    links: Links,
    lock: Lock,
    location: Location,
    epoch: i64,
    writers: usize,
}

impl View {
    /// Opens a store for reading.
    pub async fn open(location: &Location) -> Result<Self, Error> {
        if let Location::Sqlite { path, .. } = location
            && !path.exists()
        {
            return Err(Error::Absent(path.clone()));
        }
        let place = location.place();
        let dialect = Dialect::of(&place);
        let links = Links::new(place, READERS);
        let mut link = links.lend().await?;
        let select = "SELECT id FROM orrery_file_systems WHERE name = ?";
        let found = link
            .fetch_one(select, &values![location.file_system()])
            .await;
        let found = match found {
            Err(error) if error.is_missing_table() => None,
            found => found?,
        };
        let fs = match found {
            Some(mut row) => row.int()?,
            None => return Err(Error::Unknown(location.file_system().into())),
        };
        link.give_back();
        Ok(Self { links, dialect, fs })
    }
}

impl Store {
    /// Opens a store for writing with so many transactions at once, and makes it if there is none.
    pub async fn open(location: &Location, writers: usize) -> Result<Self, Error> {
        let place = location.place();
        let dialect = Dialect::of(&place);
        // SQLite has one writer at a time, whoever asks.
        let writers = match dialect {
            Dialect::Sqlite => 1,
            Dialect::Mysql => writers.max(1),
        };
        let lock = Lock::take(location).await?;
        let links = Links::new(place.clone(), writers);
        let mut link = links.lend().await?;
        migrate(location, &mut link).await?;
        let fs = file_system(&mut link, location.file_system()).await?;
        let epoch = raise_epoch(&mut link, fs).await?;
        link.give_back();
        let view = View {
            links: Links::new(place, READERS),
            dialect,
            fs,
        };
        Ok(Self {
            view,
            links,
            lock,
            location: location.clone(),
            epoch,
            writers,
        })
    }

    /// A reader beside this writer.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// How many transactions may write at once.
    pub fn writers(&self) -> usize {
        self.writers
    }

    /// Sees to it that the lock is still held, and takes it again if the server has lost it but nobody else has it.
    pub async fn keep(&self) -> Result<(), Error> {
        if self.lock.keep(&self.location).await? {
            let mut link = self.begin().await?;
            link.commit().await?;
            link.give_back();
        }
        Ok(())
    }

    /// The same again and again, until it is lost.
    pub async fn kept(&self) -> Error {
        loop {
            sleep(KEEP).await;
            if let Err(lost) = self.keep().await {
                return lost;
            }
        }
    }

    /// A transaction that is only begun if nobody else has opened the store for writing; until it ends, nobody can.
    async fn begin(&self) -> Result<Lent<'_>, Error> {
        let mut link = self.links.lend().await?;
        link.begin().await?;
        let select = format!(
            "SELECT epoch FROM orrery_file_systems WHERE id = ?{}",
            self.view.dialect.for_share()
        );
        let held = match link.fetch_one(&select, &values![self.view.fs]).await? {
            Some(mut row) => row.int()?,
            None => return Err(Error::Fenced),
        };
        if held == self.epoch {
            Ok(link)
        } else {
            Err(Error::Fenced)
        }
    }
}

/// Brings the tables up to what this version knows.
async fn migrate(location: &Location, link: &mut Link) -> Result<(), Error> {
    let schemas = Dialect::spoken_by(link).schemas();
    link.raw("CREATE TABLE IF NOT EXISTS orrery_schema (version BIGINT NOT NULL)")
        .await?;
    let select = "SELECT COALESCE(MAX(version), 0) FROM orrery_schema";
    let found = match link.fetch_one(select, &[]).await? {
        Some(mut row) => row.int()?,
        None => 0,
    };
    let done = usize::try_from(found).unwrap_or(usize::MAX);
    if done > schemas.len() {
        return Err(Error::Newer {
            store: location.to_string(),
            found,
            known: schemas.len(),
        });
    }
    for (n, schema) in schemas.iter().enumerate().skip(done) {
        // MySQL commits each statement by itself; what a process that died has left of them is in nobody's use yet.
        link.begin().await?;
        for statement in statements(schema) {
            match link.raw(&statement).await {
                Err(error) if error.is_known_column() => {}
                changed => changed?,
            }
        }
        let version = i64::try_from(n + 1).unwrap_or(i64::MAX);
        link.execute("INSERT INTO orrery_schema VALUES (?)", &values![version])
            .await?;
        link.commit().await?;
    }
    Ok(())
}

fn statements(schema: &str) -> impl Iterator<Item = String> {
    let statements = schema.split(';').map(str::trim).filter(|it| !it.is_empty());
    statements.map(|it| {
        it.replacen("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1)
            .replacen("CREATE INDEX ", "CREATE INDEX IF NOT EXISTS ", 1)
    })
}

async fn file_system(link: &mut Link, name: &str) -> Result<i64, Error> {
    let select = "SELECT id FROM orrery_file_systems WHERE name = ?";
    if let Some(mut row) = link.fetch_one(select, &values![name]).await? {
        return row.int();
    }
    let insert = "INSERT INTO orrery_file_systems (name, epoch) VALUES (?, 0)";
    link.execute(insert, &values![name]).await?;
    let row = link.fetch_one(select, &values![name]).await?;
    row.ok_or(Error::Fenced)?.int()
}

async fn raise_epoch(link: &mut Link, fs: i64) -> Result<i64, Error> {
    link.begin().await?;
    let update = "UPDATE orrery_file_systems SET epoch = epoch + 1 WHERE id = ?";
    link.execute(update, &values![fs]).await?;
    let select = "SELECT epoch FROM orrery_file_systems WHERE id = ?";
    let row = link.fetch_one(select, &values![fs]).await?;
    let epoch = row.ok_or(Error::Fenced)?.int()?;
    link.commit().await?;
    Ok(epoch)
}

/// A file beside a store.
pub fn beside(store: &Path, suffix: &str) -> std::path::PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

fn attributes_of(row: &mut Row) -> Result<Attributes, Error> {
    Ok(Attributes {
        size: row.int()?.cast_unsigned(),
        mtime: row.int()?,
        ctime: row.int()?,
    })
}

fn algorithm(id: i64) -> Result<Algorithm, Error> {
    Algorithm::from_id(id).ok_or_else(|| Error::Damaged(format!("algorithm {id}")))
}

fn digest_of(row: &mut Row) -> Result<Option<Digest>, Error> {
    match (row.int_or_null()?, row.bytes_or_null()?) {
        (Some(id), Some(bytes)) => Ok(Some(Digest::new(algorithm(id)?, &bytes))),
        _ => Ok(None),
    }
}
