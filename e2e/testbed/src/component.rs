//! In: what to launch. Out: one real part, to be started, broken and mended.
//! Touches: that process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, ensure};

use crate::process::{Launch, Process};

/// How servers say that somebody else has their port, in lower case.
const TAKEN: [&str; 2] = ["address already in use", "is in use by another process"];

/// A part that has not ended this long after it was asked to is killed.
const GRACE: Duration = Duration::from_secs(10);

/// Lines of a log that go into an error.
const LAST_WORDS: usize = 10;

/// One process of a real system. Started again it has the same address and the same data.
#[derive(Debug)]
pub struct Component {
    name: String,
    launch: Launch,
    process: Mutex<Option<Arc<Process>>>,
}

impl Component {
    pub(crate) fn new(launch: Launch) -> Self {
        Self {
            name: launch.name().to_owned(),
            launch,
            process: Mutex::default(),
        }
    }

    /// Starts it; to wait until it works is up to the caller.
    pub fn start(&self) -> Result<()> {
        let mut process = self.slot();
        let running = process.as_ref().is_some_and(|it| it.is_running());
        ensure!(!running, "{} runs already", self.name);
        *process = Some(Arc::new(self.launch.spawn()?));
        Ok(())
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    pub async fn kill(&self) -> Result<()> {
        self.process()?.kill().await?;
        Ok(())
    }

    /// Asks it to end (SIGTERM) and waits; kills it if it does not. That it does not run is fine.
    pub async fn stop(&self) -> Result<()> {
        if let Ok(process) = self.process() {
            process.stop(GRACE).await?;
        }
        Ok(())
    }

    /// Makes it stand still (SIGSTOP).
    pub async fn pause(&self) -> Result<()> {
        self.process()?.pause().await
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.process()?.resume()
    }

    /// The process that was started last, running or not.
    pub fn process(&self) -> Result<Arc<Process>> {
        let process = self.slot().clone();
        process.with_context(|| format!("{} was never started", self.name))
    }

    /// The id of the process that was started last, if any was.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process().ok().map(|process| process.pid())
    }

    /// Returns, with an error that says why, when it ends; never if it was not started.
    pub(crate) async fn ended(&self) -> Error {
        let Ok(process) = self.process() else {
            return std::future::pending().await;
        };
        match process.exited().await {
            Ok(status) => anyhow!("{} ended, {status}:\n{}", self.name, last_words(&process)),
            Err(error) => error,
        }
    }

    /// The end of its log, for an error.
    pub(crate) fn last_words(&self) -> String {
        let process = self.process();
        process.map_or_else(|_| String::new(), |process| last_words(&process))
    }

    /// What it is called in logs and errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it was started and has not ended.
    pub fn is_running(&self) -> bool {
        self.process().is_ok_and(|process| process.is_running())
    }

    /// Whether it ended because somebody else has its port.
    pub(crate) fn found_its_port_taken(&self) -> bool {
        let Ok(process) = self.process() else {
            return false;
        };
        let log = process.log().unwrap_or_default().to_lowercase();
        !process.is_running() && TAKEN.iter().any(|complaint| log.contains(complaint))
    }

    /// Sends SIGKILL and does not wait.
    pub(crate) fn send_kill(&self) {
        if let Ok(process) = self.process() {
            process.send_kill();
        }
    }

    /// Waits, blocking, until a killed process is gone.
    pub(crate) fn reap(&self) {
        if let Ok(process) = self.process() {
            process.reap();
        }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Process>>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn last_words(process: &Process) -> String {
    let log = process.log().unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
}
