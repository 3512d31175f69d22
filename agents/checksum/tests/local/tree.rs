#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what a fixture cannot do fails the test"
)]
//! A tree of files, a store beside it, and the program as users run it.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Everything here takes milliseconds; two cores may be busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(50);

pub(crate) struct Tree {
    pub(crate) folder: TempDir,
}

/// What the program said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    /// One JSON object per line.
    pub(crate) lines: Vec<Value>,
    pub(crate) complaint: String,
}

impl Tree {
    /// With so many files of a few bytes, in folders of ten.
    pub(crate) fn with(files: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = Self { folder };
        fs::create_dir(tree.root()).unwrap();
        for n in 0..files {
            tree.write(
                &format!("folder{}/file{n}", n / 10),
                &format!("content of {n}"),
            );
        }
        tree
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store.sqlite")
    }

    pub(crate) fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        self.root().join(file)
    }

    /// Writes a file as a user does: with a new modification time, even within one tick of the clock.
    pub(crate) fn write(&self, file: &str, content: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let before = fs::metadata(&path).and_then(|it| it.modified());
        fs::write(&path, content).unwrap();
        if let Ok(before) = before {
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(before + Duration::from_secs(1)).unwrap();
        }
    }

    /// Flips a bit as a medium does: the modification time stays.
    pub(crate) fn rot(&self, file: impl AsRef<Path>) {
        let path = self.path(file);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 0).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 0).unwrap();
        file.set_modified(modified).unwrap();
    }

    /// Other content, as a medium or a broken program leaves it: the modification time stays.
    pub(crate) fn overwrite(&self, file: &str, content: &[u8]) {
        let path = self.path(file);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, content).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(modified).unwrap();
    }

    /// A list of all files as the policy engine of Spectrum Scale writes it: times to the microsecond.
    pub(crate) fn policy_list(&self) -> PathBuf {
        let line = "%i 1 0   |%s|%TY-%Tm-%Td %TH:%TM:%TS| -- %p\n";
        let found = Command::new("find")
            .arg(self.root())
            .args(["-type", "f", "-printf", line])
            .env("TZ", "UTC")
            .output();
        let text = String::from_utf8(found.unwrap().stdout).unwrap();
        let rough = text.lines().map(|line| {
            let (before, after) = line.split_once("| -- ").unwrap();
            let (seconds, fraction) = before.rsplit_once('.').unwrap();
            format!("{seconds}.{}| -- {after}\n", &fraction[..6])
        });
        let list = self.folder.path().join("list");
        fs::write(&list, rough.collect::<String>()).unwrap();
        list
    }

    /// Lets everybody in, for runs as another user; gives the program's copy that user may start.
    pub(crate) fn open_to_all(&self) -> PathBuf {
        let program = self.folder.path().join("program");
        fs::copy(env!("CARGO_BIN_EXE_orrery-checksum"), &program).unwrap();
        for path in [self.folder.path(), &program] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        program
    }

    /// `local` over the tree.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_over(&self.root(), args)
    }

    /// `local` over a folder of it.
    pub(crate) fn command_over(&self, folder: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orrery-checksum"));
        command
            .arg("local")
            .arg(folder)
            .arg("--store")
            .arg(self.store());
        command.args(["--output", "json"]).args(args);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Said {
        said(&self.command(args).output().unwrap())
    }

    /// `local` as somebody who may not read everything, with the program that [`Self::open_to_all`] gave.
    pub(crate) fn run_as_nobody(&self, program: &Path) -> Said {
        const NOBODY: u32 = 65534;
        let mut command = Command::new(program);
        command.args(self.command(&[]).get_args());
        said(&command.uid(NOBODY).gid(NOBODY).output().unwrap())
    }

    pub(crate) fn permit(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Another subcommand about the store.
    pub(crate) fn about(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orrery-checksum"));
        let (task, rest) = args.split_first().unwrap();
        command
            .arg(task)
            .arg("--store")
            .arg(self.store())
            .args(rest);
        command.output().unwrap()
    }

    /// The files whose checksums are stored.
    pub(crate) fn on_record(&self) -> Vec<String> {
        let manifest = self.about(&["report", "--format", "manifest"]).stdout;
        let manifest = String::from_utf8(manifest).unwrap();
        let paths = manifest
            .lines()
            .map(|line| line.split_once("  ").unwrap().1);
        paths.map(ToOwned::to_owned).collect()
    }

    /// Starts a run that takes long, and waits until it reads.
    pub(crate) fn slow(&self, args: &[&str]) -> Child {
        self.slow_until("1Ki", args, |run| run["state"] == "workqueue")
    }

    /// Starts a run that reads so many bytes in a second, and waits until the store says this of it.
    pub(crate) fn slow_until(
        &self,
        rate: &str,
        args: &[&str],
        is_so: impl Fn(&Value) -> bool,
    ) -> Child {
        let mut command = self.command(args);
        command.args(["--max-throughput", rate, "--readers", "1"]);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while !self.last_run().is_some_and(|run| is_so(&run)) {
            assert!(child.try_wait().unwrap().is_none(), "it ended");
            assert!(began.elapsed() < PATIENCE, "{:?}", self.last_run());
            thread::sleep(Duration::from_millis(5));
        }
        child
    }

    fn last_run(&self) -> Option<Value> {
        let report = self.about(&["report", "--format", "json"]);
        let lines = parsed(&report.stdout);
        lines.into_iter().find(|line| line["kind"] == "run")
    }
}

impl Said {
    /// The run, and that its counts add up: what remains is what no other count has, so none may have too much.
    pub(crate) fn run(&self) -> &Value {
        let run = self.lines.iter().find(|line| line["kind"] == "run");
        let run = run.unwrap_or_else(|| panic!("no run: {self:?}"));
        let sum: i64 = [
            "verified",
            "new",
            "changed",
            "corrupt",
            "unreadable",
            "skipped",
            "notSelected",
            "remaining",
        ]
        .iter()
        .map(|name| run[*name].as_i64().unwrap())
        .inspect(|count| assert!(*count >= 0, "{run}"))
        .sum();
        assert_eq!(run["total"], sum, "{run}");
        assert!(run["state"] != "finished" || run["remaining"] == 0, "{run}");
        run
    }

    /// The counts that are not zero.
    pub(crate) fn counts(&self) -> Vec<(&'static str, i64)> {
        let run = self.run();
        let names = [
            "total",
            "verified",
            "new",
            "changed",
            "corrupt",
            "unreadable",
            "skipped",
            "notSelected",
            "remaining",
            "deleted",
        ];
        let counts = names.map(|name| (name, run[name].as_i64().unwrap()));
        counts
            .into_iter()
            .filter(|(_, count)| *count != 0)
            .collect()
    }

    pub(crate) fn of_kind(&self, kind: &str) -> Vec<&Value> {
        self.lines
            .iter()
            .filter(|line| line["kind"] == kind)
            .collect()
    }
}

pub(crate) fn said(output: &Output) -> Said {
    Said {
        code: output.status.code().unwrap_or(-1),
        lines: parsed(&output.stdout),
        complaint: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub(crate) fn parsed(output: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(output).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
}

pub(crate) fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

pub(crate) fn terminate(child: &Child) {
    send(child, "-TERM");
}

pub(crate) fn interrupt(child: &Child) {
    send(child, "-INT");
}

fn send(child: &Child, signal: &str) {
    let mut kill = Command::new("kill");
    let sent = kill.arg(signal).arg(child.id().to_string()).status();
    assert!(sent.unwrap().success());
}

/// Waits until a process has a file open.
pub(crate) fn until_open(child: &Child, path: &Path) {
    let descriptors = format!("/proc/{}/fd", child.id());
    let is_open = || {
        let links = fs::read_dir(&descriptors).unwrap().flatten();
        let mut paths = links.filter_map(|it| fs::read_link(it.path()).ok());
        paths.any(|it| it == path)
    };
    let began = Instant::now();
    while !is_open() {
        let path = path.display();
        assert!(began.elapsed() < PATIENCE, "{path} is not opened");
        thread::sleep(Duration::from_millis(5));
    }
}
