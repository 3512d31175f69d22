//! In: this machine. Out: one line that tells what it lacks to run nodes, before anything is started.
//! Touches: runs one command, in namespaces of its own.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::unistd::geteuid;
use tokio::process::Command;
use tokio::time::timeout;

use super::cgroup;
use crate::{folder, tools};

/// Milliseconds; two cores may be busy with other things.
const DEADLINE: Duration = Duration::from_secs(20);

const ELSEWHERE: &str = "use another cluster with `make run CLUSTER=current`";

/// What a node runs, and the Debian package that brings it.
const PROGRAMS: [(&str, &str); 6] = [
    ("busybox", "busybox-static"),
    ("conntrack", "conntrack"),
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("iptables", "iptables"),
    ("runc", "runc"),
];

const BRIDGE: (&str, &str) = ("/usr/lib/cni/bridge", "containernetworking-plugins");

/// Succeeds if nodes can be started here.
pub(super) async fn check() -> Result<()> {
    ensure!(
        geteuid().is_root(),
        "a node needs root: run as root, or {ELSEWHERE}"
    );
    namespaces().await?;
    ensure!(
        cgroup::is_writable(),
        "a node needs control groups, which cannot be made in /sys/fs/cgroup: leave this container, have it run as \
         privileged, or {ELSEWHERE}"
    );
    folder::need_room()?;
    packages()
}

async fn namespaces() -> Result<()> {
    let mut trying = Command::new(tools::installed("unshare", "util-linux")?);
    trying
        .args(["--net", "--mount", "--pid", "--fork", "/bin/true"])
        .kill_on_drop(true);
    let tried = timeout(DEADLINE, trying.output()).await;
    let tried = tried.context("making namespaces takes too long")??;
    ensure!(
        tried.status.success(),
        "a node needs namespaces, which are refused here ({}): leave this container, have it run as privileged, or \
         {ELSEWHERE}",
        String::from_utf8_lossy(&tried.stderr).trim()
    );
    Ok(())
}

/// All that are missing at once: to learn of them one by one is tiresome.
fn packages() -> Result<()> {
    let programs = PROGRAMS.iter();
    let absent = programs.filter(|(program, package)| tools::installed(program, package).is_err());
    let mut missing: Vec<_> = absent.map(|(_, package)| *package).collect();
    if !Path::new(BRIDGE.0).is_file() {
        missing.push(BRIDGE.1);
    }
    missing.dedup();
    ensure!(
        missing.is_empty(),
        "a node needs packages that are missing: run `make run`, which installs them, or apt-get install {}",
        missing.join(" ")
    );
    Ok(())
}
