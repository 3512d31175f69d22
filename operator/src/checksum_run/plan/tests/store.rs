//! Stores that a coordinator may not write to.

use super::*;

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
        reason: "Completed".into(),
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

#[test]
fn a_claim_that_was_not_made_for_checksums_is_used_only_by_its_name() {
    let named = json!({"store": {"embedded": {"claimName": "home-full-store"}}});
    let sized = json!({"store": {"embedded": {"size": "5Gi"}}});
    for (fields, ours, waits) in [
        (json!({}), false, true),
        (sized, false, true),
        (named, false, false),
        (json!({}), true, false),
    ] {
        let seen = Observed {
            store: Some(StoreClaim { ours }),
            ..seen()
        };
        let plan = plan(&validated(fields.clone()), &seen, now());
        assert_eq!(plan.job.is_none(), waits, "{fields} {ours}");
        if waits {
            let (stage, reason, words) = stage_of(&plan);
            assert_eq!((stage, reason), ("Waiting", "NameTaken"));
            assert!(
                words.contains("PersistentVolumeClaim home-full-store"),
                "{words}"
            );
            assert_eq!(plan.wake, Some(now() + LOOK_AGAIN));
        }
    }
    // What has begun goes on: a label that somebody removed is no reason to stop.
    let begun = Observed {
        store: Some(StoreClaim { ours: false }),
        ..with_pod(working_pod(reading()))
    };
    assert_eq!(
        stage_of(&plan(&validated(json!({})), &begun, now())).1,
        "Reading"
    );
}
