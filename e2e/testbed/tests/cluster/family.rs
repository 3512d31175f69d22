//! The processes of a cluster, remembered, to see later that none of them is left, whoever adopted it.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Result, ensure};
use testbed::process;

/// Command lines by process ids; those that ended meanwhile have none.
pub(crate) struct Family(BTreeMap<u32, Vec<u8>>);

impl Family {
    /// All that descend from a process, without it.
    pub(crate) fn of(eldest: u32) -> Result<Self> {
        let mut pids = process::family(&[eldest])?;
        pids.remove(&eldest);
        let commands = pids.into_iter().map(|pid| (pid, command(pid)));
        let family = Self(commands.collect());
        let size = family.0.len();
        ensure!(size > 15, "{size} are less than a node and a pod have");
        Ok(family)
    }

    /// Fails if one of them still runs. The command tells it from a later process that was given the same id.
    pub(crate) fn is_gone(&self) -> Result<()> {
        for (pid, before) in &self.0 {
            let text = String::from_utf8_lossy(before).replace('\0', " ");
            let same = !before.is_empty() && command(*pid) == *before;
            ensure!(!same, "{pid} still runs: {text}");
        }
        Ok(())
    }
}

fn command(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}
