//! Runs over a snapshot of the volume.

use super::*;

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
        assert_eq!(seen.wants_snapshot(&run.spec), looks);
        assert_eq!(plan(&run, &seen, now()).remove, remove);
    }
    seen.status.snapshot = None;
    assert!(
        !seen.wants_snapshot(&run.spec),
        "nobody asks once it is gone"
    );
    assert_eq!(plan(&run, &seen, now()).wake, None);
}

#[test]
fn a_snapshot_that_nobody_wrote_down_is_removed_all_the_same() {
    let run = snapped(&json!({}));
    // It was made, and so was the Job; both times the status was not written.
    let mut seen = with_pod(working_pod(finished("Verified")));
    seen.restored = Some(restored(true, false));
    let end = plan(&run, &seen, now());
    seen.status = status::status(Some(&run), 3, &seen, None, Ok(&end), now());
    assert_eq!(seen.status.snapshot.as_deref(), Some("home-full-snapshot"));
    let after = plan(&run, &seen, now()).remove;
    assert_eq!(after, [Doomed::Restored("claim-uid".into())]);
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

#[test]
fn a_run_that_waits_to_begin_looks_at_no_snapshot() {
    let fields = |suspend, cancel: Option<bool>| {
        let source =
            json!({"persistentVolumeClaim": {"claimName": "home"}, "snapshot": {"csi": {}}});
        validated(json!({"source": source, "suspend": suspend, "cancel": cancel}))
    };
    let older = Rival {
        name: "older".into(),
        begun: true,
        created: at("2026-11-16T02:00:00Z"),
        reason: None,
    };
    let waits = Observed {
        rivals: vec![older],
        ..seen()
    };
    assert!(looks_at_snapshot(&fields(false, None), &seen()));
    assert!(!looks_at_snapshot(&fields(false, None), &waits));
    assert!(!looks_at_snapshot(&fields(true, None), &seen()));
    // What it may have made before somebody took over is not left behind.
    assert!(looks_at_snapshot(&fields(false, Some(true)), &waits));
    let over = ended(waits, &reason::CANCELLED);
    assert!(looks_at_snapshot(&fields(false, None), &over));
}
