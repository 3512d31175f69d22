//! Runs on real nodes: a volume with files, an embedded store and a shared one, damage that both find.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use testbed::wait::eventually;

use crate::{
    case::{Case, SCHEDULE, SOON, image},
    distributed,
};

/// Files in the volume.
pub(crate) const FILES: usize = 10_000;

/// A run over them takes seconds; two cores may be busy with other cases.
pub(crate) const A_RUN: Duration = Duration::from_mins(3);

/// A claim, and files in it whose modification time is a whole second, so that it can be put back.
const WRITE: &str = "i=0; while [ $i -lt 10000 ]; do echo \"content of $i\" >/volume/file$i; i=$((i+1)); done; \
    touch -d @1700000000 /volume/*";

/// Flips bytes of three files as a medium does: the modification time stays.
const DAMAGE: &str = "for i in 7 77 777; do \
    printf X | dd of=/volume/file$i bs=1 conv=notrunc; touch -d @1700000000 /volume/file$i; done";

#[tokio::test]
async fn a_run_verifies_a_volume_and_the_next_finds_what_was_damaged() -> Result<()> {
    Case::play_with_operator("checksum", async |case| {
        case.apply_text(CLAIM).await?;
        tokio::try_join!(in_volume(case, "writer", WRITE), distributed::install(case))?;
        tokio::try_join!(
            run(case, "first", "Full", "Verified"),
            distributed::disturbed(case)
        )?;
        let counts = ".status.files.total .status.files.new .status.files.remaining";
        ensure!(
            fields(case, "first", counts).await?
                == [FILES.to_string(), FILES.to_string(), "0".into()]
        );
        // The volume of the store belonged to root.
        let prepared = case
            .field("job/first-checksum-store", ".status.succeeded")
            .await?;
        ensure!(prepared == "1", "{prepared:?}");

        scheduled(case).await?;
        in_volume(case, "rot", DAMAGE).await?;
        tokio::try_join!(
            run(case, "second", "Full", "DamageFound"),
            distributed::finds_damage(case)
        )?;
        tells_of_damage(case).await?;

        accept(case, "file7").await?;
        // What is suspicious is read in this mode, too, until it is what it was.
        run(case, "third", "Incremental", "DamageFound").await?;
        let message = case
            .field(
                "checksumrun/third",
                ".status.conditions[?(@.type==\"Complete\")].message",
            )
            .await?;
        ensure!(message.starts_with("2 of "), "{message}");
        case.kubectl(&["delete", "checksumruns", "--all"]).await?;
        eventually("the pods to go with their runs", SOON, async || {
            let jobs = case.kubectl(&["get", "jobs", "--output=name"]).await?;
            Ok(jobs.trim().is_empty().then_some(()))
        })
        .await?;
        let store = case
            .kubectl(&["get", "pvc/home-store", "--output=name"])
            .await;
        ensure!(store.is_ok(), "the checksums went with the runs");
        Ok(())
    })
    .await
}

/// A run that the schedule makes verifies the same volume.
async fn scheduled(case: &Case) -> Result<()> {
    case.kubectl(&["annotate", SCHEDULE, "orrery.dev/run-now=now"])
        .await?;
    eventually("the schedule to tell of its run", A_RUN, async || {
        let result = case.field(SCHEDULE, ".status.lastResult").await?;
        ensure!(result.is_empty() || result == "Verified", "{result}");
        Ok((!result.is_empty()).then_some(()))
    })
    .await?;
    let verified = ".status.conditions[?(@.type==\"LastRunVerified\")].status";
    ensure!(case.field(SCHEDULE, verified).await? == "True");
    let runs = [
        "get",
        "checksumruns",
        "--output=jsonpath={.items[*].metadata.name}",
    ];
    let runs = case.kubectl(&runs).await?;
    let run = runs.split(' ').find(|it| it.starts_with("nightly-"));
    let run = run.with_context(|| format!("no run of the schedule: {runs}"))?;
    let total = fields(case, run, ".status.files.total").await?;
    ensure!(total == [FILES.to_string()], "{total:?}");
    Ok(())
}

/// Damage is in the status, the columns, the log, the events and the metrics.
async fn tells_of_damage(case: &Case) -> Result<()> {
    let counts = ".status.files.verified .status.files.corrupt .status.progressPercent";
    ensure!(fields(case, "second", counts).await? == ["9997", "3", "100"]);
    let damaged = case
        .field("checksumrun/second", ".status.corrupt[*].path")
        .await?;
    ensure!(damaged == "file7 file77 file777", "{damaged}");
    let columns = case.kubectl(&["get", "checksumrun", "second"]).await?;
    ensure!(
        columns.contains("DamageFound") && columns.contains("100%"),
        "{columns}"
    );
    let log = "--selector=batch.kubernetes.io/job-name=second-checksum";
    let log = case.kubectl(&["logs", log, "--tail=-1"]).await?;
    ensure!(log.contains("file777") && log.contains("damaged"), "{log}");
    let of_run = "--field-selector=involvedObject.name=second";
    let reasons = "--output=jsonpath={.items[*].reason}";
    let events = case.kubectl(&["get", "events", of_run, reasons]).await?;
    ensure!(events.contains("DamageFound"), "{events}");

    eventually("the damage as a metric", SOON, async || {
        let metrics = case.metrics().await?;
        let told = "store=\"home-store\",file_system=\"home\"} 3";
        let mut lines = metrics.lines();
        let is_told = |line: &str| {
            line.starts_with("orrery_checksum_store_open_warnings{") && line.ends_with(told)
        };
        Ok(lines.any(is_told).then_some(()))
    })
    .await
}

const CLAIM: &str = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: home}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 100Mi}}
";

/// Runs a script that may write to the volume, to its end.
async fn in_volume(case: &Case, name: &str, script: &str) -> Result<()> {
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "script", "image": "localhost/busybox:1", "command": ["sh", "-c", script],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "volume", "mountPath": "/volume"}],
            }],
            "volumes": [{"name": "volume", "persistentVolumeClaim": {"claimName": "home"}}],
        },
    });
    case.apply_text(&pod.to_string()).await?;
    eventually("the script to end", A_RUN, async || {
        let phase = case.field(&format!("pod/{name}"), ".status.phase").await?;
        ensure!(
            phase != "Failed",
            "{}",
            case.kubectl(&["logs", name]).await?
        );
        Ok((phase == "Succeeded").then_some(()))
    })
    .await
}

/// Says that the content of a file is right as it is, in the way that the page shows.
async fn accept(case: &Case, file: &str) -> Result<()> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/checksumrun.md");
    let page = std::fs::read_to_string(page)?;
    let from = page
        .find("apiVersion: batch/v1")
        .context("the page shows no Job")?;
    let job = page[from..].split("```").next().unwrap_or_default();
    let job = job
        .replace("registry.example.com/orrery:1", &image())
        .replace("photos/1998/beach.tif", file);
    case.apply_text(&job).await?;
    eventually("the content to be accepted", SOON, async || {
        let failed = case.field("job/accept", ".status.failed").await?;
        ensure!(
            failed.is_empty(),
            "{}",
            case.kubectl(&["logs", "job/accept"]).await?
        );
        let done = case.field("job/accept", ".status.succeeded").await?;
        Ok((done == "1").then_some(()))
    })
    .await?;
    case.kubectl(&["delete", "job/accept"]).await.map(drop)
}

/// Makes a run, and waits until it has ended with this result.
async fn run(case: &Case, name: &str, mode: &str, result: &str) -> Result<()> {
    let run = serde_json::json!({
        "apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumRun", "metadata": {"name": name},
        "spec": {
            "source": {"persistentVolumeClaim": {"claimName": "home"}},
            "mode": mode,
            "store": {"embedded": {"claimName": "home-store", "size": "100Mi", "storageClassName": "root-owned"}},
        },
    });
    case.apply_text(&run.to_string()).await?;
    ends(case, name, result).await
}

/// Waits until a run has ended with this result.
pub(crate) async fn ends(case: &Case, name: &str, result: &str) -> Result<()> {
    eventually(&format!("{name} to end"), A_RUN, async || {
        let path = ".status.conditions[?(@.type==\"Complete\")].reason";
        let reason = case.field(&format!("checksumrun/{name}"), path).await?;
        ensure!(
            reason.is_empty() || reason == result,
            "it ended with {reason}"
        );
        Ok((reason == result).then_some(()))
    })
    .await
}

pub(crate) async fn fields(case: &Case, run: &str, paths: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for path in paths.split(' ') {
        found.push(case.field(&format!("checksumrun/{run}"), path).await?);
    }
    Ok(found)
}
