//! ChecksumRun on a real API server, with the controllers of Kubernetes and agents that are real but for their work:
//! what a pass writes, what users see, and what remains after any failure.
#![expect(
    clippy::disallowed_methods,
    reason = "tests look at the server directly, to compare it with what the controller believes"
)]

mod agent;
mod snapshots;
mod storage;
mod support;

use anyhow::{Context as _, Result, ensure};
use crds::{
    checksum_run::{
        ChecksumRun,
        status::{CorruptFile, FileCounts, RunState},
    },
    name::{AGENT_TLS_SECRET, CA_SECRET},
    report::checksum::{CoordinatorReport, Explained},
};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::SignedDuration;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolumeClaim, Secret},
};
use kube::ResourceExt;
use operator::controller::Next;
use serde_json::{Value, json};
use support::{Fault, SOON, World};
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
    assert_eq!(world.condition("r", "AgentsReachable").await?, "");
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

/// How many lives are lived at once: they wait for the server more than they compute.
const AT_ONCE: usize = 8;

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
async fn remains(world: &World, run: &str) -> Result<Value> {
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
    if let Some(snapshot) = document["spec"]["snapshot"].as_str() {
        let (name, _) = snapshot.split_once('/').unwrap_or_default();
        document["spec"]["snapshot"] = name.into();
    }
    let workers = world.find::<Deployment>(&format!("{named}-worker")).await?;
    let keys = world.find::<Secret>(&named).await?;
    let keys: Option<Vec<_>> = keys.map(|s| s.data.unwrap_or_default().into_keys().collect());
    Ok(json!({
        "status": {"conditions": status.conditions, "state": status.state, "files": status.files, "corrupt": status.corrupt,
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
            anyhow::Ok(())
        }
    });
    lives.buffer_unordered(AT_ONCE).try_collect::<()>().await
}

#[tokio::test]
async fn failing_at_any_request_of_a_beginning_ends_in_the_same_state() -> Result<()> {
    sweep(json!({}), Life::Beginning).await
}

#[tokio::test]
async fn failing_at_any_request_of_a_run_with_workers_ends_in_the_same_state() -> Result<()> {
    sweep(distributed(), Life::Whole).await
}
