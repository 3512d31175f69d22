//! ChecksumRun on a real API server, with the controllers of Kubernetes and agents that are real but for their work:
//! what a pass writes, what users see, and what remains after any failure.
#![expect(
    clippy::disallowed_methods,
    reason = "tests look at the server directly, to compare it with what the controller believes"
)]

mod agent;
mod refusals;
mod snapshots;
mod storage;
mod stores;
mod support;
mod sweep;
mod unreadable;

use anyhow::{Context as _, Result, ensure};
use crds::{
    checksum_run::{
        ChecksumRun,
        status::{CorruptFile, FileCounts, RunState},
    },
    name::{AGENT_TLS_SECRET, CA_SECRET},
    report::checksum::{CoordinatorReport, Explained, WorkerReport},
};
use jiff::SignedDuration;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolumeClaim, Secret},
};
use kube::ResourceExt;
use operator::controller::Next;
use serde_json::{Value, json};
use support::{SOON, World};
use sweep::remains;
use testbed::wait::eventually;

fn reading() -> CoordinatorReport {
    CoordinatorReport {
        state: Some(RunState::WorkQueue),
        files: Some(FileCounts {
            total: 10,
            verified: 4,
            remaining: 6,
            ..FileCounts::default()
        }),
        selected_bytes: 1000,
        bytes_read: 400,
        bytes_per_second: 100,
        ..CoordinatorReport::default()
    }
}

fn damaged() -> CoordinatorReport {
    CoordinatorReport {
        state: Some(RunState::Finished),
        files: Some(FileCounts {
            total: 10,
            verified: 9,
            corrupt: 1,
            ..FileCounts::default()
        }),
        bytes_read: 1000,
        selected_bytes: 1000,
        corrupt: vec![CorruptFile {
            path: "photos/beach.tif".into(),
            expected: "aa".into(),
            actual: "bb".into(),
        }],
        result: Some(Explained {
            reason: "DamageFound".into(),
            message: "1 of 10 files is damaged".into(),
        }),
        ..reading()
    }
}

fn text(report: &CoordinatorReport) -> Result<String> {
    Ok(serde_json::to_string(report)?)
}

/// Fields of a run with a database, a queue, and credentials for both.
fn distributed() -> Value {
    json!({
        "store": {"mysql": {"host": "db", "database": "sums", "credentialsRef": {"name": "db-user"}}},
        "queue": {"redis": {"host": "cache", "credentialsRef": {"name": "cache-user"}}},
        "workers": {"replicas": 2},
    })
}

async fn credentials(world: &World) -> Result<()> {
    let login = json!({"username": "u", "password": "p"});
    world.secret("db-user", login.clone()).await?;
    world.secret("cache-user", login).await
}

#[tokio::test]
async fn a_run_gets_what_it_needs_and_tells_what_its_coordinator_says() -> Result<()> {
    let world = World::new().await?;
    world.run("r", json!({})).await?;
    world.passes("r").await?;
    assert_eq!(
        world.names::<PersistentVolumeClaim>().await?,
        ["home", "r-store"]
    );
    assert_eq!(world.names::<Job>().await?, ["r-checksum"]);
    let config = world.get::<ConfigMap>("r-checksum").await?;
    assert!(config.data.unwrap_or_default()["config.json"].contains("\"root\":\"/source\""));
    assert_eq!(
        world.names::<Secret>().await?,
        [AGENT_TLS_SECRET, CA_SECRET]
    );
    assert_eq!(world.condition("r", "Ready").await?, "Unknown/Starting");
    assert_eq!(world.condition("r", "Reconciling").await?, "True/Starting");

    let coordinator = world.start_coordinator("r").await?;
    coordinator.report(&reading())?;
    world.until("r", "Ready", "Unknown/Reading").await?;
    world.passes("r").await?;
    let status = world.status("r").await?;
    assert_eq!(status.files.context("files")?.verified, 4);
    assert_eq!(status.progress.as_deref(), Some("40%"));
    assert_eq!(
        world.condition("r", "AgentsReachable").await?,
        "True/AllReachable"
    );
    assert_eq!(
        world.condition("r", "ClocksAgree").await?,
        "True/WithinOneSecond"
    );
    assert!(
        coordinator.config()?.is_some(),
        "it was sent its configuration"
    );

    coordinator.report(&damaged())?;
    world.until("r", "Complete", "True/DamageFound").await?;
    assert_eq!(world.condition("r", "Ready").await?, "False/DamageFound");
    assert_eq!(world.condition("r", "Stalled").await?, "True/DamageFound");
    world.end(coordinator, 0, &text(&damaged())?).await?;
    world.passes("r").await?;
    let status = world.status("r").await?;
    assert_eq!(status.corrupt[0].path, "photos/beach.tif");
    assert_eq!(status.progress.as_deref(), Some("100%"));
    assert_eq!(
        world.names::<Job>().await?,
        ["r-checksum"],
        "its log is kept"
    );
    for of_agents in ["AgentsReachable", "ClocksAgree"] {
        assert_eq!(world.condition("r", of_agents).await?, "");
    }
    Ok(())
}

#[tokio::test]
async fn who_comes_too_late_to_ask_finds_the_result_in_the_pod() -> Result<()> {
    let mut world = World::new().await?;
    world.run("r", json!({})).await?;
    world.passes("r").await?;
    let coordinator = world.start_coordinator("r").await?;
    world.end(coordinator, 0, &text(&damaged())?).await?;
    world.replace_operator()?;
    world.until("r", "Complete", "True/DamageFound").await?;
    assert_eq!(world.status("r").await?.corrupt.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_second_pass_reads_and_writes_nothing() -> Result<()> {
    let world = World::new().await?;
    credentials(&world).await?;
    for (run, fields) in [("embedded", json!({})), ("distributed", distributed())] {
        world.run(run, fields).await?;
        world.passes(run).await?;
        let coordinator = world.start_coordinator(run).await?;
        coordinator.report(&reading())?;
        world.until(run, "Ready", "Unknown/Reading").await?;
        world.passes(run).await?;
        let sent = world.line.sent();
        let next = world.pass(run).await?;
        assert_eq!(
            world.line.sent(),
            sent,
            "requests of a pass with nothing to do"
        );
        assert!(matches!(next, Next::At(_)), "{next:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_new_operator_changes_nothing() -> Result<()> {
    let mut world = World::new().await?;
    credentials(&world).await?;
    world.run("r", distributed()).await?;
    world.passes("r").await?;
    let before = remains(&world, "r").await?;
    let version = async |world: &World| {
        let job = world.get::<Job>("r-checksum").await?;
        let config = world.get::<ConfigMap>("r-checksum").await?;
        let workers = world.get::<Deployment>("r-checksum-worker").await?;
        let versions = [job.metadata.generation, workers.metadata.generation];
        anyhow::Ok((versions, config.resource_version()))
    };
    let versions = version(&world).await?;
    world.replace_operator()?;
    world.passes("r").await?;
    assert_eq!(version(&world).await?, versions);
    assert_eq!(remains(&world, "r").await?, before);
    Ok(())
}

#[tokio::test]
async fn suspension_and_cancellation_reach_the_agent() -> Result<()> {
    let world = World::new().await?;
    world.run("r", json!({})).await?;
    world.passes("r").await?;
    let coordinator = world.start_coordinator("r").await?;
    coordinator.report(&reading())?;
    world.until("r", "Ready", "Unknown/Reading").await?;
    world
        .edit::<ChecksumRun>("r", json!({"spec": {"suspend": true}}))
        .await?;
    world.passes("r").await?;
    assert_eq!(world.condition("r", "Ready").await?, "Unknown/Suspended");
    assert!(coordinator.config()?.context("configured")?.suspend);
    world
        .edit::<ChecksumRun>("r", json!({"spec": {"suspend": false, "cancel": true}}))
        .await?;
    world.passes("r").await?;
    let config = coordinator.config()?.context("configured")?;
    assert!(config.cancel && !config.suspend);
    let file = world
        .get::<ConfigMap>("r-checksum")
        .await?
        .data
        .unwrap_or_default();
    assert!(
        file["config.json"].contains("\"cancel\":true"),
        "who starts again hears of it, too"
    );
    assert_eq!(
        world.condition("r", "Complete").await?,
        "",
        "the agent ends it"
    );
    coordinator.report(&CoordinatorReport {
        state: Some(RunState::Aborted),
        result: Some(Explained {
            reason: "Cancelled".into(),
            message: "given up".into(),
        }),
        ..reading()
    })?;
    world.until("r", "Complete", "True/Cancelled").await?;
    assert_eq!(world.status("r").await?.state, Some(RunState::Aborted));
    Ok(())
}

#[tokio::test]
async fn a_limit_that_is_edited_reaches_the_agent() -> Result<()> {
    let world = World::new().await?;
    world
        .run("r", json!({"workers": {"maxThroughput": "1Mi"}}))
        .await?;
    world.passes("r").await?;
    let coordinator = world.start_coordinator("r").await?;
    coordinator.report(&reading())?;
    world.until("r", "Ready", "Unknown/Reading").await?;
    for (limit, told) in [
        (json!("1Mi"), Some(1 << 20)),
        (json!("5Ki"), Some(5 << 10)),
        (json!(null), None),
    ] {
        let spec = json!({"workers": {"maxThroughput": limit}});
        world
            .edit::<ChecksumRun>("r", json!({ "spec": spec }))
            .await?;
        world.passes("r").await?;
        let config = coordinator.config()?.context("configured")?;
        assert_eq!(config.max_throughput, told);
    }
    Ok(())
}

#[tokio::test]
async fn a_run_that_nobody_can_end_is_cancelled_without_help() -> Result<()> {
    let world = World::new().await?;
    world
        .run(
            "waiting",
            json!({"source": {"persistentVolumeClaim": {"claimName": "nowhere"}}}),
        )
        .await?;
    world.passes("waiting").await?;
    assert_eq!(
        world.condition("waiting", "Ready").await?,
        "False/ReferenceMissing"
    );
    world.run("pending", json!({})).await?;
    world.passes("pending").await?;
    world.pod("pending", "checksum-coordinator").await?;
    for run in ["waiting", "pending"] {
        world
            .edit::<ChecksumRun>(run, json!({"spec": {"cancel": true}}))
            .await?;
        world.until(run, "Complete", "True/Cancelled").await?;
    }
    assert_eq!(world.names::<Job>().await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn what_somebody_changed_is_put_right() -> Result<()> {
    let world = World::new().await?;
    credentials(&world).await?;
    world.run("r", distributed()).await?;
    world.passes("r").await?;
    let before = remains(&world, "r").await?;
    world
        .edit::<ConfigMap>("r-checksum", json!({"data": {"config.json": "{}"}}))
        .await?;
    world
        .edit::<Job>("r-checksum", json!({"spec": {"parallelism": 3}}))
        .await?;
    world
        .edit::<Deployment>("r-checksum-worker", json!({"spec": {"replicas": 7}}))
        .await?;
    world.passes("r").await?;
    assert_eq!(remains(&world, "r").await?, before);
    world.delete::<ConfigMap>("r-checksum").await?;
    world.delete::<Deployment>("r-checksum-worker").await?;
    world.passes("r").await?;
    assert_eq!(remains(&world, "r").await?, before);
    Ok(())
}

#[tokio::test]
async fn workers_come_with_the_reading_and_go_with_the_run() -> Result<()> {
    let world = World::new().await?;
    credentials(&world).await?;
    world.run("r", distributed()).await?;
    world.passes("r").await?;
    let replicas = async || {
        let workers = world.get::<Deployment>("r-checksum-worker").await?;
        anyhow::Ok(workers.spec.and_then(|spec| spec.replicas))
    };
    assert_eq!(replicas().await?, Some(0));
    let coordinator = world.start_coordinator("r").await?;
    coordinator.report(&reading())?;
    world.until("r", "Ready", "Unknown/Reading").await?;
    world.passes("r").await?;
    assert_eq!(replicas().await?, Some(2));
    world.pod("r", "checksum-worker").await?;
    world
        .edit::<ChecksumRun>("r", json!({"spec": {"workers": {"replicas": 5}}}))
        .await?;
    world.passes("r").await?;
    assert_eq!(replicas().await?, Some(5));
    world
        .edit::<ChecksumRun>("r", json!({"spec": {"suspend": true}}))
        .await?;
    world.passes("r").await?;
    assert_eq!(replicas().await?, Some(0));
    world
        .edit::<ChecksumRun>("r", json!({"spec": {"suspend": false}}))
        .await?;
    coordinator.report(&damaged())?;
    world.until("r", "Complete", "True/DamageFound").await?;
    world.passes("r").await?;
    assert_eq!(world.names::<Deployment>().await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn what_keeps_workers_from_reading_is_told_while_the_reason_stays() -> Result<()> {
    let world = World::new().await?;
    credentials(&world).await?;
    world.run("r", distributed()).await?;
    world.passes("r").await?;
    let coordinator = world.start_coordinator("r").await?;
    coordinator.report(&reading())?;
    let read = "4 of 10 files are read";
    eventually("words on workers that do not come", SOON, async || {
        world.pass("r").await?;
        let message = world.message("r").await?;
        let begin = format!("{read}; no worker is ready; ");
        ensure!(message.starts_with(&begin), "{message}");
        Ok(Some(()))
    })
    .await?;
    let worker = world.start_worker("r").await?;
    says(&world, read).await?;
    let waiting = WorkerReport {
        waiting: Some(Explained {
            reason: "QueueUnreachable".into(),
            message: "no answer from cache:6379".into(),
        }),
        ..WorkerReport::default()
    };
    worker.report(serde_json::to_value(&waiting)?);
    says(&world, "waits: QueueUnreachable: no answer from cache:6379").await?;
    worker.report(serde_json::to_value(WorkerReport::default())?);
    says(&world, read).await?;
    world
        .edit::<ChecksumRun>("r", json!({"spec": {"workers": {"replicas": 0}}}))
        .await?;
    says(
        &world,
        "; there are no workers (spec.workers.replicas is 0)",
    )
    .await
}

/// Passes until the message of Ready ends so; its reason is that files are read.
async fn says(world: &World, words: &str) -> Result<()> {
    eventually(words, SOON, async || {
        world.pass("r").await?;
        let told = world.condition("r", "Ready").await?;
        let message = world.message("r").await?;
        let is_told = told == "Unknown/Reading" && message.ends_with(words);
        ensure!(is_told, "{told}: {message}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn a_run_that_is_deleted_while_it_reads_takes_all_with_it_but_the_store() -> Result<()> {
    let world = World::new().await?;
    credentials(&world).await?;
    world.run("r", distributed()).await?;
    world.run("embedded", json!({})).await?;
    for run in ["r", "embedded"] {
        world.passes(run).await?;
        let coordinator = world.start_coordinator(run).await?;
        coordinator.report(&reading())?;
        world.until(run, "Ready", "Unknown/Reading").await?;
        world.passes(run).await?;
        world.delete::<ChecksumRun>(run).await?;
    }
    eventually("all to be gone", SOON, async || {
        let mut left = world.names::<Job>().await?;
        left.extend(world.names::<Deployment>().await?);
        left.extend(world.names::<ConfigMap>().await?);
        left.extend(world.names::<Secret>().await?);
        left.retain(|it| it.contains("-checksum"));
        ensure!(left.is_empty(), "{left:?}");
        Ok(Some(()))
    })
    .await?;
    let claims = world.names::<PersistentVolumeClaim>().await?;
    assert_eq!(claims, ["embedded-store", "home"]);
    Ok(())
}

#[tokio::test]
async fn credentials_are_copied_by_key_and_missing_ones_are_named() -> Result<()> {
    let world = World::new().await?;
    world.secret("cache-user", json!({"password": "p"})).await?;
    world.run("r", distributed()).await?;
    world.passes("r").await?;
    assert_eq!(
        world.condition("r", "Ready").await?,
        "False/ReferenceMissing"
    );
    world
        .secret(
            "db-user",
            json!({"username": "u", "password": "s3cret", "more": "x"}),
        )
        .await?;
    // What was read is good for half a minute.
    tokio::time::pause();
    tokio::time::advance(operator::secrets::FRESH).await;
    tokio::time::resume();
    world.passes("r").await?;
    let copy = world.get::<Secret>("r-checksum").await?;
    let keys: Vec<_> = copy.data.unwrap_or_default().into_keys().collect();
    assert_eq!(keys, ["queue-password", "store-password", "store-username"]);
    let shown = serde_json::to_string(&world.get::<ConfigMap>("r-checksum").await?)?;
    assert!(!shown.contains("s3cret"));
    Ok(())
}

#[tokio::test]
async fn what_belongs_to_somebody_else_is_not_taken_over() -> Result<()> {
    let world = World::new().await?;
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "r-checksum"}, "data": {"mine": "yes"}});
    world.create::<ConfigMap>(foreign).await?;
    world.run("r", json!({})).await?;
    assert!(matches!(world.pass("r").await?, Next::Failed { .. }));
    assert_eq!(world.condition("r", "Ready").await?, "False/NameTaken");
    let kept = world.get::<ConfigMap>("r-checksum").await?.data;
    assert_eq!(kept.unwrap_or_default()["mine"], "yes");
    world.delete::<ConfigMap>("r-checksum").await?;
    world.passes("r").await?;
    assert_eq!(world.condition("r", "Ready").await?, "Unknown/Starting");
    Ok(())
}

#[tokio::test]
async fn a_coordinator_that_crashes_is_replaced_and_in_the_end_given_up() -> Result<()> {
    let world = World::new().await?;
    world.run("r", json!({})).await?;
    world.passes("r").await?;
    let coordinator = world.start_coordinator("r").await?;
    coordinator.report(&reading())?;
    world.until("r", "Ready", "Unknown/Reading").await?;
    world.end(coordinator, 101, "thread main panicked").await?;
    world.until("r", "Ready", "Unknown/Starting").await?;
    assert_eq!(
        world.status("r").await?.files.context("files")?.verified,
        4,
        "what is known stays"
    );
    world.give_up("r-checksum").await?;
    world.until("r", "Complete", "True/Failed").await?;
    let status = world.status("r").await?;
    let complete = crds::condition::find(&status.conditions, "Complete").context("Complete")?;
    assert!(
        complete.message.contains("thread main panicked"),
        "{}",
        complete.message
    );
    Ok(())
}

#[tokio::test]
async fn a_run_is_deleted_when_its_time_is_over() -> Result<()> {
    let world = World::new().await?;
    world
        .run("r", json!({"cancel": true, "ttlAfterFinished": "1h"}))
        .await?;
    world.passes("r").await?;
    assert_eq!(world.condition("r", "Complete").await?, "True/Cancelled");
    let next = world.pass("r").await?;
    assert!(matches!(next, Next::At(_)), "{next:?}");
    world.clock.advance(SignedDuration::from_hours(1));
    world.pass("r").await?;
    assert!(world.find::<ChecksumRun>("r").await?.is_none());
    assert_eq!(world.pass("r").await?, Next::Await);
    Ok(())
}

#[tokio::test]
async fn an_unreadable_authority_is_replaced_and_agents_follow() -> Result<()> {
    let world = World::new().await?;
    world
        .secret(
            CA_SECRET,
            json!({"tls.crt": "garbage", "tls.key": "garbage", "ca.crt": "garbage"}),
        )
        .await?;
    world.run("r", json!({})).await?;
    world.passes("r").await?;
    let coordinator = world.start_coordinator("r").await?;
    coordinator.report(&reading())?;
    world.until("r", "Ready", "Unknown/Reading").await
}
