//! In: whose turn it is. Out: that side's controller, running, and what it counts of itself.
//! Touches: starts a process, and reads its metrics.

use std::{
    env,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    time::Duration,
};

use anyhow::{Result, ensure};
use http::Uri;
use runtime::http::{Client, Limits};
use testbed::{
    Access,
    process::{Launch, Process},
    wait::eventually,
};

use crate::{rounds::Side, scrape::total};

const START: Duration = Duration::from_mins(1);

/// A controller that keeps one ConfigMap per ChecksumSchedule.
pub(super) struct Contender {
    process: Process,
    metrics: Uri,
    http: Client,
}

/// What a controller counts of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counters {
    pub(super) reconciles: f64,
    pub(super) requests: f64,
}

impl Contender {
    /// Starts the side's controller and waits until it leads.
    pub(super) async fn start(side: Side, cluster: &Access, peer: &Path) -> Result<Self> {
        let [metrics, health] = free_addresses()?;
        let log = cluster.folder().join("logs/controller.log");
        let launch = match side {
            Side::Ours => ours(&log, metrics)?,
            Side::Peer => theirs(peer, &log, metrics, health),
        };
        let contender = Self {
            process: launch
                .envs([("KUBECONFIG", cluster.kubeconfig())])
                .spawn()?,
            metrics: format!("http://{metrics}/metrics").parse()?,
            http: Client::plain(Limits::default()),
        };
        contender.leads().await?;
        Ok(contender)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) async fn counters(&self) -> Result<Counters> {
        let text = self.scrape().await?;
        Ok(Counters {
            reconciles: total(&text, "controller_runtime_reconcile_total"),
            requests: total(&text, "rest_client_requests_total"),
        })
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.process.stop(START).await?;
        Ok(())
    }

    async fn leads(&self) -> Result<()> {
        eventually("the controller to lead", START, async || {
            ensure!(
                self.process.is_running(),
                "it ended: {}",
                self.process.log()?
            );
            let text = self.scrape().await?;
            Ok((total(&text, "leader_election_master_status") > 0.0).then_some(()))
        })
        .await
    }

    async fn scrape(&self) -> Result<String> {
        let answer = self.http.get(&self.metrics).await?;
        ensure!(answer.status.is_success(), "{} for metrics", answer.status);
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }
}

fn ours(log: &Path, metrics: SocketAddr) -> Result<Launch> {
    let binary = env::current_exe()?.with_file_name("one_child");
    Ok(Launch::new("one_child", binary, log).args([
        format!("--admin-address={metrics}"),
        "--lease-namespace=default".into(),
    ]))
}

fn theirs(binary: &Path, log: &Path, metrics: SocketAddr, health: SocketAddr) -> Launch {
    Launch::new("controller-runtime", binary, log).args([
        format!("--workers={}", operator::controller::CONCURRENCY),
        format!("--metrics-address={metrics}"),
        format!("--health-address={health}"),
        "--lease-namespace=default".into(),
    ])
}

/// Addresses that nobody listens on. Who takes one before it is used makes the controller fail to start.
fn free_addresses() -> Result<[SocketAddr; 2]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (first, second) = (listen()?, listen()?);
    Ok([first.local_addr()?, second.local_addr()?])
}
