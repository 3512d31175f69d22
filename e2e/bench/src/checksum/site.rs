//! A coordinator and workers as processes, around a MariaDB and a Redis of their own. In: files and settings.
//! Out: processes. Touches: all of these, gone with their handles.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use crds::report::checksum::CoordinatorReport;
use runtime::http::{Client, Limits};
use serde_json::{Value, json};
use sqlx::{ConnectOptions as _, Executor as _, mysql::MySqlConnectOptions};
use tempfile::TempDir;
use testbed::{
    SharedStore, mariadb,
    process::{Launch, Process},
    redis,
};

use super::{command::orrery_checksum, packs::Packs, tree};
use crate::scrape::total;

/// Who logs in, and with what: the testbed's.
pub(super) const LOGIN: &str = "testbed";

/// The database, and the prefix of all keys.
pub(super) const SPACE: &str = "bench";

/// The run's own part of that prefix.
const RUN: &str = "run";

/// Longer than any run that is measured.
const DEADLINE: Duration = Duration::from_mins(5);

pub(super) struct Site {
    folder: TempDir,
    _mariadb: SharedStore<mariadb::Access>,
    redis: SharedStore<redis::Access>,
    spec: Value,
}

/// A coordinator or a worker; killed when it is dropped.
pub(super) struct Member {
    process: Process,
    own: PathBuf,
    admin: SocketAddr,
}

impl Site {
    pub(super) async fn start() -> Result<Self> {
        let folder = tree::folder()?;
        for name in ["files", "credentials"] {
            fs::create_dir_all(folder.path().join(name))?;
        }
        for name in ["store-username", "store-password", "queue-password"] {
            fs::write(folder.path().join("credentials").join(name), LOGIN)?;
        }
        let (mariadb, redis) = (testbed::mariadb().await?, testbed::redis().await?);
        create_database(&mariadb.url()).await?;
        let server = |it: SocketAddr| json!({"host": it.ip(), "port": it.port(), "space": SPACE});
        let spec = json!({
            "run": "bench/run", "fileSystem": "files", "root": folder.path().join("files"),
            "mode": "Full", "algorithm": "blake3", "deletionGuardPercent": 10,
            "store": {"mysql": server(mariadb.address())},
            "queue": {"redis": server(redis.address())},
            "concurrency": 2,
            "tuning": {
                "packBytes": 5_242_880, "packFiles": 1000, "syncConcurrency": 2,
                "syncChunkRows": 100_000, "writeBackConcurrency": 2, "writeBackBatch": 500,
                "bypassCache": false,
            },
        });
        Ok(Self {
            folder,
            _mariadb: mariadb,
            redis,
            spec,
        })
    }

    /// The folder that is read.
    pub(super) fn files(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    /// Changes a setting for those that are started from now on.
    pub(super) fn set(&mut self, name: &str, value: &Value) {
        self.spec[name] = value.clone();
    }

    /// Changes how the machinery works.
    pub(super) fn tune(&mut self, name: &str, value: &Value) {
        self.spec["tuning"][name] = value.clone();
    }

    pub(super) async fn packs(&self) -> Result<Packs> {
        let prefix = format!("{SPACE}:{RUN}");
        Packs::open(&self.redis.url(), &prefix).await
    }

    pub(super) fn worker(&self, name: &str) -> Result<Member> {
        self.member("worker", name, &[])
    }

    /// So many, with names by their numbers.
    pub(super) fn workers(&self, count: usize) -> Result<Vec<Member>> {
        let names = (0..count).map(|n| format!("worker-{n}"));
        names.map(|name| self.worker(&name)).collect()
    }

    pub(super) fn coordinator(&self, name: &str) -> Result<Member> {
        let message = self.folder.path().join(name).join("message");
        let message = message.to_str().context("a folder that is not UTF-8")?;
        let more = ["--linger=0s", "--termination-message", message];
        self.member("coordinator", name, &more)
    }

    fn member(&self, role: &str, name: &str, more: &[&str]) -> Result<Member> {
        let own = self.folder.path().join(name);
        for part in ["config", "tls", "spill"] {
            fs::create_dir_all(own.join(part))?;
        }
        let config = json!({"version": 1, "uid": RUN, "generation": 1, "spec": self.spec});
        fs::write(own.join("config/config.json"), config.to_string())?;
        let [admin, control] = free_addresses()?;
        let at = |flag: &str, value: PathBuf| format!("--{flag}={}", value.display());
        let process = Launch::new(name, orrery_checksum()?, own.join("log"))
            .args([role])
            .args(more.iter().copied())
            .args([format!("--pod-uid={name}")])
            .args([format!("--admin-address={admin}")])
            .args([format!("--control-address={control}")])
            .args([
                at("config-folder", own.join("config")),
                at("tls-folder", own.join("tls")),
                at("spill-folder", own.join("spill")),
                at("store-folder", own.join("store")),
                at("credentials-folder", self.folder.path().join("credentials")),
            ])
            .spawn()?;
        Ok(Member {
            process,
            own,
            admin,
        })
    }
}

impl Member {
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) fn is_running(&self) -> bool {
        self.process.is_running()
    }

    pub(super) async fn kill(&self) -> Result<()> {
        self.process.kill().await.map(drop)
    }

    /// Waits until a coordinator has ended, all files verified.
    pub(super) async fn ends(&self) -> Result<()> {
        self.process.wait_exit(DEADLINE).await?;
        let message = fs::read_to_string(self.own.join("message"));
        let message = message.with_context(|| self.process.log().unwrap_or_default())?;
        let report: CoordinatorReport = serde_json::from_str(&message)?;
        let result = report.result.context("the run has no result")?;
        ensure!(result.reason == "Verified", "{result:?}");
        Ok(())
    }

    /// Bytes of files that a worker has read, as it counts them itself: up to a second late.
    pub(super) async fn has_read(&self) -> Result<f64> {
        let metrics = format!("http://{}/metrics", self.admin).parse()?;
        let answer = Client::plain(Limits::default()).get(&metrics).await?;
        let text = String::from_utf8_lossy(&answer.body);
        Ok(total(&text, "orrery_checksum_read_bytes_total"))
    }

    /// Bytes that the kernel has given to the process for reads of files, as of now.
    pub(super) fn was_given(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/io", self.pid()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
        Ok(line.context("no rchar")?.parse()?)
    }
}

pub(super) async fn create_database(url: &str) -> Result<()> {
    let options: MySqlConnectOptions = url.parse()?;
    let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {SPACE}"));
    let mut link = options.connect().await?;
    link.execute(sqlx::raw_sql(create)).await?;
    Ok(())
}

/// Addresses that nobody listens on. Who takes one before it is used makes the process fail to start.
fn free_addresses() -> Result<[SocketAddr; 2]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (first, second) = (listen()?, listen()?);
    Ok([first.local_addr()?, second.local_addr()?])
}
