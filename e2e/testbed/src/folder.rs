//! In: nothing. Out: the state folder of one cluster, gone with its owner.
//! Touches: folders below the temporary folder, and `target/testbed-logs`.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::sys::statvfs::statvfs;
use tempfile::TempDir;

use crate::layout::Layout;
use crate::{process, tools};

const PREFIX: &str = "orrery-testbed-";

/// What three nodes of Cassandra may fill within a test, in bytes; the others are content with less.
const NEEDED: u64 = 2_000_000_000;

/// A state folder; removed when dropped.
#[derive(Debug)]
pub(crate) struct Folder(TempDir);

impl Folder {
    /// Makes a folder, and removes those whose owners died before they could.
    pub(crate) fn create() -> Result<Self> {
        Self::create_in(&env::temp_dir())
    }

    fn create_in(base: &Path) -> Result<Self> {
        sweep(base);
        need_space(base, NEEDED)?;
        let folder = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", Owner::this()?.name()))
            .rand_bytes(4)
            .permissions(Permissions::from_mode(0o700)) // it holds the keys of an administrator
            .tempdir_in(base)
            .with_context(|| format!("failed to make a folder in {}", base.display()))?;
        let layout = Layout::new(folder.path());
        for needed in [layout.logs(), layout.certificates()] {
            fs::create_dir(&needed)
                .with_context(|| format!("failed to make {}", needed.display()))?;
        }
        Ok(Self(folder))
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout::new(self.0.path())
    }

    /// Copies the logs to a place that stays, instead of what an earlier run left there under this name.
    pub(crate) fn keep_logs(&self, name: &str) -> Result<PathBuf> {
        let kept = kept_logs().join(name);
        copy_files(&self.layout().logs(), &kept)
            .with_context(|| format!("failed to keep the logs in {}", kept.display()))?;
        Ok(kept)
    }
}

/// Fails if a state folder that is made now would have too little space.
pub(crate) fn need_room() -> Result<()> {
    need_space(&env::temp_dir(), NEEDED)
}

/// Better one line now than as many as there are ways to fail for want of space.
fn need_space(base: &Path, needed: u64) -> Result<()> {
    let disk = statvfs(base).with_context(|| format!("failed to look at {}", base.display()))?;
    let free = disk.blocks_available() * disk.fragment_size();
    ensure!(
        free >= needed,
        "{} has {} MB free, but {} MB are needed: make room, or let TMPDIR name another folder",
        base.display(),
        free / 1_000_000,
        needed / 1_000_000
    );
    Ok(())
}

fn kept_logs() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| tools::repository().join("target"), PathBuf::from);
    let target = target.canonicalize().unwrap_or(target);
    target.join("testbed-logs")
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    for file in fs::read_dir(from)? {
        let file = file?;
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}

/// The process a folder belongs to, told from later ones with the same pid by its start time.
///
/// It is part of the folder's name, so there is no moment at which a folder has no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    started: u64,
}

impl Owner {
    fn this() -> Result<Self> {
        let pid = std::process::id();
        Self::running(pid).context("failed to read /proc/self/stat")
    }

    /// The process that has this pid now.
    fn running(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field, the command, may hold anything but ends with the last parenthesis;
        // the start time is the 22nd field, the 20th after it.
        let (_, fields) = stat.rsplit_once(") ")?;
        let started = fields.split(' ').nth(19)?.parse().ok()?;
        Some(Self { pid, started })
    }

    fn name(self) -> String {
        format!("{}-{}", self.pid, self.started)
    }

    fn of(folder: &str) -> Option<Self> {
        let mut fields = folder.strip_prefix(PREFIX)?.split('-');
        Some(Self {
            pid: fields.next()?.parse().ok()?,
            started: fields.next()?.parse().ok()?,
        })
    }

    fn is_gone(self) -> bool {
        Self::running(self.pid) != Some(self)
    }
}

/// Removes what tests left that were killed before they could clean up.
pub fn remove_folders_of_the_dead() {
    sweep(&env::temp_dir());
}

/// The memory in use by the process that made this state folder, and by all that it started, in bytes.
pub fn memory_of_owner(folder: &Path) -> Result<u64> {
    let name = folder.file_name().and_then(|name| name.to_str());
    let owner = name.and_then(Owner::of).filter(|owner| !owner.is_gone());
    let owner = owner.with_context(|| format!("nobody runs in {}", folder.display()))?;
    Ok(process::memory(&process::family(&[owner.pid])?))
}

/// Whether a folder of that name, or what is named after it, has lost its owner.
pub(crate) fn belongs_to_the_dead(name: &str) -> bool {
    Owner::of(name).is_some_and(Owner::is_gone)
}

/// Removes folders without a living owner; what cannot be removed now is left to the next start.
///
/// Limit: processes of another pid namespace that share this temporary folder look dead from here.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(belongs_to_the_dead) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_are_removed_and_others_are_not() {
        let base = tempfile::tempdir().unwrap();
        let mine = Folder::create_in(base.path()).unwrap();
        let me = Owner::this().unwrap();
        let before = Owner {
            started: me.started - 1,
            ..me
        };
        let dead = base.path().join(format!("{PREFIX}{}-abcd", before.name()));
        let other = base.path().join("orrery-testbed-notes");
        for folder in [&dead, &other] {
            fs::create_dir(folder).unwrap();
        }
        let second = Folder::create_in(base.path()).unwrap();
        assert!(!dead.exists());
        assert!(other.exists() && mine.0.path().exists() && second.0.path().exists());
    }

    #[test]
    fn a_full_disk_is_named_with_a_way_out() {
        let base = tempfile::tempdir().unwrap();
        let error = need_space(base.path(), u64::MAX).unwrap_err().to_string();
        assert!(error.contains(&*base.path().to_string_lossy()), "{error}");
        assert!(error.contains("TMPDIR"), "{error}");
        need_space(base.path(), 1).unwrap();
    }

    #[test]
    fn a_folder_goes_with_its_handle() {
        let base = tempfile::tempdir().unwrap();
        let folder = Folder::create_in(base.path()).unwrap();
        fs::write(folder.layout().audit_log(), "x").unwrap();
        drop(folder);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
