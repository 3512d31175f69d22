//! What the API server refuses to make, for us or for the controllers of Kubernetes, and what users are told of it.

use anyhow::{Context as _, Result, ensure};
use crds::report::checksum::{CoordinatorReport, Explained};
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    batch::v1::Job,
    core::v1::{PersistentVolumeClaim, ResourceQuota},
};
use kube::{ResourceExt, api::ListParams};
use serde_json::json;
use testbed::wait::eventually;

use super::{
    credentials, damaged, distributed, reading,
    support::{SOON, World},
};

/// Allows so many of these and no more, once everybody knows, also of how many there are already.
async fn allow(world: &World, what: &str, most: &str, are_there: &str) -> Result<()> {
    let quota = json!({"metadata": {"name": "little"}, "spec": {"hard": {what: most}}});
    world.create::<ResourceQuota>(quota).await?;
    eventually("a quota that is in force", SOON, async || {
        let quota = world.get::<ResourceQuota>("little").await?;
        let used = quota.status.unwrap_or_default().used.unwrap_or_default();
        let counted = used.get(what).filter(|it| it.0 == are_there);
        Ok(counted.map(drop))
    })
    .await
}

#[tokio::test]
async fn where_to_look_is_told_when_no_pod_of_the_job_may_be_made() -> Result<()> {
    let world = World::new().await?;
    allow(&world, "pods", "0", "0").await?;
    world.run("r", json!({})).await?;
    world.passes("r").await?;
    assert_eq!(world.condition("r", "Ready").await?, "Unknown/Starting");
    assert_eq!(world.names::<Job>().await?, ["r-checksum"]);
    let message = world.message("r").await?;
    let command = "kubectl describe job r-checksum";
    assert!(message.ends_with(command), "{message}");
    exceeded_quota(&world, "r-checksum").await
}

#[tokio::test]
async fn where_to_look_is_told_when_no_worker_may_be_made() -> Result<()> {
    let world = World::new().await?;
    credentials(&world).await?;
    allow(&world, "pods", "1", "0").await?;
    world.run("r", distributed()).await?;
    world.passes("r").await?;
    let coordinator = world.start_coordinator("r").await?;
    coordinator.report(&reading())?;
    world.until("r", "Ready", "Unknown/Reading").await?;
    world.passes("r").await?;
    let message = world.message("r").await?;
    let selector = "orrery.dev/checksum-run=r";
    let command = format!("kubectl describe replicaset --selector={selector}");
    assert!(message.ends_with(&command), "{message}");
    let params = ListParams::default().labels(selector);
    let found = eventually("what that command selects", SOON, async || {
        let sets = world.api::<ReplicaSet>().list(&params).await?;
        Ok(sets.iter().next().map(ResourceExt::name_any))
    })
    .await?;
    exceeded_quota(&world, &found).await
}

/// Waits until the events of an object say that a quota is exceeded.
async fn exceeded_quota(world: &World, object: &str) -> Result<()> {
    eventually("what the command shows", SOON, async || {
        let events = world.events(object).await?;
        let mut whys = events.iter().filter(|(reason, _)| reason == "FailedCreate");
        let is_told = whys.any(|(_, note)| note.contains("exceeded quota"));
        ensure!(is_told, "{events:?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn a_claim_that_is_refused_is_told_in_the_status_and_once_as_an_event() -> Result<()> {
    let world = World::new().await?;
    allow(&world, "persistentvolumeclaims", "1", "1").await?;
    world.run("r", json!({})).await?;
    for _ in 0..3 {
        world.pass("r").await?;
    }
    assert_eq!(world.condition("r", "Ready").await?, "False/Refused");
    let message = world.message("r").await?;
    assert!(message.contains("exceeded quota"), "{message}");
    let [(reason, note)] = &world.events("r").await?[..] else {
        panic!("one event");
    };
    assert_eq!((reason.as_str(), note), ("Refused", &message));
    world.delete::<ResourceQuota>("little").await?;
    world.until("r", "Ready", "Unknown/Starting").await?;
    let claims = world.names::<PersistentVolumeClaim>().await?;
    assert_eq!(claims, ["home", "r-store"]);
    Ok(())
}

#[tokio::test]
async fn an_end_with_many_words_is_an_event_with_as_many_as_the_server_takes() -> Result<()> {
    let world = World::new().await?;
    world.run("r", json!({})).await?;
    world.passes("r").await?;
    let coordinator = world.start_coordinator("r").await?;
    coordinator.report(&CoordinatorReport {
        result: Some(Explained {
            reason: "Failed".into(),
            message: "ä".repeat(2000),
        }),
        ..damaged()
    })?;
    world.until("r", "Complete", "True/Failed").await?;
    let events = world.events("r").await?;
    let end = events.iter().find(|(reason, _)| reason == "Failed");
    let (_, note) = end.with_context(|| format!("{events:?}"))?;
    assert!(note.ends_with("ä…") && note.len() <= 1024, "{note}");
    Ok(())
}
