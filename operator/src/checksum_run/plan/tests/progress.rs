//! How far a run is, and how it ends, from what its pods say.

use super::*;

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
    let listing = CoordinatorReport {
        state: Some(RunState::MetadataSync),
        listed: 1234,
        ..CoordinatorReport::default()
    };
    let run = validated(json!({}));
    let plan = super::plan(&run, &with_pod(working_pod(listing)), now());
    assert_eq!(stage_of(&plan).2, "1234 files are listed");
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
        pod.life = Life::NotStarted;
        change(&mut pod);
        pod
    };
    for (pod, words) in [
        (
            pod(&|_| {}),
            "pod home-full-checksum-abc is being started; if it takes long, its events say why: kubectl describe pod home-full-checksum-abc",
        ),
        (
            pod(&|pod| pod.life = Life::Started),
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

fn worker(name: &str, ready: bool, change: impl FnOnce(&mut Pod)) -> Pod {
    let mut pod = Pod {
        name: name.into(),
        role: Role::Worker,
        life: if ready { Life::Ready } else { Life::NotStarted },
        ..coordinator()
    };
    change(&mut pod);
    pod
}

/// Of one that waits for something.
fn waiting(pod: &mut Pod) {
    pod.works = Some(WorkerReport {
        waiting: Some(explained("QueueUnreachable")),
        ..WorkerReport::default()
    });
}

#[test]
fn what_keeps_all_workers_from_reading_is_told() {
    let held = |pod: &mut Pod| pod.holdup = Some("ImagePullBackOff: no such image".into());
    let told = |fields, workers: Vec<Pod>| {
        let mut seen = with_pod(working_pod(reading()));
        seen.pods.extend(workers);
        let plan = plan(&validated(fields), &seen, now());
        let (stage, reason, words) = stage_of(&plan);
        assert_eq!((stage, reason), ("Working", "Reading"));
        words
            .strip_prefix("40 of 90 files are read")
            .unwrap()
            .to_owned()
    };
    for (workers, words) in [
        (
            vec![],
            "; no worker is ready; if none comes, events say why: kubectl describe replicaset --selector=orrery.dev/checksum-run=home-full",
        ),
        (
            vec![worker("a", false, |_| {})],
            "; no worker is ready; pod a is being started; if it takes long, its events say why: kubectl describe pod a",
        ),
        (
            vec![worker("a", false, |_| {}), worker("b", false, held)],
            "; no worker is ready; pod b does not start: ImagePullBackOff: no such image",
        ),
        (
            vec![worker("a", false, |pod| pod.exit = exited(137, "").exit)],
            "; no worker is ready; if none comes, events say why: kubectl describe replicaset --selector=orrery.dev/checksum-run=home-full",
        ),
        (
            vec![worker("a", true, waiting)],
            "; no worker is ready; pod a waits: QueueUnreachable: words",
        ),
        (
            vec![worker("a", true, waiting), worker("b", true, |_| {})],
            "",
        ),
    ] {
        assert_eq!(told(distributed(), workers), words);
    }
    assert_eq!(told(json!({}), vec![]), "", "it reads itself");
    let mut none = distributed();
    none["workers"]["replicas"] = 0.into();
    let words = "; there are no workers (spec.workers.replicas is 0)";
    assert_eq!(told(none, vec![worker("a", false, held)]), words);
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
fn the_newest_lines_of_a_long_log_are_told_and_why_the_system_ended_it() {
    let log = format!("{}\nthe last line\n", "ä line of a log\n".repeat(100));
    let mut seen = with_pod(exited(137, &log));
    seen.pods[0].exit.as_mut().unwrap().reason = "OOMKilled".into();
    seen.job.as_mut().unwrap().1.failed = Some("too often".into());
    let told = |seen: &Observed| stage_of(&plan(&validated(json!({})), seen, now())).2;
    let words = told(&seen);
    let begin = "too often; pod home-full-checksum-abc ended with exit code 137 (OOMKilled): …";
    assert!(
        words.starts_with(begin) && words.ends_with("the last line"),
        "{words}"
    );
    assert!(words.len() < 1000, "a condition holds no more");

    seen.pods[0].exit.as_mut().unwrap().message = "".into();
    let begin = "too often; pod home-full-checksum-abc ended with exit code 137 (OOMKilled)";
    assert_eq!(told(&seen), begin);
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
