//! What goes wrong around a coordinator: a store that is full, a clock that jumps, an end in the middle of a listing.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use testbed::faketime::FakeClock;

use crate::pod::{self, Pod};

/// The same in a place of its own, where the store has a small disk.
fn on_a_small_disk(command: &Command, store: &Path) -> Command {
    let mut small = Command::new("unshare");
    let script = r#"mount -t tmpfs -o size=400k small "$0" && exec "$@""#;
    small.args(["--mount", "sh", "-c", script]).arg(store);
    small.arg(command.get_program()).args(command.get_args());
    small
}

#[test]
fn a_full_store_is_waited_for_and_costs_nothing_that_was_found() {
    if !pod::is_root() {
        return; // only root can mount
    }
    let pod = Pod::with(3000);
    let store = pod.folder.path().join("store");
    let config = pod.config("run");
    let child = pod.spawn(on_a_small_disk(&pod.coordinator(&config), &store));
    pod.until_logged("StoreFull");
    let enlarged = Command::new("nsenter")
        .args(["--mount", "--target", &child.id().to_string()])
        .args(["mount", "-o", "remount,size=64m"])
        .arg(&store)
        .status();
    assert!(enlarged.unwrap().success());
    assert!(pod::ended(child).success(), "{}", pod.log());
    let report = pod.report();
    let files = report.files.unwrap();
    assert_eq!((files.total, files.new), (3000, 3000));
    assert_eq!(report.result.unwrap().reason, "Verified");
}

#[test]
fn a_clock_that_jumps_in_the_middle_of_a_run_changes_no_count() {
    const DAY: i64 = 86_400;
    let pod = Pod::with(300);
    let mut clock = FakeClock::new(pod.own("clock")).unwrap();
    let mut config = pod.config("run");
    config["spec"]["maxThroughput"] = json!(500);
    let mut command = pod.coordinator(&config);
    command.envs(clock.envs());
    let mut child = pod.spawn(command);
    pod.until_stored(&mut child, 30);
    clock.jump(DAY).unwrap();
    pod.until_stored(&mut child, 80);
    clock.jump(-2 * DAY).unwrap();
    pod.until_stored(&mut child, 130);
    config["spec"]["maxThroughput"] = json!(null);
    config["generation"] = json!(2);
    pod.configure(&config);
    assert!(pod::ended(child).success(), "{}", pod.log());
    let report = pod.report();
    let files = report.files.unwrap();
    assert_eq!((files.total, files.new, files.remaining), (300, 300, 0));
    assert_eq!(report.result.unwrap().reason, "Verified");
    let (read, size) = (pod.bytes_read(), pod.size());
    assert_eq!(read, size);
}

#[test]
fn a_coordinator_that_is_killed_while_it_lists_is_gone_on_from() {
    let pod = Pod::with(10_000);
    let mut config = pod.config("0");
    // Who is too late for one listing tries another.
    for attempt in 1..10 {
        let mut child = pod.start(&config);
        pod.until_listing(&mut child);
        child.kill().unwrap();
        child.wait().unwrap();
        if pod.is_listing() {
            break;
        }
        config = pod.config(&attempt.to_string());
    }
    assert!(pod.is_listing(), "every listing was over");
    let (code, report) = pod.run(&config);
    assert_eq!(code, 0);
    let files = report.files.unwrap();
    assert_eq!((files.total, files.remaining), (10_000, 0));
    assert_eq!(files.new + files.verified, 10_000);
    assert_eq!(report.result.unwrap().reason, "Verified");
}
