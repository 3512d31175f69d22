//! A coordinator's pod and workers' pods around a database and a Redis of real servers.

use std::fs;
use std::net::SocketAddr;
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use checksum::store::{Counts, Location, Mysql, Password, View};
use crds::report::checksum::CoordinatorReport;
use redis::AsyncCommands as _;
use serde_json::{Value, json};
use sqlx::{ConnectOptions as _, Executor as _};

use crate::pod::{Pod, terminate};

pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Site {
    pub(crate) pod: Pod,
    pub(crate) location: Location,
    redis: redis::Client,
    redis_address: SocketAddr,
    prefix: String,
    queue: Value,
    store: Value,
}

/// A process, which is killed when it is dropped.
pub(crate) struct Running {
    pub(crate) pod: Pod,
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    pub(crate) fn coordinator(pod: &Pod, config: &Value) -> Self {
        let child = pod.start(config);
        Self {
            pod: pod.clone(),
            child,
        }
    }

    /// Ends it in order.
    pub(crate) async fn terminated(mut self) -> Result<()> {
        terminate(&self.child);
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            ensure!(began.elapsed() < PATIENCE, "it does not end");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    pub(crate) fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Site {
    pub(crate) async fn with(files: usize) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "sums_{}_{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let mariadb = testbed::mariadb().await?;
        let redis = testbed::redis().await?;
        let options: sqlx::mysql::MySqlConnectOptions = mariadb.url().parse()?;
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
        options
            .connect()
            .await?
            .execute(sqlx::raw_sql(create))
            .await?;
        let pod = Pod::with(files);
        let credentials = pod.folder.path().join("credentials");
        for (file, text) in [
            ("store-username", "testbed\n"),
            ("store-password", "testbed"),
            ("queue-password", "testbed"),
        ] {
            fs::write(credentials.join(file), text)?;
        }
        let server = |address: SocketAddr| json!({"host": address.ip(), "port": address.port(), "space": name});
        let location = Location::Mysql {
            server: Mysql {
                host: mariadb.address().ip().to_string(),
                port: mariadb.address().port(),
                database: name.clone(),
                username: "testbed".into(),
                password: Password("testbed".into()),
                tls: None,
            },
            file_system: "home".into(),
        };
        Ok(Self {
            pod,
            location,
            redis: redis::Client::open(redis.url())?,
            redis_address: redis.address(),
            queue: json!({"redis": server(redis.address())}),
            store: json!({"mysql": server(mariadb.address())}),
            prefix: name,
        })
    }

    pub(crate) fn config(&self, uid: &str) -> Value {
        let mut config = self.pod.config(uid);
        config["spec"]["store"] = self.store.clone();
        config["spec"]["queue"] = self.queue.clone();
        config
    }

    pub(crate) fn coordinator(&self, config: &Value) -> Running {
        Running::coordinator(&self.pod, config)
    }

    /// Keeps checksums on a server of the test's own.
    pub(crate) fn store_on(&mut self, server: &testbed::mariadb::Access) {
        let address = server.address();
        self.store =
            json!({"mysql": {"host": address.ip(), "port": address.port(), "space": "testbed"}});
        if let Location::Mysql { server, .. } = &mut self.location {
            server.port = address.port();
            server.database = "testbed".into();
        }
    }

    /// Has packs carried by a server of the test's own.
    pub(crate) fn queue_on(&mut self, server: &testbed::redis::Access) -> Result<()> {
        let address = server.address();
        self.queue["redis"]["port"] = json!(address.port());
        self.redis = redis::Client::open(server.url())?;
        self.redis_address = address;
        Ok(())
    }

    pub(crate) fn redis_address(&self) -> SocketAddr {
        self.redis_address
    }

    /// What all keys of the site begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn credential(&self, file: &str, text: &str) -> Result<()> {
        let folder = self.pod.folder.path().join("credentials");
        Ok(fs::write(folder.join(file), text)?)
    }

    /// The stored checksum of a file.
    pub(crate) async fn checksum(&self, path: &str) -> Result<String> {
        let view = View::open(&self.location).await?;
        let all = view.checksums(None, 1000).await?;
        let found = all.iter().find(|it| it.path.to_string() == path);
        let digest = found.context("no such file")?.digest.as_ref();
        Ok(digest.context("no checksum")?.to_string())
    }

    /// How many pieces of large files the store keeps for the last run.
    pub(crate) async fn pieces(&self) -> Result<u64> {
        let Ok(view) = View::open(&self.location).await else {
            return Ok(0);
        };
        let Some(run) = view.last_run().await? else {
            return Ok(0);
        };
        Ok(view.pieces(&run).await?.len() as u64)
    }

    /// Waits until this is published.
    pub(crate) async fn until_limit(&self, limit: &str) -> Result<()> {
        self.until(&format!("the limit is {limit}"), || async {
            let mut redis = self.redis.get_multiplexed_async_connection().await?;
            let keys: Vec<String> = redis.keys(format!("{}:*:data", self.prefix)).await?;
            let Some(key) = keys.first() else {
                return Ok(false);
            };
            let found: Option<String> = redis.hget(key, "max_node_throughput").await?;
            Ok(found.as_deref() == Some(limit))
        })
        .await
    }

    pub(crate) fn worker(&self, name: &str, config: &Value) -> Running {
        let pod = self.pod.beside(name);
        let child = pod.spawn(pod.command("worker", config, &[]));
        Running { pod, child }
    }

    pub(crate) async fn run(&self, config: &Value) -> Result<CoordinatorReport> {
        self.ended(self.coordinator(config)).await
    }

    pub(crate) async fn ended(&self, mut process: Running) -> Result<CoordinatorReport> {
        let began = Instant::now();
        while process.child.try_wait()?.is_none() {
            ensure!(
                began.elapsed() < PATIENCE,
                "it does not end: {}",
                self.pod.log()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(process.pod.report())
    }

    /// Files whose checksums are stored.
    pub(crate) async fn stored(&self) -> Result<i64> {
        Ok(self.counts().await?.new)
    }

    /// Of the last run, if there is one yet.
    async fn counts(&self) -> Result<Counts> {
        let Ok(view) = View::open(&self.location).await else {
            return Ok(Counts::default());
        };
        let run = view.last_run().await?;
        Ok(run.map_or_else(Counts::default, |run| run.counts))
    }

    pub(crate) async fn until_stored(&self, files: i64) -> Result<()> {
        self.until("files are stored", || async {
            Ok(self.stored().await? >= files)
        })
        .await
    }

    pub(crate) async fn until<F>(&self, what: &str, is_so: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = Result<bool>>,
    {
        let began = Instant::now();
        while !is_so().await? {
            ensure!(
                began.elapsed() < PATIENCE,
                "not so: {what}: {}",
                self.pod.log()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// All keys below the prefix.
    pub(crate) async fn keys(&self) -> Result<Vec<String>> {
        let mut redis = self.redis.get_multiplexed_async_connection().await?;
        Ok(redis.keys(format!("{}:*", self.prefix)).await?)
    }

    /// Loses all that Redis has of this site, as a restart without persistence does.
    pub(crate) async fn flush(&self) -> Result<()> {
        let mut redis = self.redis.get_multiplexed_async_connection().await?;
        let keys: Vec<String> = redis.keys(format!("{}:*", self.prefix)).await?;
        let _: () = redis.del(keys).await?;
        Ok(())
    }

    pub(crate) async fn push(&self, name: &str, element: &str) -> Result<()> {
        let mut redis = self.redis.get_multiplexed_async_connection().await?;
        let key = self.key_of_run(&format!("jobs:{name}"));
        let _: () = redis.lpush(key, element).await?;
        Ok(())
    }

    pub(crate) async fn set(&self, key: &str, value: &str) -> Result<()> {
        let mut redis = self.redis.get_multiplexed_async_connection().await?;
        let _: () = redis.set(self.key_of_run(key), value).await?;
        Ok(())
    }

    /// The jobs that were given up.
    pub(crate) async fn dead(&self) -> Result<Vec<Value>> {
        let mut redis = self.redis.get_multiplexed_async_connection().await?;
        let dead: Vec<String> = redis.zrange(self.key_of_run("dead"), 0, -1).await?;
        dead.iter()
            .map(|job| Ok(serde_json::from_str(job)?))
            .collect()
    }

    /// What the queue of the run `run` calls this.
    fn key_of_run(&self, key: &str) -> String {
        format!("{}:run:lsdf-checksum/workqueue:work:{key}", self.prefix)
    }
}
