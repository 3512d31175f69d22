//! What happens to files while a run goes on or is suspended, and what is read of them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::pod::{self, Pod};

#[test]
fn a_folder_that_nobody_may_list_makes_the_listing_incomplete() {
    let pod = Pod::with(30);
    pod.permit("folder1", false);
    let (code, report) = pod.run(&pod.config("first"));
    pod.permit("folder1", true);
    assert_eq!((code, report.unlisted), (0, 1));
    let example = report.unlisted_example.unwrap();
    assert!(example.starts_with("folder1: "), "{example}");
    let result = report.result.unwrap();
    assert_eq!(result.reason, "ListingIncomplete", "{}", result.message);
    let files = report.files.unwrap();
    assert_eq!((files.total, files.new), (20, 20));
    let (_, report) = pod.run(&pod.config("second"));
    let files = report.files.unwrap();
    assert_eq!((files.verified, files.new), (20, 10));
    assert_eq!(report.result.unwrap().reason, "Verified");
}

#[test]
fn files_that_change_while_a_run_is_suspended_are_not_called_verified() {
    let pod = Pod::with(300);
    pod.run(&pod.config("first"));
    let mut config = pod.config("second");
    config["spec"]["suspend"] = json!(true);
    let mut child = pod.start(&config);
    pod.until_listed(&mut child, 300);
    fs::write(pod.root().join("folder1/file11"), "edited").unwrap();
    fs::remove_file(pod.root().join("folder2/file22")).unwrap();
    pod.rot("folder3/file33");
    config["spec"]["suspend"] = json!(false);
    config["generation"] = json!(2);
    pod.configure(&config);
    assert!(pod::ended(child).success());
    let report = pod.report();
    let files = report.files.unwrap();
    assert_eq!((files.verified, files.skipped), (297, 2));
    // What nobody says to have changed is damage, suspended or not.
    assert_eq!((files.corrupt, files.changed), (1, 0));
    assert_eq!(report.corrupt[0].path, "folder3/file33");
}

#[test]
fn a_limit_that_is_lifted_holds_no_longer_also_in_the_middle_of_a_file() {
    let pod = Pod::with(0);
    fs::write(pod.root().join("large"), vec![7; 100 << 20]).unwrap();
    let mut config = pod.config("run");
    // Longer than anybody waits for it to end.
    config["spec"]["maxThroughput"] = json!(1 << 20);
    let child = pod.start(&config);
    pod.until_logged("listening");
    pod.until_so(|| pod.read_by_metrics() > 1 << 20);
    config["spec"]["maxThroughput"] = json!(null);
    config["generation"] = json!(2);
    pod.configure(&config);
    let lifted = Instant::now();
    assert!(pod::ended(child).success());
    let took = lifted.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(pod.bytes_read(), 100 << 20);
}

#[test]
fn more_files_are_read_at_once_than_there_are_processors_where_nobody_says_how_many() {
    let pod = Pod::with(300);
    let mut config = pod.config("run");
    config["spec"]["concurrency"] = json!(null);
    config["spec"]["maxThroughput"] = json!(100);
    let child = pod.start(&config);
    pod.until_logged("listening");
    let processors = thread::available_parallelism().unwrap().get();
    pod.until_so(|| pod.metric("orrery_checksum_reading") > processors as u64);
    config["spec"]["maxThroughput"] = json!(null);
    config["generation"] = json!(2);
    pod.configure(&config);
    assert!(pod::ended(child).success());
    assert_eq!(pod.report().files.unwrap().new, 300);
}

#[test]
fn a_suspended_run_reads_nothing_and_nothing_twice_afterwards() {
    let pod = Pod::with(300);
    let mut config = pod.config("run");
    config["spec"]["maxThroughput"] = json!(500);
    let mut child = pod.start(&config);
    pod.until_stored(&mut child, 50);
    config["spec"]["suspend"] = json!(true);
    config["spec"]["maxThroughput"] = json!(null);
    config["generation"] = json!(2);
    pod.configure(&config);
    thread::sleep(Duration::from_secs(5)); // it has so long
    let before = pod.read_by_metrics();
    assert!((1..pod.size()).contains(&before), "{before}");
    thread::sleep(Duration::from_secs(3)); // and so long it could be caught at reading
    assert_eq!(pod.read_by_metrics(), before);
    config["spec"]["suspend"] = json!(false);
    config["generation"] = json!(3);
    pod.configure(&config);
    assert!(pod::ended(child).success());
    assert_eq!(pod.report().files.unwrap().new, 300);
    // Two readers had a file each under way, at most.
    let (read, size) = (pod.bytes_read(), pod.size());
    assert!((size..=size + 2 * 20).contains(&read), "{read} of {size}");
}
