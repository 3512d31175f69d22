//! Kills what runs in a container, as a lack of memory does: at once, and without a word to anybody. In: the container, as
//! the kubelet names it. Sends SIGKILL to processes whose control group is that of the container.

use std::fs;

use anyhow::{Context, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// `containerd://<id>`.
pub(crate) fn every_process_of(container: &str) -> Result<()> {
    let (_, id) = container.split_once("://").context("no container")?;
    let mut killed = 0;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // Processes end while one looks.
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        if groups.contains(id) {
            kill(Pid::from_raw(pid), Signal::SIGKILL)?;
            killed += 1;
        }
    }
    ensure!(killed > 0, "no process is in {container}");
    Ok(())
}
