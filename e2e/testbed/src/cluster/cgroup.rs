//! In: a name. Out: a control group for the pods of a node, gone with its handle.
//! Touches: folders below /sys/fs/cgroup.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::{AccessFlags, access};

const ROOT: &str = "/sys/fs/cgroup";

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
}

impl Cgroup {
    pub(super) fn create(name: String) -> Result<Self> {
        let group = Self { name };
        for hierarchy in hierarchies() {
            let folder = hierarchy.join(&group.name);
            fs::create_dir_all(&folder)
                .with_context(|| format!("failed to make {}", folder.display()))?;
        }
        if is_unified() {
            delegate(Path::new(ROOT))?;
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

/// Lets groups below this one have the controllers it has.
fn delegate(group: &Path) -> Result<()> {
    let controllers = fs::read_to_string(group.join("cgroup.controllers"))?;
    let all: Vec<_> = controllers
        .split_whitespace()
        .map(|it| format!("+{it}"))
        .collect();
    fs::write(group.join("cgroup.subtree_control"), all.join(" "))
        .with_context(|| format!("failed to delegate controllers of {}", group.display()))
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
