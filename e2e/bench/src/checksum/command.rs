#![expect(clippy::disallowed_methods, reason = "measures how long things take")]
//! In: a command. Out: what it needed. Touches: runs it; ends it when it is dropped.

use std::{
    env::{self, consts::ARCH},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use tokio::{process::Command, time::timeout};

use crate::stats::number;

/// Longer than anything that is measured.
const DEADLINE: Duration = Duration::from_mins(10);

/// What a command needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    /// Seconds.
    pub(super) wall: f64,
    /// Seconds of all cores, of all that it started and waited for.
    pub(super) cpu: f64,
}

/// The program that is measured: the one of the image.
pub(super) fn orrery_checksum() -> Result<PathBuf> {
    let (own, target) = (env::current_exe()?, format!("{ARCH}-unknown-linux-musl"));
    let built = own
        .ancestors()
        .nth(2)
        .context("a program without a folder")?;
    let program = built.join(target).join("release/orrery-checksum");
    let is_there = program.is_file();
    ensure!(is_there, "{} is not built", program.display());
    Ok(program)
}

/// A first run over a folder, with a store that is not there yet.
pub(super) fn first_run(folder: &Path, store: &Path, algorithm: &str) -> Result<Command> {
    let mut command = Command::new(orrery_checksum()?);
    command.arg("local").arg(folder).arg("--store").arg(store);
    command.args(["--quiet", "--algorithm", algorithm]);
    Ok(command)
}

/// Runs a command to its end. No other child of this process may end meanwhile.
pub(super) async fn spent(command: &mut Command) -> Result<Spent> {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let (cpu, began) = (cpu_of_children()?, Instant::now());
    let running = command.spawn().context("a command did not start")?;
    let output = timeout(DEADLINE, running.wait_with_output()).await;
    let output = output.context("a command did not end")??;
    let wall = began.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(Spent {
        wall,
        cpu: cpu_of_children()? - cpu,
    })
}

fn cpu_of_children() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok(seconds(usage.user_time())? + seconds(usage.system_time())?)
}

fn seconds(time: TimeVal) -> Result<f64> {
    let micros = u64::try_from(time.tv_sec())? * 1_000_000 + u64::try_from(time.tv_usec())?;
    Ok(number(micros) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_that_fails_says_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no >&2; exit 4"]);
        let error = spent(&mut command).await.unwrap_err().to_string();
        assert_eq!(error, "exit status: 4: no\n");
    }

    #[tokio::test]
    async fn what_children_of_a_command_use_counts() {
        let mut command = Command::new("sh");
        let count = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        command.args(["-c", &format!("sh -c '{count}'; true")]);
        let spent = spent(&mut command).await.unwrap();
        assert!(spent.cpu > 0.01, "{spent:?}");
    }
}
