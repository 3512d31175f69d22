//! Who writes to a store. Touches: a lock file that the kernel frees however we end, or a lock that a server frees when the
//! connection ends.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use tokio::sync::Mutex;

use super::link::{Link, values};
use super::{Error, Location, Mysql, beside};

/// Seconds that a server is given to notice that the last one who held the lock has gone.
const FREED: i64 = 5;

/// Who holds the lock is heard of every ten seconds. A server that hears nothing for longer frees it: whoever loses power says no
/// farewell.
const SILENCE: &str = "SET SESSION wait_timeout = 35";

/// Held until it is dropped.
#[derive(Debug)]
pub(super) enum Lock {
    File(#[expect(dead_code, reason = "closing it frees the lock")] File),
    /// The connection; none when it was lost and not taken again yet.
    Server(Mutex<Option<Link>>),
}

impl Lock {
    pub(super) async fn take(location: &Location) -> Result<Self, Error> {
        match location {
            Location::Sqlite { path, .. } => Ok(Self::File(lock_file(path)?)),
            Location::Mysql { server, .. } => {
                let link = on_server(location, server).await?;
                Ok(Self::Server(Mutex::new(Some(link))))
            }
        }
    }

    /// Whether it had to be taken anew, because the connection was lost: somebody may have written meanwhile.
    pub(super) async fn keep(&self, location: &Location) -> Result<bool, Error> {
        let (Self::Server(link), Location::Mysql { server, .. }) = (self, location) else {
            return Ok(false);
        };
        let mut link = link.lock().await;
        if let Some(held) = link.as_mut()
            && held.ping().await.is_ok()
        {
            return Ok(false);
        }
        *link = None;
        *link = Some(on_server(location, server).await?);
        Ok(true)
    }
}

async fn on_server(location: &Location, server: &Mysql) -> Result<Link, Error> {
    let mut link = Link::connect(&location.place()).await?;
    link.raw(SILENCE).await?;
    let name = name(&server.database, location.file_system());
    let row = link
        .fetch_one("SELECT GET_LOCK(?, ?)", &values![name.as_str(), FREED])
        .await?;
    let taken = row.map(|mut row| row.int_or_null()).transpose()?.flatten();
    if taken == Some(1) {
        Ok(link)
    } else {
        Err(Error::InUse(location.to_string()))
    }
}

/// A server has its own locks, so it does not matter by which of its names it was found. A lock's name has at most 64 characters.
fn name(database: &str, file_system: &str) -> String {
    let both = blake3::hash(format!("{database}\0{file_system}").as_bytes());
    format!("orrery-{}", &both.to_hex()[..32])
}

fn lock_file(store: &Path) -> Result<File, Error> {
    let path = beside(store, ".lock");
    let failed = |source| Error::Lock {
        path: path.clone(),
        source,
    };
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::InUse(store.display().to_string())),
        Err(source) => Err(failed(source.into())),
    }
}
