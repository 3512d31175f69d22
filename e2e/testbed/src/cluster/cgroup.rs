//! In: a name. Out: a control group for the pods of a node, gone with its handle.
//! Touches: folders below /sys/fs/cgroup.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::slice;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::{AccessFlags, access};

const ROOT: &str = "/sys/fs/cgroup";

/// Where a group of version 2 says what groups below it have.
const DELEGATED: &str = "cgroup.subtree_control";

/// The hierarchies of version 1 that a kubelet looks into, and the one of version 2 that may be mounted beside them.
const HIERARCHIES: [&str; 10] = [
    "blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids", "systemd",
    "unified",
];

/// A killed process leaves its group a moment later.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// A group in every hierarchy; emptied processes and all by whoever ends the node.
#[derive(Debug)]
pub(super) struct Cgroup {
    name: String,
    /// What the machine's own group did not let others have before.
    delegated: Vec<String>,
}

impl Cgroup {
    pub(super) fn create(name: String) -> Result<Self> {
        let mut group = Self {
            name,
            delegated: Vec::new(),
        };
        for hierarchy in hierarchies() {
            let folder = hierarchy.join(&group.name);
            fs::create_dir_all(&folder)
                .with_context(|| format!("failed to make {}", folder.display()))?;
        }
        if is_unified() {
            group.delegated = delegate(Path::new(ROOT))?;
            delegate(&Path::new(ROOT).join(&group.name))?;
        }
        Ok(group)
    }

    /// As the kubelet names it.
    pub(super) fn path(&self) -> String {
        format!("/{}", self.name)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for hierarchy in hierarchies() {
            remove(&hierarchy.join(&self.name));
        }
        take_back(Path::new(ROOT), &self.delegated);
    }
}

/// Whether groups can be made here: not so where the folder is missing or mounted for reading only.
pub(super) fn is_writable() -> bool {
    let all = hierarchies();
    let writable = |folder: &PathBuf| access(folder, AccessFlags::W_OK).is_ok();
    !all.is_empty() && all.iter().all(writable)
}

/// Removes the groups whose owner is dead, as `is_dead` tells by the name.
pub(super) fn sweep(is_dead: impl Fn(&str) -> bool) {
    for hierarchy in hierarchies() {
        let entries = fs::read_dir(&hierarchy).into_iter().flatten().flatten();
        for entry in entries {
            if entry.file_name().to_str().is_some_and(&is_dead) {
                remove(&entry.path());
            }
        }
    }
}

fn hierarchies() -> Vec<PathBuf> {
    if is_unified() {
        return vec![ROOT.into()];
    }
    let all = HIERARCHIES.iter().map(|name| Path::new(ROOT).join(name));
    all.filter(|folder| folder.is_dir()).collect()
}

fn is_unified() -> bool {
    Path::new(ROOT).join("cgroup.controllers").exists()
}

/// Lets groups below this one have the controllers it has. Says which they did not have before.
fn delegate(group: &Path) -> Result<Vec<String>> {
    let had = fs::read_to_string(group.join(DELEGATED))?;
    let had: Vec<_> = had.split_whitespace().collect();
    let all = fs::read_to_string(group.join("cgroup.controllers"))?;
    let missing = all.split_whitespace().filter(|it| !had.contains(it));
    let missing: Vec<_> = missing.map(str::to_owned).collect();
    if !missing.is_empty() {
        switch(group, '+', &missing)
            .with_context(|| format!("failed to delegate controllers of {}", group.display()))?;
    }
    Ok(missing)
}

/// One by one: another node may still need some of them.
fn take_back(group: &Path, controllers: &[String]) {
    for controller in controllers {
        let _ = switch(group, '-', slice::from_ref(controller));
    }
}

fn switch(group: &Path, sign: char, controllers: &[String]) -> io::Result<()> {
    let words: Vec<_> = controllers.iter().map(|it| format!("{sign}{it}")).collect();
    fs::write(group.join(DELEGATED), words.join(" "))
}

/// From the leaves up; what is still busy after a while is left to the next start.
fn remove(group: &Path) {
    let mut waited = Duration::ZERO;
    while !removed(group) && waited < PATIENCE {
        sleep(PAUSE);
        waited += PAUSE;
    }
}

fn removed(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            removed(&entry.path());
        }
    }
    match fs::remove_dir(group) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_delegated_before_is_switched_on_and_off() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let delegated = folder.path().join(DELEGATED);
        fs::write(
            folder.path().join("cgroup.controllers"),
            "cpu memory pids\n",
        )?;
        fs::write(&delegated, "memory\n")?;
        let added = delegate(folder.path())?;
        assert_eq!(fs::read_to_string(&delegated)?, "+cpu +pids");
        take_back(folder.path(), &added[..1]);
        assert_eq!(fs::read_to_string(&delegated)?, "-cpu");
        Ok(())
    }
}
