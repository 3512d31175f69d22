//! Takes the files from a list that another program wrote, instead of walking. In: the list. Out: its regular files to a
//! sink, and how it went. Touches: reads the list; asks for attributes where the list does not tell them; opens no file.
//! A path that is in the list twice is given twice.

use std::ffi::CString;
use std::io::BufRead;
use std::num::NonZeroUsize;
use std::ops::ControlFlow::{self, Continue};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;

use rustix::io::Errno;

use super::collect::Collector;
use super::exclude::Excludes;
use super::folder::{Budget, Folder};
use super::records::{Records, below_root, is_root};
use super::share::{Clerk, share};
use super::stat::{self, Kind};
use super::{Error, Listing, Sink, policy};
use crate::path::RelativePath;

/// How to read a list.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many threads work on it at most, the caller's among them.
    pub threads: NonZeroUsize,
    /// What is left out: the paths that match, and all below them.
    pub excludes: Excludes,
    /// What paths in the list begin with and paths below the root do not. Empty: the root's own path.
    pub prefix: Vec<u8>,
}

impl Default for Options {
    fn default() -> Self {
        let threads = NonZeroUsize::MIN.saturating_add(3);
        Self {
            threads,
            excludes: Excludes::default(),
            prefix: Vec::new(),
        }
    }
}

/// Reads paths that end with a NUL each, as `find -print0` writes them, and asks for their attributes below the root. Files
/// that are gone are left out, unless all are: then the list is of another tree.
pub fn nul_separated(
    list: impl BufRead,
    root: &Path,
    options: &Options,
    sink: &Sink<'_>,
    stop: &AtomicBool,
) -> Result<Listing, Error> {
    let folder = Folder::root(root, Budget::of_process())?;
    let prefix = if options.prefix.is_empty() {
        root.as_os_str().as_bytes()
    } else {
        &options.prefix
    };
    let asker = || Asker {
        root: &folder,
        prefix,
        excludes: &options.excludes,
        out: Collector::new(sink),
        gone: 0,
        parent: None,
    };
    let askers = share(Records::new(list, 0), options.threads, stop, asker)?;
    let gone: u64 = askers.iter().map(|it| it.gone).sum();
    let mut found = merged(askers.into_iter().map(|it| it.out));
    // A list of which nothing exists is not one of an empty tree: it has another root, or another prefix.
    if gone > 0 && found.files + found.other == 0 {
        let what =
            format!("none of {gone} paths in the list exists below the root (no file listed)");
        found.problems.add(b"", what);
    }
    Ok(found)
}

/// Reads lines of the policy engine of Spectrum Scale (GPFS):
/// `inode generation snapshot |size|YYYY-MM-DD hh:mm:ss.ffffff| -- path`. They tell all that is wanted, so the file system is
/// not asked. The time is in UTC, and stands for that of the last change, too.
pub fn policy_output(
    list: impl BufRead,
    options: &Options,
    sink: &Sink<'_>,
    stop: &AtomicBool,
) -> Result<Listing, Error> {
    // Nothing is waited for: more threads than processors would be of no use.
    let processors = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let parser = || Parser {
        options,
        out: Collector::new(sink),
    };
    let list = Records::new(list, b'\n');
    let parsers = share(list, options.threads.min(processors), stop, parser)?;
    Ok(merged(parsers.into_iter().map(|it| it.out)))
}

fn merged<'a>(found: impl Iterator<Item = Collector<'a>>) -> Listing {
    found.fold(Listing::default(), |mut all, of_one| {
        all.merge(of_one.found);
        all
    })
}

/// Understands lines.
struct Parser<'a> {
    options: &'a Options,
    out: Collector<'a>,
}

impl<'a> Clerk<'a> for Parser<'a> {
    const WORD: &'static str = "line";

    fn take(&mut self, line: &[u8]) -> Result<ControlFlow<()>, &'static str> {
        let line = policy::parse(line)?;
        let path = below_root(&line.path, &self.options.prefix)?;
        if self.options.excludes.covers(&path) {
            self.out.found.excluded += 1;
            return Ok(Continue(()));
        }
        Ok(self.out.file(RelativePath::new(path), line.attributes))
    }

    fn out(&mut self) -> &mut Collector<'a> {
        &mut self.out
    }
}

/// Asks for attributes.
struct Asker<'a> {
    root: &'a Folder,
    prefix: &'a [u8],
    excludes: &'a Excludes,
    out: Collector<'a>,
    gone: u64,
    /// The folder of the path before: lists go folder by folder. Nothing is open for the root.
    parent: Option<(Vec<u8>, Option<OwnedFd>)>,
}

impl<'a> Clerk<'a> for Asker<'a> {
    const WORD: &'static str = "path";

    fn take(&mut self, path: &[u8]) -> Result<ControlFlow<()>, &'static str> {
        if is_root(path, self.prefix) {
            return Ok(Continue(()));
        }
        let path = below_root(path, self.prefix)?;
        if self.excludes.covers(&path) {
            self.out.found.excluded += 1;
            return Ok(Continue(()));
        }
        match self.kind(&path) {
            Ok(Kind::File(attributes)) => {
                return Ok(self.out.file(RelativePath::new(path), attributes));
            }
            Ok(Kind::Folder | Kind::Other) => self.out.found.other += 1,
            Err(Errno::NOENT | Errno::NOTDIR) => self.gone += 1,
            Err(errno) => {
                let what = format!("{} (file not listed)", stat::meaning(errno));
                self.out.found.problems.add(&path, what);
            }
        }
        Ok(Continue(()))
    }

    fn out(&mut self) -> &mut Collector<'a> {
        &mut self.out
    }
}

impl Asker<'_> {
    /// Asks in the path's folder, so that a path may have any length, and no link on the way is followed.
    fn kind(&mut self, path: &[u8]) -> Result<Kind, Errno> {
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&[][..], path),
        };
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        if self
            .parent
            .as_ref()
            .is_none_or(|(known, _)| known != parent)
        {
            self.parent = None;
            self.parent = Some((parent.to_vec(), self.root.reach(parent)?));
        }
        let open = self.parent.as_ref().and_then(|(_, open)| open.as_ref());
        stat::kind(
            open.map_or_else(|| self.root.as_fd(), OwnedFd::as_fd),
            &name,
        )
    }
}

#[cfg(test)]
mod tests;
