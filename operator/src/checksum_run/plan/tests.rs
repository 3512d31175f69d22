//! Claims about what a run needs, case by case.

use crds::{
    checksum_run::{reason, status::FileCounts},
    condition::{Draft, merge},
    name,
    report::checksum::Explained,
};
use serde_json::json;

use super::{
    super::{
        fixture::{distributed, image, validated},
        snapshot::{SnapshotError, VolumeSnapshotStatus},
    },
    *,
};
use crate::{object::digest, secrets};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-11-16T04:00:00Z")
}

fn seen() -> Observed {
    Observed {
        status: ChecksumRunStatus::default(),
        image: image(),
        source: Some(ClaimState {
            access_modes: vec!["ReadWriteOnce".into()],
            ..ClaimState::default()
        }),
        store: None,
        preparation: None,
        begun: false,
        created: at("2026-11-16T03:00:00Z"),
        rivals: Vec::new(),
        config: None,
        credentials: Credentials::None,
        copy: None,
        job: None,
        workers: None,
        snapshot: Found::Unknown,
        restored: None,
        pods: Vec::new(),
    }
}

fn made(uid: &str, applied: Option<&str>) -> Made {
    Made {
        uid: uid.into(),
        applied: applied.map(Into::into),
    }
}

fn job() -> (Made, JobState) {
    let job = JobState {
        image: Some("registry.example.com/orrery:0.9.0".into()),
        ..JobState::default()
    };
    (made("job-uid", None), job)
}

fn coordinator() -> Pod {
    Pod {
        name: "home-full-checksum-abc".into(),
        role: Role::Coordinator,
        started: true,
        ready: true,
        exit: None,
        holdup: None,
        heard: None,
        heeds: true,
        silent_since: None,
    }
}

fn working_pod(report: CoordinatorReport) -> Pod {
    Pod {
        heard: Some(report),
        ..coordinator()
    }
}

fn reading() -> CoordinatorReport {
    CoordinatorReport {
        state: Some(RunState::WorkQueue),
        files: Some(FileCounts {
            total: 100,
            verified: 40,
            not_selected: 10,
            remaining: 50,
            ..FileCounts::default()
        }),
        ..CoordinatorReport::default()
    }
}

fn explained(reason: &str) -> Explained {
    Explained {
        reason: reason.into(),
        message: "words".into(),
    }
}

fn finished(result: &str) -> CoordinatorReport {
    CoordinatorReport {
        state: Some(RunState::Finished),
        result: Some(explained(result)),
        ..CoordinatorReport::default()
    }
}

fn exited(code: i32, message: &str) -> Pod {
    Pod {
        exit: Some(Exit {
            code,
            message: message.into(),
        }),
        ..coordinator()
    }
}

/// A run whose Job is there, with that pod.
fn with_pod(pod: Pod) -> Observed {
    Observed {
        job: Some(job()),
        pods: vec![pod],
        store: Some(StoreClaim { ours: true }),
        begun: true,
        ..seen()
    }
}

fn stage_of(plan: &Plan) -> (&'static str, &'static str, String) {
    let (stage, told) = match &plan.stage {
        Stage::Over => ("Over", None),
        Stage::Suspended => ("Suspended", None),
        Stage::Ended(told) => ("Ended", Some(told)),
        Stage::Working(told) => ("Working", Some(told)),
        Stage::Waiting(told) => ("Waiting", Some(told)),
    };
    let words = told.map_or_else(String::new, |told| told.message.clone());
    (stage, told.map_or("", |told| told.reason.name), words)
}

fn writes(plan: &Plan) -> Vec<&'static str> {
    let all = [
        ("store", plan.store.is_some()),
        ("preparation", plan.preparation.is_some()),
        ("config", plan.config.is_some()),
        ("credentials", plan.credentials.is_some()),
        ("job", plan.job.is_some()),
        ("workers", plan.workers.is_some()),
        ("remove", !plan.remove.is_empty()),
    ];
    all.iter()
        .filter(|(_, is)| *is)
        .map(|(name, _)| *name)
        .collect()
}

fn ended(mut seen: Observed, result: &'static Reason) -> Observed {
    let drafts = [Draft::new(COMPLETE, true, result, "")];
    seen.status.conditions = merge(&[], &drafts, Some(1), now());
    seen.status.completion_time = Some(now());
    seen
}

#[test]
fn a_new_run_gets_a_store_a_configuration_and_a_job() {
    let plan = plan(&validated(json!({})), &seen(), now());
    assert_eq!(writes(&plan), ["store", "config", "job"]);
    let (stage, reason, words) = stage_of(&plan);
    assert_eq!((stage, reason), ("Working", "Starting"));
    assert_eq!(words, "waiting for a pod of Job home-full-checksum");
}

#[test]
fn a_store_that_exists_is_used_as_it_is() {
    let seen = Observed {
        store: Some(StoreClaim { ours: true }),
        ..seen()
    };
    let plan = plan(&validated(json!({})), &seen, now());
    assert_eq!(writes(&plan), ["config", "job"]);
}

#[test]
fn nothing_is_written_while_everything_is_as_it_was_asked_for() {
    let run = validated(distributed());
    let files = Files([("store-password".to_owned(), b"x".to_vec())].into());
    let mut seen = Observed {
        credentials: Credentials::Known(files.clone()),
        ..seen()
    };
    let first = plan(&run, &seen, now());
    assert_eq!(writes(&first), ["config", "credentials", "job", "workers"]);
    let applied = |object: &dyn erased::Digest| made("u", Some(&object.digest()));
    seen.config = first.config.as_ref().map(|a| applied(&a.object));
    seen.workers = first.workers.as_ref().map(|a| applied(&a.object));
    let annotations = |job: &Job| job.metadata.annotations.clone().unwrap();
    seen.job = first.job.as_ref().map(|apply| {
        let state = JobState {
            image: Some(image().name.into()),
            template: Some(
                annotations(&apply.object)[name::TEMPLATE_ANNOTATION]
                    .as_str()
                    .into(),
            ),
            ..JobState::default()
        };
        (applied(&apply.object), state)
    });
    seen.copy = Some(Arc::new(Content {
        owner: Some(run.uid.clone()),
        data: files.0,
        ..Content::default()
    }));
    let second = plan(&run, &seen, now());
    assert_eq!(writes(&second), [] as [&str; 0]);
    assert_eq!(second.wake, Some(now() + secrets::FRESH));

    // Somebody changed them.
    for made in [&mut seen.config, &mut seen.workers] {
        made.as_mut().unwrap().applied = None;
    }
    seen.job.as_mut().unwrap().0.applied = None;
    let third = plan(&run, &seen, now());
    assert_eq!(writes(&third), ["config", "job", "workers"]);
    assert_eq!(third.job.unwrap().known.as_deref(), Some("u"));
}

/// Digests of objects of several kinds.
mod erased {
    use serde::Serialize;

    pub(super) trait Digest {
        fn digest(&self) -> String;
    }

    impl<T: Serialize> Digest for T {
        fn digest(&self) -> String {
            crate::object::digest(self)
        }
    }
}

#[test]
fn a_job_of_another_release_is_left_as_it_is() {
    let plan = plan(&validated(json!({})), &with_pod(coordinator()), now());
    assert_eq!(writes(&plan), ["config"]);
}

#[test]
fn a_run_keeps_the_image_it_began_with() {
    let mut seen = with_pod(working_pod(reading()));
    seen.credentials = Credentials::Known(Files::default());
    let plan = plan(&validated(distributed()), &seen, now());
    let pod = plan
        .workers
        .unwrap()
        .object
        .spec
        .unwrap()
        .template
        .spec
        .unwrap();
    let image = pod.containers[0].image.as_deref();
    assert_eq!(image, Some("registry.example.com/orrery:0.9.0"));
}

#[test]
fn workers_are_there_while_files_are_read() {
    for (state, suspend, replicas) in [
        (RunState::MetadataSync, false, 0),
        (RunState::WorkQueue, false, 3),
        (RunState::WorkQueue, true, 0),
        (RunState::CleanUp, false, 0),
    ] {
        let mut fields = distributed();
        fields["suspend"] = suspend.into();
        let report = CoordinatorReport {
            state: Some(state),
            ..CoordinatorReport::default()
        };
        let plan = plan(&validated(fields), &with_pod(working_pod(report)), now());
        let deployment = plan.workers.unwrap().object;
        assert_eq!(
            deployment.spec.unwrap().replicas,
            Some(replicas),
            "{state:?}"
        );
    }
}

#[test]
fn a_source_for_one_node_keeps_the_workers_beside_the_coordinator() {
    let mut seen = with_pod(working_pod(reading()));
    let affinity = |seen: &Observed| {
        let plan = plan(&validated(distributed()), seen, now());
        let deployment = plan.workers.unwrap().object;
        deployment.spec.unwrap().template.spec.unwrap().affinity
    };
    assert!(affinity(&seen).is_some());
    seen.source.as_mut().unwrap().access_modes = vec!["ReadWriteMany".into()];
    assert_eq!(affinity(&seen), None);
}

#[test]
fn what_is_missing_keeps_the_run_from_beginning() {
    let without_claim = Observed {
        source: None,
        ..seen()
    };
    let without_secret = Observed {
        credentials: Credentials::Missing("Secret db-user does not exist".into()),
        ..seen()
    };
    for (seen, words) in [
        (without_claim, "PersistentVolumeClaim home does not exist"),
        (without_secret, "Secret db-user does not exist"),
    ] {
        let plan = plan(&validated(distributed()), &seen, now());
        let expected = ("Waiting", "ReferenceMissing", words.to_owned());
        assert_eq!(stage_of(&plan), expected);
        assert_eq!(writes(&plan), [] as [&str; 0]);
        assert_eq!(plan.wake, Some(now() + LOOK_AGAIN));
    }
}

#[test]
fn a_run_that_has_begun_does_not_end_for_want_of_a_reference() {
    let seen = Observed {
        source: None,
        credentials: Credentials::Missing("Secret db-user does not exist".into()),
        ..with_pod(working_pod(reading()))
    };
    let plan = plan(&validated(distributed()), &seen, now());
    assert_eq!(stage_of(&plan).1, "Reading");
    assert_eq!(plan.credentials, None, "the old ones stay");
}

#[test]
fn of_the_runs_on_one_store_the_oldest_goes_first() {
    let rival = |name: &str, begun, created: &str| Rival {
        name: name.into(),
        begun,
        created: at(created),
    };
    for (rival, begun, waits) in [
        (rival("older", false, "2026-11-16T02:59:59Z"), false, true),
        (
            rival("younger", false, "2026-11-16T03:00:01Z"),
            false,
            false,
        ),
        (
            rival("a-same-age", false, "2026-11-16T03:00:00Z"),
            false,
            true,
        ),
        (
            rival("z-same-age", false, "2026-11-16T03:00:00Z"),
            false,
            false,
        ),
        (rival("younger", true, "2026-11-16T03:00:01Z"), false, true),
        (rival("older", false, "2026-11-16T02:59:59Z"), true, false),
    ] {
        let seen = Observed {
            begun,
            rivals: vec![rival.clone()],
            ..seen()
        };
        let plan = plan(&validated(json!({})), &seen, now());
        let (stage, reason, words) = stage_of(&plan);
        assert_eq!(stage == "Waiting", waits, "{rival:?}");
        if waits {
            assert_eq!(reason, "StoreInUse");
            assert_eq!(
                words,
                format!(
                    "ChecksumRun {} uses the store in PersistentVolumeClaim home-full-store",
                    rival.name
                )
            );
            assert_eq!(writes(&plan), [] as [&str; 0]);
        }
    }
}

#[test]
fn a_suspended_run_starts_nothing_and_stops_nothing() {
    let run = validated(json!({"suspend": true}));
    let fresh = plan(&run, &seen(), now());
    assert_eq!(
        (fresh.stage.clone(), writes(&fresh).len()),
        (Stage::Suspended, 0)
    );
    assert_eq!(fresh.wake, None);
    let begun = plan(&run, &with_pod(working_pod(reading())), now());
    assert_eq!(
        (begun.stage.clone(), writes(&begun)),
        (Stage::Suspended, vec!["config"])
    );
}

#[test]
fn how_far_a_run_is_is_what_its_coordinator_says() {
    for (state, reason) in [
        (RunState::Initialised, "Starting"),
        (RunState::Snapshot, "Snapshotting"),
        (RunState::MetadataSync, "Listing"),
        (RunState::WorkQueue, "Reading"),
        (RunState::CleanUp, "CleaningUp"),
        (RunState::AbortingMetadataSync, "CleaningUp"),
    ] {
        let report = CoordinatorReport {
            state: Some(state),
            ..reading()
        };
        let plan = plan(&validated(json!({})), &with_pod(working_pod(report)), now());
        assert_eq!((stage_of(&plan).0, stage_of(&plan).1), ("Working", reason));
    }
    let plan = plan(
        &validated(json!({})),
        &with_pod(working_pod(reading())),
        now(),
    );
    assert_eq!(stage_of(&plan).2, "40 of 90 files are read");
}

#[test]
fn what_a_coordinator_waits_for_is_told_in_its_words() {
    for (reason, expected, words) in [
        ("StoreUnreachable", "StoreUnreachable", "words"),
        ("Tired", "Waiting", "Tired: words"),
    ] {
        let report = CoordinatorReport {
            waiting: Some(explained(reason)),
            ..reading()
        };
        let plan = plan(&validated(json!({})), &with_pod(working_pod(report)), now());
        assert_eq!(stage_of(&plan), ("Waiting", expected, words.into()));
    }
}

#[test]
fn what_keeps_a_pod_from_starting_is_told() {
    let pod = |change: &dyn Fn(&mut Pod)| {
        let mut pod = coordinator();
        pod.started = false;
        change(&mut pod);
        pod
    };
    for (pod, words) in [
        (pod(&|_| {}), "pod home-full-checksum-abc is being started"),
        (
            pod(&|pod| pod.started = true),
            "pod home-full-checksum-abc has started, and is asked how it is",
        ),
        (
            pod(&|pod| pod.holdup = Some("ImagePullBackOff".into())),
            "pod home-full-checksum-abc does not start: ImagePullBackOff",
        ),
        (
            exited(2, "panic\n"),
            "another pod is started; pod home-full-checksum-abc ended with exit code 2: panic",
        ),
    ] {
        let plan = plan(&validated(json!({})), &with_pod(pod), now());
        assert_eq!(stage_of(&plan), ("Working", "Starting", words.into()));
    }
}

#[test]
fn every_result_ends_the_run_whoever_tells_it() {
    for result in reason::RESULTS {
        let report = finished(result.name);
        let left = serde_json::to_string(&report).unwrap();
        for pod in [working_pod(report), exited(0, &left), exited(1, &left)] {
            let plan = plan(&validated(json!({})), &with_pod(pod), now());
            assert_eq!(stage_of(&plan), ("Ended", result.name, "words".into()));
            assert_eq!(writes(&plan), [] as [&str; 0], "first it is told");
        }
    }
}

#[test]
fn a_result_that_is_not_known_is_no_success() {
    let plan = plan(
        &validated(json!({})),
        &with_pod(working_pod(finished("Wonderful"))),
        now(),
    );
    assert_eq!(
        stage_of(&plan),
        ("Ended", "Failed", "ended with Wonderful: words".into())
    );
}

#[test]
fn the_result_of_an_earlier_pod_holds() {
    let left = serde_json::to_string(&finished("DamageFound")).unwrap();
    let mut seen = with_pod(coordinator());
    seen.pods.push(exited(0, &left));
    assert_eq!(
        stage_of(&plan(&validated(json!({})), &seen, now())).1,
        "DamageFound"
    );
}

#[test]
fn what_an_earlier_pod_knew_is_not_what_is_true_now() {
    let left = serde_json::to_string(&reading()).unwrap();
    let mut seen = with_pod(coordinator());
    seen.pods.push(exited(1, &left));
    assert_eq!(seen.report(), None);
}

#[test]
fn a_job_that_was_given_up_fails_the_run_with_the_last_words() {
    let mut seen = with_pod(exited(101, "out of memory"));
    seen.job.as_mut().unwrap().1.failed =
        Some("Job has reached the specified backoff limit".into());
    let plan = plan(&validated(json!({})), &seen, now());
    let words = "Job has reached the specified backoff limit; pod home-full-checksum-abc ended with exit code 101: out of memory";
    assert_eq!(stage_of(&plan), ("Ended", "Failed", words.into()));
}

#[test]
fn a_coordinator_that_ends_well_without_a_result_has_failed() {
    let mut seen = with_pod(exited(0, r#"{"timestamp": "a log line"}"#));
    seen.job.as_mut().unwrap().1.complete = true;
    assert_eq!(
        stage_of(&plan(&validated(json!({})), &seen, now())).1,
        "Failed"
    );
}

#[test]
fn a_result_that_went_with_its_pod_is_asked_for_again() {
    let mut seen = with_pod(coordinator());
    seen.pods.clear();
    seen.job.as_mut().unwrap().1.complete = true;
    let plan = plan(&validated(json!({})), &seen, now());
    assert_eq!(plan.remove, [Doomed::Job("job-uid".into())]);
}

#[test]
fn a_run_that_is_cancelled_before_it_began_is_over_at_once() {
    let run = validated(json!({"cancel": true}));
    let waiting = Observed {
        source: None,
        ..seen()
    };
    for seen in [seen(), waiting] {
        let plan = plan(&run, &seen, now());
        assert_eq!(
            (stage_of(&plan).0, stage_of(&plan).1),
            ("Ended", "Cancelled")
        );
        assert_eq!(writes(&plan), [] as [&str; 0]);
    }
}

#[test]
fn a_coordinator_that_can_ends_a_cancelled_run_itself() {
    let run = validated(json!({"cancel": true}));
    for pod in [working_pod(reading()), coordinator()] {
        let plan = plan(&run, &with_pod(pod), now());
        assert_eq!(
            writes(&plan),
            ["config"],
            "it must hear of it after a crash, too"
        );
    }
}

#[test]
fn a_coordinator_that_cannot_end_a_cancelled_run_is_removed() {
    let run = validated(json!({"cancel": true}));
    let waiting = CoordinatorReport {
        waiting: Some(explained("StoreUnreachable")),
        ..CoordinatorReport::default()
    };
    let stuck = [
        working_pod(waiting),
        Pod {
            started: false,
            ..coordinator()
        },
        Pod {
            silent_since: Some(at("2026-11-16T03:58:00Z")),
            ..working_pod(reading())
        },
        exited(2, "panic"),
    ];
    for pod in stuck {
        let plan = plan(&run, &with_pod(pod.clone()), now());
        assert_eq!(plan.remove, [Doomed::Job("job-uid".into())], "{pod:?}");
        let mut gone = with_pod(pod);
        gone.job = None;
        gone.pods.clear();
        assert_eq!(stage_of(&super::plan(&run, &gone, now())).1, "Cancelled");
    }
}

#[test]
fn a_cancelled_run_is_not_over_while_a_pod_is_alive() {
    let mut seen = with_pod(working_pod(reading()));
    seen.job = None;
    let plan = plan(&validated(json!({"cancel": true})), &seen, now());
    assert_eq!(stage_of(&plan).0, "Working");
}

#[test]
fn after_the_end_workers_go_and_the_job_stays() {
    let seen = Observed {
        workers: Some(made("workers-uid", None)),
        ..ended(
            with_pod(working_pod(finished("Verified"))),
            &reason::VERIFIED,
        )
    };
    let plan = plan(&validated(distributed()), &seen, now());
    assert_eq!(plan.stage, Stage::Over);
    assert_eq!(writes(&plan), ["remove"]);
    assert_eq!(plan.remove, [Doomed::Workers("workers-uid".into())]);
    assert_eq!((plan.expired, plan.wake), (false, None));
}

#[test]
fn a_run_is_deleted_when_its_time_is_over_and_not_before() {
    let run = validated(json!({"ttlAfterFinished": "1h"}));
    let seen = ended(seen(), &reason::VERIFIED);
    let before = plan(&run, &seen, at("2026-11-16T04:59:59Z"));
    assert_eq!(
        (before.expired, before.wake),
        (false, Some(at("2026-11-16T05:00:00Z")))
    );
    assert!(plan(&run, &seen, at("2026-11-16T05:00:00Z")).expired);
}

#[test]
fn a_live_volume_has_no_snapshot_to_stop_after() {
    let plan = plan(&validated(json!({"stopAfter": "Snapshot"})), &seen(), now());
    assert_eq!((stage_of(&plan).0, stage_of(&plan).1), ("Ended", "Stopped"));
}

fn snapped(more: &serde_json::Value) -> Validated {
    let mut fields = json!({"source": {"persistentVolumeClaim": {"claimName": "home"}, "snapshot": {"csi": {}}}});
    fields
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    validated(fields)
}

fn there(ready: bool, error: Option<&str>) -> Found {
    let error = error.map(|message| SnapshotError {
        message: Some(message.into()),
    });
    Found::There {
        uid: "snapshot-uid".into(),
        deleting: false,
        status: VolumeSnapshotStatus {
            ready_to_use: Some(ready),
            restore_size: Some("2Gi".into()),
            error,
        },
    }
}

fn restored(ours: bool, deleting: bool) -> Restored {
    Restored {
        uid: "claim-uid".into(),
        ours,
        deleting,
    }
}

#[test]
fn a_snapshot_comes_before_everything_else() {
    for (found, stage, reason, words) in [
        (Found::Absent, "Working", "Snapshotting", "is made"),
        (
            there(false, None),
            "Working",
            "Snapshotting",
            "has not finished",
        ),
        (
            there(false, Some("no such class")),
            "Waiting",
            "SnapshotFailing",
            "no such class",
        ),
        (
            Found::Foreign,
            "Waiting",
            "NameTaken",
            "VolumeSnapshot home-full-snapshot exists already",
        ),
        (
            Found::NoKind,
            "Waiting",
            "ReferenceMissing",
            "volumesnapshots.snapshot.storage.k8s.io",
        ),
    ] {
        let seen = Observed {
            snapshot: found.clone(),
            ..seen()
        };
        let plan = plan(&snapped(&json!({})), &seen, now());
        let told = stage_of(&plan);
        assert_eq!((told.0, told.1), (stage, reason), "{found:?}");
        assert!(told.2.contains(words), "{told:?}");
        assert_eq!(writes(&plan), [] as [&str; 0]);
        assert_eq!(plan.snapshot.is_some(), found == Found::Absent);
        assert_eq!(plan.wake, Some(now() + LOOK_AGAIN));
    }
}

#[test]
fn what_is_mounted_is_the_claim_from_the_snapshot() {
    let mut seen = Observed {
        snapshot: there(true, None),
        ..seen()
    };
    let first = plan(&snapped(&json!({})), &seen, now());
    assert_eq!(writes(&first), ["store", "config", "job"]);
    let claim = first.restored.unwrap();
    let size = claim.spec.unwrap().resources.unwrap().requests.unwrap()["storage"].clone();
    assert_eq!(size.0, "2Gi");
    let pod = first
        .job
        .unwrap()
        .object
        .spec
        .unwrap()
        .template
        .spec
        .unwrap();
    let source = pod
        .volumes
        .unwrap()
        .remove(0)
        .persistent_volume_claim
        .unwrap();
    assert_eq!(source.claim_name, "home-full-snapshot");
    assert_eq!(source.read_only, Some(true));

    seen.restored = Some(restored(true, false));
    assert_eq!(plan(&snapped(&json!({})), &seen, now()).restored, None);
    seen.restored = Some(restored(false, false));
    assert_eq!(
        stage_of(&plan(&snapped(&json!({})), &seen, now())).1,
        "NameTaken"
    );
}

#[test]
fn a_run_that_stops_after_the_snapshot_has_no_pods() {
    let seen = Observed {
        snapshot: there(true, None),
        ..seen()
    };
    let plan = plan(&snapped(&json!({"stopAfter": "Snapshot"})), &seen, now());
    assert_eq!((stage_of(&plan).0, stage_of(&plan).1), ("Ended", "Stopped"));
    assert_eq!(writes(&plan), [] as [&str; 0]);
}

#[test]
fn after_the_end_the_claim_goes_and_then_the_snapshot() {
    let mut seen = ended(
        with_pod(working_pod(finished("Verified"))),
        &reason::VERIFIED,
    );
    seen.status.snapshot = Some("home-full-snapshot".into());
    let run = snapped(&json!({}));
    for (claim, found, looks, remove) in [
        (
            Some(restored(true, false)),
            Found::Unknown,
            false,
            vec![Doomed::Restored("claim-uid".into())],
        ),
        (Some(restored(true, true)), Found::Unknown, false, vec![]),
        (
            None,
            there(true, None),
            true,
            vec![Doomed::Snapshot("snapshot-uid".into())],
        ),
        (None, Found::Absent, true, vec![]),
    ] {
        seen.restored = claim;
        seen.snapshot = found;
        assert_eq!(seen.wants_snapshot(&run), looks);
        assert_eq!(plan(&run, &seen, now()).remove, remove);
    }
    seen.status.snapshot = None;
    assert!(!seen.wants_snapshot(&run), "nobody asks once it is gone");
    assert_eq!(plan(&run, &seen, now()).wake, None);
}

#[test]
fn a_snapshot_is_kept_when_somebody_wants_to_look_at_it() {
    let kept = |result, more| {
        let mut seen = ended(with_pod(coordinator()), result);
        seen.status.snapshot = Some("home-full-snapshot".into());
        seen.restored = Some(restored(true, false));
        plan(&snapped(&more), &seen, now()).remove.is_empty()
    };
    let keep = json!({"keepSnapshotOnFailure": true});
    assert!(kept(&reason::DAMAGE_FOUND, keep.clone()));
    assert!(!kept(&reason::VERIFIED, keep));
    assert!(!kept(&reason::DAMAGE_FOUND, json!({})));
    assert!(kept(&reason::STOPPED, json!({"stopAfter": "Snapshot"})));
    assert!(kept(&reason::VERIFIED, json!({"stopAfter": "WorkQueue"})));
}

/// A coordinator that may not write to its store.
fn refused() -> Pod {
    let waiting = Explained {
        reason: "StoreRefused".into(),
        message: "/store/home.sqlite: permission denied".into(),
    };
    Pod {
        heard: Some(CoordinatorReport {
            waiting: Some(waiting),
            ..CoordinatorReport::default()
        }),
        ..coordinator()
    }
}

fn asleep(plan: &Plan) -> Option<bool> {
    let job = plan.preparation.as_ref()?;
    job.object.spec.as_ref()?.suspend
}

/// As it was asked for, and how far it is.
fn preparation(plan: &Plan, state: JobState) -> (Made, JobState) {
    let job = &plan.preparation.as_ref().unwrap().object;
    let asked = JobState::from(job);
    let state = JobState {
        complete: state.complete,
        failed: state.failed,
        ..asked
    };
    (made("preparation-uid", Some(&digest(job))), state)
}

#[test]
fn a_store_that_belongs_to_root_is_made_writable_while_nobody_has_it_mounted() {
    let run = validated(json!({}));
    let mut seen = with_pod(refused());
    let first = plan(&run, &seen, now());
    assert_eq!(writes(&first), ["preparation"]);
    assert_eq!(asleep(&first), Some(true));

    seen.preparation = Some(preparation(&first, JobState::default()));
    let second = plan(&run, &seen, now());
    assert_eq!(writes(&second), ["remove"]);
    assert_eq!(second.remove, [Doomed::Job("job-uid".into())]);

    seen.job = None;
    let still_there = plan(&run, &seen, now());
    assert!(writes(&still_there).is_empty());
    seen.pods[0].exit = Some(Exit {
        code: 0,
        message: "".into(),
    });
    assert!(writes(&plan(&run, &seen, now())).is_empty(), "unmounting");

    seen.pods.clear();
    let third = plan(&run, &seen, now());
    assert_eq!(asleep(&third), Some(false));
    seen.preparation = Some(preparation(&third, JobState::default()));
    assert!(writes(&plan(&run, &seen, now())).is_empty(), "it goes on");

    for over in [
        JobState {
            complete: true,
            ..JobState::default()
        },
        JobState {
            failed: Some("DeadlineExceeded".into()),
            ..JobState::default()
        },
    ] {
        seen.preparation = Some(preparation(&third, over));
        assert_eq!(writes(&plan(&run, &seen, now())), ["config", "job"]);
    }
}

#[test]
fn who_suspends_or_cancels_a_run_does_so_while_its_store_is_made_writable() {
    let mut seen = with_pod(refused());
    let first = plan(&validated(json!({})), &seen, now());
    seen.preparation = Some(preparation(&first, JobState::default()));
    (seen.job, seen.pods) = (None, Vec::new());
    let suspended = plan(&validated(json!({"suspend": true})), &seen, now());
    assert_eq!(stage_of(&suspended).0, "Suspended");
    assert!(writes(&suspended).is_empty(), "it stays asleep");
    let cancelled = plan(&validated(json!({"cancel": true})), &seen, now());
    assert_eq!(stage_of(&cancelled).1, "Cancelled");
    let over = plan(
        &validated(json!({"cancel": true})),
        &ended(seen, &reason::CANCELLED),
        now(),
    );
    assert_eq!(over.remove, [Doomed::Preparation("preparation-uid".into())]);
}

#[test]
fn a_preparation_that_another_release_asked_for_makes_way() {
    let run = validated(json!({}));
    let mut seen = with_pod(refused());
    seen.preparation = Some((made("preparation-uid", None), JobState::default()));
    let plan = plan(&run, &seen, now());
    assert_eq!(plan.remove, [Doomed::Preparation("preparation-uid".into())]);
    assert!(plan.preparation.is_none());
}

#[test]
fn a_store_is_made_writable_once_and_only_if_it_is_ours() {
    let run = validated(json!({}));
    let failed = JobState {
        failed: Some("BackoffLimitExceeded".into()),
        ..JobState::default()
    };
    let again = Observed {
        preparation: Some((made("preparation-uid", None), failed)),
        ..with_pod(refused())
    };
    let foreign = Observed {
        store: Some(StoreClaim { ours: false }),
        ..with_pod(refused())
    };
    for (seen, words) in [
        (
            again,
            "permission denied; Job home-full-checksum-store could not make the store writable: BackoffLimitExceeded",
        ),
        (foreign, "permission denied"),
    ] {
        let plan = plan(&run, &seen, now());
        assert!(plan.preparation.is_none() && plan.remove.is_empty());
        let (stage, reason, message) = stage_of(&plan);
        assert_eq!((stage, reason), ("Waiting", "StoreRefused"));
        assert!(message.ends_with(words), "{message}");
    }
}

#[test]
fn a_database_that_refuses_us_is_somebody_elses_to_mend() {
    let plan = plan(&validated(distributed()), &with_pod(refused()), now());
    assert!(plan.preparation.is_none());
}
