//! Runs that are cancelled, over, or whose time is over.

use super::*;

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
fn a_run_that_cannot_be_used_can_be_cancelled() {
    let spec = |fields| validated(fields).spec;
    let plan =
        |cancel: bool, seen: &Observed| without_spec(&spec(json!({"cancel": cancel})), seen, now());
    assert_eq!(plan(false, &seen()), None);
    assert_eq!(stage_of(&plan(true, &seen()).unwrap()).1, "Cancelled");
    let running = with_pod(working_pod(reading()));
    assert_eq!(plan(false, &running), None, "it goes on as it was");
    let cancelled = plan(true, &running).unwrap();
    assert_eq!(cancelled.remove, [Doomed::Job("job-uid".into())]);
    let mut ending = with_pod(coordinator());
    ending.job = None;
    assert_eq!(stage_of(&plan(true, &ending).unwrap()).0, "Working");
    let over = ended(seen(), &reason::CANCELLED);
    assert_eq!(plan(true, &over).unwrap().stage, Stage::Over);
}

#[test]
fn a_run_that_cannot_be_used_any_more_ends_as_any_other() {
    let spec = validated(json!({"ttlAfterFinished": "1h"})).spec;
    let plan = |seen: &Observed| without_spec(&spec, seen, now()).unwrap();
    let told = plan(&with_pod(working_pod(finished("DamageFound"))));
    assert_eq!(
        (stage_of(&told).0, stage_of(&told).1),
        ("Ended", "DamageFound")
    );
    let over = Observed {
        workers: Some(made("workers-uid", None)),
        ..ended(seen(), &reason::DAMAGE_FOUND)
    };
    let over = plan(&over);
    assert_eq!(over.remove, [Doomed::Workers("workers-uid".into())]);
    assert_eq!(over.wake, Some(at("2026-11-16T05:00:00Z")));
}

#[test]
fn a_coordinator_that_can_ends_a_cancelled_run_itself() {
    let run = validated(json!({"cancel": true}));
    let behind = Pod {
        heeds: false,
        behind_since: Some(at("2026-11-16T03:59:30Z")),
        ..working_pod(reading())
    };
    for pod in [working_pod(reading()), coordinator(), behind] {
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
            life: Life::NotStarted,
            ..coordinator()
        },
        Pod {
            silent_since: Some(at("2026-11-16T03:58:00Z")),
            ..working_pod(reading())
        },
        exited(2, "panic"),
        // It answers, and will not have the configuration.
        Pod {
            heeds: false,
            behind_since: Some(at("2026-11-16T03:58:00Z")),
            ..working_pod(reading())
        },
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
    let of_a_schedule = Observed {
        scheduled: true,
        ..seen
    };
    let left_to_it = plan(&run, &of_a_schedule, at("2026-11-16T05:00:00Z"));
    assert_eq!((left_to_it.expired, left_to_it.wake), (false, None));
}

#[test]
fn a_live_volume_has_no_snapshot_to_stop_after() {
    let path = json!({"stopAfter": "Snapshot", "source": {"persistentVolumeClaim": {"claimName": "home"}, "snapshot": {"path": ".snapshots/1"}}});
    for fields in [json!({"stopAfter": "Snapshot"}), path] {
        let plan = plan(&validated(fields), &seen(), now());
        let (stage, reason, words) = stage_of(&plan);
        assert_eq!((stage, reason), ("Ended", "Stopped"));
        assert!(words.contains("spec.source.snapshot.csi"), "{words}");
    }
}
