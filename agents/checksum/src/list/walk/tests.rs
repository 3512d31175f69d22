use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Condvar, Mutex, Once};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Resource, Rlimit, setrlimit};
use tempfile::TempDir;

use super::*;
use crate::entry::Entry;

fn tree() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn with_threads(threads: usize) -> Options {
    Options {
        threads: NonZeroUsize::new(threads).unwrap(),
        ..Options::default()
    }
}

/// Walks; what was found is in order.
fn found(root: &Path, options: &Options) -> (Listing, Vec<Entry>) {
    let found = Mutex::new(Vec::new());
    let sink = |batch: Vec<Entry>| {
        assert!(!batch.is_empty() && batch.len() <= super::super::BATCH);
        found.lock().unwrap().extend(batch);
        Continue(())
    };
    let listing = walk(root, options, &sink, &AtomicBool::new(false)).unwrap();
    let mut found = found.into_inner().unwrap();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert_eq!(listing.files, found.len() as u64);
    assert_eq!(
        listing.bytes,
        found.iter().map(|entry| entry.attributes.size).sum::<u64>()
    );
    (listing, found)
}

fn paths(entries: &[Entry]) -> Vec<&[u8]> {
    entries.iter().map(|entry| entry.path.as_bytes()).collect()
}

/// Runs one of these tests again as a process of its own. Whether this is that process.
fn in_a_process_of_its_own(test: &str, prepare: impl FnOnce(&mut Command)) -> bool {
    if std::env::var_os("ORRERY_TEST_CHILD").is_some() {
        return true;
    }
    // A copy, because another user may not be able to reach this one.
    let place = tree();
    let copy = place.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(copy);
    command
        .args([
            "--exact",
            &format!("list::walk::tests::{test}"),
            "--nocapture",
        ])
        .env("ORRERY_TEST_CHILD", "1");
    prepare(&mut command);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

#[test]
fn thousands_of_files_are_found_once_with_any_number_of_threads() {
    let tree = tree();
    let mut expected = Vec::new();
    for folder in 0..40 {
        let below = format!("a{}/b{}/c{folder}", folder % 3, folder % 7);
        fs::create_dir_all(tree.path().join(&below)).unwrap();
        for file in 0..100 {
            let path = format!("{below}/{file}");
            fs::write(tree.path().join(&path), vec![0; file]).unwrap();
            expected.push(path.into_bytes());
        }
    }
    expected.sort_unstable();
    for threads in [1, 2, 3, 16] {
        let (listing, found) = found(tree.path(), &with_threads(threads));
        assert!(listing.is_complete(), "{listing:?}");
        assert_eq!(paths(&found), expected);
    }
}

#[test]
fn attributes_are_those_of_the_file() {
    let tree = tree();
    let file = File::create(tree.path().join("a")).unwrap();
    file.set_len(12345).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH - Duration::from_millis(1500))
        .unwrap();
    let (_, found) = found(tree.path(), &Options::default());
    let real = file.metadata().unwrap();
    assert_eq!(
        (found[0].attributes.size, found[0].attributes.mtime),
        (12345, -1_500_000_000)
    );
    assert_eq!(
        found[0].attributes.ctime,
        real.ctime() * 1_000_000_000 + real.ctime_nsec()
    );
}

#[test]
fn an_empty_root_has_no_files_and_is_complete() {
    let (listing, _) = found(tree().path(), &Options::default());
    assert_eq!(listing, Listing::default());
    assert!(listing.is_complete());
}

#[test]
fn a_root_that_is_missing_or_no_folder_is_an_error_that_names_it() {
    let tree = tree();
    let file = tree.path().join("file");
    fs::write(&file, "").unwrap();
    let error = |root: &Path| {
        let stop = AtomicBool::new(false);
        walk(root, &Options::default(), &|_| Continue(()), &stop)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(&file),
        format!("failed to open the folder {file:?}: not a directory")
    );
    let missing = tree.path().join("missing");
    assert_eq!(
        error(&missing),
        format!("failed to open the folder {missing:?}: no such file or directory")
    );
}

#[test]
fn a_root_that_is_removed_meanwhile_is_not_a_tree_without_files() {
    let tree = tree();
    let root = Folder::root(tree.path(), Budget::new(4)).unwrap();
    fs::remove_dir(tree.path()).unwrap();
    let (options, stop) = (Options::default(), AtomicBool::new(false));
    let listing = Tree::new(root, None, &options, &stop).walk(&|_| Continue(()));
    assert_eq!(
        listing.problems.first[0].what,
        "no such file or directory (folder not listed to its end)"
    );
}

#[test]
fn links_are_counted_and_not_followed_but_the_root_may_be_one() {
    let tree = tree();
    let root = tree.path().join("root");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/file"), "").unwrap();
    symlink("..", root.join("a/b/up")).unwrap();
    symlink(".", root.join("here")).unwrap();
    symlink("file", root.join("a/same")).unwrap();
    symlink("nowhere", root.join("broken")).unwrap();
    symlink("root", tree.path().join("link")).unwrap();
    let (listing, found) = found(&tree.path().join("link"), &Options::default());
    assert_eq!(paths(&found), [b"a/file"]);
    assert_eq!(listing.other, 4);
    assert!(listing.is_complete());
}

/// A FIFO without a writer would hang whoever opens it.
#[test]
fn what_is_no_file_is_counted_and_not_opened() {
    let tree = tree();
    let at = |name: &str| tree.path().join(name);
    rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    // Only root may make a device, and not in every container.
    let device = rustix::fs::mknodat(
        CWD,
        at("null"),
        FileType::CharacterDevice,
        Mode::RUSR,
        rustix::fs::makedev(1, 3),
    );
    fs::write(at("file"), "").unwrap();
    let (listing, found) = found(tree.path(), &Options::default());
    assert_eq!(paths(&found), [b"file"]);
    assert_eq!(listing.other, 2 + u64::from(device.is_ok()));
}

#[test]
fn a_name_may_have_any_bytes() {
    let tree = tree();
    let long = [b'n'; 255];
    let names: [&[u8]; 5] = [b"\n", b" ", b"\\", &long, b"\xff\xfe"];
    for name in names {
        fs::create_dir(tree.path().join(OsStr::from_bytes(name))).unwrap();
        fs::write(
            tree.path()
                .join(OsStr::from_bytes(name))
                .join(OsStr::from_bytes(name)),
            "",
        )
        .unwrap();
    }
    let (_, found) = found(tree.path(), &Options::default());
    let mut expected = names.map(|name| join(name, name));
    expected.sort_unstable();
    assert_eq!(paths(&found), expected);
}

/// A chain of folders that is longer than any path the system takes, and is taken away link by link.
struct Chain<'a> {
    root: &'a Path,
    name: &'a str,
}

impl<'a> Chain<'a> {
    fn new(root: &'a Path, name: &'a str, length: usize, mut each: impl FnMut(&OwnedFd)) -> Self {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::openat(CWD, root, flags, Mode::empty()).unwrap();
        for _ in 0..length {
            rustix::fs::mkdirat(&at, name, Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, name, flags, Mode::empty()).unwrap();
            each(&at);
        }
        let create = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&at, "file", create, Mode::RUSR).unwrap();
        Self { root, name }
    }
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        let (first, next) = (self.root.join(self.name), self.root.join("next"));
        while fs::rename(first.join(self.name), &next).is_ok() {
            fs::remove_dir_all(&first).unwrap();
            fs::rename(&next, &first).unwrap();
        }
    }
}

#[test]
fn a_path_may_be_longer_than_the_system_takes() {
    let tree = tree();
    for (name, length) in [("n", 3000), (&*"m".repeat(199), 30)] {
        let _chain = Chain::new(tree.path(), name, length, |_| ());
        let (listing, found) = found(tree.path(), &Options::default());
        assert!(listing.is_complete(), "{listing:?}");
        assert_eq!(
            found.iter().map(|entry| entry.path.as_bytes().len()).max(),
            Some(6004)
        );
    }
}

#[test]
fn a_folder_that_is_too_deep_or_has_too_long_a_path_is_a_problem() {
    let tree = tree();
    let chain = Chain::new(tree.path(), "a", 4, |_| ());
    let (listing, _) = found(
        tree.path(),
        &Options {
            max_depth: 3,
            ..Options::default()
        },
    );
    assert_eq!(
        listing.problems.first[0].path,
        RelativePath::new(*b"a/a/a/a")
    );
    assert_eq!(
        listing.problems.first[0].what,
        "more than 3 folders deep (folder not listed)"
    );
    assert_eq!((listing.problems.total, listing.files), (1, 0));
    drop(chain);
    let name = "m".repeat(255);
    let _chain = Chain::new(tree.path(), &name, 257, |_| ());
    let (listing, _) = found(tree.path(), &Options::default());
    assert_eq!(
        listing.problems.first[0].what,
        "path longer than 65536 bytes (folder not listed)"
    );
}

/// Many a folder on the way down has a sibling that waits, so that without a bound its parent would stay open. Names differ
/// from level to level because their order follows from them.
#[test]
fn few_descriptors_are_enough_for_a_deep_tree() {
    if !in_a_process_of_its_own("few_descriptors_are_enough_for_a_deep_tree", |_| ()) {
        return;
    }
    let tree = tree();
    let mut siblings = 0..600;
    let _chain = Chain::new(tree.path(), "n", 300, |at| {
        for sibling in siblings.by_ref().take(2) {
            rustix::fs::mkdirat(at, sibling.to_string(), Mode::RWXU).unwrap();
            let create = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(at, format!("{sibling}/file"), create, Mode::RUSR).unwrap();
        }
    });
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(48),
            maximum: Some(4096),
        },
    )
    .unwrap();
    for threads in [1, 8] {
        let (listing, _) = found(tree.path(), &with_threads(threads));
        assert_eq!(listing.files, 601);
        assert!(listing.is_complete(), "{listing:?}");
    }
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(4096),
            maximum: Some(4096),
        },
    )
    .unwrap();
}

/// Root may read everything, so another user walks.
#[test]
fn an_unreadable_folder_is_one_problem_and_the_others_are_listed() {
    let name = "an_unreadable_folder_is_one_problem_and_the_others_are_listed";
    let root = rustix::process::getuid().is_root();
    if root && !in_a_process_of_its_own(name, |command| _ = command.uid(65534).gid(65534)) {
        return;
    }
    let tree = tree();
    for folder in ["closed", "open", "blind"] {
        fs::create_dir(tree.path().join(folder)).unwrap();
        fs::write(tree.path().join(folder).join("file"), "").unwrap();
    }
    let set = |folder: &str, mode| {
        fs::set_permissions(tree.path().join(folder), fs::Permissions::from_mode(mode)).unwrap();
    };
    set("closed", 0o000);
    set("blind", 0o400);
    let (listing, found) = found(tree.path(), &Options::default());
    set("closed", 0o700);
    set("blind", 0o700);
    assert_eq!(paths(&found), [b"open/file"]);
    let mut told: Vec<_> = listing
        .problems
        .first
        .iter()
        .map(|it| format!("{}: {}", it.path, it.what))
        .collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            "blind/file: permission denied (file not listed)",
            "closed: permission denied (folder not listed)"
        ]
    );
}

#[test]
fn what_vanishes_meanwhile_is_no_problem() {
    let tree = tree();
    for folder in 0..300 {
        let path = tree.path().join(format!("{}/{folder}", folder % 10));
        fs::create_dir_all(&path).unwrap();
        (0..10).for_each(|file| fs::write(path.join(file.to_string()), "").unwrap());
    }
    // With the first batch, when folders are known that were not opened yet.
    let vanish =
        || (0..10).for_each(|it| fs::remove_dir_all(tree.path().join(it.to_string())).unwrap());
    let once = Once::new();
    let sink = |_| {
        once.call_once(vanish);
        Continue(())
    };
    let listing = walk(
        tree.path(),
        &with_threads(1),
        &sink,
        &AtomicBool::new(false),
    )
    .unwrap();
    assert!(listing.is_complete(), "{listing:?}");
    assert!((1..3000).contains(&listing.files), "{listing:?}");
}

#[test]
fn what_is_excluded_is_counted_and_not_entered() {
    let tree = tree();
    for folder in ["keep", "keep/tmp/deep", "a/b"] {
        fs::create_dir_all(tree.path().join(folder)).unwrap();
        fs::write(tree.path().join(folder).join("file"), "").unwrap();
        fs::write(tree.path().join(folder).join("file.o"), "").unwrap();
    }
    let excludes = Excludes::new(["tmp", "*.o", "a/b"]).unwrap();
    let (listing, found) = found(
        tree.path(),
        &Options {
            excludes,
            ..Options::default()
        },
    );
    assert_eq!(paths(&found), [b"keep/file"]);
    assert_eq!(listing.excluded, 3);
    assert!(listing.is_complete());
}

#[test]
fn several_threads_ask_for_the_attributes_of_one_crowded_folder() {
    let tree = tree();
    (0..20_000)
        .for_each(|file| drop(File::create(tree.path().join(format!("{file:05}"))).unwrap()));
    let (threads, changed) = (Mutex::new(HashSet::new()), Condvar::new());
    let total = Mutex::new(HashSet::new());
    let sink = |batch: Vec<Entry>| {
        total
            .lock()
            .unwrap()
            .extend(batch.into_iter().map(|entry| entry.path));
        let mut threads = threads.lock().unwrap();
        threads.insert(thread::current().id());
        changed.notify_all();
        // The first batch is the listing thread's own.
        if total.lock().unwrap().len() > CROWD {
            let alone = |threads: &mut HashSet<_>| threads.len() < 2;
            drop(
                changed
                    .wait_timeout_while(threads, Duration::from_secs(5), alone)
                    .unwrap(),
            );
        }
        Continue(())
    };
    let listing = walk(
        tree.path(),
        &with_threads(4),
        &sink,
        &AtomicBool::new(false),
    )
    .unwrap();
    assert_eq!(
        (listing.files, total.lock().unwrap().len()),
        (20_000, 20_000)
    );
    assert!(threads.lock().unwrap().len() >= 2);
}

/// Some file systems do not tell kinds with names.
#[test]
fn a_name_of_unknown_kind_is_asked_for() {
    let tree = tree();
    fs::create_dir(tree.path().join("folder")).unwrap();
    fs::write(tree.path().join("folder/a"), "").unwrap();
    fs::write(tree.path().join("file"), "").unwrap();
    symlink("file", tree.path().join("link")).unwrap();
    let (options, stop) = (with_threads(1), AtomicBool::new(false));
    let root = Folder::root(tree.path(), Budget::new(4)).unwrap();
    let tree = Tree::new(root, None, &options, &stop);
    drop(tree.queue.take());
    let mut walker = Walker::new(&tree, &|_| Continue(()));
    assert!(walker.must_ask(&tree.root, c"file", FileType::Unknown));
    let names = Names {
        folder: Arc::clone(&tree.root),
        bytes: b"folder\0file\0link\0gone\0".to_vec(),
    };
    assert!(walker.ask(&names).is_continue());
    walker.share();
    let listing = walker.run();
    assert_eq!((listing.files, listing.other), (2, 1));
    assert!(listing.is_complete());
}

#[test]
fn other_file_systems_are_entered_unless_one_is_wanted() {
    let device = |path: &Path| fs::symlink_metadata(path).unwrap().dev();
    let root = Path::new("/dev");
    let folders = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir());
    let mounted = folders
        .filter(|path| !path.is_symlink() && device(path) != device(root))
        .count();
    assert!(mounted > 0, "nothing is mounted in {root:?}");
    let stop = AtomicBool::new(false);
    let excluded = |one_file_system| {
        let options = Options {
            one_file_system,
            ..Options::default()
        };
        walk(root, &options, &|_| Continue(()), &stop)
            .unwrap()
            .excluded
    };
    assert_eq!(excluded(false), 0);
    assert!(excluded(true) >= mounted as u64);
}

#[test]
fn a_stop_and_a_sink_that_breaks_end_it_early() {
    let tree = tree();
    for folder in 0..10 {
        fs::create_dir(tree.path().join(folder.to_string())).unwrap();
        (0..700)
            .for_each(|it| drop(File::create(tree.path().join(format!("{folder}/{it}"))).unwrap()));
    }
    let stop = AtomicBool::new(false);
    let stopping = |_| {
        stop.store(true, Ordering::Relaxed);
        Continue(())
    };
    let breaking = |_| Break(());
    let sinks: [&Sink<'_>; 2] = [&breaking, &stopping];
    for sink in sinks {
        let listing = walk(tree.path(), &with_threads(2), sink, &stop).unwrap();
        assert!(listing.stopped && !listing.is_complete());
        assert!((1024..=2048).contains(&listing.files), "{listing:?}");
    }
    let listing = walk(tree.path(), &with_threads(2), &|_| Continue(()), &stop).unwrap();
    assert_eq!((listing.files, listing.stopped), (0, true));
}

#[test]
fn a_sink_that_panics_is_not_waited_for() {
    let tree = tree();
    (0..5000).for_each(|it| drop(File::create(tree.path().join(it.to_string())).unwrap()));
    let walked = std::panic::catch_unwind(|| {
        walk(
            tree.path(),
            &with_threads(4),
            &|_| panic!("a sink breaks"),
            &AtomicBool::new(false),
        )
    });
    assert!(walked.is_err());
}
