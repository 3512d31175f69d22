#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what a fixture cannot do fails the test"
)]
//! What a pod of a run is to a coordinator: folders, a configuration, a place for the last message.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crds::report::checksum::CoordinatorReport;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Everything here takes a second or two; two cores may be busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(50);

#[derive(Clone)]
pub(crate) struct Pod {
    pub(crate) folder: Arc<TempDir>,
    name: String,
}

impl Pod {
    /// With so many files of a few bytes, in folders of ten.
    pub(crate) fn with(files: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["root", "store", "credentials"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let pod = Self::named(Arc::new(folder), "pod");
        for n in 0..files {
            let path = pod.root().join(format!("folder{}/file{n}", n / 10));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("content of {n}")).unwrap();
        }
        pod
    }

    fn named(folder: Arc<TempDir>, name: &str) -> Self {
        for part in ["config", "tls", "spill"] {
            fs::create_dir_all(folder.path().join(name).join(part)).unwrap();
        }
        Self {
            folder,
            name: name.into(),
        }
    }

    /// Another pod with the same volumes.
    pub(crate) fn beside(&self, name: &str) -> Self {
        Self::named(self.folder.clone(), name)
    }

    pub(crate) fn own(&self, file: &str) -> PathBuf {
        self.folder.path().join(&self.name).join(file)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub(crate) fn config(&self, uid: &str) -> Value {
        json!({
            "version": 1, "uid": uid, "generation": 1,
            "spec": {
                "run": format!("here/{uid}"), "fileSystem": "home", "root": self.root(),
                "mode": "Full", "algorithm": "blake3", "store": {"embedded": {}}, "deletionGuardPercent": 10,
                "concurrency": 2,
                "tuning": {
                    "packBytes": 5_242_880, "packFiles": 5, "syncConcurrency": 2, "syncChunkRows": 1000,
                    "writeBackConcurrency": 2, "writeBackBatch": 10, "bypassCache": false,
                },
            },
        })
    }

    pub(crate) fn configure(&self, config: &Value) {
        let (new, file) = (self.own("config/new"), self.own("config/config.json"));
        fs::write(&new, config.to_string()).unwrap();
        fs::rename(new, file).unwrap();
    }

    pub(crate) fn start(&self, config: &Value) -> Child {
        self.spawn(self.coordinator(config))
    }

    pub(crate) fn coordinator(&self, config: &Value) -> Command {
        let message = self.own("message");
        let message = message.to_str().unwrap();
        self.command(
            "coordinator",
            config,
            &["--linger", "0s", "--termination-message", message],
        )
    }

    /// The agent, in this pod.
    pub(crate) fn command(&self, role: &str, config: &Value, more: &[&str]) -> Command {
        self.configure(config);
        let _ = fs::remove_file(self.own("message"));
        let mut command = powerless(env!("CARGO_BIN_EXE_orrery-checksum"));
        let folder = |name: &str| self.folder.path().join(name);
        let [admin, control] = [free(), free()];
        command.arg(role).args(more);
        command.args(["--pod-uid", "pod", "--config-poll", "50ms"]);
        fs::write(self.own("admin"), &admin).unwrap();
        command.arg("--admin-address").arg(admin);
        command.arg("--control-address").arg(control);
        command.arg("--config-folder").arg(self.own("config"));
        command.arg("--tls-folder").arg(self.own("tls"));
        command.arg("--store-folder").arg(folder("store"));
        command.arg("--spill-folder").arg(self.own("spill"));
        command
            .arg("--credentials-folder")
            .arg(folder("credentials"));
        command
    }

    pub(crate) fn spawn(&self, mut command: Command) -> Child {
        let log = File::create(self.own("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        command.stdin(Stdio::null()).spawn().unwrap()
    }

    /// To the end; its exit code, and what it told last.
    pub(crate) fn run(&self, config: &Value) -> (i32, CoordinatorReport) {
        let code = ended(self.start(config)).code().unwrap();
        (code, self.report())
    }

    pub(crate) fn report(&self) -> CoordinatorReport {
        let text = fs::read_to_string(self.own("message"));
        let text = text.unwrap_or_else(|_| panic!("no message: {}", self.log()));
        serde_json::from_str(&text).unwrap()
    }

    /// What it has said; nothing if it was never started.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.own("log")).unwrap_or_default()
    }

    /// Lets nobody read a file or folder, or everybody again.
    pub(crate) fn permit(&self, path: &str, is_permitted: bool) {
        let mode = if is_permitted { 0o755 } else { 0 };
        fs::set_permissions(self.root().join(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// What Prometheus would be told.
    pub(crate) fn metrics(&self) -> String {
        let address = fs::read_to_string(self.own("admin")).unwrap();
        let mut link = TcpStream::connect(address).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n";
        link.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        link.read_to_string(&mut text).unwrap();
        text
    }

    /// Bytes that the process has read, by what Prometheus would be told.
    pub(crate) fn read_by_metrics(&self) -> u64 {
        self.metric("orrery_checksum_read_bytes_total")
    }

    /// A number that Prometheus would be told; of what it is not told, none.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.metrics();
        let mut lines = text.lines().filter_map(|it| it.split_once(' '));
        let line = lines.find(|(metric, _)| *metric == name);
        line.map_or(0, |(_, number)| number.parse().unwrap())
    }

    /// Flips a bit as a medium does: the modification time stays.
    pub(crate) fn rot(&self, file: &str) {
        self.rot_at(file.as_ref());
    }

    pub(crate) fn rot_at(&self, file: &OsStr) {
        let path = self.root().join(file);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 0).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 0).unwrap();
        file.set_modified(modified).unwrap();
    }

    /// The bytes of all files.
    pub(crate) fn size(&self) -> u64 {
        let folders = fs::read_dir(self.root()).unwrap().map(Result::unwrap);
        let folders = folders.filter(|it| it.file_type().unwrap().is_dir());
        let files = folders.flat_map(|folder| fs::read_dir(folder.path()).unwrap());
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    }

    /// What the last report of the store says, by the command for people.
    fn stored(&self) -> Option<Value> {
        self.stored_runs().into_iter().next()
    }

    /// How many runs the store knows.
    pub(crate) fn runs(&self) -> usize {
        self.stored_runs().len()
    }

    fn stored_runs(&self) -> Vec<Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orrery-checksum"));
        command.args([
            "report",
            "--format",
            "json",
            "--file-system",
            "home",
            "--store",
        ]);
        let out = command
            .arg(self.folder.path().join("store/home.sqlite"))
            .output()
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["kind"] == "run").collect()
    }

    fn until(&self, child: &mut Child, what: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        while !self.stored().is_some_and(|run| what(&run)) {
            assert!(
                child.try_wait().unwrap().is_none(),
                "it ended: {}",
                self.log()
            );
            assert!(began.elapsed() < PATIENCE, "{}", self.log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn until_stored(&self, child: &mut Child, files: i64) {
        self.until(child, |run| run["new"].as_i64() >= Some(files));
    }

    /// Of the run that goes on: one before it may have verified as many.
    pub(crate) fn until_verified(&self, child: &mut Child, files: i64) {
        self.until(child, |run| {
            run["verified"].as_i64() >= Some(files) && run["state"] == "workqueue"
        });
    }

    pub(crate) fn until_listing(&self, child: &mut Child) {
        self.until(child, |run| run["state"] == "medasync");
    }

    pub(crate) fn is_listing(&self) -> bool {
        self.stored().is_some_and(|run| run["state"] == "medasync")
    }

    pub(crate) fn until_listed(&self, child: &mut Child, files: i64) {
        self.until(child, |run| {
            run["selected"].as_i64() == Some(files) && run["state"] == "workqueue"
        });
    }

    pub(crate) fn until_logged(&self, words: &str) {
        self.until_so(|| self.log().contains(words));
    }

    pub(crate) fn until_so(&self, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{}", self.log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Bytes of files whose checksums are stored.
    pub(crate) fn read_so_far(&self) -> u64 {
        self.stored().unwrap()["bytesRead"].as_u64().unwrap()
    }

    /// What the process that ended last has read, by its own metrics in the log's last words.
    pub(crate) fn bytes_read(&self) -> u64 {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("bytes read here"));
        let line: Value = serde_json::from_str(line.unwrap_or_else(|| panic!("{log}"))).unwrap();
        let find = |value: &Value| {
            value["bytes"]
                .as_u64()
                .or_else(|| value["fields"]["bytes"].as_u64())
        };
        find(&line).unwrap()
    }
}

/// Where nobody listens, and no other agent of this test is going to.
fn free() -> String {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = TcpListener::bind((address(), 0)).unwrap();
        let found = listener.local_addr().unwrap();
        if GIVEN.lock().unwrap().insert(found.port()) {
            return found.to_string();
        }
    }
}

/// One of the machine's own that no other test process has, so that nobody takes a port meanwhile.
fn address() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | high, middle, low)
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// As in a pod: without root's right to read what is forbidden.
fn powerless(program: &str) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    for set in ["--inh-caps", "--bounding-set"] {
        command.args([set, "-dac_override,-dac_read_search"]);
    }
    command.arg(program);
    command
}

pub(crate) fn terminate(child: &Child) {
    let killed = Command::new("kill").arg(child.id().to_string()).status();
    assert!(killed.unwrap().success());
}

pub(crate) fn ended(mut child: Child) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(20));
    }
}
