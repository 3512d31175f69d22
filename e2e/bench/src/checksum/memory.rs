//! Memory: of a run that lists millions of files, and of a worker that reads. In: rules. Out: rows.
//! Touches: lists of files that need not exist, stores in files, a MariaDB, a Redis and processes.

use std::{path::Path, time::Duration};

use anyhow::{Result, ensure};
use serde_json::json;
use testbed::process::{Launch, Process};

use super::{command::orrery_checksum, goal, site::Site, tree, turn};
use crate::{
    meter,
    rounds::{self, Rules, Side},
    row::{self, Measure, Row, Run, Sample},
    stats::number,
};

const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// How often memory is looked at. The kernel keeps the peak, so that only the last moment can be missed.
const LOOK: Duration = Duration::from_millis(50);
const END: Duration = Duration::from_secs(5);
const LOOKS: usize = 20 * 60 * 15;

const MANY: Measure = goal(
    "memory of a run that lists 10 million files: peak",
    "MiB",
    128.0,
);
const GROWTH: Measure = goal("the same beside 1 million files: peak", "MiB", 1.1);
const WORKER: Measure = goal(
    "memory of a worker beyond its buffers of 2 MiB per reader: peak",
    "MiB",
    32.0,
);

/// Two turns of the same differ by some MiB.
const TIMES: usize = 3;

/// How a run ends that is stopped before any file is read.
const NOT_ALL_VERIFIED: i32 = 2;

/// Files that a worker reads at once.
const READERS: u64 = 8;
/// What each of them reads into: a block is hashed while the next comes from the medium.
const BUFFERS: u64 = 2;

pub(super) async fn measure(rules: Rules, run: &Run) -> Result<Vec<Row>> {
    let sides = [Side::Ours, Side::Peer];
    let samples = rounds::run_by(
        rules.times(TIMES),
        "listing millions",
        &sides,
        async |side| turn(listed(side)).await,
    );
    let samples = samples.await?;
    let mut rows = row::rows(&[MANY], &samples, run)?;
    let few = run.beside("1 million files");
    rows.extend(row::rows(&[GROWTH], &samples, &few)?);
    let samples = rounds::run_by(rules.times(TIMES), "a worker", &[Side::Ours], async |_| {
        turn(Box::pin(worker())).await
    });
    rows.extend(row::rows(&[WORKER], &samples.await?, run)?);
    Ok(rows)
}

async fn listed(side: Side) -> Result<Sample> {
    match side {
        Side::Ours => {
            let peak = peak_with(10_000_000).await?;
            Ok(Sample::from([(MANY.name, peak), (GROWTH.name, peak)]))
        }
        Side::Peer => Ok(Sample::from([(GROWTH.name, peak_with(1_000_000).await?)])),
    }
}

/// The peak of a run that is stopped when the store knows so many files.
async fn peak_with(files: usize) -> Result<f64> {
    let folder = tree::folder()?;
    let (list, store) = (folder.path().join("list"), folder.path().join("s.sqlite"));
    eprintln!("bench: a list of {files} files");
    tree::policy_list(&list, folder.path(), files)?;
    let run = Launch::new("local", orrery_checksum()?, folder.path().join("log"))
        .args(["local", "--quiet", "--stop-after", "sync", "--policy-list"])
        .args([&list])
        .args([Path::new("--store"), &store, folder.path()])
        .spawn()?;
    let peak = peak_until_end(&run).await?;
    Ok(peak / MEBIBYTE)
}

async fn peak_until_end(process: &Process) -> Result<f64> {
    let mut peak = 0;
    for _ in 0..LOOKS {
        tokio::time::sleep(LOOK).await;
        match meter::peak(process.pid()) {
            Ok(bytes) => peak = peak.max(bytes),
            // Who ends has no memory a moment before it has ended.
            Err(error) => {
                let Ok(status) = process.wait_exit(END).await else {
                    return Err(error);
                };
                let is_stopped = status.code() == Some(NOT_ALL_VERIFIED);
                ensure!(is_stopped, "{status}: {}", process.log()?);
                return Ok(number(peak));
            }
        }
    }
    anyhow::bail!("it does not end: {}", process.log()?)
}

/// A worker that reads large and small files as fast as it can.
async fn worker() -> Result<Sample> {
    let mut site = Site::start().await?;
    tree::sparse(&site.files(), 8, 512 << 20)?;
    tree::small(&site.files(), 50_000, 4096)?;
    site.set("concurrency", &json!(READERS));
    site.tune("bypassCache", &json!(true));
    let worker = site.worker("worker")?;
    let coordinator = site.coordinator("coordinator")?;
    coordinator.ends().await?;
    let peak = number(meter::peak(worker.pid())?) / MEBIBYTE;
    Ok(Sample::from([(
        WORKER.name,
        peak - number(READERS * BUFFERS),
    )]))
}
