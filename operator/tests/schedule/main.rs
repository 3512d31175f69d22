//! ChecksumSchedule on a real API server: what a pass writes, and what remains after any failure.
#![expect(
    clippy::disallowed_methods,
    reason = "tests look at the server directly, to compare it with what the controller believes"
)]

mod support;

use anyhow::Result;
use crds::{condition, name::RUN_NOW_ANNOTATION};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{ResourceExt, api::ListParams};
use operator::controller::Next;
use serde_json::{Value, json};
use support::{Fault, World, at, reason};

#[tokio::test]
async fn a_second_pass_reads_and_writes_nothing() -> Result<()> {
    let world = World::new("2030-01-01T00:00:30Z").await?;
    world
        .schedule("s", json!({"schedule": "* * * * *"}))
        .await?;
    world.passes("s").await?;
    let before = world.get("s").await?;
    let sent = world.line.sent();
    let next = world.pass("s").await?;
    assert_eq!(
        world.line.sent(),
        sent,
        "requests of a pass with nothing to do"
    );
    assert_eq!(next, Next::At(at("2030-01-01T00:01:00Z")?));
    assert_eq!(
        world.get("s").await?.resource_version(),
        before.resource_version()
    );
    Ok(())
}

#[tokio::test]
async fn the_first_pass_needs_a_create_an_event_and_a_status() -> Result<()> {
    let world = World::new("2030-01-01T00:00:30Z").await?;
    world
        .schedule("s", json!({"schedule": "0 0 1 1 *"}))
        .await?;
    world.pass("s").await?;
    // The run, two events (started, slots missed since 2026), the status.
    assert_eq!(world.line.sent(), 4);
    Ok(())
}

#[tokio::test]
async fn a_schedule_that_could_not_be_read_for_a_while_is_told_as_before() -> Result<()> {
    let world = World::new("2030-01-01T00:00:30Z").await?;
    let spec = json!({"schedule": "* * * * *"});
    world.schedule("s", spec).await?;
    world.passes("s").await?;
    let before = world.get("s").await?.status;
    // Kubernetes takes this time, and we cannot read it.
    let strange = json!({"lastResultTime": "9999-12-31T23:59:59Z"});
    world.tell("s", strange).await?;
    assert_eq!(world.pass("s").await?, Next::Await);
    world.tell("s", json!({"lastResultTime": null})).await?;
    let stalled = world.get("s").await?.status.unwrap_or_default().conditions;
    assert!(condition::is_true(&stalled, "Stalled"), "{stalled:?}");
    world.passes("s").await?;
    let mut after = world.get("s").await?.status;
    // That it was not ready for a while remains to be seen.
    let (old, new) = (before.iter(), after.iter_mut());
    for (old, new) in old.zip(new) {
        for (old, new) in old.conditions.iter().zip(&mut new.conditions) {
            new.last_transition_time = old.last_transition_time.clone();
        }
    }
    assert_eq!(after, before);
    let sent = world.line.sent();
    world.pass("s").await?;
    assert_eq!(world.line.sent(), sent, "requests with nothing to do");
    Ok(())
}

/// How many lives are lived at once: they wait for the server more than they compute.
const AT_ONCE: usize = 8;

/// A life with every kind of write: runs started, ended, pruned, replaced and asked for.
async fn live(world: &World) -> Result<()> {
    world.now("2030-01-01T00:00:30Z")?;
    world.passes("s").await?;
    for minute in 1..=3 {
        world.now(&format!("2030-01-01T00:0{minute}:10Z"))?;
        let running = world.run_names().await?;
        world
            .end(running.last().map_or("", String::as_str), "Verified")
            .await?;
        world.now(&format!("2030-01-01T00:0{minute}:20Z"))?;
        world.passes("s").await?;
    }
    world.edit("s", json!({"metadata": {"annotations": {RUN_NOW_ANNOTATION: "please"}}, "spec": {"concurrencyPolicy": "Replace"}})).await?;
    world.passes("s").await
}

/// What a user can see afterwards, without what differs between any two lives.
async fn remains(world: &World) -> Result<Value> {
    let mut status = world.get("s").await?.status.unwrap_or_default();
    for condition in &mut status.conditions {
        // A failure shows while it lasts, and that moves the time of the last change.
        condition.last_transition_time.0 = jiff::Timestamp::UNIX_EPOCH;
    }
    let runs = world.runs().list(&ListParams::default()).await?;
    let runs: Vec<_> = runs
        .into_iter()
        .map(|run| {
            let ended = run.ended().map(|condition| condition.reason.clone());
            json!({"name": run.name_any(), "labels": run.labels(), "annotations": run.annotations(), "spec": run.spec, "ended": ended})
        })
        .collect();
    Ok(json!({"status": status, "runs": runs}))
}

#[tokio::test]
async fn failing_at_any_request_and_going_on_ends_in_the_same_state() -> Result<()> {
    let spec = json!({"schedule": "* * * * *", "successfulRunsHistoryLimit": 1});
    let undisturbed = World::new("2030-01-01T00:00:00Z").await?;
    undisturbed.schedule("s", spec.clone()).await?;
    live(&undisturbed).await?;
    let expected = remains(&undisturbed).await?;
    let requests = undisturbed.line.sent();
    assert!(
        requests > 15,
        "a life of {requests} requests is too short to be a test"
    );
    let faults = [Fault::Unsent, Fault::Unanswered];
    let cases = faults
        .into_iter()
        .flat_map(|fault| (1..=requests).map(move |request| (request, fault)));
    let lives = stream::iter(cases).map(|(request, fault)| {
        let (spec, expected) = (spec.clone(), &expected);
        async move {
            let world = World::new("2030-01-01T00:00:00Z").await?;
            world.schedule("s", spec).await?;
            world.line.spoil(request, fault);
            live(&world).await?;
            assert!(world.line.sent() >= request, "{request} was never sent");
            assert_eq!(
                remains(&world).await?,
                *expected,
                "after request {request} was {fault:?}"
            );
            anyhow::Ok(())
        }
    });
    lives.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    Ok(())
}

#[tokio::test]
async fn a_deleted_run_is_not_made_again() -> Result<()> {
    let world = World::new("2030-01-01T00:00:30Z").await?;
    world
        .schedule("s", json!({"schedule": "0 * * * *"}))
        .await?;
    world.passes("s").await?;
    world.delete_run("s-3001010000").await?;
    world.passes("s").await?;
    assert_eq!(world.run_names().await?, Vec::<String>::new());
    assert_eq!(reason(&world.get("s").await?), "Scheduled");
    Ok(())
}

#[tokio::test]
async fn an_edited_run_is_left_as_the_user_wants_it() -> Result<()> {
    let world = World::new("2030-01-01T00:00:30Z").await?;
    world
        .schedule("s", json!({"schedule": "0 * * * *"}))
        .await?;
    world.passes("s").await?;
    let change = json!({"metadata": {"labels": {"mine": "yes", "orrery.dev/checksum-schedule": "changed"}}, "spec": {"suspend": true}});
    let patch = kube::api::Patch::Merge(&change);
    let edited = world
        .runs()
        .patch("s-3001010000", &kube::api::PatchParams::default(), &patch)
        .await?;
    world.passes("s").await?;
    world.now("2030-01-01T01:00:30Z")?;
    world.passes("s").await?;
    let run = world.runs().get("s-3001010000").await?;
    assert_eq!(run.resource_version(), edited.resource_version());
    assert_eq!(reason(&world.get("s").await?), "WaitingForActiveRun");
    Ok(())
}

#[tokio::test]
async fn a_run_without_its_owner_is_nobodys_business() -> Result<()> {
    let world = World::new("2030-01-01T00:00:30Z").await?;
    world
        .schedule("s", json!({"schedule": "0 * * * *"}))
        .await?;
    world.passes("s").await?;
    let change = json!({"metadata": {"ownerReferences": null}});
    let patch = kube::api::Patch::Merge(&change);
    world
        .runs()
        .patch("s-3001010000", &kube::api::PatchParams::default(), &patch)
        .await?;
    world.passes("s").await?;
    assert_eq!(
        world
            .get("s")
            .await?
            .status
            .unwrap_or_default()
            .active_count,
        0
    );
    world.now("2030-01-01T01:00:30Z")?;
    world.passes("s").await?;
    assert_eq!(world.run_names().await?, ["s-3001010000", "s-3001010100"]);
    Ok(())
}

#[tokio::test]
async fn a_name_taken_by_somebody_else_is_reported_and_used_once_it_is_free() -> Result<()> {
    let world = World::new("2030-01-01T00:00:30Z").await?;
    let foreign = json!({"apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumRun", "metadata": {"name": "s-3001010000"},
        "spec": {"source": {"persistentVolumeClaim": {"claimName": "other"}}}});
    world
        .runs()
        .create(
            &kube::api::PostParams::default(),
            &serde_json::from_value(foreign)?,
        )
        .await?;
    world
        .schedule("s", json!({"schedule": "0 * * * *"}))
        .await?;
    assert!(matches!(world.pass("s").await?, Next::Failed { .. }));
    let told = world.get("s").await?;
    assert_eq!(reason(&told), "NameTaken");
    let conditions = told.status.unwrap_or_default().conditions;
    assert!(
        condition::is_true(&conditions, "Reconciling")
            && !condition::is_true(&conditions, "Stalled")
    );
    world.delete_run("s-3001010000").await?;
    world.passes("s").await?;
    assert_eq!(reason(&world.get("s").await?), "Running");
    Ok(())
}

#[tokio::test]
async fn a_template_that_the_server_refuses_is_reported_with_its_words_and_once_as_an_event()
-> Result<()> {
    let world = World::new("2030-01-01T00:00:30Z").await?;
    let template = json!({"metadata": {"labels": {"no label": "x"}}, "spec": {"source": {"persistentVolumeClaim": {"claimName": "home"}}}});
    world
        .schedule("s", json!({"schedule": "0 * * * *", "template": template}))
        .await?;
    for _ in 0..2 {
        assert!(matches!(world.pass("s").await?, Next::Failed { .. }));
    }
    let conditions = world.get("s").await?.status.unwrap_or_default().conditions;
    let ready = condition::find(&conditions, "Ready").cloned();
    let ready = ready.ok_or_else(|| anyhow::anyhow!("Ready is always there"))?;
    assert_eq!(ready.reason, "RunRefused");
    assert!(ready.message.contains("no label"), "{}", ready.message);
    let told = ("RunRefused".to_owned(), ready.message);
    assert_eq!(world.events("s").await?, [told]);
    Ok(())
}

#[tokio::test]
async fn runs_outlive_their_time_for_no_failure_of_their_schedule() -> Result<()> {
    let world = World::new("2030-01-01T00:00:30Z").await?;
    let source = json!({"persistentVolumeClaim": {"claimName": "home"}});
    let template = json!({"spec": {"source": source, "ttlAfterFinished": "1h"}});
    let refused = json!({"template": {"metadata": {"labels": {"no label": "x"}}}});
    for (name, fault) in [
        ("zone", json!({"timeZone": "Europe/Atlantis"})),
        ("label", refused),
    ] {
        world.now("2030-01-01T00:00:30Z")?;
        let spec = json!({"schedule": "0 * * * *", "template": template});
        world.schedule(name, spec).await?;
        world.passes(name).await?;
        world.end(&format!("{name}-3001010000"), "Verified").await?;
        world.passes(name).await?;
        world.edit(name, json!({"spec": fault})).await?;
        world.now("2030-01-01T03:00:30Z")?;
        for _ in 0..3 {
            world.pass(name).await?;
        }
        assert_eq!(world.run_names().await?, Vec::<String>::new(), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn an_unknown_zone_stalls_until_it_is_corrected() -> Result<()> {
    let world = World::new("2030-01-01T00:00:30Z").await?;
    world
        .schedule(
            "s",
            json!({"schedule": "0 * * * *", "timeZone": "Europe/Atlantis"}),
        )
        .await?;
    world.passes("s").await?;
    assert_eq!(
        world.pass("s").await?,
        Next::Await,
        "only a change can help"
    );
    let conditions = world.get("s").await?.status.unwrap_or_default().conditions;
    assert!(condition::is_true(&conditions, "Stalled"));
    world
        .edit("s", json!({"spec": {"timeZone": "Europe/Berlin"}}))
        .await?;
    world.passes("s").await?;
    let conditions = world.get("s").await?.status.unwrap_or_default().conditions;
    assert!(
        condition::is_true(&conditions, "Ready") && !condition::is_true(&conditions, "Stalled")
    );
    Ok(())
}

#[tokio::test]
async fn on_the_days_the_clocks_change_each_local_slot_starts_one_run() -> Result<()> {
    let world = World::new("2030-03-30T12:00:00Z").await?;
    world.schedule("s", json!({"schedule": "30 2 * * *", "timeZone": "Europe/Berlin", "concurrencyPolicy": "Allow"})).await?;
    world.passes("s").await?;
    // The next slot is told, slept until, and started, like the controller does; half an hour at a time.
    for (from, hours) in [("2030-03-31T00:00:00Z", 26), ("2030-10-26T22:00:00Z", 28)] {
        world.edit("s", json!({"spec": {"suspend": true}})).await?;
        world.now(from)?;
        world.passes("s").await?;
        world.edit("s", json!({"spec": {"suspend": false}})).await?;
        for half_hour in 0..=hours * 2 {
            world
                .clock
                .set(at(from)? + jiff::SignedDuration::from_mins(30 * half_hour));
            world.passes("s").await?;
        }
    }
    // 31 March: 02:30 does not exist, 03:00 CEST is 01:00 UTC; on 1 April 02:30 CEST is 00:30 UTC.
    // 27 October: the first 02:30 is CEST, 00:30 UTC, the second one starts nothing; 28 October is CET, 01:30 UTC.
    let names = world.run_names().await?;
    assert_eq!(
        names[1..],
        [
            "s-3003310100",
            "s-3004010030",
            "s-3010270030",
            "s-3010280130"
        ]
    );
    Ok(())
}
