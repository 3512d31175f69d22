//! In: nothing. Out: samples of the operator at rest, of its watches, and of a pass that has nothing to do.
//! Touches: a control plane of its own, and the processes that are measured.

use std::{env, time::Duration};

use anyhow::{Result, ensure};
use testbed::{
    Access, Kubernetes,
    process::{Launch, Process},
    repository_crds,
    wait::eventually,
};

use super::{noop, seed};
use crate::{
    meter,
    rounds::{self, Side, Turn},
    row::{Measure, Sample},
    stats::number,
};

const START: Duration = Duration::from_mins(1);

const IDLE: Measure = Measure {
    name: "memory of the operator, idle, no objects",
    unit: "MB",
    goal: Some(15.0),
};
const WATCHED: Measure = Measure {
    name: "memory with 1,000 schedules, 1,000 runs and 10,000 pods watched",
    unit: "MB",
    goal: Some(70.0),
};
const PASS: Measure = Measure {
    name: "CPU of a pass with nothing to do, 100 runs and 100 pods observed",
    unit: "µs",
    goal: Some(100.0),
};
const REQUESTS: Measure = Measure {
    name: "requests of 20,000 such passes",
    unit: "",
    goal: Some(0.0),
};

pub(super) const MEASURES: [Measure; 4] = [IDLE, WATCHED, PASS, REQUESTS];

pub(super) async fn samples() -> Result<Vec<(Side, Sample)>> {
    let cluster = Kubernetes::start(repository_crds()?.named("bench")).await?;
    let mut samples = rounds::run("idle", &[Side::Ours], async |_| idle(&cluster).await).await?;
    eprintln!("bench: creating 12,000 objects, about a minute");
    seed::objects(&cluster).await?;
    let watched = rounds::run("watched", &[Side::Ours], async |_| watched(&cluster).await);
    samples.extend(watched.await?);
    let passes = rounds::run("passes", &[Side::Ours], async |_| passes(&cluster).await);
    samples.extend(passes.await?);
    cluster.shutdown().await?;
    Ok(samples)
}

/// The resident memory of the shipped binary once it leads and is quiet.
async fn idle(cluster: &Access) -> Result<Turn<Sample>> {
    let args = ["--admin-address=127.0.0.1:0", "--lease-namespace=default"];
    resident(
        cluster,
        "orrery-operator",
        &args,
        "controllers started",
        IDLE,
    )
    .await
}

/// The resident memory of a process that watches what was seeded.
async fn watched(cluster: &Access) -> Result<Turn<Sample>> {
    resident(cluster, "watching", &[], "synced", WATCHED).await
}

/// The resident memory of a program that was built with this one, once it has said a word and is quiet.
async fn resident(
    cluster: &Access,
    program: &str,
    args: &[&str],
    word: &str,
    measure: Measure,
) -> Result<Turn<Sample>> {
    let binary = env::current_exe()?.with_file_name(program);
    let logs = tempfile::tempdir_in(cluster.folder())?;
    let process = Launch::new(program, binary, logs.path().join("log"))
        .args(args.iter().copied())
        .envs([("KUBECONFIG", cluster.kubeconfig())])
        .spawn()?;
    let measured = meter::during([], async {
        said(&process, word).await?;
        meter::at_rest(process.pid()).await
    });
    let measured = measured.await?;
    process.stop(START).await?;
    Ok(Turn {
        sample: Sample::from([(measure.name, number(measured.output) / 1e6)]),
        load: measured.load,
    })
}

async fn said(process: &Process, word: &str) -> Result<()> {
    eventually(&format!("`{word}` in the log"), START, async || {
        let log = process.log()?;
        ensure!(process.is_running(), "it ended: {log}");
        Ok(log.contains(word).then_some(()))
    })
    .await
}

async fn passes(cluster: &Access) -> Result<Turn<Sample>> {
    let measured = meter::during([], Box::pin(noop::measure(cluster))).await?;
    let noop = measured.output;
    Ok(Turn {
        sample: Sample::from([
            (PASS.name, noop.microseconds),
            (REQUESTS.name, noop.requests),
        ]),
        load: measured.load,
    })
}
