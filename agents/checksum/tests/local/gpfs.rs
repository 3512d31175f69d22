#![expect(
    clippy::unwrap_used,
    reason = "what a fixture cannot do fails the test"
)]
//! Spectrum Scale as its commands present it: stand-ins on PATH keep the contract of the real ones, make snapshots by copying,
//! and write down how they were called.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::tree::{PATIENCE, Said, Tree, said};

/// What every stand-in begins with.
const HEAD: &str = r#"#!/bin/bash
set -eu
echo "$(basename "$0") $*" >> "$LOG"
fail() { echo "$(basename "$0"): $1 $2" >&2; exit 1; }
[ "${1##*/}" = gpfs0 ] || case "$1" in "$MOUNT"/*) ;; *) fail "[E] 6027-1388" "File system $1 is not known" ;; esac
"#;

const COMMANDS: [(&str, &str); 5] = [
    (
        "mmlsfs",
        r#"echo "mmlsfs::HEADER:version:reserved:reserved:deviceName:fieldName:data:remarks:"
echo "mmlsfs::0:1:::gpfs0:defaultMountPoint:${MOUNT//\//%2F}::""#,
    ),
    (
        "mmsnapdir",
        r#"echo 'Fileset snapshot directory for "gpfs0" is ".snapshots" (root directory only)'
echo 'Global snapshot directory for "gpfs0" is ".snapshots" in root fileset'"#,
    ),
    (
        "mmcrsnapshot",
        r#"[ ! -e "$FULL" ] || fail "6027-2680" "no space for a snapshot"
to="$MOUNT/.snapshots/$2"
[ ! -e "$to" ] || fail "6027-2601" "Snapshot name $2 already exists."
mkdir -p "$MOUNT/.snapshots"; mkdir "$to.new"
for it in "$MOUNT"/*; do cp -a "$it" "$to.new/"; done
mv "$to.new" "$to""#,
    ),
    (
        "mmdelsnapshot",
        r#"[ ! -e "$STUCK" ] || sleep 60
[ ! -e "$BUSY" ] || fail "6027-2695" "Snapshot $2 is in use."
[ -e "$MOUNT/.snapshots/$2" ] || fail "6027-2683" "Snapshot $2 does not exist."
rm -r "$MOUNT/.snapshots/$2""#,
    ),
    (
        "mmapplypolicy",
        r#"[ ! -e "$SLOW" ] || sleep 60
what="$1"; shift
while [ $# -gt 0 ]; do case "$1" in -S) snapshot="$2" ;; -f) out="$2" ;; -P) grep -q "ESCAPE '%|/,:; @#'" "$2" ;; esac; shift 2; done
[ "$what" != gpfs0 ] || what="$MOUNT/.snapshots/$snapshot"
TZ=UTC find "$what" -type f -printf '%i 1 7   |%s|%TY-%Tm-%Td %TH:%TM:%.9TS| -- %p\n' > "$out.list.orrery""#,
    ),
];

struct Scale {
    tree: Tree,
}

impl Scale {
    fn with(files: usize) -> Self {
        let tree = Tree::with(files);
        let bin = tree.folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for (name, body) in COMMANDS {
            let path = bin.join(name);
            fs::write(&path, format!("{HEAD}{body}\n")).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { tree }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.tree.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        self.command_over(&self.tree.root(), args)
    }

    fn command_over(&self, folder: &Path, args: &[&str]) -> Command {
        let mut command = self.tree.command_over(folder, args);
        let path = std::env::var("PATH").unwrap();
        command
            .env("PATH", format!("{}:{path}", self.file("bin").display()))
            .env("MOUNT", self.tree.root())
            .env("LOG", self.file("log"))
            .env("FULL", self.file("full"))
            .env("SLOW", self.file("slow"))
            .env("STUCK", self.file("stuck"))
            .env("BUSY", self.file("busy"));
        command
    }

    fn run(&self, args: &[&str]) -> Said {
        let args = [&["--gpfs", "gpfs0"], args].concat();
        said(&self.command(&args).output().unwrap())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// A run that is ended by a signal while its snapshot is listed.
    fn interrupted(&self) {
        self.ended_in("mmapplypolicy", "slow");
    }

    /// A run that is ended by a signal while this command takes long, for which there is a file.
    fn ended_in(&self, command: &str, file: &str) {
        let calls = || self.log().matches(command).count();
        let before = calls();
        fs::write(self.file(file), "").unwrap();
        let child = self.command(&["--gpfs", "gpfs0"]).spawn().unwrap();
        let began = Instant::now();
        while calls() == before {
            assert!(began.elapsed() < PATIENCE, "{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
        crate::tree::terminate(&child);
        let ended = said(&child.wait_with_output().unwrap());
        assert_eq!(ended.code, 3);
        assert_eq!(self.snapshots(), 1);
        fs::remove_file(self.file(file)).unwrap();
    }

    fn snapshots(&self) -> usize {
        fs::read_dir(self.tree.path(".snapshots")).map_or(0, Iterator::count)
    }
}

#[test]
fn a_snapshot_is_made_listed_read_and_deleted() {
    let scale = Scale::with(30);
    let first = scale.run(&["--gpfs-qos", "other", "--gpfs-temporary-folder", "/tmp"]);
    assert_eq!(first.counts(), [("total", 30), ("new", 30)], "{first:?}");
    assert_eq!(scale.snapshots(), 0);
    let log = scale.log();
    let policy = log.lines().find(|line| line.starts_with("mmapplypolicy"));
    let policy = policy.unwrap();
    assert!(
        policy.contains("-I defer") && policy.ends_with("--qos other -s /tmp"),
        "{policy}"
    );
    // By the name of the file system, and in a snapshot of the same name as was made.
    assert!(policy.starts_with("mmapplypolicy gpfs0 -P "), "{policy}");
    let name = |line: &str| {
        let name = line
            .split(' ')
            .find(|it| it.starts_with("orrery-checksum-"));
        name.map(ToOwned::to_owned)
    };
    let names: Vec<_> = log.lines().filter_map(name).collect();
    assert_eq!(names.len(), 3, "{log}");
    assert!(names.iter().all(|it| *it == names[0]), "{log}");

    scale.tree.rot("folder1/file11");
    let second = scale.run(&["--mode", "full"]);
    assert_eq!(
        second.counts(),
        [("total", 30), ("verified", 29), ("corrupt", 1)]
    );
    assert_eq!(second.of_kind("warning")[0]["path"], "folder1/file11");
    let left: Vec<_> = fs::read_dir(scale.tree.folder.path()).unwrap().collect();
    assert!(
        !left.iter().any(|it| format!("{it:?}").contains("policy")),
        "{left:?}"
    );
}

#[test]
fn the_policy_engine_works_on_the_nodes_that_are_named() {
    let scale = Scale::with(3);
    let nodes = ["--gpfs-nodes", "node1,node2"];
    let alone = scale.run(&nodes);
    assert_eq!(alone.code, 3);
    let complaint = &alone.complaint;
    assert!(complaint.contains("--gpfs-global-folder"), "{complaint}");
    let run = scale.run(&[&nodes[..], &["--gpfs-global-folder", "/gpfs/tmp"]].concat());
    assert_eq!(run.counts(), [("total", 3), ("new", 3)], "{run:?}");
    let log = scale.log();
    assert!(log.contains(" -N node1,node2 -g /gpfs/tmp\n"), "{log}");
}

#[test]
fn a_snapshot_that_cannot_be_deleted_is_told_beside_what_was_found_and_goes_with_the_next_run() {
    let scale = Scale::with(30);
    scale.run(&[]);
    scale.tree.rot("folder1/file11");
    fs::write(scale.file("busy"), "").unwrap();
    let run = scale.run(&[]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(run.of_kind("warning")[0]["path"], "folder1/file11");
    let complaint = &run.complaint;
    assert!(complaint.contains(" stays, delete it: "), "{complaint}");
    assert!(complaint.contains("is in use"), "{complaint}");
    assert_eq!(scale.snapshots(), 1);

    // As after a run that died when it had ended: the next one deletes it.
    fs::remove_file(scale.file("busy")).unwrap();
    scale.run(&[]);
    assert_eq!(scale.snapshots(), 0);
}

#[test]
fn who_stops_while_the_snapshot_of_the_last_run_is_deleted_begins_no_new_run() {
    let scale = Scale::with(30);
    fs::write(scale.file("busy"), "").unwrap();
    scale.run(&[]);
    fs::remove_file(scale.file("busy")).unwrap();
    scale.ended_in("mmdelsnapshot", "stuck");
    // One that was begun would have to be gone on with, or given up.
    let next = scale.run(&[]);
    assert_eq!(next.counts(), [("total", 30), ("verified", 30)], "{next:?}");
    assert_eq!(scale.snapshots(), 0);
}

#[test]
fn only_a_folder_of_the_file_system_is_read() {
    let scale = Scale::with(30);
    let below = scale.tree.path("folder1");
    let mut again = scale.command_over(&below, &["--gpfs", "gpfs0"]);
    let run = said(&again.output().unwrap());
    assert_eq!(run.counts(), [("total", 10), ("new", 10)], "{run:?}");
    let log = scale.log();
    assert!(log.contains("/folder1 -P"), "{log}");
}

#[test]
fn an_interrupted_run_keeps_its_snapshot_until_it_is_gone_on_with_or_given_up() {
    let scale = Scale::with(30);
    scale.interrupted();
    // The files as they are now are not those of the snapshot.
    let wrong = scale.tree.run(&["--resume"]);
    assert_eq!(wrong.code, 3);
    let words = "run 1 reads a snapshot: go on with it with --gpfs";
    assert!(wrong.complaint.contains(words), "{wrong:?}");
    // What was written since is not in the snapshot.
    scale.tree.write("later", "later");
    let resumed = scale.run(&["--resume"]);
    assert_eq!(
        resumed.counts(),
        [("total", 30), ("new", 30)],
        "{resumed:?}"
    );
    assert_eq!(scale.snapshots(), 0);
    let next = scale.run(&[]);
    assert_eq!(next.counts(), [("total", 31), ("verified", 30), ("new", 1)]);
}

#[test]
fn a_run_that_is_given_up_and_begun_again_leaves_no_snapshot() {
    let scale = Scale::with(30);
    scale.interrupted();
    let next = scale.run(&["--abort"]);
    assert_eq!(next.counts(), [("total", 30), ("new", 30)], "{next:?}");
    assert_eq!((scale.snapshots(), next.complaint.as_str()), (0, ""));
}

#[test]
fn a_run_that_is_given_up_where_its_snapshot_cannot_be_deleted_says_that_it_stays() {
    let scale = Scale::with(30);
    let left = |text: &str| {
        let names = fs::read_dir(scale.tree.path(".snapshots")).unwrap();
        let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
        let [name] = &names.collect::<Vec<_>>()[..] else {
            panic!("not one snapshot");
        };
        let delete = format!("mmdelsnapshot FILESYSTEM {name} deletes it");
        assert!(text.contains(&delete), "{text}");
        fs::remove_dir_all(scale.tree.path(".snapshots")).unwrap();
    };
    scale.interrupted();
    let aborted = scale.tree.about(&["abort"]);
    assert!(aborted.status.success(), "{aborted:?}");
    left(&String::from_utf8(aborted.stdout).unwrap());
    let again = scale.tree.about(&["abort"]);
    let said = String::from_utf8(again.stdout).unwrap();
    assert_eq!(said, "run 1 has ended already: nothing is given up\n");

    scale.interrupted();
    let next = scale.tree.run(&["--abort", "--exclude", ".snapshots"]);
    assert_eq!(next.code, 0, "{next:?}");
    left(&next.complaint);
}

#[test]
fn what_is_wrong_is_told_and_nothing_is_left_behind() {
    let scale = Scale::with(3);
    let unknown = said(&scale.command(&["--gpfs", "other"]).output().unwrap());
    assert_eq!(unknown.code, 3);
    assert!(
        unknown
            .complaint
            .contains("no Spectrum Scale file system other"),
        "{unknown:?}"
    );
    fs::write(scale.file("full"), "").unwrap();
    let full = scale.run(&[]);
    assert!(
        full.complaint.contains("no space for a snapshot"),
        "{full:?}"
    );
    fs::remove_file(scale.file("full")).unwrap();
    // The run that never began is in nobody's way.
    assert_eq!(scale.run(&[]).counts(), [("total", 3), ("new", 3)]);

    let nowhere = scale.tree.run(&["--gpfs", "gpfs0"]);
    assert!(nowhere.complaint.contains("mmlsfs"), "{nowhere:?}");
    assert!(nowhere.complaint.contains("on PATH"), "{nowhere:?}");
    let both = scale.run(&["--policy-list", "x"]);
    assert!(both.complaint.contains("cannot be used with"), "{both:?}");
}
