//! What goes wrong: nothing that was verified is lost, and nothing unverified is called verified.

use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::tree::{Tree, interrupt, is_root, parsed, remove, said, terminate, until_open};

#[test]
fn a_killed_run_is_resumed_and_reads_nothing_twice_that_was_stored() {
    // What is read of so large files is stored after a few of them.
    let tree = Tree::with(0);
    let content = "x".repeat(3 << 20);
    (0..20).for_each(|n| tree.write(&n.to_string(), &content));
    let some = |run: &Value| run["new"].as_i64() > Some(0);
    let mut child = tree.slow_until("8Mi", &[], some);
    child.kill().unwrap();
    child.wait().unwrap();
    let refused = tree.run(&[]);
    assert_eq!(refused.code, 3);
    assert!(refused.complaint.contains("--resume"), "{refused:?}");
    // Who read them again would miss them.
    let stored = tree.on_record();
    assert!((1..20).contains(&stored.len()), "{stored:?}");
    for path in stored {
        remove(&tree.path(&path));
    }
    let resumed = tree.run(&["--resume"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    assert_eq!(resumed.counts(), [("total", 20), ("new", 20)]);
    assert_eq!(resumed.run()["id"], 1);
}

#[test]
fn an_aborted_run_makes_no_false_alarm_later() {
    let tree = Tree::with(300);
    tree.run(&[]);
    for n in 0..300 {
        tree.write(&format!("folder{}/file{n}", n / 10), "edited");
    }
    let mut child = tree.slow(&[]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(tree.about(&["abort"]).status.success());
    let again = tree.about(&["abort"]);
    assert!(again.status.success(), "a second time changes nothing");
    let said = String::from_utf8(again.stdout).unwrap();
    assert_eq!(said, "run 2 has ended already: nothing is given up\n");
    let next = tree.run(&["--mode", "incremental"]);
    assert_eq!(
        (next.code, next.run()["corrupt"].as_i64()),
        (0, Some(0)),
        "{next:?}"
    );
    let read =
        next.run()["changed"].as_i64().unwrap() + next.run()["notSelected"].as_i64().unwrap();
    assert_eq!(read, 300);
}

#[test]
fn a_signal_ends_a_run_soon_and_in_order() {
    let tree = Tree::with(300);
    let child = tree.slow(&[]);
    terminate(&child);
    let ended = said(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, 3);
    assert!(
        ended.complaint.contains("--resume goes on with run 1"),
        "{ended:?}"
    );
    assert_eq!(tree.run(&["--resume"]).code, 0);
}

#[test]
fn a_signal_ends_a_run_in_the_middle_of_a_file() {
    let tree = Tree::with(0);
    tree.write("large", &"x".repeat(8 << 20));
    // Half a minute and more for the file.
    let child = tree.slow_until("256Ki", &[], |run| run["state"] == "workqueue");
    until_open(&child, &tree.path("large"));
    terminate(&child);
    let (asked, output) = (Instant::now(), child.wait_with_output().unwrap());
    let (ended, took) = (said(&output), asked.elapsed());
    assert_eq!(ended.code, 3);
    assert!(took < Duration::from_secs(20), "{took:?}");
    let words = "--resume goes on with run 1";
    assert!(ended.complaint.contains(words), "{ended:?}");
    let resumed = tree.run(&["--resume"]);
    assert_eq!(resumed.counts(), [("total", 1), ("new", 1)]);
}

#[test]
fn a_comparison_with_another_folder_is_ended_by_a_signal_in_the_middle_of_a_file() {
    let tree = Tree::with(1);
    tree.run(&[]);
    let backup = tree.folder.path().canonicalize().unwrap().join("backup");
    fs::create_dir_all(backup.join("folder0")).unwrap();
    // Minutes, whatever the machine.
    let large = backup.join("folder0/file0");
    let file = fs::File::create(&large).unwrap();
    file.set_len(4 << 40).unwrap();
    let mut verify = Command::new(env!("CARGO_BIN_EXE_orrery-checksum"));
    verify.arg("verify").arg(&backup);
    verify.arg("--store").arg(tree.store());
    verify.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = verify.spawn().unwrap();
    until_open(&child, &large);
    terminate(&child);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(3));
    let complaint = String::from_utf8(ended.stderr).unwrap();
    assert!(complaint.contains("stopped"), "{complaint}");
}

#[test]
fn a_second_signal_ends_what_does_not_end_in_order() {
    let tree = Tree::with(1);
    tree.run(&[]);
    // Whoever wants to write now waits for half a minute.
    let script = "import sqlite3, sys; link = sqlite3.connect(sys.argv[1], isolation_level=None); \
        link.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()";
    let mut holder = Command::new("python3")
        .args(["-c", script])
        .arg(tree.store())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said_held = [0; 4];
    let out = holder.stdout.as_mut().unwrap();
    out.read_exact(&mut said_held).unwrap();
    let mut command = tree.command(&[]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    until_open(&child, &tree.store().canonicalize().unwrap());
    let began = Instant::now();
    // Two of one kind may be heard as one.
    terminate(&child);
    interrupt(&child);
    let ended = said(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, 3);
    let words = "ended while files were being read";
    assert!(ended.complaint.contains(words), "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(20));
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert_eq!(tree.run(&[]).code, 0);
}

#[test]
fn a_file_that_somebody_holds_is_read_when_he_lets_go() {
    let tree = Tree::with(3);
    let held = tree.path("folder0/file1");
    // A lease, as file servers have: nobody can open the file until its holder, who is told, has given it up.
    let script = r#"$SIG{IO} = sub { $asked = 1 }; open(my $f, "+<", $ARGV[0]) or die;
        fcntl($f, 1024, 1) or die "no lease: $!"; $| = 1; print "held"; sleep 1 until $asked; fcntl($f, 1024, 2)"#;
    let mut holder = Command::new("perl")
        .args(["-e", script])
        .arg(&held)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said_held = [0; 4];
    let out = holder.stdout.as_mut().unwrap();
    out.read_exact(&mut said_held).unwrap();
    let run = tree.run(&[]);
    assert_eq!(run.counts(), [("total", 3), ("new", 3)], "{run:?}");
    assert!(holder.wait().unwrap().success());
}

#[test]
fn a_second_process_is_refused_at_once() {
    let tree = Tree::with(300);
    let mut child = tree.slow(&[]);
    let second = tree.run(&["--resume"]);
    assert_eq!(second.code, 3);
    assert!(
        second.complaint.contains("another process writes to"),
        "{second:?}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_may_not_be_read_is_told_and_not_forgotten() {
    if !is_root() {
        return; // nobody can be denied what is his
    }
    let tree = Tree::with(30);
    let program = tree.open_to_all();
    let run = || tree.run_as_nobody(&program);
    let first = run();
    assert_eq!(first.counts(), [("total", 30), ("new", 30)], "{first:?}");
    let forbid = |path: &str| tree.permit(path, 0o000);
    forbid("folder0/file1");
    let second = run();
    assert_eq!(second.code, 2);
    assert_eq!(
        second.counts(),
        [("total", 30), ("verified", 29), ("unreadable", 1)]
    );
    let problem = second.of_kind("problem")[0];
    assert_eq!(problem["path"], "folder0/file1");
    assert!(
        problem["why"]
            .as_str()
            .unwrap()
            .contains("Permission denied"),
        "{problem}"
    );

    forbid("folder1");
    let third = run();
    assert_eq!(third.code, 2);
    assert_eq!(third.run()["complete"], false);
    assert_eq!(
        third.counts(),
        [("total", 30), ("verified", 19), ("unreadable", 11)]
    );
    tree.permit("folder1", 0o755);
    assert_eq!(
        run().counts(),
        [("total", 30), ("verified", 29), ("unreadable", 1)]
    );
}

#[test]
fn folders_that_could_not_be_listed_are_told_to_people_and_programs() {
    if !is_root() {
        return; // nobody can be denied what is his
    }
    let tree = Tree::with(30);
    let program = tree.open_to_all();
    tree.permit("folder1", 0o000);
    let run = tree.run_as_nobody(&program);
    tree.permit("folder1", 0o755);
    assert_eq!(run.code, 2, "{run:?}");
    let unlisted = run.of_kind("unlisted");
    assert_eq!(unlisted.len(), 1, "{run:?}");
    let why = "permission denied (folder not listed)";
    assert_eq!(unlisted[0]["path"], "folder1");
    assert_eq!(unlisted[0]["why"], why);
    let report = parsed(&tree.about(&["report", "--format", "json"]).stdout);
    let last = report.iter().find(|line| line["kind"] == "run").unwrap();
    assert_eq!(last, run.run());
    assert_eq!(last["unlisted"], 1);
    assert_eq!(last["unlistedExample"], format!("folder1: {why}"));
    let report = tree.about(&["report"]).stdout;
    let report = String::from_utf8(report).unwrap();
    let words = "1 not listed, such as folder1: ";
    assert!(report.contains(words), "{report}");
}

#[test]
fn a_full_disk_ends_the_run_in_words_and_loses_nothing() {
    if !is_root() {
        return; // only root can mount
    }
    let tree = Tree::with(3000);
    let disk = tree.folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let program = env!("CARGO_BIN_EXE_orrery-checksum");
    let script = format!(
        "mount -t tmpfs -o size=400k small {disk}
         run() {{ {program} local {root} --store {disk}/store --quiet \"$@\"; }}
         run; echo \"first $?\"
         mount -o remount,size=64m {disk}
         run --resume || {{ run; }}; echo \"then $?\"",
        disk = disk.display(),
        root = tree.root().display(),
    );
    let output = Command::new("unshare")
        .args(["--mount", "bash", "-c", &script])
        .output()
        .unwrap();
    let (out, complaint) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(out.contains("first 3"), "{out}{complaint}");
    assert!(
        complaint.contains("full") || complaint.contains("No space left"),
        "{complaint}"
    );
    assert!(
        out.contains("3000 files: 0 verified, 3000 new"),
        "{out}{complaint}"
    );
    assert!(out.contains("then 0"), "{out}{complaint}");
}

#[test]
fn damage_of_a_medium_is_found_although_the_page_cache_has_the_file_as_it_was() {
    let tree = Tree::with(0);
    let program = env!("CARGO_BIN_EXE_orrery-checksum");
    let script = format!(
        r#"set -e; cd {folder}
        truncate -s 16M image && mkfs.ext4 -q image && mkdir disk
        device=$(losetup --find --show image) || {{ echo unable; exit 0; }}
        trap 'umount disk; losetup --detach $device' EXIT
        mount $device disk
        for i in $(seq 1000); do echo "needle in a haystack"; done >disk/file; sync
        run() {{ code=0; {program} local disk --store store --quiet "$@" >>out 2>&1 || code=$?; echo "$code"; }}
        run --medium device
        cat disk/file >/dev/null
        at=$(grep --text --byte-offset --only-matching --max-count=1 'needle in a haystack' image | head -n1 | cut -d: -f1)
        printf X | dd of=image bs=1 seek=$at conv=notrunc,fsync status=none
        run --medium cache; run --medium device"#,
        folder = tree.folder.path().display(),
    );
    let output = Command::new("unshare")
        .args(["--mount", "bash", "-c", &script])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !is_root() || said.contains("unable") {
        return; // only root can mount, and not everywhere
    }
    assert_eq!(said, "0\n0\n1\n", "{complaint}");
}
