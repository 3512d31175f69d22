#![expect(
    clippy::unwrap_used,
    reason = "what a fixture cannot do fails the test"
)]
//! Commands beside `local`, and what programs are told when something fails.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::tree::{Said, Tree, said};

/// The paths of open warnings, as programs are told.
fn damaged(tree: &Tree) -> Vec<String> {
    let report = said(&tree.about(&["report", "--format", "json"]));
    let warnings = report.of_kind("warning");
    let open = warnings.iter().filter(|it| it["state"] == "open");
    open.map(|it| it["path"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn damage_is_accepted_by_the_path_that_is_printed_whatever_its_bytes_are() {
    let tree = Tree::with(3);
    let names = [
        &b"\xff"[..],
        br"back\slash",
        b"new\nline",
        "zero\u{200b}width".as_bytes(),
        br"\xff",
    ];
    let paths = names.map(OsStr::from_bytes);
    for path in paths {
        fs::write(tree.path(path), "content").unwrap();
    }
    tree.run(&[]);
    for path in paths {
        tree.rot(path);
    }
    assert_eq!(tree.run(&[]).code, 1);
    let printed = damaged(&tree);
    let expected = [
        r"\\xff",
        r"\xff",
        r"back\\slash",
        r"new\nline",
        r"zero\u{200b}width",
    ];
    let mut sorted = printed.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);

    let refused = said(&tree.about(&["accept", "--escaped", &printed[0], r"back\slash"]));
    assert_eq!(refused.code, 3);
    let words = r"back\slash is no path as `report` prints it";
    assert!(refused.complaint.contains(words), "{refused:?}");
    assert_eq!(damaged(&tree).len(), 5, "nothing is done by halves");
    let noted = tree.about(&["acknowledge", "--escaped", &printed[0]]);
    assert!(noted.status.success(), "{noted:?}");
    let printed: Vec<_> = printed.iter().map(String::as_str).collect();
    let accepted = tree.about(&[&["accept", "--escaped"], &printed[..]].concat());
    assert!(accepted.status.success(), "{accepted:?}");
    assert_eq!(damaged(&tree), [""; 0]);
}

#[test]
fn a_path_that_is_not_damaged_keeps_nobody_from_accepting_the_others() {
    for (command, left) in [("accept", 0), ("acknowledge", 2)] {
        let tree = Tree::with(10);
        tree.run(&[]);
        tree.rot("folder0/file1");
        tree.rot("folder0/file3");
        tree.run(&[]);
        let paths = ["folder0/file1", "folder0/file2", "none", "folder0/file3"];
        let done = said(&tree.about(&[&[command], &paths[..]].concat()));
        assert_eq!(done.code, 3);
        let words = "folder0/file2, none have no open warning, the other 2 are done";
        assert!(done.complaint.contains(words), "{done:?}");
        assert_eq!(damaged(&tree), [""; 0], "{command}");
        let report = said(&tree.about(&["report", "--format", "json"]));
        assert_eq!(report.of_kind("warning").len(), left, "{command}");
    }
}

/// What a command says to a reader that has left.
fn unheard(mut command: Command) -> Said {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    said(&command.stdout(writer).output().unwrap())
}

#[test]
fn whoever_reads_no_further_ends_a_command_without_a_word() {
    let tree = Tree::with(100);
    tree.run(&[]);
    tree.rot("folder0/file1");
    tree.run(&[]);
    let backup = tree.folder.path().join("backup");
    fs::create_dir(&backup).unwrap();
    let names = tree.on_record();
    for name in &names {
        fs::create_dir_all(backup.join(name).parent().unwrap()).unwrap();
        fs::write(backup.join(name), "other").unwrap();
    }
    // To read it takes half an hour; it is the last.
    let large = File::create(backup.join(names.last().unwrap())).unwrap();
    large.set_len(1 << 42).unwrap();
    let about = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orrery-checksum"));
        command.args(args).arg("--store").arg(tree.store());
        command.stdin(Stdio::null());
        command
    };
    for args in [
        &["verify", backup.to_str().unwrap()][..],
        &["verify", backup.to_str().unwrap(), "--output", "json"],
        &["report"],
        &["report", "--format", "json"],
        &["report", "--format", "csv"],
        &["report", "--format", "manifest"],
    ] {
        let ended = unheard(about(args));
        assert_eq!(
            (ended.code, ended.complaint.as_str()),
            (141, ""),
            "{args:?}"
        );
    }
}

#[test]
fn a_program_is_told_the_run_and_why_it_failed() {
    let tree = Tree::with(100);
    tree.run(&[]);
    let elsewhere = tree.folder.path().join("elsewhere");
    fs::rename(tree.root(), &elsewhere).unwrap();
    fs::create_dir(tree.root()).unwrap();
    let guarded = tree.run(&[]);
    assert_eq!(guarded.code, 2);
    let [run, error] = guarded.lines.as_slice() else {
        panic!("{guarded:?}");
    };
    assert_eq!(
        (&run["kind"], &run["id"], &run["ended"]),
        (&"run".into(), &2.into(), &().into())
    );
    assert_eq!(
        (&error["kind"], &error["exitCode"]),
        (&"error".into(), &2.into())
    );
    let message = error["message"].as_str().unwrap();
    assert!(guarded.complaint.contains(message), "{guarded:?}");
    assert!(message.contains("100 of 100 files are gone"), "{message}");

    let unresolved = tree.run(&[]);
    let only = &unresolved.lines[0];
    assert_eq!((unresolved.code, unresolved.lines.len()), (3, 1));
    assert_eq!(only["exitCode"], 3, "{unresolved:?}");

    fs::remove_dir(tree.root()).unwrap();
    let root = tree.root();
    let root = root.to_str().unwrap();
    for args in [
        &["verify", root, "--output", "json"][..],
        &["report", "--format", "json", "--file-system", "other"],
    ] {
        let failed = said(&tree.about(args));
        let is_told = failed.code == 3 && failed.of_kind("error").len() == 1;
        assert!(is_told, "{failed:?}");
    }
}

#[test]
fn fields_for_programs_are_named_as_in_the_api() {
    let tree = Tree::with(10);
    tree.run(&[]);
    tree.rot("folder0/file1");
    let run = tree.run(&[]);
    let report = said(&tree.about(&["report", "--format", "json"]));
    for line in run.lines.iter().chain(&report.lines) {
        let names: Vec<_> = line.as_object().unwrap().keys().collect();
        assert!(names.iter().all(|name| !name.contains('_')), "{line}");
    }
    let csv = tree.about(&["report", "--format", "csv"]).stdout;
    let csv = String::from_utf8(csv).unwrap();
    let head = "path,state,size,mtime,algorithm,expected,actual,discovered,lastRead,created";
    assert_eq!(csv.lines().next(), Some(head));
}

#[test]
fn a_store_in_the_tree_whose_name_cannot_be_left_out_is_refused() {
    let tree = Tree::with(3);
    let store = tree.path(OsStr::from_bytes(b"\xff.sqlite"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery-checksum"));
    command.arg("local").arg(tree.root());
    command.arg("--store").arg(&store);
    let refused = said(&command.output().unwrap());
    assert_eq!(refused.code, 3);
    let words = r"/root/\xff.sqlite is in the folder that is read, under a name that is no text";
    assert!(refused.complaint.contains(words), "{refused:?}");
    assert!(!store.exists());
}
