//! Memory and CPU of the operator's core on a real API server. Prints a table.
//! `footprint` seeds the server and starts the two measured processes; `footprint watch` is one of them.
#![expect(
    clippy::disallowed_methods,
    reason = "a tool that measures sets its own stage"
)]
#![expect(clippy::print_stdout, reason = "the table is its output")]

mod noop;
mod seed;
mod watchers;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use testbed::{
    Shared,
    process::{Launch, Process},
    wait::eventually,
};

const START: Duration = Duration::from_mins(1);

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    runtime::tls::install_crypto_provider();
    if std::env::args().nth(1).as_deref() == Some("watch") {
        return watchers::watch().await;
    }
    let cluster = testbed::kubernetes().await?;
    let mut table = Table::default();
    table.row(
        "operator idle, no objects",
        "15 MB",
        megabytes(idle_operator(&cluster).await?),
    );
    seed::objects(&cluster).await?;
    table.row(
        "1,000 schedules, 1,000 runs and 10,000 pods watched",
        "70 MB",
        megabytes(watching(&cluster).await?),
    );
    let noop = noop::measure(&cluster).await?;
    table.row(
        "a pass with nothing to do, 100 runs and 100 pods observed",
        "100 µs CPU",
        format!("{:.1} µs CPU", noop.microseconds),
    );
    table.row("requests of such a pass", "0", noop.requests.to_string());
    table.print();
    Ok(())
}

/// The resident memory of the shipped binary once it leads and is quiet.
async fn idle_operator(cluster: &Shared) -> Result<u64> {
    let binary = std::env::current_exe()?
        .with_file_name("")
        .join("../orrery-operator");
    let log = cluster.folder().join("logs/footprint-operator.log");
    let operator = Launch::new("operator", binary, log)
        .args([
            "--admin-address",
            "127.0.0.1:0",
            "--lease-namespace",
            "default",
        ])
        .envs([("KUBECONFIG", cluster.kubeconfig())])
        .spawn()?;
    let resident = settled(&operator, "controllers started").await;
    operator.stop(START).await?;
    resident
}

/// The resident memory of a process that watches what was seeded.
async fn watching(cluster: &Shared) -> Result<u64> {
    let log = cluster.folder().join("logs/footprint-watch.log");
    let watcher = Launch::new("watch", std::env::current_exe()?, log)
        .args(["watch"])
        .envs([("KUBECONFIG", cluster.kubeconfig())])
        .spawn()?;
    let resident = settled(&watcher, "synced").await;
    watcher.stop(START).await?;
    resident
}

/// Waits for a word in the log, and then until the memory stays the same for five looks.
async fn settled(process: &Process, word: &str) -> Result<u64> {
    eventually(&format!("`{word}` in the log"), START, async || {
        let log = process.log()?;
        ensure!(process.is_running(), "it ended: {log}");
        Ok(log.contains(word).then_some(()))
    })
    .await?;
    let mut looks: Vec<u64> = Vec::new();
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        looks.push(resident(process.pid())?);
        if let [.., a, b, c, d, e] = looks[..]
            && [b, c, d, e].iter().all(|x| *x == a)
        {
            return Ok(e);
        }
    }
    looks.last().copied().context("no look was taken")
}

fn resident(pid: u32) -> Result<u64> {
    let path: PathBuf = format!("/proc/{pid}/status").into();
    let status = std::fs::read_to_string(path)?;
    for line in status.lines() {
        if let Some(rest) = line.strip_prefix("VmRSS:") {
            let kib: u64 = rest.trim().trim_end_matches(" kB").parse()?;
            return Ok(kib * 1024);
        }
    }
    bail!("no VmRSS")
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
}

#[derive(Default)]
struct Table(Vec<[String; 3]>);

impl Table {
    fn row(&mut self, what: &str, goal: &str, measured: String) {
        self.0.push([what.into(), goal.into(), measured]);
    }

    fn print(&self) {
        println!("| measure | goal, at most | measured |\n|---|---|---|");
        for [what, goal, measured] in &self.0 {
            println!("| {what} | {goal} | {measured} |");
        }
    }
}
