//! In: wishes of the tests of one run. Out: for each wish one real store, started when first asked for.
//! Touches: a socket in the state folder of the run; starts stores.

use std::collections::BTreeMap;
use std::env;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cassandra::{self, Cassandra, Topology};
use crate::kafka::{self, Kafka};
use crate::mariadb::{self, MariaDb};
use crate::postgres::{self, Postgres};
use crate::redis::{self, Redis};
use crate::shared::{Shared, VARIABLE};
use crate::snapshots::Snapshots;

const SOCKET: &str = "stores.sock";

/// Longer than any store takes to start.
const ANSWER_DEADLINE: Duration = Duration::from_mins(5);

/// A wish is a short line; so is the answer.
const LINE_BYTES: u64 = 64 * 1024;

/// Tests that may ask at once.
const MOST_GUESTS: usize = 64;

/// All it takes to use a store that others may be using: there is nothing here to break it with.
#[derive(Debug)]
pub struct SharedStore<A> {
    access: A,
    _owned: Option<Started>,
}

impl<A> Deref for SharedStore<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.access
    }
}

/// A Cassandra with so many nodes, in one data centre (`3`) or several (`[2, 1]`), without passwords; bring
/// keyspaces of your own.
pub async fn cassandra(topology: impl Into<Topology>) -> Result<SharedStore<cassandra::Access>> {
    get(Wish::Cassandra(topology.into())).await
}

/// A Kafka; bring topics and groups of your own.
pub async fn kafka() -> Result<SharedStore<kafka::Access>> {
    get(Wish::Kafka).await
}

/// A MariaDB; bring a database of your own.
pub async fn mariadb() -> Result<SharedStore<mariadb::Access>> {
    get(Wish::MariaDb).await
}

/// A Redis; bring a prefix of your own.
pub async fn redis() -> Result<SharedStore<redis::Access>> {
    get(Wish::Redis).await
}

/// A PostgreSQL; bring a database of your own.
pub async fn postgres() -> Result<SharedStore<postgres::Access>> {
    get(Wish::Postgres).await
}

/// Snapshots in that cluster: their kinds and their controller. Bring a driver of your own, with a name of its own.
pub async fn snapshots(kubernetes: &Shared) -> Result<SharedStore<Value>> {
    get(Wish::Snapshots(kubernetes.folder().to_owned())).await
}

/// What can be shared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Wish {
    Cassandra(Topology),
    Kafka,
    MariaDb,
    Redis,
    Postgres,
    /// In the cluster with that state folder.
    Snapshots(PathBuf),
}

/// What a wish led to.
#[derive(Debug)]
enum Started {
    Cassandra(Cassandra),
    Kafka(Kafka),
    MariaDb(MariaDb),
    Redis(Redis),
    Postgres(Postgres),
    Snapshots(Snapshots),
}

impl Wish {
    async fn fulfil(&self) -> Result<Started> {
        Ok(match self {
            Self::Cassandra(topology) => {
                let options = cassandra::Options::new(topology.clone());
                Started::Cassandra(Cassandra::start(options).await?.ends_by_drop())
            }
            Self::Kafka => Started::Kafka(kafka::start().await?.ends_by_drop()),
            Self::MariaDb => Started::MariaDb(mariadb::start().await?.ends_by_drop()),
            Self::Redis => Started::Redis(redis::start().await?.ends_by_drop()),
            Self::Postgres => Started::Postgres(postgres::start().await?.ends_by_drop()),
            Self::Snapshots(folder) => Started::Snapshots(Snapshots::start_in(folder).await?),
        })
    }
}

impl Started {
    fn access(&self) -> Result<Value, serde_json::Error> {
        match self {
            Self::Cassandra(it) => serde_json::to_value(&**it),
            Self::Kafka(it) => serde_json::to_value(&**it),
            Self::MariaDb(it) => serde_json::to_value(&**it),
            Self::Redis(it) => serde_json::to_value(&**it),
            Self::Postgres(it) => serde_json::to_value(&**it),
            Self::Snapshots(_) => Ok(Value::Null),
        }
    }

    fn keep_logs(&self) -> Result<PathBuf> {
        match self {
            Self::Cassandra(it) => it.keep_logs(),
            Self::Kafka(it) => it.keep_logs(),
            Self::MariaDb(it) => it.keep_logs(),
            Self::Redis(it) => it.keep_logs(),
            Self::Postgres(it) => it.keep_logs(),
            Self::Snapshots(it) => it.keep_logs(),
        }
    }
}

/// The store of the run that this process is part of, else one for the caller alone.
async fn get<A: DeserializeOwned>(wish: Wish) -> Result<SharedStore<A>> {
    let (access, owned) = if let Some(folder) = env::var_os(VARIABLE) {
        (ask(Path::new(&folder), &wish).await?, None)
    } else {
        let started = wish.fulfil().await?;
        (started.access()?, Some(started))
    };
    Ok(SharedStore {
        access: serde_json::from_value(access)?,
        _owned: owned,
    })
}

type Answer = Result<Value, String>;

/// One line there, one line back.
async fn ask(folder: &Path, wish: &Wish) -> Result<Value> {
    let asking = async {
        let stream = UnixStream::connect(folder.join(SOCKET)).await;
        let mut stream = stream.with_context(|| {
            format!("{VARIABLE} is set, but not by a `testbed run` still going on")
        })?;
        stream.write_all(&line(wish)?).await?;
        let mut answer = String::new();
        stream.take(LINE_BYTES).read_to_string(&mut answer).await?;
        let answer: Answer = serde_json::from_str(&answer).context("`testbed run` went away")?;
        answer.map_err(|error| anyhow!(error))
    };
    timeout(ANSWER_DEADLINE, asking)
        .await
        .with_context(|| format!("`testbed run` does not answer to {wish:?}"))?
}

fn line(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

/// The stores of one run; they end with it.
#[derive(Debug)]
pub struct Stock {
    shelves: Arc<Shelves>,
    guests: JoinSet<()>,
}

/// Whoever asks first for a store starts it, and others wait; who asks for another one does not.
#[derive(Debug, Default)]
struct Shelves(Mutex<BTreeMap<Wish, Arc<OnceCell<Started>>>>);

impl Stock {
    /// Serves the tests that are told of `folder`.
    pub fn open(folder: &Path) -> Result<Self> {
        let socket = folder.join(SOCKET);
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("failed to listen on {}", socket.display()))?;
        let shelves = Arc::<Shelves>::default();
        let mut guests = JoinSet::new();
        guests.spawn(serve(listener, Arc::clone(&shelves)));
        Ok(Self { shelves, guests })
    }

    /// Copies the logs of every store to where they stay.
    pub fn keep_logs(&self) -> Result<Vec<PathBuf>> {
        let shelves = self.shelves.all();
        let started = shelves.iter().filter_map(|shelf| shelf.get());
        started.map(Started::keep_logs).collect()
    }

    /// Ends every store.
    pub async fn close(mut self) {
        self.guests.shutdown().await;
    }
}

impl Shelves {
    async fn get(&self, wish: &Wish) -> Result<Value> {
        let place = Arc::clone(self.lock().entry(wish.clone()).or_default());
        let started = place.get_or_try_init(|| wish.fulfil()).await?;
        Ok(started.access()?)
    }

    fn all(&self) -> Vec<Arc<OnceCell<Started>>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Wish, Arc<OnceCell<Started>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers guests until it is dropped, and the guests with it.
async fn serve(listener: UnixListener, shelves: Arc<Shelves>) {
    let mut guests = JoinSet::new();
    loop {
        while guests.len() >= MOST_GUESTS {
            guests.join_next().await;
        }
        if let Ok((guest, _)) = listener.accept().await {
            let shelves = Arc::clone(&shelves);
            guests.spawn(async move {
                // A guest that went away is nobody to tell.
                let _ = attend(guest, &shelves).await;
            });
        }
        while guests.try_join_next().is_some() {}
    }
}

async fn attend(guest: UnixStream, shelves: &Shelves) -> Result<()> {
    let (reader, mut writer) = guest.into_split();
    let mut wish = String::new();
    BufReader::new(reader.take(LINE_BYTES))
        .read_line(&mut wish)
        .await?;
    let wish: Wish = serde_json::from_str(&wish)?;
    let answer: Answer = shelves
        .get(&wish)
        .await
        .map_err(|error| format!("{error:#}"));
    writer.write_all(&line(&answer)?).await?;
    Ok(writer.shutdown().await?)
}
