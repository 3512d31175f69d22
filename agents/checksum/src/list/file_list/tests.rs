use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow::Break;
use std::process::Command;
use std::sync::Mutex;

use super::super::share::TOLD;
use super::*;
use crate::entry::{Attributes, Entry, UNKNOWN};

/// Reads a list of the first form; what was found is in order.
fn read(list: &[u8], root: &Path, options: &Options) -> (Listing, Vec<Entry>) {
    let found = Mutex::new(Vec::new());
    let sink = |batch| {
        found.lock().unwrap().extend::<Vec<_>>(batch);
        Continue(())
    };
    let listing = nul_separated(list, root, options, &sink, &AtomicBool::new(false)).unwrap();
    let mut found = found.into_inner().unwrap();
    found.sort_by(|a: &Entry, b| a.path.cmp(&b.path));
    (listing, found)
}

fn read_lines(lines: &[u8], options: &Options) -> (Listing, Vec<Entry>) {
    let found = Mutex::new(Vec::new());
    let sink = |batch| {
        found.lock().unwrap().extend::<Vec<_>>(batch);
        Continue(())
    };
    let listing = policy_output(lines, options, &sink, &AtomicBool::new(false)).unwrap();
    (listing, found.into_inner().unwrap())
}

fn paths(entries: &[Entry]) -> Vec<&[u8]> {
    entries.iter().map(|entry| entry.path.as_bytes()).collect()
}

#[test]
fn relative_and_absolute_paths_are_found_below_the_root() {
    let tree = tempfile::tempdir().unwrap();
    let odd = OsStr::from_bytes(b"a/\xff\n");
    fs::create_dir(tree.path().join("a")).unwrap();
    fs::write(tree.path().join(odd), "12345").unwrap();
    fs::write(tree.path().join("b"), "").unwrap();
    let absolute = tree.path().join(odd);
    let list = [b"./b\0a\0", absolute.as_os_str().as_bytes(), b"\0gone\0"].concat();
    let (listing, found) = read(&list, tree.path(), &Options::default());
    assert_eq!(paths(&found), [&b"a/\xff\n"[..], b"b"]);
    assert_eq!(found[0].attributes.size, 5);
    assert_eq!((listing.files, listing.bytes, listing.other), (2, 5, 1));
    assert!(listing.is_complete());
}

#[test]
fn what_find_prints_is_a_complete_list() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("a")).unwrap();
    fs::write(tree.path().join("a/b"), "").unwrap();
    let find = |from: &Path| {
        let mut find = Command::new("find");
        let find = find.arg(from).arg("-print0").current_dir(tree.path());
        find.output().unwrap().stdout
    };
    for list in [find(tree.path()), find(Path::new("."))] {
        let (listing, found) = read(&list, tree.path(), &Options::default());
        assert_eq!(paths(&found), [b"a/b"]);
        assert!(listing.is_complete(), "{:?}", listing.problems);
    }
    // The root alone proves nothing: this is a list of another tree.
    let (listing, _) = read(b".\0./c\0", tree.path(), &Options::default());
    assert!(!listing.is_complete());
}

#[test]
fn thousands_of_paths_are_found_once_with_any_number_of_threads() {
    let tree = tempfile::tempdir().unwrap();
    let mut list = Vec::new();
    for folder in 0..20 {
        fs::create_dir(tree.path().join(folder.to_string())).unwrap();
        for file in 0..250 {
            let path =
                format!("{folder}/a-name-that-fills-handfuls-sooner-than-a-short-one-would-{file}");
            fs::write(tree.path().join(&path), "").unwrap();
            list.extend_from_slice(path.as_bytes());
            list.push(0);
        }
    }
    let mut expected: Vec<&[u8]> = list
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty())
        .collect();
    expected.sort_unstable();
    for threads in [1, 2, 7] {
        let options = Options {
            threads: NonZeroUsize::new(threads).unwrap(),
            ..Options::default()
        };
        let (listing, found) = read(&list, tree.path(), &options);
        assert!(listing.is_complete());
        assert_eq!(paths(&found), expected);
    }
}

#[test]
fn a_path_through_a_link_or_out_of_the_root_is_not_followed() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("a")).unwrap();
    fs::write(tree.path().join("a/file"), "").unwrap();
    std::os::unix::fs::symlink("a", tree.path().join("link")).unwrap();
    let (listing, found) = read(
        b"link/file\0a/../../etc/passwd\0/etc/passwd\0a/file\0",
        tree.path(),
        &Options::default(),
    );
    assert_eq!(paths(&found), [b"a/file"]);
    let what: Vec<_> = listing
        .problems
        .first
        .iter()
        .map(|problem| problem.what.as_str())
        .collect();
    assert_eq!(
        what,
        [
            "path 2: a path with `..` could lead out of the root (path left out)",
            "path 3: not below the prefix (path left out)"
        ]
    );
}

#[test]
fn a_list_of_another_tree_is_a_problem_and_an_empty_list_is_none() {
    let tree = tempfile::tempdir().unwrap();
    let (listing, _) = read(b"a\0b\0", tree.path(), &Options::default());
    assert_eq!(
        listing.problems.first[0].what,
        "none of 2 paths in the list exists below the root (no file listed)"
    );
    assert!(read(b"", tree.path(), &Options::default()).0.is_complete());
}

#[test]
fn a_list_that_is_cut_off_is_not_complete() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("a"), "").unwrap();
    let (listing, found) = read(b"a\0a", tree.path(), &Options::default());
    assert_eq!((found.len(), listing.problems.total), (1, 1));
}

#[test]
fn what_is_left_out_is_counted() {
    let tree = tempfile::tempdir().unwrap();
    let options = Options {
        excludes: Excludes::new(["tmp"]).unwrap(),
        ..Options::default()
    };
    let (listing, found) = read(b"x/tmp/a\0tmp\0", tree.path(), &options);
    assert_eq!((listing.excluded, found.len()), (2, 0));
    assert!(listing.is_complete());
}

#[test]
fn lines_of_the_policy_engine_tell_path_size_and_time() {
    let options = Options {
        prefix: b"/gpfs/.snapshots/s1".to_vec(),
        excludes: Excludes::new(["*.tmp"]).unwrap(),
        ..Options::default()
    };
    let lines = b"1 2 3 |4|1970-01-01 00:00:01.000002| -- /gpfs/.snapshots/s1/a/b%0A\n\
        1 2 3 |4|1970-01-01 00:00:01.000002| -- /gpfs/.snapshots/s1/a/b.tmp\n";
    let (listing, found) = read_lines(lines, &options);
    let attributes = Attributes {
        size: 4,
        mtime: 1_000_002_000,
        ctime: UNKNOWN,
    };
    assert_eq!(
        found,
        [Entry {
            path: RelativePath::new(*b"a/b\n"),
            attributes
        }]
    );
    assert_eq!((listing.files, listing.bytes, listing.excluded), (1, 4, 1));
    assert!(listing.is_complete());
}

#[test]
fn a_malformed_line_is_a_problem_with_its_number_and_the_others_are_read() {
    let good = "1 2 3 |4|1970-01-01 00:00:01| -- /a\n";
    let long = "x".repeat(100_000);
    let lines = format!(
        "{good}nonsense\n\n{good}{long}\n1 2 3 |4|1970-01-01 00:00:01| -- /a/../b\n{good}1 2 3"
    );
    let (listing, found) = read_lines(lines.as_bytes(), &Options::default());
    assert_eq!(found.len(), 3);
    let mut what: Vec<_> = listing
        .problems
        .first
        .iter()
        .map(|problem| problem.what.as_str())
        .collect();
    what.sort_unstable(); // any thread may be the first
    assert_eq!(
        what,
        [
            "line 2: no inode number (line left out)",
            "line 3: no inode number (line left out)",
            "line 5: too long (line left out)",
            "line 6: a path with `..` could lead out of the root (line left out)",
            "line 8: not ended: the list may be cut off (line left out)"
        ]
    );
    assert!(
        listing
            .problems
            .first
            .iter()
            .all(|problem| problem.path.as_bytes().len() <= TOLD)
    );
}

#[test]
fn thousands_of_lines_are_read_once_by_any_number_of_threads_and_bad_ones_have_their_numbers() {
    const LINES: u64 = 20_000;
    let is_bad = |n: &u64| n.is_multiple_of(4000);
    let line = |n: u64| {
        if is_bad(&n) {
            return "nonsense\n".into();
        }
        format!("1 2 3 |{n}|1970-01-01 00:00:01| -- /{n}\n")
    };
    let lines: String = (1..=LINES).map(line).collect();
    for threads in [1, 2, 8] {
        let options = Options {
            threads: NonZeroUsize::new(threads).unwrap(),
            ..Options::default()
        };
        let (listing, found) = read_lines(lines.as_bytes(), &options);
        let mut sizes: Vec<_> = found.iter().map(|entry| entry.attributes.size).collect();
        sizes.sort_unstable();
        let good = (1..=LINES).filter(|n| !is_bad(n));
        assert!(sizes.into_iter().eq(good), "{threads} threads");
        let problems = listing.problems.first.iter();
        let mut bad: Vec<_> = problems.map(|problem| problem.what.clone()).collect();
        bad.sort_by_key(|what| (what.len(), what.clone()));
        let expected = (1..=LINES).filter(is_bad);
        let expected = expected.map(|n| format!("line {n}: no inode number (line left out)"));
        assert!(bad.iter().cloned().eq(expected), "{bad:?}");
    }
}

#[test]
fn a_sink_that_breaks_ends_the_reading() {
    let lines = "1 2 3 |4|1970-01-01 00:00:01| -- /a\n".repeat(5000);
    let listing = policy_output(
        lines.as_bytes(),
        &Options::default(),
        &|_| Break(()),
        &AtomicBool::new(false),
    )
    .unwrap();
    assert!(listing.stopped && listing.files <= 4 * 1024);
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("a"), "").unwrap();
    let list = b"a\0".repeat(200_000);
    let listing = nul_separated(
        &*list,
        tree.path(),
        &Options::default(),
        &|_| Break(()),
        &AtomicBool::new(false),
    )
    .unwrap();
    assert!(listing.stopped && listing.files <= 4 * 1024);
}

#[test]
fn a_stop_ends_the_reading() {
    let tree = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(true);
    let line = &b"1 2 3 |4|1970-01-01 00:00:01| -- /a\n"[..];
    assert!(
        policy_output(line, &Options::default(), &|_| Continue(()), &stop)
            .unwrap()
            .stopped
    );
    assert!(
        nul_separated(
            &b"a\0"[..],
            tree.path(),
            &Options::default(),
            &|_| Continue(()),
            &stop
        )
        .unwrap()
        .stopped
    );
}

#[test]
fn a_list_that_breaks_is_an_error_that_tells_where() {
    struct Breaks;
    impl Read for Breaks {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let tree = tempfile::tempdir().unwrap();
    let list = || BufReader::new((&b"a\0b\0"[..]).chain(Breaks));
    let stop = AtomicBool::new(false);
    let error = nul_separated(
        list(),
        tree.path(),
        &Options::default(),
        &|_| Continue(()),
        &stop,
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to read the list of files after record 2"
    );
    assert!(policy_output(list(), &Options::default(), &|_| Continue(()), &stop).is_err());
}
