#![expect(clippy::disallowed_methods, reason = "waits for processes")]
//! The program as users run it: what it finds, what it forgets, how it ends.

mod commands;
mod faults;
mod gpfs;
mod told;
mod tree;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use tree::{Tree, parsed, remove, said};

#[test]
fn a_first_run_reads_all_and_a_second_verifies_all() {
    let tree = Tree::with(100);
    let first = tree.run(&[]);
    assert_eq!(first.code, 0, "{first:?}");
    assert_eq!(first.counts(), [("total", 100), ("new", 100)]);
    assert_eq!(tree.run(&[]).counts(), [("total", 100), ("verified", 100)]);
}

#[test]
fn an_incremental_run_reads_what_changed_and_nothing_else() {
    let tree = Tree::with(100);
    tree.run(&[]);
    let idle = tree.run(&["--mode", "incremental"]);
    assert_eq!(idle.counts(), [("total", 100), ("notSelected", 100)]);
    assert_eq!(idle.run()["bytesRead"], 0);
    for n in 0..30 {
        tree.write(&format!("folder{}/file{n}", n / 10), "edited");
    }
    let run = tree.run(&["--mode", "incremental"]);
    assert_eq!(
        run.counts(),
        [("total", 100), ("changed", 30), ("notSelected", 70)]
    );
    assert_eq!(run.code, 0);
}

#[test]
fn exactly_the_damaged_files_are_found_with_what_they_should_be() {
    let tree = Tree::with(100);
    tree.run(&[]);
    tree.run(&[]);
    for n in [3, 14, 15, 92, 65] {
        tree.rot(format!("folder{}/file{n}", n / 10));
    }
    // Edited after it was damaged: what somebody wrote is right.
    tree.rot("folder2/file26");
    tree.write("folder2/file26", "written anew");
    let run = tree.run(&[]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(
        run.counts(),
        [
            ("total", 100),
            ("verified", 94),
            ("changed", 1),
            ("corrupt", 5)
        ]
    );
    let warnings = run.of_kind("warning");
    let paths: Vec<_> = warnings
        .iter()
        .map(|it| it["path"].as_str().unwrap())
        .collect();
    let expected = [
        "folder0/file3",
        "folder1/file14",
        "folder1/file15",
        "folder6/file65",
        "folder9/file92",
    ];
    assert_eq!(paths, expected);
    let first = warnings[0];
    assert_eq!(
        (first["discovered"].as_i64(), first["lastRead"].as_i64()),
        (Some(3), Some(2))
    );
    assert_eq!(
        first["expected"],
        blake3::hash(b"content of 3").to_hex().as_str()
    );
    assert_eq!(
        first["actual"],
        blake3::hash(&fs::read(tree.path("folder0/file3")).unwrap())
            .to_hex()
            .as_str()
    );
}

#[test]
fn damage_stays_one_open_warning_until_the_file_is_restored() {
    let tree = Tree::with(10);
    tree.run(&[]);
    tree.rot("folder0/file1");
    let found = tree.run(&[]);
    let again = tree.run(&[]);
    assert_eq!(again.code, 1);
    assert_eq!(found.of_kind("warning"), again.of_kind("warning"));
    let reported = || tree.about(&["report"]).status.code();
    assert_eq!(reported(), Some(1));
    // Not read, but still known.
    tree.write("folder0/file2", "edited");
    assert_eq!(tree.run(&["--mode", "incremental"]).code, 1);

    tree.rot("folder0/file1"); // the same bit
    let restored = tree.run(&[]);
    assert_eq!((restored.code, restored.of_kind("warning").len()), (0, 0));
    assert_eq!(reported(), Some(0));
    let all = tree.about(&["report", "--all", "--format", "csv"]);
    let all = String::from_utf8(all.stdout).unwrap();
    assert!(all.contains("\"folder0/file1\",restored,"), "{all}");
}

#[test]
fn a_person_can_accept_what_is_there_or_take_note_of_it() {
    let tree = Tree::with(10);
    tree.run(&[]);
    tree.rot("folder0/file1");
    tree.rot("folder0/file2");
    tree.run(&[]);
    assert!(tree.about(&["accept", "folder0/file1"]).status.success());
    assert!(
        tree.about(&["acknowledge", "folder0/file2"])
            .status
            .success()
    );
    let run = tree.run(&[]);
    assert_eq!(
        run.counts(),
        [("total", 10), ("verified", 9), ("corrupt", 1)]
    );
    assert_eq!(run.of_kind("warning")[0]["state"], "acknowledged");
    let wrong = tree.about(&["accept", "folder0/file1"]);
    let complaint = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        complaint.contains("folder0/file1 has no open warning"),
        "{complaint}"
    );
    assert_eq!(wrong.status.code(), Some(3));
}

#[test]
fn a_warning_about_a_file_that_is_gone_is_closed() {
    let tree = Tree::with(30);
    tree.run(&[]);
    tree.rot("folder0/file1");
    assert_eq!(tree.run(&[]).code, 1);
    remove(&tree.path("folder0/file1"));
    let run = tree.run(&[]);
    assert_eq!(run.code, 0, "{run:?}");
    let all = tree.about(&["report", "--all", "--format", "csv"]);
    let all = String::from_utf8(all.stdout).unwrap();
    assert!(all.contains("\"folder0/file1\",gone,"), "{all}");
    // What comes back under that name is new, whatever it holds.
    tree.write("folder0/file1", "content of 1");
    assert_eq!(tree.run(&[]).code, 0);
}

#[test]
fn who_took_note_of_one_damage_is_told_of_another() {
    let tree = Tree::with(10);
    tree.run(&[]);
    tree.rot("folder0/file1");
    tree.run(&[]);
    assert!(
        tree.about(&["acknowledge", "folder0/file1"])
            .status
            .success()
    );
    let state = |run: &tree::Said| run.of_kind("warning")[0]["state"].clone();
    assert_eq!(state(&tree.run(&[])), "acknowledged");
    let mut content = fs::read(tree.path("folder0/file1")).unwrap();
    content[3] ^= 1;
    tree.overwrite("folder0/file1", &content);
    assert_eq!(state(&tree.run(&[])), "open");
}

#[test]
fn suspicious_files_are_read_by_a_run_that_reads_only_what_changed() {
    let tree = Tree::with(30);
    tree.run(&[]);
    tree.rot("folder0/file1");
    tree.overwrite("folder0/file2", b"short");
    // Nothing of its content: read, and found as it was.
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(tree.path("folder0/file3"), mode).unwrap();
    let run = tree.run(&["--mode", "incremental"]);
    assert_eq!(
        run.counts(),
        [
            ("total", 30),
            ("verified", 1),
            ("corrupt", 2),
            ("notSelected", 27)
        ]
    );
}

#[test]
fn a_list_of_the_policy_engine_is_read_and_compared_with_what_a_walk_found() {
    let tree = Tree::with(30);
    let list = tree.policy_list();
    let args = ["--policy-list", list.to_str().unwrap()];
    assert_eq!(tree.run(&args).counts(), [("total", 30), ("new", 30)]);
    // Times of the list are rougher than those of the file system, and nothing was changed all the same.
    let incremental = ["--mode", "incremental"];
    let idle = [("total", 30), ("notSelected", 30)];
    let again = tree.run(&[&args[..], &incremental].concat());
    assert_eq!(again.counts(), idle);
    assert_eq!(tree.run(&incremental).counts(), idle);
    tree.rot("folder0/file1");
    let run = tree.run(&args);
    assert_eq!(
        run.counts(),
        [("total", 30), ("verified", 29), ("corrupt", 1)]
    );
}

#[test]
fn gone_files_are_forgotten_and_renamed_ones_are_new() {
    let tree = Tree::with(100);
    tree.run(&[]);
    for n in 0..5 {
        remove(&tree.path(format!("folder0/file{n}")));
    }
    fs::rename(tree.path("folder1/file10"), tree.path("folder1/renamed")).unwrap();
    let run = tree.run(&[]);
    assert_eq!(
        run.counts(),
        [("total", 95), ("verified", 94), ("new", 1), ("deleted", 6)]
    );
}

#[test]
fn an_empty_mount_makes_nobody_forget() {
    let tree = Tree::with(100);
    tree.run(&[]);
    let elsewhere = tree.folder.path().join("elsewhere");
    fs::rename(tree.root(), &elsewhere).unwrap();
    fs::create_dir(tree.root()).unwrap();
    let run = tree.run(&[]);
    assert_eq!(run.code, 2);
    assert!(
        run.complaint.contains("100 of 100 files are gone"),
        "{run:?}"
    );

    fs::remove_dir(tree.root()).unwrap();
    fs::rename(&elsewhere, tree.root()).unwrap();
    let run = tree.run(&["--resume"]);
    assert_eq!(run.counts(), [("total", 100), ("verified", 100)]);

    fs::remove_dir_all(tree.path("folder1")).unwrap();
    fs::remove_dir_all(tree.path("folder2")).unwrap();
    assert_eq!(tree.run(&[]).code, 2);
    let confirmed = tree.run(&["--resume", "--deletion-guard", "100"]);
    assert_eq!(
        confirmed.counts(),
        [("total", 80), ("verified", 80), ("deleted", 20)]
    );
}

#[test]
fn after_a_run_over_the_wrong_volume_files_are_compared_with_what_was_read_before() {
    let tree = Tree::with(100);
    tree.run(&[]);
    tree.rot("folder0/file5");
    // A volume of the same layout: too many files are missing, and the others were written at other times.
    let elsewhere = tree.folder.path().join("elsewhere");
    fs::rename(tree.root(), &elsewhere).unwrap();
    for n in 0..60 {
        tree.write(&format!("folder{}/file{n}", n / 10), "of another volume");
    }
    let wrong = tree.run(&[]);
    assert!(
        wrong.complaint.contains("40 of 100 files are gone"),
        "{wrong:?}"
    );

    fs::remove_dir_all(tree.root()).unwrap();
    fs::rename(&elsewhere, tree.root()).unwrap();
    let right = tree.run(&["--mode", "incremental", "--abort"]);
    assert_eq!(right.code, 1);
    let expected = [
        ("total", 100),
        ("verified", 59),
        ("corrupt", 1),
        ("notSelected", 40),
    ];
    assert_eq!(right.counts(), expected);
}

#[test]
fn another_algorithm_compares_with_the_old_checksums_and_makes_no_false_alarm() {
    let tree = Tree::with(20);
    tree.run(&["--algorithm", "sha1"]);
    tree.rot("folder0/file1");
    let run = tree.run(&["--algorithm", "sha256"]);
    assert_eq!(
        run.counts(),
        [("total", 20), ("verified", 19), ("corrupt", 1)]
    );
    for algorithm in ["xxh3-128", "crc32c", "blake3"] {
        let run = tree.run(&["--algorithm", algorithm]);
        assert_eq!(
            run.counts(),
            [("total", 20), ("verified", 19), ("corrupt", 1)],
            "{algorithm}"
        );
    }
}

#[test]
fn a_sample_reads_new_files_and_a_share_of_the_others() {
    let tree = Tree::with(500);
    tree.run(&[]);
    tree.write("new", "new");
    let run = tree.run(&["--mode", "sample", "--sample-percent", "20"]);
    let run = run.run();
    let verified = run["verified"].as_i64().unwrap();
    assert!((50..150).contains(&verified), "{run}");
    assert_eq!(run["new"], 1);
}

#[test]
fn names_of_any_bytes_and_files_of_no_bytes_are_like_others() {
    let tree = Tree::with(0);
    for name in [
        &b"new\nline"[..],
        b"\xff\xfe",
        b"back\\slash",
        b"'quoted' \"twice\"",
        b" ",
        b"-",
    ] {
        fs::write(tree.root().join(OsStr::from_bytes(name)), "").unwrap();
    }
    symlink("nowhere", tree.path("link")).unwrap();
    assert_eq!(tree.run(&[]).counts(), [("total", 6), ("new", 6)]);
    assert_eq!(tree.run(&[]).counts(), [("total", 6), ("verified", 6)]);
    let manifest = tree.about(&["report", "--format", "manifest"]).stdout;
    let text = String::from_utf8_lossy(&manifest);
    assert_eq!(text.matches("af1349b9f5f9a1a6").count(), 6, "{text}");
    let mut lines = manifest.split(|byte| *byte == b'\n');
    assert!(lines.any(|line| line.ends_with(b"  \xff\xfe")), "{text}");
}

#[test]
fn a_manifest_is_checked_by_the_tools_of_others() {
    for (algorithm, tool) in [
        ("sha1", "sha1sum"),
        ("sha256", "sha256sum"),
        ("blake3", "b3sum"),
    ] {
        let tree = Tree::with(30);
        for name in [
            "new\nline",
            "car\rriage",
            r"back\slash",
            "a space",
            "-",
            "--",
            " ",
        ] {
            fs::write(tree.path(name), name).unwrap();
        }
        tree.run(&["--algorithm", algorithm]);
        let manifest = tree.folder.path().join("manifest");
        let printed = tree.about(&["report", "--format", "manifest"]).stdout;
        fs::write(&manifest, printed).unwrap();
        let check = || {
            let mut sum = Command::new(tool);
            sum.args(["--check", "--quiet"]).arg(&manifest);
            // What it would read if it took the name for that.
            sum.stdin(Stdio::null());
            sum.current_dir(tree.root()).output().unwrap()
        };
        let checked = check();
        assert!(checked.status.success(), "{tool}: {checked:?}");
        assert!(checked.stderr.is_empty(), "{tool}: {checked:?}");
        tree.rot("folder1/file11");
        assert!(!check().status.success());
    }
}

#[test]
fn who_prints_a_manifest_is_told_of_names_that_b3sum_cannot_check() {
    let tree = Tree::with(3);
    for name in [&b"\xff"[..], b"\xfe"] {
        fs::write(tree.path(OsStr::from_bytes(name)), "x").unwrap();
    }
    let warned = |algorithm| {
        tree.run(&["--algorithm", algorithm]);
        let printed = tree.about(&["report", "--format", "manifest"]);
        assert_eq!(printed.status.code(), Some(0));
        String::from_utf8(printed.stderr).unwrap()
    };
    let words = "2 names are no UTF-8: b3sum --check ends at the first of them\n";
    assert_eq!(warned("blake3"), words);
    assert_eq!(warned("sha1"), "");
}

#[test]
fn a_restored_backup_is_compared_with_what_is_on_record() {
    let tree = Tree::with(20);
    tree.run(&[]);
    let backup = tree.folder.path().join("backup");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(tree.root())
        .arg(&backup)
        .status();
    assert!(copied.unwrap().success());
    let verify = || {
        let backup = backup.to_str().unwrap();
        tree.about(&["verify", backup, "--output", "json"])
    };
    assert_eq!(verify().status.code(), Some(0), "{:?}", verify());
    remove(&backup.join("folder0/file1"));
    assert_eq!(verify().status.code(), Some(2));
    fs::write(backup.join("folder0/file2"), "other").unwrap();
    let lines = parsed(&verify().stdout);
    assert_eq!(verify().status.code(), Some(1));
    assert_eq!(lines.last().unwrap()["same"], 18);
}

#[test]
fn a_backup_that_was_compared_with_nothing_is_not_verified() {
    let tree = Tree::with(0);
    tree.run(&[]);
    let root = tree.root();
    let verified = tree.about(&["verify", root.to_str().unwrap()]);
    assert_eq!(verified.status.code(), Some(2), "{verified:?}");
    let words = String::from_utf8_lossy(&verified.stderr);
    assert!(words.contains("nothing was compared"), "{words}");
}

#[test]
fn a_file_that_was_changed_and_not_read_since_has_no_checksum_on_record() {
    let tree = Tree::with(3);
    tree.run(&[]);
    tree.write("folder0/file1", "edited");
    let listed = tree.run(&["--stop-after", "sync"]);
    assert_eq!(listed.code, 2, "{listed:?}");
    assert_eq!(tree.on_record(), ["folder0/file0", "folder0/file2"]);
    let root = tree.root();
    let root = root.to_str().unwrap();
    for medium in ["cache", "device"] {
        let verified = tree.about(&["verify", root, "--output", "json", "--medium", medium]);
        assert_eq!(verified.status.code(), Some(2), "{verified:?}");
        let lines = parsed(&verified.stdout);
        assert_eq!(lines[0]["kind"], "unknown");
        assert_eq!(lines[0]["path"], "folder0/file1");
        let last = lines.last().unwrap();
        assert_eq!((&last["same"], &last["unknown"]), (&2.into(), &1.into()));
    }
}

#[test]
fn what_is_excluded_is_not_read_and_a_store_in_the_tree_neither() {
    let tree = Tree::with(10);
    tree.write("it's", "quoted");
    tree.write("deep/er/x.tmp", "temporary");
    let store = tree.path("own.sqlite");
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orrery-checksum"));
        command
            .arg("local")
            .arg(tree.root())
            .arg("--store")
            .arg(&store);
        said(
            &command
                .args(["--output", "json"])
                .args(args)
                .output()
                .unwrap(),
        )
    };
    assert_eq!(run(&[]).counts(), [("total", 12), ("new", 12)]);
    let excluded = run(&["--exclude", "*.tmp", "--exclude", "it's"]);
    assert_eq!(
        excluded.counts(),
        [("total", 10), ("verified", 10), ("deleted", 2)]
    );
    let wrong = run(&["--exclude", "[a"]);
    assert_eq!(wrong.code, 3);
    assert!(wrong.complaint.contains("[a"), "{wrong:?}");
}

#[test]
fn nonsense_is_refused_in_words() {
    let tree = Tree::with(1);
    for (args, expected) in [
        (&["--mode", "sample"][..], "--sample-percent"),
        (&["--sample-percent", "0", "--mode", "sample"], "1..=99"),
        (&["--sample-percent", "5"], "goes with --mode sample"),
        (
            &["--sample-percent", "5", "--mode", "incremental"],
            "goes with --mode sample",
        ),
        (
            &["--max-throughput", "fast"],
            "such as 104857600, 100Mi or 1Gi",
        ),
        (&["--resume", "--abort"], "cannot be used with"),
        (
            &["--algorithm", "md5"],
            "blake3, sha1, sha256, xxh3-128, crc32c",
        ),
    ] {
        let said = tree.run(args);
        assert_eq!(said.code, 3, "{said:?}");
        assert!(said.complaint.contains(expected), "{}", said.complaint);
    }
    let absent = tree.about(&["report"]);
    assert_eq!(absent.status.code(), Some(3));
}
