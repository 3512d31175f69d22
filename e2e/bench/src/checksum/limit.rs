#![expect(clippy::disallowed_methods, reason = "measures how long things take")]
//! The limit of bytes per second that all workers share. In: rules. Out: rows.
//! Touches: files, a MariaDB, a Redis and processes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use testbed::wait::eventually;
use tokio::time::sleep;

use super::{
    goal,
    site::{Member, Site},
    tree, turn,
};
use crate::{
    rounds::{self, Rules, Side},
    row::{self, Measure, Row, Run, Sample},
    stats::number,
};

/// How long it is measured.
const WINDOW: Duration = Duration::from_secs(30);

/// From the first byte until all workers know their share.
const SETTLED: Duration = Duration::from_secs(5);

const START: Duration = Duration::from_mins(2);

/// Bytes per second for large files, and for small ones.
const FAST: u64 = 40 << 20;
const SLOW: u64 = 8 << 20;

#[derive(Clone, Copy)]
struct Case {
    measure: Measure,
    limit: u64,
    workers: usize,
}

const CASES: [Case; 4] = [
    case("limit of 40 MiB/s, large files, 1 worker: off by", FAST, 1),
    case("limit of 40 MiB/s, large files, 4 workers: off by", FAST, 4),
    case(
        "limit of 8 MiB/s, files of 4 KiB, 1 worker: off by",
        SLOW,
        1,
    ),
    case(
        "limit of 8 MiB/s, files of 4 KiB, 4 workers: off by",
        SLOW,
        4,
    ),
];

const fn case(name: &'static str, limit: u64, workers: usize) -> Case {
    Case {
        measure: goal(name, "%", 5.0),
        limit,
        workers,
    }
}

pub(super) async fn measure(rules: Rules, run: &Run) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for case in CASES {
        let name = case.measure.name;
        let samples = rounds::run_by(rules.times(1), name, &[Side::Ours], async |_| {
            turn(Box::pin(off_by(case))).await
        });
        rows.extend(row::rows(&[case.measure], &samples.await?, run)?);
    }
    Ok(rows)
}

async fn off_by(case: Case) -> Result<Sample> {
    let mut site = Site::start().await?;
    if case.limit == FAST {
        tree::sparse(&site.files(), 16, 128 << 20)?;
    } else {
        tree::small(&site.files(), 100_000, 4096)?;
    }
    site.set("maxThroughput", &json!(case.limit));
    let workers = site.workers(case.workers)?;
    let coordinator = site.coordinator("coordinator")?;
    eventually("bytes that are read", START, async || {
        Ok((given(&workers)? > case.limit).then_some(()))
    })
    .await?;
    sleep(SETTLED).await;
    let (before, began) = (given(&workers)?, Instant::now());
    sleep(WINDOW).await;
    let (after, took) = (given(&workers)?, began.elapsed().as_secs_f64());
    let is_reading = coordinator.is_running();
    ensure!(is_reading, "all was read before the time was over");
    let rate = number(after - before) / took;
    let off = (rate / number(case.limit) - 1.0) * 100.0;
    eprintln!("bench: {off:+.2} %");
    Ok(Sample::from([(case.measure.name, off.abs())]))
}

fn given(workers: &[Member]) -> Result<u64> {
    let mut sum = 0;
    for worker in workers {
        sum += worker.was_given()?;
    }
    Ok(sum)
}
