//! Folders, open and to be opened. In: a root, and names in folders. Out: descriptors, of which few are held at once.
//! Touches: opens folders, nothing else, and follows no link below the root.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, getrlimit};

use super::Error;
use super::collect::join;

/// Without following a link, without waiting, and not if it is anything but a folder.
const BELOW: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// To go through, not to be listed: needs no right to read.
const THROUGH: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Where a folder is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its path below the root; that of the root is empty.
    pub(super) path: Box<[u8]>,
    /// How many folders are above it, up to the root.
    pub(super) depth: u32,
}

/// An open folder.
pub(super) struct Folder {
    place: Arc<Place>,
    descriptor: OwnedFd,
    budget: Arc<Budget>,
}

/// A folder to be opened later.
pub(super) struct Pending {
    parent: Arc<Place>,
    /// The parent's descriptor, unless too many are held.
    through: Option<Arc<Folder>>,
    name: CString,
}

/// How many folders are open. Beyond a limit, pending folders keep only their path.
pub(super) struct Budget {
    open: AtomicUsize,
    most_lent: usize,
}

impl Budget {
    /// At most a quarter of what the process may have open is lent: the rest of the process needs some, too.
    pub(super) fn of_process() -> Self {
        let most = getrlimit(Resource::Nofile).current.unwrap_or(1024) / 4;
        Self::new(usize::try_from(most).unwrap_or(usize::MAX).clamp(4, 256))
    }

    pub(super) fn new(most_lent: usize) -> Self {
        Self {
            open: AtomicUsize::new(0),
            most_lent,
        }
    }
}

impl Folder {
    /// The root. It may be reached through links.
    pub(super) fn root(path: &Path, budget: Budget) -> Result<Self, Error> {
        let flags = BELOW.difference(OFlags::NOFOLLOW);
        let opened = retry_on_intr(|| rustix::fs::openat(CWD, path, flags, Mode::empty()));
        let descriptor = opened.map_err(|errno| Error::Root {
            path: path.to_owned(),
            errno,
        })?;
        let place = Arc::new(Place {
            path: Box::default(),
            depth: 0,
        });
        Ok(Self::counted(place, descriptor, Arc::new(budget)))
    }

    fn counted(place: Arc<Place>, descriptor: OwnedFd, budget: Arc<Budget>) -> Self {
        budget.open.fetch_add(1, Ordering::Relaxed);
        Self {
            place,
            descriptor,
            budget,
        }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.place.path
    }

    /// A folder in this one, for later.
    pub(super) fn pending(self: &Arc<Self>, name: &CStr) -> Pending {
        let lends = self.budget.open.load(Ordering::Relaxed) <= self.budget.most_lent;
        let through = lends.then(|| Arc::clone(self));
        Pending {
            parent: Arc::clone(&self.place),
            through,
            name: name.to_owned(),
        }
    }

    /// A folder anywhere below this one, reached name by name: any length of path will do, and no link is followed.
    pub(super) fn reach(&self, path: &[u8]) -> Result<Option<OwnedFd>, Errno> {
        let mut at = None;
        for name in path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            let from = at.as_ref().map_or_else(|| self.as_fd(), OwnedFd::as_fd);
            at = Some(open(from, name, THROUGH)?);
        }
        Ok(at)
    }
}

impl Pending {
    pub(super) fn place(&self) -> Place {
        Place {
            path: join(&self.parent.path, self.name.to_bytes()).into(),
            depth: self.parent.depth + 1,
        }
    }

    /// Opens it: from its parent where that is still open, else from the root.
    pub(super) fn open(&self, root: &Folder) -> Result<Folder, Errno> {
        let name = self.name.as_c_str();
        let descriptor = match &self.through {
            Some(parent) => open(parent.as_fd(), name, BELOW)?,
            None => match root.reach(&self.parent.path)? {
                Some(parent) => open(parent.as_fd(), name, BELOW)?,
                None => open(root.as_fd(), name, BELOW)?,
            },
        };
        Ok(Folder::counted(
            Arc::new(self.place()),
            descriptor,
            Arc::clone(&root.budget),
        ))
    }
}

fn open(
    from: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| rustix::fs::openat(from, name, flags, Mode::empty()))
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.budget.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_budget_a_pending_folder_holds_no_descriptor_and_is_found_all_the_same() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("a/b/c")).unwrap();
        let root = Arc::new(Folder::root(tree.path(), Budget::new(1)).unwrap());
        let a = Arc::new(root.pending(c"a").open(&root).unwrap());
        let b = a.pending(c"b");
        assert!(b.through.is_none());
        drop(a);
        let b = Arc::new(b.open(&root).unwrap());
        let c = b.pending(c"c").open(&root).unwrap();
        assert_eq!(
            c.place(),
            &Place {
                path: (*b"a/b/c").into(),
                depth: 3
            }
        );
    }

    #[test]
    fn a_link_on_the_way_is_not_followed() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", tree.path().join("link")).unwrap();
        let root = Folder::root(tree.path(), Budget::new(1)).unwrap();
        assert!(root.reach(b"a/b").is_ok());
        assert_eq!(root.reach(b"link/b").unwrap_err(), Errno::NOTDIR);
    }
}
