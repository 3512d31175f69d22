//! What is told to people and programs, and how the program ends.

use std::fs;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use crate::tree::{Tree, said};

#[test]
fn a_report_fails_only_for_damage_that_nobody_has_taken_note_of() {
    let tree = Tree::with(10);
    tree.run(&[]);
    tree.rot("folder0/file1");
    assert_eq!(tree.run(&[]).code, 1);
    let report = || {
        let said = tree.about(&["report"]);
        (said.status.code(), String::from_utf8(said.stdout).unwrap())
    };
    let (code, text) = report();
    assert_eq!(code, Some(1));
    assert!(text.contains("open: folder0/file1"), "{text}");
    let noted = tree.about(&["acknowledge", "folder0/file1"]);
    assert!(noted.status.success());
    let (code, text) = report();
    assert_eq!(code, Some(0));
    assert!(text.contains("acknowledged: folder0/file1"), "{text}");
    // A run that reads it has found it all the same.
    assert_eq!(tree.run(&[]).code, 1);
}

#[test]
fn a_file_whose_path_is_longer_than_the_kernel_takes_is_read_like_others() {
    let tree = Tree::with(3);
    let (mut path, name) = (String::new(), "d".repeat(200));
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: OwnedFd = openat(CWD, tree.root(), flags, Mode::empty()).unwrap();
    for _ in 0..25 {
        mkdirat(&at, &name, Mode::RWXU).unwrap();
        at = openat(&at, &name, flags, Mode::empty()).unwrap();
        path = path + &name + "/";
    }
    path += "file";
    let create = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC;
    let write = |content: &[u8]| {
        let file = openat(&at, "file", create, Mode::RUSR | Mode::WUSR).unwrap();
        rustix::io::write(&file, content).unwrap();
        fs::File::from(file)
    };
    let modified = write(b"deep").metadata().unwrap().modified().unwrap();
    assert!(path.len() > 4096);
    let first = tree.run(&[]);
    assert_eq!(first.counts(), [("total", 4), ("new", 4)], "{first:?}");
    assert_eq!(tree.run(&[]).counts(), [("total", 4), ("verified", 4)]);
    write(b"peed").set_modified(modified).unwrap();
    let third = tree.run(&[]);
    let found = [("total", 4), ("verified", 3), ("corrupt", 1)];
    assert_eq!(third.counts(), found, "{third:?}");
    assert_eq!(third.of_kind("warning")[0]["path"], path);
}

#[test]
fn a_terminal_is_told_how_fast_and_how_long_and_nothing_else_is() {
    let tree = Tree::with(300);
    let program = env!("CARGO_BIN_EXE_orrery-checksum");
    let (root, store) = (tree.root(), tree.store());
    let run = format!(
        "{program} local {} --store {} --max-throughput 1Ki --readers 1",
        root.display(),
        store.display()
    );
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &run, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let is_told = |line: &str| {
        let words = [" % of ", " of 300 files, ", "B/s, ", " s left"];
        words.iter().all(|it| line.contains(it))
    };
    assert!(text.split('\r').any(is_told), "{text}");
    assert!(text.contains("300 files: 0 verified, 300 new"), "{text}");

    let mut slow = tree.command(&["--max-throughput", "1Ki", "--readers", "1"]);
    let slow = said(&slow.output().unwrap());
    assert_eq!((slow.code, slow.complaint.as_str()), (0, ""));
}

#[test]
fn a_program_is_told_how_far_it_is_in_lines_of_json() {
    let tree = Tree::with(300);
    // Longer than it takes to the first line.
    let run = tree.run(&["--max-throughput", "256", "--readers", "1"]);
    assert_eq!((run.code, run.complaint.as_str()), (0, ""));
    let lines = run.of_kind("progress");
    let told = lines.first().expect("no progress was told");
    assert_eq!(
        (&told["listed"], &told["selected"]),
        (&300.into(), &300.into())
    );
    let number = |name: &str| told[name].as_i64().unwrap();
    // What is read is done when it is stored, with others.
    assert!((0..300).contains(&number("done")), "{told}");
    assert!(
        number("bytes") > 0 && number("bytesPerSecond") > 0,
        "{told}"
    );
    // All are told once more in the end, and as done.
    assert_eq!(run.counts(), [("total", 300), ("new", 300)]);
    let quiet = tree.run(&["--quiet"]);
    assert_eq!(quiet.of_kind("progress").len(), 0);
}

#[test]
fn files_are_taken_from_a_list_and_a_run_can_end_with_the_listing() {
    let tree = Tree::with(30);
    let list = tree.folder.path().join("list");
    fs::write(&list, "folder0/file1\0folder2/file22\0").unwrap();
    let list = list.to_str().unwrap();
    let listed = tree.run(&["--files-from", list, "--stop-after", "sync"]);
    assert_eq!(
        listed.counts(),
        [("total", 2), ("remaining", 2)],
        "{listed:?}"
    );
    let read = tree.run(&["--files-from", list]);
    assert_eq!(read.counts(), [("total", 2), ("new", 2)], "{read:?}");
    assert_eq!(tree.on_record(), ["folder0/file1", "folder2/file22"]);
}

#[test]
fn the_program_calls_itself_by_its_name() {
    let program = env!("CARGO_BIN_EXE_orrery-checksum");
    let said = Command::new(program).arg("--version").output().unwrap();
    let expected = format!("orrery-checksum {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(said.stdout).unwrap(), expected);
}
