//! In: arguments for kubectl. Out: what it wrote and how it ended.
//! Touches: runs the real kubectl against the cluster.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use super::Access;
use crate::process::{Process, keeper};

/// Several kubectl commands wait without end by default; this one ends them.
const DEADLINE: Duration = Duration::from_mins(1);

/// What a kubectl command left behind.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Output {
    /// The standard output of a command that succeeded.
    pub fn ok(self) -> Result<String> {
        if !self.status.success() {
            bail!("kubectl failed ({}): {}", self.status, self.stderr.trim());
        }
        Ok(self.stdout)
    }
}

impl Access {
    /// Runs kubectl as administrator; that it fails is an answer, that it does not end in time an error.
    pub async fn kubectl(&self, args: &[&str]) -> Result<Output> {
        self.kubectl_stdin(args, "").await
    }

    /// Runs kubectl as administrator with `input` on its standard input.
    pub async fn kubectl_stdin(&self, args: &[&str], input: &str) -> Result<Output> {
        let (mut stdout, mut stderr) = (scratch("")?, scratch("")?);
        let mut command = keeper::tied(Signal::SIGKILL);
        command
            .arg(&self.kubectl)
            .args(args)
            .env("KUBECONFIG", self.kubeconfig())
            // Its own: the cache in the home folder goes by address, and addresses come back.
            .env("KUBECACHEDIR", self.layout.kubectl_cache())
            .stdin(scratch(input)?)
            .stdout(Stdio::from(stdout.try_clone()?))
            .stderr(Stdio::from(stderr.try_clone()?))
            .process_group(0);
        let name = format!("kubectl {}", args.join(" "));
        let process = Process::start(name, command, None)?;
        let status = process.wait_exit(DEADLINE).await;
        Ok(Output {
            status: status.with_context(|| format!("it had said: {}", text(&mut stderr)))?,
            stdout: text(&mut stdout),
            stderr: text(&mut stderr),
        })
    }
}

/// A file without a name: unlike a pipe it never fills up, and it is gone when closed.
fn scratch(content: &str) -> Result<File> {
    let mut file = tempfile::tempfile().context("failed to make a temporary file")?;
    file.write_all(content.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

/// All that is in the file; the position is shared with the child, which has written.
fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(not readable: {error})"),
    }
}
