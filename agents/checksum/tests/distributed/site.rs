//! A coordinator's pod and workers' pods around a database and a Redis of real servers.

use std::fs;
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use checksum::store::{Location, Mysql, Password, View};
use crds::report::checksum::CoordinatorReport;
use redis::AsyncCommands as _;
use serde_json::{Value, json};
use sqlx::{ConnectOptions as _, Executor as _};

use crate::pod::Pod;

const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Site {
    pub(crate) pod: Pod,
    location: Location,
    redis: redis::Client,
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
        let server = |address: std::net::SocketAddr| json!({"host": address.ip(), "port": address.port(), "space": name});
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
        let pod = self.pod.beside("pod");
        let child = pod.start(config);
        Running { pod, child }
    }

    pub(crate) fn worker(&self, name: &str, config: &Value) -> Running {
        let pod = self.pod.beside(name);
        let child = pod.start_as("worker", config, &[]);
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
        Ok(self.pod.report())
    }

    /// Files whose checksums are stored.
    pub(crate) async fn stored(&self) -> Result<i64> {
        let Ok(view) = View::open(&self.location).await else {
            return Ok(0);
        };
        Ok(view.last_run().await?.map_or(0, |run| run.counts.new))
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

    /// All keys below the prefix but those of living pools, which come and go with the processes.
    pub(crate) async fn keys(&self) -> Result<Vec<String>> {
        let mut redis = self.redis.get_multiplexed_async_connection().await?;
        let keys: Vec<String> = redis.keys(format!("{}:*", self.prefix)).await?;
        let is_pool = |key: &String| key.contains(":worker_pools") || key.contains(":worker:");
        // The workers still look for packs.
        let is_served =
            |key: &String| key.contains("ComputeChecksum") || key.ends_with(":known_jobs");
        Ok(keys
            .into_iter()
            .filter(|key| !is_pool(key) && !is_served(key))
            .collect())
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
        let key = format!(
            "{}:run:lsdf-checksum/workqueue:work:jobs:{name}",
            self.prefix
        );
        let _: () = redis.lpush(key, element).await?;
        Ok(())
    }
}
