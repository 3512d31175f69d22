//! Claims about what users are told, case by case.

use crds::{
    checksum_run::{reason, status::FileCounts},
    condition::{find, is_true},
    report::checksum::Explained,
};
use serde_json::json;

use super::{
    super::{
        config::validate,
        credentials::Credentials,
        fixture::{distributed, image, run_with, validated},
        plan::{self, Life, Pod, Role, StoreClaim},
        snapshot::Found,
    },
    *,
};
use crate::{
    class::ApiError,
    object::Key,
    watch::{child::JobState, pod::Exit},
};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

const NOW: &str = "2026-11-16T04:00:00.75Z";

fn seen(pods: Vec<Pod>) -> Observed {
    let job = plan::Made {
        uid: "job-uid".into(),
        applied: None,
    };
    Observed {
        status: ChecksumRunStatus::default(),
        image: image(),
        source: Some(crate::watch::child::ClaimState::default()),
        store: Some(StoreClaim { ours: true }),
        preparation: None,
        begun: true,
        created: at("2026-11-16T03:00:00Z"),
        scheduled: false,
        rivals: Vec::new(),
        config: None,
        credentials: Credentials::None,
        copy: None,
        job: Some((job, JobState::default())),
        workers: None,
        snapshot: Found::Unknown,
        restored: None,
        pods,
    }
}

fn pod(report: CoordinatorReport) -> Pod {
    Pod {
        name: "p".into(),
        role: Role::Coordinator,
        life: Life::Ready,
        exit: None,
        holdup: None,
        heard: Some(report),
        works: None,
        heeds: true,
        refusal: None,
        behind_since: None,
        silent_since: None,
    }
}

fn report(state: RunState) -> CoordinatorReport {
    CoordinatorReport {
        state: Some(state),
        files: Some(FileCounts {
            total: 10,
            verified: 4,
            remaining: 6,
            ..FileCounts::default()
        }),
        selected_bytes: 1000,
        bytes_read: 425,
        bytes_per_second: 412 * 1024 * 1024,
        damaged: Some(5),
        open_warnings: Some(3),
        unlisted: 2,
        oldest_verification: Some(at("2026-10-01T00:00:00.5Z")),
        ..CoordinatorReport::default()
    }
}

fn finished(result: &str) -> CoordinatorReport {
    CoordinatorReport {
        result: Some(Explained {
            reason: result.into(),
            message: "words".into(),
        }),
        ..report(RunState::Finished)
    }
}

/// The status after a pass, as the controller makes it.
fn told(seen: &Observed, fields: serde_json::Value, now: &str) -> ChecksumRunStatus {
    let run = validated(fields);
    let plan = plan::plan(&run, seen, at(now));
    status(Some(&run), 3, seen, None, Ok(&plan), at(now))
}

/// The value and the reason of a condition; nothing if it is not there.
fn condition(status: &ChecksumRunStatus, type_: &str) -> String {
    let condition = find(&status.conditions, type_);
    condition.map_or_else(String::new, |c| format!("{}/{}", c.status, c.reason))
}

fn is(status: &str, reason: &str) -> String {
    format!("{status}/{reason}")
}

#[test]
fn while_a_run_goes_on_nobody_knows_whether_all_is_well() {
    let status = told(
        &seen(vec![pod(report(RunState::WorkQueue))]),
        json!({}),
        NOW,
    );
    assert_eq!(condition(&status, READY), is("Unknown", "Reading"));
    assert_eq!((status.damaged, status.open_warnings), (Some(5), Some(3)));
    let oldest = status.oldest_verification.map(|it| it.to_string());
    assert_eq!(oldest.as_deref(), Some("2026-10-01T00:00:00Z"));
    assert_eq!(condition(&status, RECONCILING), is("True", "Reading"));
    assert_eq!(condition(&status, STALLED), "");
    assert_eq!(condition(&status, COMPLETE), "");
    assert_eq!(status.observed_generation, 3);
    assert_eq!(status.start_time, Some(at("2026-11-16T04:00:00Z")));
    assert_eq!(status.state, Some(RunState::WorkQueue));
    assert_eq!(status.files.unwrap().verified, 4);
    assert_eq!(status.unlisted, Some(2));
    assert_eq!(status.bytes_read, Some(425));
    assert_eq!(status.throughput.as_deref(), Some("412Mi/s"));
    assert_eq!(
        (status.progress_percent, status.progress.as_deref()),
        (Some(42), Some("42%"))
    );
}

#[test]
fn each_result_is_told_as_kstatus_reads_it() {
    for result in reason::RESULTS {
        let status = told(&seen(vec![pod(finished(result.name))]), json!({}), NOW);
        let good = ["Verified", "ChangedMeanwhile", "Stopped"].contains(&result.name);
        let ready = if good { "True" } else { "False" };
        assert_eq!(condition(&status, READY), is(ready, result.name));
        assert_eq!(condition(&status, COMPLETE), is("True", result.name));
        assert_eq!(
            is_true(&status.conditions, STALLED),
            !good,
            "{}",
            result.name
        );
        assert_eq!(condition(&status, RECONCILING), "");
        assert_eq!(status.completion_time, Some(at("2026-11-16T04:00:00Z")));
    }
}

#[test]
fn what_was_told_at_the_end_stays() {
    let mut seen = seen(vec![pod(finished("DamageFound"))]);
    seen.status = told(&seen, json!({}), NOW);
    let again = told(&seen, json!({}), "2026-11-17T04:00:00Z");
    assert_eq!(again, seen.status);
    seen.pods.clear();
    seen.job = None;
    let mut later = told(
        &seen,
        json!({"ttlAfterFinished": "2d"}),
        "2026-11-17T04:00:00Z",
    );
    assert_eq!(later, seen.status);
    later = status(
        None,
        4,
        &seen,
        None,
        Err(&Failure::Undecodable(String::new())),
        at(NOW),
    );
    assert_eq!(later.observed_generation, 4);
    assert_eq!(condition(&later, COMPLETE), is("True", "DamageFound"));
}

#[test]
fn the_rate_of_a_run_that_has_ended_is_that_of_the_whole_run() {
    let mut seen = seen(vec![pod(CoordinatorReport {
        bytes_read: 3600 * 1024 * 1024,
        ..finished("Verified")
    })]);
    seen.status.start_time = Some(at("2026-11-16T03:00:00Z"));
    let status = told(&seen, json!({}), NOW);
    assert_eq!(status.throughput.as_deref(), Some("1024Ki/s"));
}

#[test]
fn a_run_that_waits_says_for_what_and_that_it_will_go_on() {
    let waiting = CoordinatorReport {
        waiting: Some(Explained {
            reason: "StoreUnreachable".into(),
            message: "no answer from db:3306".into(),
        }),
        ..CoordinatorReport::default()
    };
    let status = told(&seen(vec![pod(waiting)]), json!({}), NOW);
    assert_eq!(condition(&status, READY), is("False", "StoreUnreachable"));
    assert_eq!(
        condition(&status, RECONCILING),
        is("True", "StoreUnreachable")
    );
    assert_eq!(
        find(&status.conditions, READY).unwrap().message,
        "no answer from db:3306"
    );
}

#[test]
fn a_suspended_run_is_as_ready_as_it_was() {
    let fresh = told(&seen(Vec::new()), json!({"suspend": true}), NOW);
    assert_eq!(condition(&fresh, READY), is("Unknown", "Suspended"));
    assert_eq!(condition(&fresh, RECONCILING), "");
    let mut failing = seen(Vec::new());
    failing.status.conditions = condition::merge(
        &[],
        &[Draft::new(READY, false, &FAILING, "")],
        None,
        at(NOW),
    );
    let status = told(&failing, json!({"suspend": true}), NOW);
    assert_eq!(condition(&status, READY), is("False", "Suspended"));
}

#[test]
fn a_coordinator_that_has_just_started_makes_nobody_forget() {
    let mut seen = seen(vec![pod(report(RunState::WorkQueue))]);
    seen.status = told(&seen, json!({}), NOW);
    seen.pods = vec![pod(CoordinatorReport::default())];
    let after = told(&seen, json!({}), NOW);
    assert_eq!(after.files, seen.status.files);
    assert_eq!(
        (after.bytes_read, after.progress_percent),
        (Some(425), Some(42))
    );
    seen.pods.clear();
    assert_eq!(told(&seen, json!({}), NOW).files, seen.status.files);
}

#[test]
fn progress_is_complete_only_when_no_file_is_left() {
    let percent_of = |bytes_read, remaining, state| {
        let mut report = report(state);
        report.bytes_read = bytes_read;
        report.files.as_mut().unwrap().remaining = remaining;
        percent(state, &report)
    };
    assert_eq!(percent_of(0, 6, RunState::MetadataSync), Some(0));
    assert_eq!(percent_of(999, 1, RunState::WorkQueue), Some(99));
    assert_eq!(percent_of(5000, 1, RunState::WorkQueue), Some(99));
    assert_eq!(percent_of(1000, 0, RunState::WorkQueue), Some(100));
    assert_eq!(percent_of(500, 6, RunState::Aborted), None);
}

#[test]
fn rates_are_short() {
    for (bytes, words) in [
        (0, "0/s"),
        (9_999, "9999/s"),
        (10_240, "10Ki/s"),
        (412 * 1024 * 1024, "412Mi/s"),
        (u64::MAX, "16383Pi/s"),
    ] {
        assert_eq!(rate(bytes), words);
    }
}

#[test]
fn a_status_holds_twenty_damaged_files_of_any_name() {
    let corrupt = CorruptFile {
        path: "ä".repeat(3000),
        expected: "aa".into(),
        actual: "bb".into(),
    };
    let damaged = CoordinatorReport {
        corrupt: vec![corrupt; 25],
        ..report(RunState::WorkQueue)
    };
    let status = told(&seen(vec![pod(damaged)]), json!({}), NOW);
    assert_eq!(status.corrupt.len(), LIST_LIMIT);
    assert!(status.corrupt[0].path.len() <= PATH_LIMIT);
}

#[test]
fn workers_are_counted_where_there_can_be_some() {
    let worker = |ready| Pod {
        role: Role::Worker,
        life: if ready { Life::Ready } else { Life::Started },
        heard: None,
        ..pod(report(RunState::WorkQueue))
    };
    let seen = seen(vec![
        worker(true),
        pod(report(RunState::WorkQueue)),
        worker(false),
        worker(true),
    ]);
    let status = told(&seen, distributed(), NOW);
    assert_eq!(status.workers, Some(2));
    let selector = "orrery.dev/agent=checksum-worker,orrery.dev/checksum-run=home-full";
    assert_eq!(status.selector.as_deref(), Some(selector));
    assert_eq!(told(&seen, json!({}), NOW).workers, None);
}

#[test]
fn a_refusal_is_told_in_the_servers_words() {
    let taken = Failure::Act(act::Error::NameTaken {
        kind: "Job".into(),
        key: Key {
            namespace: "ns".into(),
            name: "x".into(),
        },
    });
    for (failure, reason, words) in [
        (
            refused(403, "exceeded quota: jobs"),
            "Refused",
            "exceeded quota: jobs",
        ),
        (taken, "NameTaken", "exists already"),
    ] {
        let [ready, reconciling] = &failed(&failure)[..] else {
            panic!("two conditions");
        };
        assert_eq!(
            (ready.reason.name, reconciling.type_),
            (reason, RECONCILING)
        );
        assert!(ready.message.contains(words), "{}", ready.message);
    }
    let stalled = failed(&Failure::Undecodable("no".into()));
    assert_eq!(
        (stalled[1].type_, stalled[1].reason.name),
        (STALLED, "InvalidSpec")
    );
}

fn refused(code: u16, words: &str) -> Failure {
    let status = kube::core::Status {
        code,
        message: words.into(),
        ..kube::core::Status::default()
    };
    Failure::Act(act::Error::Request {
        what: "apply Job ns/x".into(),
        source: ApiError::from(kube::Error::Api(Box::new(status))),
    })
}

#[test]
fn what_is_refused_is_an_event_once() {
    let run = validated(json!({}));
    let mut seen = seen(Vec::new());
    let mut events_of = |failure: &Failure| {
        let status = status(Some(&run), 3, &seen, None, Err(failure), at(NOW));
        let event = event_of_failure(&seen.status, &status, failure);
        seen.status = status;
        let words = event
            .iter()
            .map(|event| (event.warning, event.reason.name, event.note.clone()));
        words.collect::<Vec<_>>()
    };
    let quota = refused(403, "exceeded quota: jobs");
    let words = "failed to apply Job ns/x: exceeded quota: jobs";
    assert_eq!(events_of(&quota), [(true, "Refused", words.into())]);
    assert_eq!(events_of(&quota), []);
    assert_eq!(events_of(&refused(500, "try later")), [], "likely to pass");
    let invalid =
        Failure::from(validate(&run_with(json!({"ttlAfterFinished": "soon"}))).unwrap_err());
    let [(true, "InvalidSpec", words)] = &events_of(&invalid)[..] else {
        panic!("one event");
    };
    assert!(words.contains("spec.ttlAfterFinished"), "{words}");
}

#[test]
fn what_fails_after_the_end_is_no_event() {
    let mut seen = seen(vec![pod(finished("Verified"))]);
    seen.status = told(&seen, json!({}), NOW);
    let quota = refused(403, "exceeded quota: jobs");
    let status = status(None, 3, &seen, None, Err(&quota), at(NOW));
    assert_eq!(event_of_failure(&seen.status, &status, &quota), None);
}

fn told_events(old: &Observed, new: &Observed, fields: serde_json::Value) -> Vec<String> {
    let run = validated(fields.clone());
    let before = ChecksumRunStatus {
        start_time: old.status.start_time,
        ..told(old, fields, NOW)
    };
    let mut new = new.clone();
    new.status = before.clone();
    let plan = plan::plan(&run, &new, at(NOW));
    let status = status(Some(&run), 3, &new, None, Ok(&plan), at(NOW));
    let events = events(&before, &status, &plan.stage);
    let words = events.iter().map(|event| {
        let kind = if event.warning { "Warning" } else { "Normal" };
        format!("{kind} {}", event.reason.name)
    });
    words.collect()
}

#[test]
fn events_tell_of_transitions_and_of_nothing_else() {
    let begun = |pods| {
        let mut seen = seen(pods);
        seen.status.start_time = Some(at("2026-11-16T03:00:00Z"));
        seen
    };
    let damaged = |count| {
        let mut report = report(RunState::WorkQueue);
        report.files.as_mut().unwrap().corrupt = count;
        begun(vec![pod(report)])
    };
    let ended = |result| begun(vec![pod(finished(result))]);
    let waiting = begun(vec![pod(CoordinatorReport {
        waiting: Some(Explained {
            reason: "StoreFull".into(),
            message: "words".into(),
        }),
        ..report(RunState::WorkQueue)
    })]);
    let reading = damaged(0);
    for (old, new, expected) in [
        (&seen(Vec::new()), &reading, vec!["Normal Starting"]),
        (&reading, &reading, vec![]),
        (&reading, &damaged(3), vec!["Warning DamageFound"]),
        (&damaged(3), &damaged(4), vec![]),
        (&reading, &waiting, vec!["Warning StoreFull"]),
        (&waiting, &waiting, vec![]),
        (&waiting, &reading, vec![]),
        (&reading, &ended("Verified"), vec!["Normal Verified"]),
        (&reading, &ended("Cancelled"), vec!["Normal Cancelled"]),
        (
            &damaged(3),
            &ended("DamageFound"),
            vec!["Warning DamageFound"],
        ),
    ] {
        assert_eq!(told_events(old, new, json!({})), expected);
    }
}

#[test]
fn a_run_that_failed_says_how_far_it_was() {
    let mut seen = seen(vec![Pod {
        exit: Some(Exit {
            code: 1,
            reason: "Error".into(),
            message: "panic".into(),
        }),
        heard: None,
        ..pod(report(RunState::WorkQueue))
    }]);
    seen.status.state = Some(RunState::WorkQueue);
    seen.job.as_mut().unwrap().1.failed = Some("too often".into());
    let status = told(&seen, json!({}), NOW);
    assert_eq!(status.state, Some(RunState::WorkQueue));
    assert_eq!(condition(&status, COMPLETE), is("True", "Failed"));
}

#[test]
fn a_list_of_damage_that_was_cut_to_fit_takes_nothing_from_the_one_that_is_known() {
    let file = |n: u32| CorruptFile {
        path: format!("photos/{n}.tif"),
        expected: "aa".into(),
        actual: "bb".into(),
    };
    let told_of = |files: &[u32], damaged| {
        let mut report = finished("DamageFound");
        report.corrupt = files.iter().copied().map(file).collect();
        report.damaged = Some(damaged);
        let mut seen = seen(vec![pod(report)]);
        seen.status.corrupt = (1..=5).map(file).collect();
        let status = told(&seen, json!({}), NOW);
        status.corrupt.len()
    };
    for (files, damaged, listed) in [
        (&[1, 2][..], 5, 5),
        (&[], 5, 5),
        (&[1, 2], 30, 5),
        // Fewer are left: somebody has restored the others.
        (&[1, 2], 2, 2),
        (&[], 0, 0),
        // Others are worse.
        (&[7, 1], 5, 2),
        (&[1, 2, 3, 4, 5, 6], 6, 6),
    ] {
        assert_eq!(told_of(files, damaged), listed, "{files:?} of {damaged}");
    }
}
