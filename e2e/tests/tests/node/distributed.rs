//! A run with workers: MariaDB and Redis as pods, a worker that is killed, another number of workers, suspension.
//! In: a case whose claim `home` has files. Out: nothing but that every claim held.

use anyhow::{Result, ensure};
use e2e::{operator::repository, render};
use serde_json::{Value, json};
use testbed::wait::eventually;

use crate::{
    case::{Case, SOON},
    checksum::{A_RUN, FILES, ends, fields},
};

/// At this rate the files take three workers a minute, and fewer longer: time enough to disturb them.
const SLOW: &str = "1Ki";

/// Starts both engines in the namespace of the case.
pub(crate) async fn install(case: &Case) -> Result<()> {
    let install = async |engine: &str| {
        let script = repository().join(format!("e2e/engines/{engine}.sh"));
        let said = render::run(&script, &["install", &case.namespace]).await?;
        said.ok().map(drop)
    };
    tokio::try_join!(install("mariadb"), install("redis"))?;
    Ok(())
}

/// The first run ends well, whatever becomes of its workers.
pub(crate) async fn disturbed(case: &Case) -> Result<()> {
    make(
        case,
        "shared-first",
        json!({"replicas": 2, "maxThroughputPerWorker": SLOW}),
    )
    .await?;
    let run = "checksumrun/shared-first";
    workers(case, run, 2).await?;
    let pods = worker_pods(case, "shared-first").await?;
    case.kubectl(&["delete", &pods[0], "--grace-period=0", "--force"])
        .await?;

    case.kubectl(&["scale", run, "--replicas=3"]).await?;
    workers(case, run, 3).await?;
    let now = worker_pods(case, "shared-first").await?;
    ensure!(
        now.len() == 3 && !now.contains(&pods[0]),
        "{pods:?} {now:?}"
    );
    ensure!(case.field(run, ".status.state").await? == "WorkQueue");

    patch(case, run, &json!({"suspend": true})).await?;
    reason(case, run, "Suspended").await?;
    eventually("the workers to go", SOON, async || {
        Ok(worker_pods(case, "shared-first")
            .await?
            .is_empty()
            .then_some(()))
    })
    .await?;
    let remaining: u64 = case.field(run, ".status.files.remaining").await?.parse()?;
    ensure!(remaining > 0, "all was read before anybody was disturbed");
    let go_on = json!({"suspend": false, "workers": {"maxThroughputPerWorker": null}});
    patch(case, run, &go_on).await?;
    ends(case, "shared-first", "Verified").await?;
    let counts = ".status.files.total .status.files.new .status.files.remaining";
    let found = fields(case, "shared-first", counts).await?;
    let all = FILES.to_string();
    ensure!(found == [all.clone(), all, "0".into()], "{found:?}");
    let left = case
        .kubectl(&["get", "deployments", "--output=name"])
        .await?;
    ensure!(!left.contains("shared-first"), "{left}");
    Ok(())
}

/// The second finds what was damaged meanwhile.
pub(crate) async fn finds_damage(case: &Case) -> Result<()> {
    make(case, "shared-second", json!({"replicas": 2})).await?;
    ends(case, "shared-second", "DamageFound").await?;
    let counts = ".status.files.verified .status.files.corrupt .status.progressPercent";
    let found = fields(case, "shared-second", counts).await?;
    ensure!(found == ["9997", "3", "100"], "{found:?}");
    let run = "checksumrun/shared-second";
    let damaged = case.field(run, ".status.corrupt[*].path").await?;
    ensure!(damaged == "file7 file77 file777", "{damaged}");
    let columns = case.kubectl(&["get", run]).await?;
    for word in ["DamageFound", "Full", "100%", "10000"] {
        ensure!(columns.contains(word), "{word}: {columns}");
    }
    Ok(())
}

async fn make(case: &Case, name: &str, workers: Value) -> Result<()> {
    let run = json!({
        "apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumRun", "metadata": {"name": name},
        "spec": {
            "source": {"persistentVolumeClaim": {"claimName": "home"}},
            "store": {"mysql": {"host": "mariadb", "database": "checksums", "credentialsRef": {"name": "mariadb"}}},
            "queue": {"redis": {"host": "redis", "credentialsRef": {"name": "redis"}}},
            "workers": workers,
            "tuning": {"packFiles": 100},
        },
    });
    case.apply_text(&run.to_string()).await.map(drop)
}

async fn patch(case: &Case, run: &str, spec: &Value) -> Result<()> {
    let spec = json!({ "spec": spec }).to_string();
    case.kubectl(&["patch", run, "--type=merge", "--patch", &spec])
        .await
        .map(drop)
}

/// Waits until so many workers are there, in the eyes of the run and of whoever asks for its scale.
async fn workers(case: &Case, run: &str, expected: usize) -> Result<()> {
    let (ready, scaled) = (".status.workers", ".status.replicas");
    eventually(&format!("{expected} workers"), A_RUN, async || {
        let ready = case.field(run, ready).await?;
        let scale = format!("--output=jsonpath={{{scaled}}}");
        let scaled = case
            .kubectl(&["get", run, "--subresource=scale", &scale])
            .await?;
        let seen = [ready, scaled];
        ensure!(
            seen == [expected.to_string(), expected.to_string()],
            "{seen:?}"
        );
        Ok(Some(()))
    })
    .await
}

/// Worker pods that are not ending.
async fn worker_pods(case: &Case, run: &str) -> Result<Vec<String>> {
    let selector =
        format!("--selector=orrery.dev/checksum-run={run},orrery.dev/agent=checksum-worker");
    let pods = case
        .kubectl(&["get", "pods", &selector, "--output=name"])
        .await?;
    Ok(pods.lines().map(str::to_owned).collect())
}

async fn reason(case: &Case, run: &str, expected: &str) -> Result<()> {
    eventually(expected, SOON, async || {
        let path = ".status.conditions[?(@.type==\"Ready\")].reason";
        let reason = case.field(run, path).await?;
        ensure!(reason == expected, "{reason}");
        Ok(Some(()))
    })
    .await
}
