#![expect(clippy::disallowed_methods, reason = "measures how long things take")]
//! Processes that are killed: when is the work of one gone on with, and how much of it is done twice. In: rules. Out: rows.
//! Touches: files, a MariaDB, a Redis and processes.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::json;
use testbed::wait::eventually;
use tokio::time::sleep;

use super::{
    goal,
    packs::Packs,
    site::{Member, Site},
    tree, turn,
};
use crate::{
    rounds::{self, Rules, Side},
    row::{self, Measure, Row, Run, Sample},
    stats::number,
};

const FILES: u64 = 6000;
const BYTES: u64 = 4096;

/// Files in a pack.
const PACK: u64 = 20;

/// Bytes per second of each worker: a pack takes most of a second.
const RATE: u64 = 200 << 10;

const SOON: Duration = Duration::from_mins(2);

/// Longer than workers take to tell what they have read.
const TOLD: Duration = Duration::from_secs(3);

const WORKER: Measure = goal(
    "a worker is killed: until all of its packs are being read again",
    "s",
    30.0,
);
const COORDINATOR: Measure = goal(
    "a coordinator is killed: packs that are read twice",
    "",
    1.0,
);

pub(super) async fn measure(rules: Rules, run: &Run) -> Result<Vec<Row>> {
    let rules = rules.times(1);
    let worker = rounds::run_by(rules, "a killed worker", &[Side::Ours], async |_| {
        turn(Box::pin(worker_killed())).await
    });
    let mut rows = row::rows(&[WORKER], &worker.await?, run)?;
    let coordinator = rounds::run_by(rules, "a killed coordinator", &[Side::Ours], async |_| {
        turn(Box::pin(coordinator_killed())).await
    });
    // What is in flight when it happens is the measure of what is read twice.
    let mut samples = Vec::new();
    for (_, mut both) in coordinator.await? {
        let in_flight = both.remove(IN_FLIGHT).unwrap_or_default();
        samples.push((Side::Ours, both));
        samples.push((Side::Peer, Sample::from([(COORDINATOR.name, in_flight)])));
    }
    let beside = run.beside("packs in flight when it is killed");
    rows.extend(row::rows(&[COORDINATOR], &samples, &beside)?);
    Ok(rows)
}

const IN_FLIGHT: &str = "in flight";

async fn site() -> Result<Site> {
    let mut site = Site::start().await?;
    tree::small(
        &site.files(),
        usize::try_from(FILES)?,
        usize::try_from(BYTES)?,
    )?;
    site.tune("packFiles", &json!(PACK));
    site.set("maxThroughputPerWorker", &json!(RATE));
    Ok(site)
}

/// Seconds from the death of a worker until the other has begun with all of its packs.
async fn worker_killed() -> Result<Sample> {
    let site = site().await?;
    let (victim, other) = (site.worker("worker-1")?, site.worker("worker-2")?);
    let _coordinator = site.coordinator("coordinator")?;
    let mut packs = site.packs().await?;
    let lost = eventually("packs of a worker", SOON, async || {
        let mut packs = site.packs().await?;
        let pool = packs.pool_of(victim.pid()).await?;
        let held = packs.in_progress().await?.remove(&pool);
        Ok(held.filter(|it| it.len() > 1))
    });
    lost.await?;
    let pool = packs.pool_of(victim.pid()).await?;
    victim.kill().await?;
    let killed = Instant::now();
    let lost = packs.in_progress().await?.remove(&pool).unwrap_or_default();
    ensure!(
        !lost.is_empty(),
        "the worker had no pack when it was killed"
    );
    let heir = packs.pool_of(other.pid()).await?;
    begun(&mut packs, &heir, &lost).await?;
    Ok(Sample::from([(
        WORKER.name,
        killed.elapsed().as_secs_f64(),
    )]))
}

/// Waits until a pool has begun with all of these packs.
async fn begun(packs: &mut Packs, pool: &str, wanted: &[String]) -> Result<()> {
    let mut left: BTreeSet<&String> = wanted.iter().collect();
    let began = Instant::now();
    while !left.is_empty() {
        ensure!(began.elapsed() < SOON, "nobody reads {left:?}");
        let held = packs.in_progress().await?.remove(pool).unwrap_or_default();
        left.retain(|pack| !held.contains(pack));
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// How many packs are read twice by workers whose coordinator dies in the middle and has a successor.
async fn coordinator_killed() -> Result<Sample> {
    let mut site = site().await?;
    site.set("maxThroughputPerWorker", &json!(4 * RATE));
    let workers = [site.worker("worker-1")?, site.worker("worker-2")?];
    let first = site.coordinator("coordinator-1")?;
    eventually("a third of the files", SOON, async || {
        let read = read_by(&workers).await?;
        Ok((read > number(FILES * BYTES / 3)).then_some(()))
    })
    .await?;
    first.kill().await?;
    let in_flight = site.packs().await?.in_flight().await?;
    let second = site.coordinator("coordinator-2")?;
    second.ends().await?;
    sleep(TOLD).await;
    let again = read_by(&workers).await? - number(FILES * BYTES);
    Ok(Sample::from([
        (COORDINATOR.name, again / number(PACK * BYTES)),
        (IN_FLIGHT, number(in_flight)),
    ]))
}

async fn read_by(workers: &[Member]) -> Result<f64> {
    let mut sum = 0.0;
    for worker in workers {
        sum += worker.has_read().await?;
    }
    Ok(sum)
}
