#![expect(clippy::disallowed_methods, reason = "measures how long things take")]
//! The topic `install`: from a command to an operator that leads, on a private node. In: the image that `make image`
//! wrote. Out: rows. Touches: nodes, which it starts itself, and what `make run` touches.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use serde_json::Value;
use testbed::{Access, Cluster, Options, process::Launch, tools, wait::eventually};
use tokio::{process::Command, time::timeout};

use crate::{
    meter,
    rounds::{self, Side, Turn},
    row::{self, Measure, Row, Run, Sample},
    stats::number,
};

const NAMESPACE: &str = "orrery-system";

/// One command of those that are measured; two minutes would be a finding too.
const DEADLINE: Duration = Duration::from_mins(5);

const IMAGE: Measure = measure("image, compressed", "MB", Some(60.0));
const NODE: Measure = measure("one node ready, with the image", "s", Some(60.0));
const INSTALL: Measure = measure(
    "helm install of both charts until all pods are ready",
    "s",
    None,
);
const LEADING: Measure = measure("operator's start until it leads", "s", None);
const MEMORY: Measure = measure(
    "memory of the whole node, control plane and pods",
    "MB",
    None,
);
const OPERATOR: Measure = measure(
    "memory of the operator that leads, in its pod",
    "MB",
    Some(15.0),
);
const AGAIN: Measure = measure(
    "make run, everything built, until the sample is ready",
    "s",
    None,
);

const MEASURES: [Measure; 7] = [IMAGE, NODE, INSTALL, LEADING, MEMORY, OPERATOR, AGAIN];

const fn measure(name: &'static str, unit: &'static str, goal: Option<f64>) -> Measure {
    Measure { name, unit, goal }
}

/// Measures all of it.
pub async fn measure_all(run: &Run) -> Result<Vec<Row>> {
    let ours = [Side::Ours];
    let mut samples = rounds::run("install", &ours, async |_| {
        // As large as all that it awaits.
        counted(Box::pin(node())).await
    })
    .await?;
    samples.extend(rounds::run("make run", &ours, async |_| counted(again()).await).await?);
    row::rows(&MEASURES, &samples, run)
}

async fn counted(work: impl Future<Output = Result<Sample>>) -> Result<Turn<Sample>> {
    let measured = meter::during([], work).await?;
    Ok(Turn {
        sample: measured.output,
        load: measured.load,
    })
}

async fn node() -> Result<Sample> {
    let archive = archive();
    let size = archive
        .metadata()
        .context("no image: run `make image`")?
        .len();
    let began = Instant::now();
    let cluster = Cluster::start(Options::default().named("bench"), 1).await?;
    cluster.load(&archive).await?;
    let ready = began.elapsed();

    let began = Instant::now();
    helm(
        &cluster,
        &["orrery-crds", "charts/orrery-crds", "--create-namespace"],
    )
    .await?;
    let image = [
        "--set=image.repository=localhost/orrery",
        "--set=image.tag=dev",
    ];
    helm(
        &cluster,
        &[&["orrery", "charts/orrery"], &image[..]].concat(),
    )
    .await?;
    let installed = began.elapsed();

    let leading = leading(&cluster).await?;
    let mut operators = Vec::new();
    for pid in meter::descendants_named("orrery-operator")? {
        operators.push(meter::at_rest(pid).await?);
    }
    // The one that waits has less in its memory than the one that leads.
    let operator = operators.into_iter().max().context("no operator runs")?;
    let sample = Sample::from([
        (IMAGE.name, number(size) / 1e6),
        (NODE.name, ready.as_secs_f64()),
        (INSTALL.name, installed.as_secs_f64()),
        (LEADING.name, leading),
        (MEMORY.name, number(cluster.memory()?) / 1e6),
        (OPERATOR.name, number(operator) / 1e6),
    ]);
    cluster.shutdown().await?;
    Ok(sample)
}

/// What `make run` does, until it waits for Ctrl-C. In the foreground: a run in the background would not be ours to measure.
async fn again() -> Result<Sample> {
    let logs = tempfile::tempdir()?;
    let began = Instant::now();
    let run = repository().join("scripts/run.sh");
    let run = Launch::new("make run", run, logs.path().join("log")).spawn()?;
    eventually("the end of make run", DEADLINE, async || {
        let said = run.log()?;
        ensure!(run.is_running(), "it ended: {said}");
        Ok(said.contains("Ctrl-C ends the cluster").then_some(()))
    })
    .await?;
    let took = began.elapsed();
    run.stop(DEADLINE).await?;
    Ok(Sample::from([(AGAIN.name, took.as_secs_f64())]))
}

async fn helm(cluster: &Access, args: &[&str]) -> Result<String> {
    let mut helm = Command::new(tools::helm().await?);
    helm.args(["upgrade", "--install", "--wait", "--namespace", NAMESPACE])
        .args(args)
        .env("KUBECONFIG", cluster.kubeconfig());
    command(&mut helm).await
}

/// What it prints, run in the repository.
async fn command(command: &mut Command) -> Result<String> {
    let running = command
        .current_dir(repository())
        .kill_on_drop(true)
        .output();
    let output = timeout(DEADLINE, running)
        .await?
        .context("a command did not start")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Seconds from the first line of the leader's log to the one that says that its controllers work.
async fn leading(cluster: &Access) -> Result<f64> {
    let kubectl = async |args: &[&str]| {
        let args = [&["--namespace", NAMESPACE], args].concat();
        cluster.kubectl(&args).await?.ok()
    };
    let holder = "--output=jsonpath={.spec.holderIdentity}";
    let holder = kubectl(&["get", "lease/orrery-operator", holder]).await?;
    let (pod, _) = holder.split_once('_').context("nobody leads")?;
    between(&kubectl(&["logs", pod]).await?, "controllers started")
}

fn between(log: &str, word: &str) -> Result<f64> {
    let lines = log.lines().map(serde_json::from_str::<Value>);
    let lines: Vec<Value> = lines.collect::<Result<_, _>>()?;
    let time = |line: &Value| -> Result<Timestamp> {
        let text = line["timestamp"]
            .as_str()
            .context("a line without a time")?;
        Ok(text.parse()?)
    };
    let first = lines.first().context("an empty log")?;
    let Some(line) = lines.iter().find(|line| line["message"] == word) else {
        bail!("the log does not say `{word}`: {log}");
    };
    Ok(time(line)?.duration_since(time(first)?).as_secs_f64())
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn archive() -> PathBuf {
    let arch = if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    };
    repository().join(format!("target/image/orrery-{arch}.tar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_lead_is_read_from_the_log() {
        let log = r#"{"timestamp":"2026-11-16T23:11:46.5Z","message":"listening"}
{"timestamp":"2026-11-16T23:11:46.75Z","message":"controllers started"}"#;
        assert!((between(log, "controllers started").unwrap() - 0.25).abs() < 1e-9);
        let error = between(log, "another").unwrap_err();
        assert!(error.to_string().contains("does not say `another`"));
    }
}
