//! Runs that this release cannot read, as those of a newer one may be: what they lose by it, and what stays of it.

use anyhow::Result;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use operator::controller::Next;
use serde_json::{Value, json};

use super::{
    ChecksumRun, damaged, reading,
    support::{Coordinator, World},
    text,
};

/// Kubernetes takes this time, and we cannot read it.
const STRANGE: &str = "9999-12-31T23:59:59Z";

fn api(world: &World) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<ChecksumRun>(&());
    Api::namespaced_with(world.client().clone(), &world.namespace, &kind)
}

/// Sets when a run began, as somebody does who knows better.
async fn began(world: &World, run: &str, at: &Value) -> Result<()> {
    let (params, patch) = (
        PatchParams::default(),
        Patch::Merge(json!({"status": {"startTime": at}})),
    );
    api(world).patch_status(run, &params, &patch).await?;
    Ok(())
}

/// The conditions of a run, whoever can read it.
async fn conditions(world: &World, run: &str) -> Result<Vec<String>> {
    let run = api(world).get(run).await?;
    let all = run.data["status"]["conditions"].as_array().cloned();
    let text_of = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    let mut all: Vec<_> = all
        .unwrap_or_default()
        .iter()
        .map(|it| {
            let [type_, status, reason] =
                ["type", "status", "reason"].map(|field| text_of(it, field));
            format!("{type_}={status}/{reason}")
        })
        .collect();
    all.sort();
    Ok(all)
}

/// Cannot be read for a while, in which it is told so, and can be read again.
async fn cannot_be_read_for_a_while(world: &mut World, run: &str) -> Result<Vec<String>> {
    let shown = api(world).get(run).await?;
    began(world, run, &json!(STRANGE)).await?;
    world.passes(run).await?;
    assert_eq!(world.pass(run).await?, Next::Await);
    let told = conditions(world, run).await?;
    // Whoever takes over knows nothing of it.
    world.replace_operator()?;
    began(world, run, &shown.data["status"]["startTime"]).await?;
    world.passes(run).await?;
    Ok(told)
}

async fn ends(world: &World, run: &str, coordinator: Coordinator) -> Result<()> {
    coordinator.report(&damaged())?;
    world.until(run, "Complete", "True/DamageFound").await?;
    world.end(coordinator, 0, &text(&damaged())?).await?;
    world.passes(run).await
}

#[tokio::test]
async fn a_run_that_ended_and_could_not_be_read_for_a_while_is_told_as_before() -> Result<()> {
    let mut world = World::new().await?;
    world.run("r", json!({})).await?;
    world.passes("r").await?;
    let coordinator = world.start_coordinator("r").await?;
    ends(&world, "r", coordinator).await?;
    let before = world.status("r").await?;
    let told = cannot_be_read_for_a_while(&mut world, "r").await?;
    let expected = [
        "Complete=True/DamageFound",
        "Ready=False/InvalidSpec",
        "Stalled=True/InvalidSpec",
    ];
    assert_eq!(told, expected);
    assert_eq!(world.status("r").await?, before);
    let sent = world.line.sent();
    world.pass("r").await?;
    assert_eq!(world.line.sent(), sent, "requests with nothing to do");
    Ok(())
}

#[tokio::test]
async fn a_run_that_goes_on_and_could_not_be_read_for_a_while_is_not_stalled() -> Result<()> {
    let mut world = World::new().await?;
    world.run("r", json!({})).await?;
    world.passes("r").await?;
    let coordinator = world.start_coordinator("r").await?;
    coordinator.report(&reading())?;
    world.until("r", "Ready", "Unknown/Reading").await?;
    world.passes("r").await?;
    let told = cannot_be_read_for_a_while(&mut world, "r").await?;
    assert!(
        told.contains(&"Stalled=True/InvalidSpec".into()),
        "{told:?}"
    );
    world.until("r", "Ready", "Unknown/Reading").await?;
    world.passes("r").await?;
    assert_eq!(world.condition("r", "Stalled").await?, "");
    let sent = world.line.sent();
    world.pass("r").await?;
    assert_eq!(world.line.sent(), sent, "requests with nothing to do");
    // What it is told of later is not half somebody else's.
    ends(&world, "r", coordinator).await?;
    assert_eq!(world.condition("r", "Stalled").await?, "True/DamageFound");
    Ok(())
}
