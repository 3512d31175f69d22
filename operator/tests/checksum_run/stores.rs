//! Embedded stores: whose turn it is, whose they are, and who may write to them.

use anyhow::{Context as _, Result, ensure};
use crds::{
    checksum_run::ChecksumRun,
    report::checksum::{CoordinatorReport, Explained},
};
use k8s_openapi::api::{batch::v1::Job, core::v1::PersistentVolumeClaim};
use serde_json::json;
use testbed::wait::eventually;

use super::{
    reading,
    support::{SOON, World},
};

#[tokio::test]
async fn a_second_run_on_a_store_waits_for_the_first() -> Result<()> {
    let world = World::new().await?;
    let store = json!({"store": {"embedded": {"claimName": "shared"}}});
    world.run("first", store.clone()).await?;
    world.passes("first").await?;
    world.run("second", store).await?;
    world.passes("second").await?;
    assert_eq!(
        world.condition("second", "Ready").await?,
        "False/StoreInUse"
    );
    let status = world.status("second").await?;
    let ready = crds::condition::find(&status.conditions, "Ready").context("Ready")?;
    assert!(
        ready.message.contains("ChecksumRun first"),
        "{}",
        ready.message
    );
    assert_eq!(world.names::<Job>().await?, ["first-checksum"]);
    world
        .edit::<ChecksumRun>("first", json!({"spec": {"cancel": true}}))
        .await?;
    world.until("first", "Complete", "True/Cancelled").await?;
    world.passes("second").await?;
    assert_eq!(world.names::<Job>().await?, ["second-checksum"]);
    Ok(())
}

#[tokio::test]
async fn a_store_that_exists_is_never_changed_and_stays() -> Result<()> {
    let world = World::new().await?;
    world.claim("mine").await?;
    let before = world.get::<PersistentVolumeClaim>("mine").await?;
    world
        .run(
            "r",
            json!({"store": {"embedded": {"claimName": "mine", "size": "5Gi"}}}),
        )
        .await?;
    world.run("s", json!({})).await?;
    world.passes("r").await?;
    world.passes("s").await?;
    let after = world.get::<PersistentVolumeClaim>("mine").await?;
    assert_eq!(after.spec, before.spec);
    assert_eq!(after.metadata.labels, before.metadata.labels);
    let made = world.get::<PersistentVolumeClaim>("s-store").await?;
    assert_eq!(made.metadata.owner_references, None);
    Ok(())
}

/// Of a coordinator that may not write to its store.
fn refused() -> CoordinatorReport {
    CoordinatorReport {
        waiting: Some(Explained {
            reason: "StoreRefused".into(),
            message: "/store/home.sqlite: permission denied".into(),
        }),
        ..CoordinatorReport::default()
    }
}

#[tokio::test]
async fn a_store_that_belongs_to_root_is_made_writable_and_the_run_goes_on() -> Result<()> {
    let mut world = World::new().await?;
    world.run("r", json!({})).await?;
    world.passes("r").await?;
    let coordinator = world.start_coordinator("r").await?;
    coordinator.report(&refused())?;
    eventually("the coordinator to make way", SOON, async || {
        world.pass("r").await?;
        let jobs = world.names::<Job>().await?;
        if jobs.contains(&"r-checksum".into()) {
            let preparation = world.find::<Job>("r-checksum-store").await?;
            let spec = preparation.and_then(|job| job.spec);
            ensure!(spec.is_none_or(|spec| spec.suspend == Some(true)), "awake");
        }
        Ok((jobs == ["r-checksum-store"]).then_some(()))
    })
    .await?;
    drop(coordinator);
    // Whoever takes over knows how far it is.
    world.replace_operator()?;
    eventually("the store to be made writable", SOON, async || {
        world.pass("r").await?;
        let job = world.get::<Job>("r-checksum-store").await?;
        let asleep = job.spec.and_then(|spec| spec.suspend);
        Ok((asleep == Some(false)).then_some(()))
    })
    .await?;
    assert_eq!(world.condition("r", "Ready").await?, "Unknown/Starting");
    world.carry_out("r-checksum-store").await?;
    world.passes("r").await?;
    assert_eq!(
        world.names::<Job>().await?,
        ["r-checksum", "r-checksum-store"]
    );
    let coordinator = world.start_coordinator("r").await?;
    coordinator.report(&refused())?;
    world.until("r", "Ready", "False/StoreRefused").await?;
    coordinator.report(&reading())?;
    world.until("r", "Ready", "Unknown/Reading").await
}
