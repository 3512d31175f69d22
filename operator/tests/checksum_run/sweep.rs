//! Every request of a run's life is lost once, on its way or on the way back, and nobody can tell in the end.

use anyhow::{Context as _, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolumeClaim, Secret},
};
use serde_json::{Value, json};

use super::{
    credentials, damaged, distributed, reading,
    support::{Fault, World},
    text,
};

/// How many lives are lived at once: they wait for the server more than they compute.
pub(crate) const AT_ONCE: usize = 8;

/// How far a life goes.
#[derive(Clone, Copy, PartialEq)]
enum Life {
    /// Until there is a Job.
    Beginning,
    /// Until the end.
    Whole,
}

async fn live(world: &World, run: &str, life: Life) -> Result<()> {
    world.passes(run).await?;
    if life == Life::Beginning {
        world.pod(run, "checksum-coordinator").await?;
        return world.passes(run).await;
    }
    let coordinator = world.start_coordinator(run).await?;
    coordinator.report(&reading())?;
    world.until(run, "Ready", "Unknown/Reading").await?;
    world.passes(run).await?;
    coordinator.report(&damaged())?;
    world.until(run, "Complete", "True/DamageFound").await?;
    world.end(coordinator, 0, &text(&damaged())?).await?;
    world.passes(run).await
}

/// What a user can see afterwards, without what differs between any two lives.
pub(crate) async fn remains(world: &World, run: &str) -> Result<Value> {
    let mut status = world.status(run).await?;
    for condition in &mut status.conditions {
        condition.last_transition_time.0 = jiff::Timestamp::UNIX_EPOCH;
        // It names a pod.
        condition.message.clear();
    }
    let named = format!("{run}-checksum");
    let job = world.get::<Job>(&named).await?;
    let spec = job.spec.unwrap_or_default();
    let config = world.get::<ConfigMap>(&named).await?;
    let document = config.data.unwrap_or_default()["config.json"].clone();
    let mut document: Value = serde_json::from_str(&document)?;
    document["uid"] = Value::Null;
    document["spec"]["run"] = Value::Null;
    if let Some(files) = document["spec"]["fileSystem"].as_str() {
        document["spec"]["fileSystem"] = files.replace(world.namespace.name(), "here").into();
    }
    if let Some(snapshot) = document["spec"]["snapshot"].as_str() {
        let (name, _) = snapshot.split_once('/').unwrap_or_default();
        document["spec"]["snapshot"] = name.into();
    }
    let workers = world.find::<Deployment>(&format!("{named}-worker")).await?;
    let keys = world.find::<Secret>(&named).await?;
    let keys: Option<Vec<_>> = keys.map(|s| s.data.unwrap_or_default().into_keys().collect());
    Ok(json!({
        "status": {"conditions": status.conditions, "state": status.state, "files": status.files, "corrupt": status.corrupt,
            "unlisted": status.unlisted, "snapshot": status.snapshot,
            "started": status.start_time.is_some(), "completed": status.completion_time.is_some(), "workers": status.workers,
            "progress": status.progress, "generation": status.observed_generation},
        "job": {"parallelism": spec.parallelism, "backoff": spec.backoff_limit, "containers": spec.template.spec.map(|p| p.containers),
            "owners": job.metadata.owner_references.map(|owners| owners.len())},
        "config": document,
        "workers": workers.map(|w| w.spec.map(|spec| spec.replicas)),
        "credentials": keys,
        "claims": world.names::<PersistentVolumeClaim>().await?,
        "secrets": world.names::<Secret>().await?,
    }))
}

async fn prepared(fields: &Value) -> Result<World> {
    let world = World::new().await?;
    credentials(&world).await?;
    world.run("r", fields.clone()).await?;
    Ok(world)
}

async fn sweep(fields: Value, life: Life) -> Result<()> {
    let undisturbed = prepared(&fields).await?;
    live(&undisturbed, "r", life).await?;
    let expected = remains(&undisturbed, "r").await?;
    let requests = undisturbed.line.sent();
    assert!(
        requests > 10,
        "a life of {requests} requests is too short to be a test"
    );
    let faults = [Fault::Unsent, Fault::Unanswered];
    let cases = faults
        .into_iter()
        .flat_map(|fault| (1..=requests).map(move |request| (request, fault)));
    let lives = stream::iter(cases).map(|(request, fault)| {
        let (fields, expected) = (&fields, &expected);
        async move {
            let world = prepared(fields).await?;
            world.line.spoil(request, fault);
            let lived = live(&world, "r", life).await;
            lived.with_context(|| format!("request {request} was {fault:?}"))?;
            let remains = remains(&world, "r").await?;
            assert_eq!(remains, *expected, "after request {request} was {fault:?}");
            anyhow::Ok(world.line.sent() >= request)
        }
    });
    let is_spoiled: Vec<bool> = lives.buffer_unordered(AT_ONCE).try_collect().await?;
    // Agents are heard at their own pace, so one life may have a request more than another.
    let spoiled = is_spoiled.iter().filter(|it| **it).count();
    assert!(spoiled * 10 >= is_spoiled.len() * 9, "only {spoiled} were");
    Ok(())
}

#[tokio::test]
async fn failing_at_any_request_of_a_beginning_ends_in_the_same_state() -> Result<()> {
    sweep(json!({}), Life::Beginning).await
}

#[tokio::test]
async fn failing_at_any_request_of_a_run_with_workers_ends_in_the_same_state() -> Result<()> {
    sweep(distributed(), Life::Whole).await
}
