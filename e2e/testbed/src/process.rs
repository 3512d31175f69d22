//! In: a program to run. Out: a handle to signal it, wait for it and read its log.
//! Touches: processes and their log files. Nothing started here outlives this process.

mod family;
pub(crate) mod keeper;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::kill;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

use crate::wait::eventually;

pub use family::{family, memory};
pub use nix::sys::signal::Signal;

/// Bound for what the kernel does by itself once a signal is sent.
const SIGNAL_TAKES_EFFECT: Duration = Duration::from_secs(10);

/// What to run, and where its output goes. Can be spawned again and again.
#[derive(Clone, Debug)]
pub struct Launch {
    name: String,
    /// A program that turns into ours by `exec`, with its own arguments.
    wrapper: Vec<OsString>,
    program: PathBuf,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    /// In a process group of its own, so that Ctrl-C in the terminal ends the test, and the test ends this.
    Background { log: PathBuf },
    /// Shares the terminal and its Ctrl-C.
    Foreground,
}

impl Launch {
    /// A background program; stdout and stderr are appended to `log`.
    pub fn new(
        name: impl Into<String>,
        program: impl Into<PathBuf>,
        log: impl Into<PathBuf>,
    ) -> Self {
        let place = Place::Background { log: log.into() };
        Self::placed(name.into(), program.into(), place)
    }

    /// A program that shares this one's terminal; asked to end, not killed, when this process dies.
    pub fn in_foreground(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self::placed(name.into(), program.into(), Place::Foreground)
    }

    fn placed(name: String, program: PathBuf, place: Place) -> Self {
        Self {
            name,
            wrapper: Vec::new(),
            program,
            args: Vec::new(),
            envs: Vec::new(),
            place,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Runs it by way of another program, such as `nsenter`, that replaces itself by what its arguments end in.
    #[must_use]
    pub fn wrapped<A: Into<OsString>>(mut self, wrapper: impl IntoIterator<Item = A>) -> Self {
        self.wrapper.extend(wrapper.into_iter().map(Into::into));
        self
    }

    /// Adds environment variables to the inherited ones.
    #[must_use]
    pub fn envs<K: Into<OsString>, V: Into<OsString>>(
        mut self,
        envs: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let envs = envs.into_iter();
        self.envs.extend(envs.map(|(k, v)| (k.into(), v.into())));
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Starts it. A program that is named without a folder is looked for in `PATH`.
    pub fn spawn(&self) -> Result<Process> {
        let in_path = self.program.components().count() == 1;
        let (name, program) = (&self.name, self.program.display());
        ensure!(
            in_path || self.program.is_file(),
            "{name}: {program} is missing"
        );
        let command = self.command()?;
        Process::start(self.name.clone(), command, self.log().map(Path::to_owned))
    }

    fn log(&self) -> Option<&Path> {
        match &self.place {
            Place::Background { log } => Some(log),
            Place::Foreground => None,
        }
    }

    fn command(&self) -> Result<Command> {
        let mut command = match self.log() {
            Some(log) => self.background(log)?,
            None => keeper::tied(Signal::SIGTERM),
        };
        command.args(&self.wrapper).arg(&self.program);
        let envs = self.envs.iter().map(|(key, value)| (key, value));
        command.args(&self.args).envs(envs);
        Ok(command)
    }

    fn background(&self, log: &Path) -> Result<Command> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("failed to open {} for {}", log.display(), self.name))?;
        let errors = output.try_clone().context("failed to share the log")?;
        let mut command = keeper::tied(Signal::SIGKILL);
        command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0);
        Ok(command)
    }
}

/// A process that was started here; killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: Pid,
    log: Option<PathBuf>,
    /// Only this handle reaps, and it signals under the same lock: a signal never hits a recycled pid.
    child: Mutex<Child>,
}

impl Process {
    pub(crate) fn start(name: String, command: Command, log: Option<PathBuf>) -> Result<Self> {
        let child = keeper::spawn(command).with_context(|| {
            format!("failed to start {name}; is setpriv (util-linux) installed?")
        })?;
        let pid = i32::try_from(child.id()).context("a pid does not fit its type")?;
        Ok(Self {
            name,
            pid: Pid::from_raw(pid),
            log,
            child: Mutex::new(child),
        })
    }

    /// The process id, the same from start to end.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// Whether it has not ended yet; a paused process counts as running.
    pub fn is_running(&self) -> bool {
        matches!(self.child().try_wait(), Ok(None))
    }

    /// All it has written so far.
    pub fn log(&self) -> Result<String> {
        let log = self.log.as_deref();
        let log = log.with_context(|| format!("{} writes to the terminal", self.name))?;
        let bytes = fs::read(log).with_context(|| format!("failed to read {}", log.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Sends a signal; fails if the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let mut child = self.child();
        if let Some(status) = child.try_wait()? {
            bail!("{signal} comes too late: {} ended, {status}", self.name);
        }
        kill(self.pid, signal).with_context(|| format!("failed to send {signal} to {}", self.name))
    }

    /// Stops it where it stands, as a machine does that hangs; returns when every thread stands still.
    pub async fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        let what = format!("{} to stand still", self.name);
        eventually(&what, SIGNAL_TAKES_EFFECT, async || {
            let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            let state = waitid(Id::Pid(self.pid), flags)?;
            Ok(matches!(state, WaitStatus::Stopped(..)).then_some(()))
        })
        .await
    }

    /// Lets a paused process go on.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Waits for the end.
    pub async fn wait_exit(&self, deadline: Duration) -> Result<ExitStatus> {
        let waited = tokio::time::timeout(deadline, self.exited()).await;
        waited.with_context(|| format!("{} still runs after {deadline:?}", self.name))?
    }

    /// Asks it to end, kills it if it has not done so after `grace`.
    pub async fn stop(&self, grace: Duration) -> Result<ExitStatus> {
        // Either may come too late, which is what is wanted. A paused process notices once it goes on.
        let _ = self.signal(Signal::SIGTERM);
        let _ = self.resume();
        match self.wait_exit(grace).await {
            Ok(status) => Ok(status),
            Err(_) => self.kill().await,
        }
    }

    /// Kills it and waits until it is gone.
    pub async fn kill(&self) -> Result<ExitStatus> {
        self.child()
            .kill()
            .with_context(|| format!("failed to kill {}", self.name))?;
        self.wait_exit(SIGNAL_TAKES_EFFECT).await
    }

    /// Waits for the end without a bound: for callers that race it against something bounded.
    pub async fn exited(&self) -> Result<ExitStatus> {
        let mut deaths = signal(SignalKind::child()).context("failed to listen for SIGCHLD")?;
        loop {
            if let Some(status) = self.child().try_wait()? {
                return Ok(status);
            }
            deaths.recv().await;
        }
    }

    /// Sends SIGKILL and does not wait.
    pub(crate) fn send_kill(&self) {
        let _ = self.child().kill();
    }

    /// Waits, blocking: for the moment a killed process takes to go.
    pub(crate) fn reap(&self) {
        let _ = self.child().wait();
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.send_kill();
        self.reap();
    }
}

/// The processes of this machine with `text` somewhere in their command line; zombies have none.
pub fn mentioning(text: &str) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end while we look: then it is not running, and reading fails.
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).contains(text) {
            found.push(pid);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn shell(script: &str) -> (tempfile::TempDir, Process) {
        let folder = tempfile::tempdir().unwrap();
        let launch = Launch::new("shell", "sh", folder.path().join("log"));
        let process = launch.args(["-c", script]).spawn().unwrap();
        (folder, process)
    }

    #[tokio::test]
    async fn output_and_exit_code_are_kept() {
        let (_folder, process) = shell("echo out; echo err >&2; exit 7");
        let status = process.wait_exit(SOON).await.unwrap();
        assert_eq!(status.code(), Some(7));
        assert_eq!(process.log().unwrap(), "out\nerr\n");
        assert!(!process.is_running());
        assert!(process.signal(Signal::SIGTERM).is_err());
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let launch = Launch::new("operator", "/no/such/program", "/dev/null");
        let error = launch.spawn().unwrap_err().to_string();
        assert_eq!(error, "operator: /no/such/program is missing");
    }

    #[tokio::test]
    async fn a_child_outlives_the_thread_that_asked_for_it() {
        let asking = std::thread::spawn(|| {
            let (folder, process) = shell("echo up; exec sleep 600");
            while !process.log().unwrap().contains("up") {
                std::thread::yield_now();
            }
            (folder, process)
        });
        let (_folder, process) = asking.join().unwrap();
        // The kernel signals a moment after the join: this waits for something that must not happen.
        let ended = process.wait_exit(Duration::from_millis(200)).await;
        assert!(ended.is_err(), "{ended:?}");
    }

    #[tokio::test]
    async fn a_paused_process_can_still_be_stopped() {
        let (_folder, process) = shell("exec sleep 600");
        process.pause().await.unwrap();
        assert!(process.is_running());
        let status = process.stop(SOON).await.unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGTERM as i32));
    }

    #[tokio::test]
    async fn what_ignores_a_polite_signal_is_killed() {
        let (_folder, process) = shell("trap '' TERM; echo up; while :; do sleep 0.05; done");
        let up = async || Ok(process.log()?.contains("up").then_some(()));
        eventually("the trap", SOON, up).await.unwrap();
        let status = process.stop(Duration::from_millis(50)).await.unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
    }

    #[tokio::test]
    async fn a_dropped_process_is_gone() {
        let marker = format!("marker-{}", std::process::id());
        // It stands still by itself: a shell with children would be there twice while it forks.
        let (_folder, process) = shell(&format!("kill -STOP $$ # {marker}"));
        // In the middle of an exec a process has no command line.
        let there = async || Ok((mentioning(&marker)? == [process.pid()]).then_some(()));
        eventually("the process", SOON, there).await.unwrap();
        drop(process);
        assert!(mentioning(&marker).unwrap().is_empty());
    }
}
