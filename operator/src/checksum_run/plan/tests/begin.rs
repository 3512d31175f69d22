//! What a run has before and while it works.

use super::*;

#[test]
fn a_new_run_gets_a_store_a_configuration_and_a_job() {
    let plan = plan(&validated(json!({})), &seen(), now());
    assert_eq!(writes(&plan), ["store", "config", "job"]);
    let (stage, reason, words) = stage_of(&plan);
    assert_eq!((stage, reason), ("Working", "Starting"));
    let expected = "waiting for a pod of Job home-full-checksum; if none comes, its events say why: kubectl describe job home-full-checksum";
    assert_eq!(words, expected);
}

#[test]
fn a_run_begins_with_the_first_of_what_uses_its_store() {
    let begins = |fields, seen: Observed| plan(&validated(fields), &seen, now()).begins(&seen);
    assert!(begins(json!({}), seen()));
    let csi = json!({"source": {"persistentVolumeClaim": {"claimName": "home"}, "snapshot": {"csi": {}}}});
    let absent = Observed {
        snapshot: Found::Absent,
        ..seen()
    };
    assert!(begins(csi, absent));
    let waiting = Observed {
        source: None,
        ..seen()
    };
    assert!(!begins(json!({}), waiting));
    assert!(!begins(json!({"suspend": true}), seen()));
    assert!(!begins(json!({}), with_pod(working_pod(reading()))));
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
        reason: None,
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
            assert!(words.contains(&rival.name), "{words}");
            assert_eq!(writes(&plan), [] as [&str; 0]);
        }
    }
}

#[test]
fn a_run_that_waits_for_another_tells_what_keeps_that_one() {
    let store = "the store in PersistentVolumeClaim home-full-store";
    let first = format!("ChecksumRun older goes first on {store}, and has not begun");
    for (begun, reason, expected) in [
        (
            true,
            Some("Reading"),
            format!("ChecksumRun older uses {store}"),
        ),
        (false, None, format!("{first} yet")),
        (
            false,
            Some("Suspended"),
            format!("{first}: it is suspended; resume or cancel it"),
        ),
        (
            false,
            Some("ReferenceMissing"),
            format!("{first}: its reason is ReferenceMissing; see to that, or cancel it"),
        ),
    ] {
        let older = Rival {
            name: "older".into(),
            begun,
            created: at("2026-11-16T02:59:59Z"),
            reason: reason.map(Into::into),
        };
        let seen = Observed {
            rivals: vec![older],
            ..seen()
        };
        let (_, _, words) = stage_of(&plan(&validated(json!({})), &seen, now()));
        assert_eq!(words, expected);
    }
}

#[test]
fn beside_a_coordinator_whose_job_is_gone_no_second_one_begins() {
    let mut seen = with_pod(working_pod(reading()));
    seen.job = None;
    let run = validated(json!({}));
    let waits = plan(&run, &seen, now());
    let (stage, reason, words) = stage_of(&waits);
    assert_eq!((stage, reason), ("Working", "Starting"));
    assert!(words.contains("home-full-checksum-abc"), "{words}");
    assert!(waits.job.is_none() && waits.wake.is_some());
    // As when its node is gone for good, and somebody has deleted it by force.
    seen.pods[0].life = Life::Over;
    assert!(plan(&run, &seen, now()).job.is_some());
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
fn nothing_is_read_only_once_every_pod_that_may_read_has_taken_it_up() {
    let run = validated(json!({"suspend": true}));
    let deaf = Pod {
        heeds: false,
        ..working_pod(reading())
    };
    let worker = Pod {
        name: "worker".into(),
        role: Role::Worker,
        heard: None,
        works: Some(WorkerReport::default()),
        ..deaf.clone()
    };
    let words = |pod| {
        let plan = plan(&run, &with_pod(pod), now());
        let (_, reason, words) = stage_of(&plan);
        (reason, words)
    };
    let (reason, told) = words(deaf.clone());
    let expected = "is being suspended; pod home-full-checksum-abc has not acknowledged it yet";
    assert_eq!((reason, told.as_str()), ("Suspending", expected));
    let refuses = Pod {
        refusal: Some("unknown field".into()),
        ..deaf.clone()
    };
    assert_eq!(words(refuses).1, format!("{expected}: unknown field"));
    assert_eq!(words(worker).0, "Suspending");
    for quiet in [
        working_pod(reading()),
        Pod {
            life: Life::Over,
            ..deaf.clone()
        },
        Pod {
            life: Life::NotStarted,
            ..deaf.clone()
        },
        Pod {
            heeds: false,
            ..exited(1, "")
        },
    ] {
        let plan = plan(&run, &with_pod(quiet.clone()), now());
        assert_eq!(plan.stage, Stage::Suspended, "{quiet:?}");
    }
    // Also where its Job is gone, and no snapshot is made meanwhile.
    let csi = json!({"suspend": true, "source": {"persistentVolumeClaim": {"claimName": "home"}, "snapshot": {"csi": {}}}});
    let gone = Observed {
        job: None,
        snapshot: Found::Absent,
        ..with_pod(deaf)
    };
    let plan = plan(&validated(csi), &gone, now());
    assert_eq!((stage_of(&plan).1, plan.snapshot), ("Suspending", None));
}

#[test]
fn that_a_run_is_suspended_stays_told_until_a_pod_says_otherwise() {
    let run = validated(json!({"suspend": true}));
    let unheard = Pod {
        heeds: false,
        heard: None,
        ..coordinator()
    };
    let mut seen = with_pod(unheard);
    seen.status.observed_generation = run.generation;
    let suspended = [Draft::new("Ready", false, &reason::SUSPENDED, "")];
    seen.status.conditions = merge(&[], &suspended, Some(run.generation), now());
    assert_eq!(plan(&run, &seen, now()).stage, Stage::Suspended);
    seen.pods[0].heard = Some(reading());
    assert_eq!(stage_of(&plan(&run, &seen, now())).1, "Suspending");
    seen.pods[0].heard = None;
    seen.status.observed_generation -= 1;
    assert_eq!(stage_of(&plan(&run, &seen, now())).1, "Suspending");
}
