#![expect(clippy::disallowed_methods, reason = "measures how long things take")]
//! One large file, read in pieces by several workers. In: rules. Out: rows.
//! Touches: a file, a MariaDB, a Redis and processes.

use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use super::{goal, site::Site, tree, turn};
use crate::{
    rounds::{self, Rules, Side},
    row::{self, Measure, Row, Run, Sample},
};

const BYTES: u64 = 8 << 30;

/// Bytes per second of each worker: four of them are no more than one core can hash.
const RATE: u64 = 256 << 20;

const WORKERS: usize = 4;

const SPLIT: Measure = goal(
    "one file of 8 GiB, 4 workers of 256 MiB/s each: time",
    "s",
    0.4,
);

pub(super) async fn measure(rules: Rules, run: &Run) -> Result<Vec<Row>> {
    let sides = [Side::Ours, Side::Peer];
    let samples = rounds::run_by(rules.times(1), "a large file", &sides, async |side| {
        let workers = if side == Side::Ours { WORKERS } else { 1 };
        turn(Box::pin(read_by(workers))).await
    });
    row::rows(&[SPLIT], &samples.await?, &run.beside("one such worker"))
}

async fn read_by(workers: usize) -> Result<Sample> {
    let mut site = Site::start().await?;
    tree::sparse(&site.files(), 1, BYTES)?;
    site.set("maxThroughputPerWorker", &json!(RATE));
    // A hole that goes through the page cache takes as much memory as the file is large, and the cores make that.
    site.tune("bypassCache", &json!(true));
    let _workers = site.workers(workers)?;
    let began = Instant::now();
    site.coordinator("coordinator")?.ends().await?;
    let took = began.elapsed().as_secs_f64();
    Ok(Sample::from([(SPLIT.name, took)]))
}
