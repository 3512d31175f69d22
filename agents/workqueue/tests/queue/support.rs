//! In: the needs of a test. Out: a namespace of its own in a Redis, pools in it, and a look behind the scenes.
//! Touches: the Redis of the run.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use serde_json::json;
use testbed::SharedStore;
use testbed::redis::Access;
use testbed::wait::eventually;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use workqueue::{
    Args, Client, Enqueuer, Inspector, Job, Kind, Namespace, Options, Pool, PoolOptions, Stats,
    Taken,
};

/// Generous: tests share two cores with many others.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// How long a heartbeat lasts in tests: Redis counts in whole seconds, and a busy machine loses some.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A namespace in the Redis of the run.
pub(crate) struct Bed {
    pub(crate) server: SharedStore<Access>,
    pub(crate) space: Space,
}

impl Bed {
    pub(crate) async fn new() -> Result<Self> {
        let server = testbed::redis().await?;
        let space = Space::new(options(&server), &server.url()).await?;
        Ok(Self { server, space })
    }
}

impl std::ops::Deref for Bed {
    type Target = Space;

    fn deref(&self) -> &Space {
        &self.space
    }
}

/// A namespace, and what is needed to use it.
pub(crate) struct Space {
    pub(crate) client: Client,
    pub(crate) namespace: Namespace,
    pub(crate) enqueuer: Enqueuer,
    pub(crate) inspector: Inspector,
    driver: redis::Client,
}

impl Space {
    pub(crate) async fn new(options: Options, url: &str) -> Result<Self> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let client = Client::new(options)?;
        let name = format!(
            "{}-{number}:lsdf-checksum/workqueue:work",
            std::process::id()
        );
        let namespace = Namespace::new(name);
        client.ping().await?;
        Ok(Self {
            enqueuer: Enqueuer::new(client.clone(), namespace.clone()),
            inspector: Inspector::new(client.clone(), namespace.clone()),
            client,
            namespace,
            driver: redis::Client::open(url)?,
        })
    }

    /// A pool that serves these names and is run.
    pub(crate) fn pool(&self, names: &[&str]) -> Result<Running> {
        self.pool_with(pool_options(names))
    }

    pub(crate) fn pool_with(&self, options: PoolOptions) -> Result<Running> {
        Ok(Running::new(self.idle_pool(options)?))
    }

    /// A pool that is not run.
    pub(crate) fn idle_pool(&self, options: PoolOptions) -> Result<Pool> {
        let (client, namespace) = (self.client.clone(), self.namespace.clone());
        Ok(Pool::new(client, namespace, options)?)
    }

    /// The full name of a key.
    pub(crate) fn key(&self, rest: &str) -> String {
        format!("{}{rest}", self.namespace.prefix())
    }

    pub(crate) async fn raw(&self) -> Result<MultiplexedConnection> {
        Ok(self.driver.get_multiplexed_async_connection().await?)
    }

    /// A command whose second word is a key of the namespace.
    pub(crate) async fn ask<T: FromRedisValue>(
        &self,
        command: &str,
        key: &str,
        rest: &[&str],
    ) -> Result<T> {
        let mut command = redis::cmd(command);
        command.arg(self.key(key)).arg(rest);
        Ok(command.query_async(&mut self.raw().await?).await?)
    }

    /// Every key of the namespace.
    pub(crate) async fn keys(&self) -> Result<Vec<String>> {
        let mut command = redis::cmd("KEYS");
        command.arg(self.key("*"));
        let mut keys: Vec<String> = command.query_async(&mut self.raw().await?).await?;
        keys.sort();
        Ok(keys)
    }

    pub(crate) async fn length(&self, list: &str) -> Result<u64> {
        self.ask("LLEN", list, &[]).await
    }

    pub(crate) async fn hash(&self, key: &str) -> Result<HashMap<String, String>> {
        self.ask("HGETALL", key, &[]).await
    }

    /// The members of a sorted set with their scores, lowest first.
    pub(crate) async fn sorted(&self, set: &str) -> Result<Vec<(Job, i64)>> {
        let rest = ["0", "-1", "WITHSCORES"];
        let members: Vec<(Vec<u8>, f64)> = self.ask("ZRANGE", set, &rest).await?;
        let mut jobs = Vec::new();
        for (member, score) in members {
            #[expect(clippy::cast_possible_truncation, reason = "scores are seconds")]
            jobs.push((Job::decode(&member)?, score as i64));
        }
        Ok(jobs)
    }

    /// Makes everything in a sorted set due.
    pub(crate) async fn hasten(&self, set: &str) -> Result<()> {
        let members: Vec<Vec<u8>> = self.ask("ZRANGE", set, &["0", "-1"]).await?;
        for member in members {
            let mut command = redis::cmd("ZADD");
            command.arg(self.key(set)).arg(1).arg(member);
            command.exec_async(&mut self.raw().await?).await?;
        }
        Ok(())
    }

    /// Enqueues a job with a number.
    pub(crate) async fn enqueue(&self, name: &str, number: i64) -> Result<String> {
        Ok(self
            .enqueuer
            .enqueue(name, Some(numbered(number)))
            .await?
            .id)
    }

    /// Waits until a list has so many elements.
    pub(crate) async fn list_becomes(&self, list: &str, length: u64) -> Result<()> {
        eventually(&format!("{length} in {list}"), SOON, async || {
            let seen = self.length(list).await?;
            ensure!(seen == length, "{seen}");
            Ok(Some(()))
        })
        .await
    }
}

/// Arguments with one number.
pub(crate) fn numbered(number: i64) -> Args {
    Args::from([("n".into(), json!(number))])
}

pub(crate) fn options(server: &Access) -> Options {
    options_via(server, server.address())
}

/// As [`options`], but through a proxy. The password is in the URL.
pub(crate) fn options_via(server: &Access, address: std::net::SocketAddr) -> Options {
    let mut options = Options::new(address.ip().to_string(), address.port());
    let url = server.url();
    let password = url
        .strip_prefix("redis://:")
        .and_then(|rest| rest.split_once('@'));
    options.password = password.map(|(password, _)| password.into());
    options
}

/// Quick enough for tests, slow enough for a machine that is busy.
pub(crate) fn pool_options(names: &[&str]) -> PoolOptions {
    let kinds = names.iter().map(|name| Kind::new(*name));
    let mut options = PoolOptions::new(kinds.collect(), 4);
    options.host = "host-of-tests".into();
    options.beat_every = Duration::from_millis(500);
    options.patience = PATIENCE;
    options.reap_every = Duration::from_millis(200);
    options.search_every = Duration::from_millis(300);
    options.requeue_every = Duration::from_millis(100);
    options
}

/// A pool with its housekeeping.
pub(crate) struct Running {
    pub(crate) pool: Pool,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Running {
    pub(crate) fn new(pool: Pool) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (running, token) = (pool.clone(), stop.clone());
        tasks.spawn(async move { running.run(token).await });
        Self { pool, stop, tasks }
    }

    /// Waits for a job.
    pub(crate) async fn next(&self) -> Result<Taken> {
        next(&self.pool).await
    }

    /// Waits until it has counted what it did: others see the effect a moment before.
    pub(crate) async fn counts(&self, what: impl Fn(Stats) -> bool) -> Result<()> {
        eventually("the counts", SOON, async || {
            let stats = self.pool.stats();
            ensure!(what(stats), "{stats:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Ends cleanly.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        let ended = tokio::time::timeout(SOON, self.tasks.join_next()).await?;
        Ok(ended.context("it has ended")??)
    }

    /// Ends as by SIGKILL or SIGSTOP: without a word. The pool itself can go on.
    pub(crate) async fn freeze(mut self) -> Pool {
        self.tasks.shutdown().await;
        self.pool.clone()
    }
}

pub(crate) async fn next(pool: &Pool) -> Result<Taken> {
    eventually("a job", SOON, async || Ok(pool.take().await?)).await
}
