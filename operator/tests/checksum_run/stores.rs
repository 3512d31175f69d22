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

/// Makes two runs on one store: the one that is the second by name is passed over first, and has found the store free when the
/// other comes. Says whether both were made in the same second, so that the other would be the first in line.
async fn began_at_once(world: &World, store: &str) -> Result<bool> {
    let fields = json!({"store": {"embedded": {"claimName": store}}});
    let (first, second) = (format!("{store}-a"), format!("{store}-b"));
    world.run(&second, fields.clone()).await?;
    world.line.hold(&format!("/configmaps/{second}-checksum"));
    let meanwhile = async {
        eventually("a pass that is under way", SOON, async || {
            Ok(world.line.is_holding().then_some(()))
        })
        .await?;
        world.run(&first, fields).await?;
        world.passes(&first).await?;
        world.line.open();
        anyhow::Ok(())
    };
    let (passed, other) = tokio::join!(world.pass(&second), meanwhile);
    other?;
    passed?;
    for run in [&first, &second] {
        world.passes(run).await?;
    }
    let mut jobs = world.names::<Job>().await?;
    jobs.retain(|job| job.starts_with(store));
    assert_eq!(jobs, [format!("{second}-checksum")]);
    assert_eq!(world.condition(&first, "Ready").await?, "False/StoreInUse");
    let created = async |run: &str| {
        let run = world.get::<ChecksumRun>(run).await?;
        anyhow::Ok(run.metadata.creation_timestamp)
    };
    Ok(created(&first).await? == created(&second).await?)
}

#[tokio::test]
async fn of_two_runs_that_begin_at_once_one_gets_a_job() -> Result<()> {
    let world = World::new().await?;
    for attempt in 0..20 {
        let store = format!("store{attempt}");
        if Box::pin(began_at_once(&world, &store)).await? {
            return Ok(());
        }
    }
    anyhow::bail!("no two runs were made in the same second")
}

#[tokio::test]
async fn a_run_that_cannot_be_used_keeps_nobody_waiting_and_can_be_cancelled() -> Result<()> {
    let world = World::new().await?;
    let store = json!({"embedded": {"claimName": "shared"}});
    let source = json!({"persistentVolumeClaim": {"claimName": "home"}, "exclude": ["[a"]});
    world
        .run("bad", json!({"store": store, "source": source}))
        .await?;
    world.passes("bad").await?;
    assert_eq!(world.condition("bad", "Ready").await?, "False/InvalidSpec");
    world.run("good", json!({"store": store})).await?;
    world.passes("good").await?;
    assert_eq!(world.names::<Job>().await?, ["good-checksum"]);
    world
        .edit::<ChecksumRun>("bad", json!({"spec": {"cancel": true}}))
        .await?;
    world.until("bad", "Complete", "True/Cancelled").await?;
    world.passes("bad").await?;
    let mut reasons: Vec<_> = world.events("bad").await?.into_iter().collect();
    reasons.sort();
    let reasons: Vec<_> = reasons.iter().map(|(reason, _)| reason.as_str()).collect();
    assert_eq!(reasons, ["Cancelled", "InvalidSpec"]);
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
