//! Connections that are used one after the other. In: how to connect, and how many at most. Out: a connection, for a while.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::link::{Link, Place};
use super::{Error, dialect::Dialect};

/// How long one waits for a connection to be made, and told how to behave.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one waits for others of this process, whose statements end in time.
const TURN: Duration = Duration::from_mins(10);

/// A bounded number of connections.
pub(super) struct Links {
    place: Place,
    turns: Semaphore,
    free: Mutex<Vec<Link>>,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links").finish_non_exhaustive()
    }
}

/// A connection, for a while. It is used again only if it is given back: one that was left in the middle of something is
/// closed, and nothing that was not committed stays.
#[derive(Debug)]
pub(super) struct Lent<'a> {
    link: Link,
    links: &'a Links,
    _turn: SemaphorePermit<'a>,
}

impl Links {
    pub(super) fn new(place: Place, most: usize) -> Self {
        Self {
            place,
            turns: Semaphore::new(most),
            free: Mutex::new(Vec::new()),
        }
    }

    /// A connection, as soon as one is free.
    pub(super) async fn lend(&self) -> Result<Lent<'_>, Error> {
        let turn = timeout(TURN, self.turns.acquire()).await;
        let turn = turn.map_err(|_| Error::Slow)?.map_err(|_| Error::Slow)?;
        let link = match self.reuse().await {
            Some(link) => link,
            None => self.connect().await?,
        };
        Ok(Lent {
            link,
            links: self,
            _turn: turn,
        })
    }

    /// One that was used before, if there is one that still works: a server may have been away meanwhile.
    async fn reuse(&self) -> Option<Link> {
        loop {
            let mut link = self.free().pop()?;
            if matches!(link, Link::Sqlite(_)) || link.ping().await.is_ok() {
                return Some(link);
            }
        }
    }

    async fn connect(&self) -> Result<Link, Error> {
        let connecting = async {
            let mut link = Link::connect(&self.place).await?;
            for statement in Dialect::of(&self.place).on_connect() {
                link.raw(statement).await?;
            }
            Ok(link)
        };
        timeout(PATIENCE, connecting)
            .await
            .map_err(|_| Error::Slow)?
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Link>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lent<'_> {
    /// Gives the connection back: nothing is going on on it.
    pub(super) fn give_back(self) {
        let Self { link, links, .. } = self;
        links.free().push(link);
    }
}

impl Deref for Lent<'_> {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Link {
        &mut self.link
    }
}
