//! An operator whose definitions are missing, old, or newer than itself.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{
    operator::{self, Replica, Settings, shipped},
    schedules,
};
use serde_json::json;
use testbed::{Kubernetes, Options, wait::eventually};

const SOON: Duration = Duration::from_secs(40);

async fn waits_for(replica: &Replica, words: &str) -> Result<()> {
    eventually(words, SOON, async || {
        let (code, body) = replica.ask("/readyz").await?;
        ensure!(code == 503 && body.contains(words), "{code} {body}");
        let (code, body) = replica.ask("/livez").await?;
        ensure!(code == 200, "not alive: {body}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn the_operator_waits_for_definitions_that_are_absent_or_too_old_and_says_so() -> Result<()> {
    let cluster = Kubernetes::start(Options::default().named("definitions")).await?;
    operator::install(&cluster).await?;
    let replica = Replica::start(&cluster, "early", &Settings::default()).await?;
    waits_for(&replica, "checksumschedules.orrery.dev is not installed").await?;
    let current = shipped("config/crd/checksumschedules.yaml")?;
    let old = current.replace("startingDeadline:", "startingDeadlineOfOld:");
    cluster
        .apply_yaml(&shipped("config/crd/checksumruns.yaml")?)
        .await?;
    cluster.apply_yaml(&old).await?;
    waits_for(
        &replica,
        "checksumschedules.orrery.dev is too old, it lacks .spec.startingDeadline",
    )
    .await?;
    cluster.apply_yaml(&current).await?;
    replica.ready().await?;
    let client = cluster.client().await?;
    schedules::create(&client, "default", &schedules::on_request("s")?).await?;
    schedules::ask(&client, "default", "s", "now").await?;
    schedules::handled(&client, "default", "s", "now", SOON).await?;
    ensure!(
        replica
            .process()
            .log()?
            .contains("waiting for the CustomResourceDefinitions"),
        "the log says why nothing happens"
    );
    drop(replica);
    cluster.shutdown().await
}

#[tokio::test]
async fn an_object_of_a_newer_release_is_told_and_stops_nobody_else() -> Result<()> {
    let cluster = Kubernetes::start(Options::default().named("definitions-newer")).await?;
    operator::install(&cluster).await?;
    cluster
        .apply_yaml(&shipped("config/crd/checksumruns.yaml")?)
        .await?;
    let newer = shipped("config/crd/checksumschedules.yaml")?
        .replace("- Replace\n", "- Replace\n                - Queue\n");
    cluster.apply_yaml(&newer).await?;
    let replica = Replica::start(&cluster, "older", &Settings::default()).await?;
    let client = cluster.client().await?;
    let strange = json!({"apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumSchedule", "metadata": {"name": "strange", "namespace": "default"},
        "spec": {"schedule": "@daily", "concurrencyPolicy": "Queue", "template": {"spec": {"source": {"persistentVolumeClaim": {"claimName": "home"}}}}}});
    cluster.apply_yaml(&strange.to_string()).await?;
    schedules::create(&client, "default", &schedules::on_request("plain")?).await?;
    schedules::ask(&client, "default", "plain", "now").await?;
    schedules::handled(&client, "default", "plain", "now", SOON).await?;
    eventually("the strange object told", SOON, async || {
        let path = "jsonpath={.status.conditions[?(@.type=='Stalled')].message}";
        let told = cluster
            .kubectl(&["get", "cksched", "strange", "-o", path])
            .await?
            .ok()?;
        ensure!(
            told.contains("cannot read the object") && told.contains("Queue"),
            "{told}"
        );
        Ok(Some(()))
    })
    .await?;
    drop(replica);
    cluster.shutdown().await
}
