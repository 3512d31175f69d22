//! Takes the files from a list that another program wrote, instead of walking. In: the list. Out: its regular files to a
//! sink, and how it went. Touches: reads the list; asks for attributes where the list does not tell them; opens no file.
//! A path that is in the list twice is given twice.

use std::ffi::CString;
use std::io::BufRead;
use std::num::NonZeroUsize;
use std::ops::ControlFlow::{self, Break, Continue};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::io::Errno;

use super::collect::Collector;
use super::exclude::Excludes;
use super::folder::{Budget, Folder};
use super::queue::{Piece, Queue};
use super::records::{LONGEST, Record, Records, below_root};
use super::stat::{self, Kind};
use super::{Error, Listing, Sink, policy};
use crate::path::RelativePath;

/// How many bytes of paths are handed to a thread at once.
const HANDFUL: usize = 64 << 10;

/// How much of a record that cannot be understood is told.
const TOLD: usize = 200;

/// How to read a list.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many threads ask for attributes, the caller's among them.
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
    let job = Job {
        root: folder,
        queue: Queue::new((), 2 * options.threads.get()),
        stop,
    };
    // Taken before there are other threads: the caller's own reads the list.
    let reading = job.queue.take();
    thread::scope(|scope| {
        let work = || Asker::new(&job, sink).run();
        let spawn = |_| {
            thread::Builder::new()
                .name("list".into())
                .spawn_scoped(scope, work)
                .ok()
        };
        let others: Vec<_> = (1..options.threads.get()).filter_map(spawn).collect();
        let mut asker = Asker::new(&job, sink);
        let outcome = asker.read(Records::new(list, 0), prefix, &options.excludes);
        drop(reading);
        let mut found = asker.run();
        for other in others {
            found.merge(
                other
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            );
        }
        outcome.map(|()| found.listing())
    })
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
    let mut records = Records::new(list, b'\n');
    let mut out = Collector::new(sink);
    loop {
        if stop.load(Ordering::Relaxed) {
            out.found.stopped = true;
            break;
        }
        let after = records.count;
        let Some(record) = records
            .next()
            .map_err(|source| Error::List { after, source })?
        else {
            break;
        };
        let line = whole(&record).and_then(policy::parse);
        match line.and_then(|line| Ok((below_root(&line.path, &options.prefix)?, line.attributes)))
        {
            Ok((path, _)) if options.excludes.covers(&path) => out.found.excluded += 1,
            Ok((path, attributes)) => {
                if out.file(RelativePath::new(path), attributes).is_break() {
                    break;
                }
            }
            Err(why) => left_out(&mut out.found, &record, "line", after + 1, why),
        }
    }
    if !out.found.stopped {
        let _ = out.flush();
    }
    Ok(out.found)
}

fn whole<'a>(record: &Record<'a>) -> Result<&'a [u8], &'static str> {
    match record {
        Record::Whole(bytes) => Ok(bytes),
        Record::TooLong(_) => Err("too long"),
        Record::Cut(_) => Err("not ended: the list may be cut off"),
    }
}

fn left_out(found: &mut Listing, record: &Record<'_>, word: &str, number: u64, why: &str) {
    let (Record::Whole(bytes) | Record::TooLong(bytes) | Record::Cut(bytes)) = record;
    found.problems.add(
        &bytes[..bytes.len().min(TOLD)],
        format!("{word} {number}: {why} ({word} left out)"),
    );
}

/// What all threads share: the queue has handfuls of paths, each with its NUL.
struct Job<'a> {
    root: Folder,
    queue: Queue<Vec<u8>, ()>,
    stop: &'a AtomicBool,
}

/// One thread that asks for attributes.
struct Asker<'a> {
    job: &'a Job<'a>,
    out: Collector<'a>,
    gone: u64,
    /// The folder of the path before: lists go folder by folder. Nothing is open for the root.
    parent: Option<(Vec<u8>, Option<OwnedFd>)>,
}

/// What one thread found.
struct Found {
    listing: Listing,
    gone: u64,
}

impl<'a> Asker<'a> {
    fn new(job: &'a Job<'a>, sink: &'a Sink<'a>) -> Self {
        Self {
            job,
            out: Collector::new(sink),
            gone: 0,
            parent: None,
        }
    }

    /// Reads the list to its end, and hands out what it has, unless the others have enough to do.
    fn read(
        &mut self,
        mut records: Records<impl BufRead>,
        prefix: &[u8],
        excludes: &Excludes,
    ) -> Result<(), Error> {
        let mut paths = Vec::new();
        loop {
            let after = records.count;
            let record = match records.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(source) => {
                    self.job.queue.close();
                    return Err(Error::List { after, source });
                }
            };
            match whole(&record).and_then(|path| below_root(path, prefix)) {
                Ok(path) if excludes.covers(&path) => self.out.found.excluded += 1,
                Ok(path) => {
                    paths.extend_from_slice(&path);
                    paths.push(0);
                }
                Err(why) => left_out(&mut self.out.found, &record, "path", after + 1, why),
            }
            if self.go_on().is_break()
                || (paths.len() >= HANDFUL && self.hand_out(&mut paths).is_break())
            {
                self.job.queue.close();
                return Ok(());
            }
        }
        if self.ask(&paths).is_break() {
            self.job.queue.close();
        }
        Ok(())
    }

    fn hand_out(&mut self, paths: &mut Vec<u8>) -> ControlFlow<()> {
        let full = std::mem::replace(paths, Vec::with_capacity(HANDFUL + LONGEST));
        match self.job.queue.add_urgent(full) {
            Ok(()) => Continue(()),
            Err(full) => self.ask(&full),
        }
    }

    fn run(mut self) -> Found {
        while let Some((piece, _busy)) = self.job.queue.take() {
            if let Piece::Urgent(paths) = piece
                && self.ask(&paths).is_break()
            {
                self.job.queue.close();
            }
        }
        if !self.job.queue.is_closed() {
            let _ = self.out.flush();
        }
        Found {
            listing: self.out.found,
            gone: self.gone,
        }
    }

    fn ask(&mut self, paths: &[u8]) -> ControlFlow<()> {
        for path in paths
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty())
        {
            self.go_on()?;
            match self.kind(path) {
                Ok(Kind::File(attributes)) => self.out.file(RelativePath::new(path), attributes)?,
                Ok(Kind::Folder | Kind::Other) => self.out.found.other += 1,
                Err(Errno::NOENT | Errno::NOTDIR) => self.gone += 1,
                Err(errno) => {
                    let what = format!("{} (file not listed)", stat::meaning(errno));
                    self.out.found.problems.add(path, what);
                }
            }
        }
        Continue(())
    }

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
            self.parent = Some((parent.to_vec(), self.job.root.reach(parent)?));
        }
        let open = self.parent.as_ref().and_then(|(_, open)| open.as_ref());
        stat::kind(
            open.map_or_else(|| self.job.root.as_fd(), OwnedFd::as_fd),
            &name,
        )
    }

    /// `Break` when somebody wants no more.
    fn go_on(&mut self) -> ControlFlow<()> {
        if self.job.stop.load(Ordering::Relaxed) || self.job.queue.is_closed() {
            self.out.found.stopped = true;
            return Break(());
        }
        Continue(())
    }
}

impl Found {
    fn merge(&mut self, other: Self) {
        self.listing.merge(other.listing);
        self.gone += other.gone;
    }

    /// A list of which nothing exists is not one of an empty tree: it has another root, or another prefix.
    fn listing(mut self) -> Listing {
        if self.gone > 0 && self.listing.files + self.listing.other == 0 {
            let what = format!(
                "none of {} paths in the list exists below the root (no file listed)",
                self.gone
            );
            self.listing.problems.add(b"", what);
        }
        self.listing
    }
}

#[cfg(test)]
mod tests;
