#![expect(clippy::disallowed_methods, reason = "waits for processes")]
//! The coordinator as a process, with an embedded store: how runs go on, pause, end, and what is told of them.

mod meanwhile;
mod pod;
mod trouble;

use std::fs;

use crds::checksum_run::status::RunState;
use serde_json::json;

use pod::Pod;

#[test]
fn a_run_is_carried_out_and_told_and_the_next_compares_with_it() {
    let pod = Pod::with(50);
    let (code, report) = pod.run(&pod.config("first"));
    assert_eq!(code, 0);
    assert_eq!(report.state, Some(RunState::Finished));
    assert_eq!(report.result.unwrap().reason, "Verified");
    let files = report.files.unwrap();
    assert_eq!((files.total, files.new, files.remaining), (50, 50, 0));
    let first = report.began;
    assert!(first.is_some() && report.oldest_verification == first);

    pod.rot("folder1/file11");
    let (_, report) = pod.run(&pod.config("second"));
    assert_eq!(report.result.unwrap().reason, "DamageFound");
    // The damaged file was good when the first run read it.
    assert_eq!(report.oldest_verification, first);
    assert_eq!(report.corrupt.len(), 1);
    assert_eq!(report.corrupt[0].path, "folder1/file11");
    assert_eq!((report.damaged, report.open_warnings), (Some(1), Some(1)));
    let log = pod.log();
    assert!(
        log.contains("folder1/file11") && log.contains("damaged"),
        "{log}"
    );
}

#[test]
fn what_is_read_past_the_page_cache_is_the_same() {
    let pod = Pod::with(50);
    pod.run(&pod.config("first"));
    pod.rot("folder1/file11");
    let mut config = pod.config("second");
    config["spec"]["tuning"]["bypassCache"] = json!(true);
    let (_, report) = pod.run(&config);
    let files = report.files.unwrap();
    assert_eq!((files.verified, files.corrupt), (49, 1));
    assert_eq!(report.bytes_read, pod.size());
}

#[test]
fn the_worst_are_in_the_report_and_all_are_in_the_log() {
    let pod = Pod::with(50);
    pod.run(&pod.config("first"));
    (0..25).for_each(|n| pod.rot(&format!("folder{}/file{n}", n / 10)));
    let (_, report) = pod.run(&pod.config("second"));
    assert_eq!(report.files.unwrap().corrupt, 25);
    assert_eq!(report.corrupt.len(), 20);
    let log = pod.log();
    let damaged = log.lines().filter(|line| line.contains("\"damaged\""));
    assert_eq!(damaged.count(), 25, "{log}");
}

#[test]
fn a_finished_run_is_not_carried_out_again_but_told_again() {
    let pod = Pod::with(10);
    let config = pod.config("once");
    let (_, first) = pod.run(&config);
    pod.rot("folder0/file1");
    let (code, again) = pod.run(&config);
    assert_eq!(code, 0);
    assert_eq!(first.files, again.files);
    assert_eq!(again.result.unwrap().reason, "Verified");
}

#[test]
fn a_run_that_has_ended_is_told_again_also_after_the_next_has_ended() {
    let pod = Pod::with(10);
    let config = pod.config("first");
    let (_, first) = pod.run(&config);
    fs::write(pod.root().join("folder0/more"), "more").unwrap();
    let (_, second) = pod.run(&pod.config("second"));
    let (code, again) = pod.run(&config);
    assert_eq!(code, 0);
    assert_eq!((first.files, first.began), (again.files, again.began));
    assert_eq!(again.result.unwrap().reason, "Verified");
    // The store has no third one: the second is still the last, and is told as such.
    let (_, last) = pod.run(&pod.config("second"));
    assert_eq!((last.files, last.began), (second.files, second.began));
    assert_eq!(pod.runs(), 2);
}

#[test]
fn a_killed_coordinator_is_gone_on_from_and_reads_nothing_twice_that_was_stored() {
    let pod = Pod::with(300);
    let mut config = pod.config("run");
    config["spec"]["maxThroughput"] = json!(500);
    let mut child = pod.start(&config);
    pod.until_stored(&mut child, 50);
    child.kill().unwrap();
    child.wait().unwrap();
    let stored = pod.read_so_far();
    config["generation"] = json!(2);
    config["spec"]["maxThroughput"] = json!(null);
    let (code, report) = pod.run(&config);
    assert_eq!(code, 0);
    let files = report.files.unwrap();
    assert_eq!((files.total, files.new), (300, 300));
    assert_eq!(stored + pod.bytes_read(), pod.size());
}

#[test]
fn a_signal_ends_it_soon_with_a_failure_so_that_the_job_starts_it_again() {
    let pod = Pod::with(300);
    let mut config = pod.config("run");
    config["spec"]["maxThroughput"] = json!(500);
    let mut child = pod.start(&config);
    pod.until_stored(&mut child, 10);
    pod::terminate(&child);
    assert_eq!(pod::ended(child).code(), Some(1));
    config["spec"]["maxThroughput"] = json!(null);
    config["generation"] = json!(2);
    assert_eq!(pod.run(&config).0, 0);
}

#[test]
fn a_run_that_begins_suspended_reads_nothing_until_it_goes_on() {
    let pod = Pod::with(300);
    let mut config = pod.config("run");
    config["spec"]["suspend"] = json!(true);
    let mut child = pod.start(&config);
    pod.until_listed(&mut child, 300);
    assert_eq!(pod.read_so_far(), 0);
    config["spec"]["suspend"] = json!(false);
    config["generation"] = json!(2);
    pod.configure(&config);
    assert!(pod::ended(child).success());
    assert_eq!(pod.report().files.unwrap().new, 300);
}

#[test]
fn a_cancelled_run_ends_and_the_next_makes_no_false_alarm() {
    let pod = Pod::with(300);
    let mut config = pod.config("run");
    config["spec"]["maxThroughput"] = json!(500);
    let mut child = pod.start(&config);
    pod.until_stored(&mut child, 10);
    config["spec"]["cancel"] = json!(true);
    config["generation"] = json!(2);
    pod.configure(&config);
    assert!(pod::ended(child).success());
    let report = pod.report();
    assert_eq!(report.result.unwrap().reason, "Cancelled");
    assert_eq!(report.state, Some(RunState::Aborted));
    let spilled = fs::read_dir(pod.own("spill")).unwrap().count();
    assert_eq!(spilled, 0, "its listing is still there");
    let (_, next) = pod.run(&pod.config("next"));
    assert_eq!(next.result.unwrap().reason, "Verified");
    assert_eq!(next.files.unwrap().corrupt, 0);
}

#[test]
fn a_run_whose_object_is_gone_is_given_up_by_the_next_of_its_namespace() {
    let pod = Pod::with(300);
    let mut config = pod.config("gone");
    config["spec"]["maxThroughput"] = json!(500);
    let mut child = pod.start(&config);
    pod.until_stored(&mut child, 10);
    child.kill().unwrap();
    child.wait().unwrap();
    let (code, report) = pod.run(&pod.config("next"));
    assert_eq!(code, 0);
    assert_eq!(report.result.unwrap().reason, "Verified");
}

#[test]
fn a_run_of_another_namespace_is_waited_for() {
    let pod = Pod::with(300);
    let mut config = pod.config("theirs");
    config["spec"]["run"] = json!("elsewhere/theirs");
    config["spec"]["maxThroughput"] = json!(500);
    let mut child = pod.start(&config);
    pod.until_stored(&mut child, 10);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut ours = pod.config("ours");
    let child = pod.start(&ours);
    pod.until_logged("UnresolvedRun");
    ours["spec"]["cancel"] = json!(true);
    ours["generation"] = json!(2);
    pod.configure(&ours);
    assert!(pod::ended(child).success());
    assert_eq!(pod.report().result.unwrap().reason, "Cancelled");
}

#[test]
fn an_empty_mount_ends_the_run_and_forgets_nothing() {
    let pod = Pod::with(100);
    pod.run(&pod.config("first"));
    fs::rename(pod.root(), pod.folder.path().join("away")).unwrap();
    fs::create_dir(pod.root()).unwrap();
    let (code, report) = pod.run(&pod.config("second"));
    assert_eq!(code, 0);
    assert_eq!(report.result.unwrap().reason, "DeletionGuard");
    fs::remove_dir(pod.root()).unwrap();
    fs::rename(pod.folder.path().join("away"), pod.root()).unwrap();
    let (_, report) = pod.run(&pod.config("third"));
    assert_eq!(report.files.unwrap().verified, 100);
}

#[test]
fn files_that_nobody_may_read_are_told_with_whose_they_are_and_not_forgotten() {
    let pod = Pod::with(20);
    pod.run(&pod.config("first"));
    for n in 0..20 {
        pod.permit(&format!("folder{}/file{n}", n / 10), false);
    }
    let (code, report) = pod.run(&pod.config("files"));
    assert_eq!((code, report.files.unwrap().unreadable), (0, 20));
    let result = report.result.unwrap();
    assert_eq!(result.reason, "PermissionDenied");
    let helps = ["may not read", "it belongs to user", "runAsUser"];
    assert!(
        helps.iter().all(|it| result.message.contains(it)),
        "{}",
        result.message
    );

    pod.permit("", false);
    let (_, report) = pod.run(&pod.config("root"));
    pod.permit("", true);
    assert_eq!(report.result.unwrap().reason, "PermissionDenied");

    for n in 0..20 {
        pod.permit(&format!("folder{}/file{n}", n / 10), true);
    }
    let (_, report) = pod.run(&pod.config("last"));
    assert_eq!(report.files.unwrap().verified, 20);
}

#[test]
fn prometheus_is_told_how_far_a_run_is() {
    let pod = Pod::with(300);
    pod.run(&pod.config("first"));
    pod.rot("folder0/file0");
    pod.run(&pod.config("second"));
    let mut config = pod.config("third");
    config["spec"]["maxThroughput"] = json!(100);
    let mut child = pod.start(&config);
    pod.until_verified(&mut child, 10);
    let wanted = [
        "orrery_checksum_files{outcome=\"verified\"}",
        "orrery_checksum_files{outcome=\"remaining\"}",
        "orrery_checksum_selected_bytes",
        "orrery_checksum_stored_bytes",
        "orrery_checksum_read_bytes_total",
        "orrery_checksum_read_files_total",
        "orrery_checksum_open_warnings",
    ];
    let told = |name: &str| -> Option<u64> {
        let metrics = pod.metrics();
        let line = metrics.lines().find(|line| line.starts_with(name))?;
        line.rsplit(' ').next()?.parse().ok()
    };
    // It is told from time to time.
    pod.until_so(|| {
        wanted
            .iter()
            .all(|name| told(name).is_some_and(|it| it > 0))
    });
    assert_eq!(told("orrery_checksum_selected_bytes"), Some(pod.size()));
    assert_eq!(told("orrery_checksum_open_warnings"), Some(1));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_store_in_use_is_waited_for_and_a_folder_that_is_not_there_ends_the_run() {
    let pod = Pod::with(300);
    let mut slow = pod.config("slow");
    slow["spec"]["maxThroughput"] = json!(500);
    let mut first = pod.start(&slow);
    pod.until_stored(&mut first, 10);
    let other = pod.beside("other");
    let second = other.start(&pod.config("second"));
    other.until_logged("StoreInUse");
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(pod::ended(second).success());
    assert_eq!(other.report().result.unwrap().reason, "Verified");

    let mut lost = pod.config("lost");
    lost["spec"]["root"] = json!(pod.folder.path().join("nowhere"));
    let (_, report) = pod.run(&lost);
    let result = report.result.unwrap();
    assert_eq!(result.reason, "Failed");
    assert!(result.message.contains("nowhere"), "{}", result.message);
}

#[test]
fn a_run_that_only_lists_reads_nothing() {
    let pod = Pod::with(20);
    let mut config = pod.config("list");
    config["spec"]["stopAfterSync"] = json!(true);
    let (_, report) = pod.run(&config);
    assert_eq!(report.result.unwrap().reason, "Stopped");
    assert_eq!(report.files.unwrap().remaining, 20);
    assert_eq!(report.bytes_read, 0);
}
