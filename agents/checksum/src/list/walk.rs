//! Walks a tree with several threads. In: a root folder. Out: its regular files to a sink, and how it went.
//! Touches: opens folders one by one below their parents, and asks for attributes; opens no file and follows no link.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::ops::ControlFlow::{self, Break, Continue};
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

use super::collect::{Collector, join};
use super::exclude::Excludes;
use super::folder::{Budget, Folder, Pending};
use super::queue::{Piece, Queue};
use super::stat::{self, Kind};
use super::{Error, Listing, Sink};
use crate::path::RelativePath;

/// What one call of getdents may fill, per thread.
const BUFFER: usize = 128 << 10;

/// From this name of a folder on, other threads may help with its attributes.
const CROWD: usize = 1024;

/// How many names are handed out at once, in bytes.
const HANDFUL: usize = 16 << 10;

/// How many pending subfolders of one folder a thread keeps to itself while others have enough to do.
const SUBFOLDERS: usize = 256;

/// A longer path of a folder is a problem. Paths of all folders on a way down are kept, so this bounds memory.
const LONGEST_PATH: usize = 64 << 10;

/// How to walk.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many threads, the caller's among them. On network storage far more than cores: each waits for answers.
    pub threads: NonZeroUsize,
    /// What is left out. A folder that is, is not entered.
    pub excludes: Excludes,
    /// Enters no folder on another file system than the root's.
    pub one_file_system: bool,
    /// A folder that is deeper is a problem. A folder that is mounted into itself would else never end.
    pub max_depth: u32,
}

impl Default for Options {
    fn default() -> Self {
        let threads = NonZeroUsize::MIN.saturating_add(3);
        Self {
            threads,
            excludes: Excludes::default(),
            one_file_system: false,
            max_depth: 4096,
        }
    }
}

/// Lists every regular file below `root`, each once. What vanishes meanwhile was never there. Ends early once `stop` is set.
pub fn walk(
    root: &Path,
    options: &Options,
    sink: &Sink<'_>,
    stop: &AtomicBool,
) -> Result<Listing, Error> {
    let root_error = |errno| Error::Root {
        path: root.to_owned(),
        errno,
    };
    let folder = Folder::root(root, Budget::of_process())?;
    let device = options
        .one_file_system
        .then(|| stat::device(&folder))
        .transpose()
        .map_err(root_error)?;
    Ok(Tree::new(folder, device, options, stop).walk(sink))
}

/// What all threads share.
struct Tree<'a> {
    root: Arc<Folder>,
    /// The only file system to be on, if there is only one.
    device: Option<(u32, u32)>,
    options: &'a Options,
    stop: &'a AtomicBool,
    queue: Queue<Names, Todo>,
}

impl<'a> Tree<'a> {
    fn new(
        root: Folder,
        device: Option<(u32, u32)>,
        options: &'a Options,
        stop: &'a AtomicBool,
    ) -> Self {
        let queue = Queue::new(Todo::Root, 2 * options.threads.get());
        Self {
            root: Arc::new(root),
            device,
            options,
            stop,
            queue,
        }
    }

    fn walk(&self, sink: &Sink<'_>) -> Listing {
        let work = || Walker::new(self, sink).run();
        thread::scope(|scope| {
            let spawn = |_| {
                thread::Builder::new()
                    .name("walk".into())
                    .spawn_scoped(scope, work)
                    .ok()
            };
            // Threads that the system refuses are done without: the caller's own is enough.
            let others: Vec<_> = (1..self.options.threads.get()).filter_map(spawn).collect();
            let mut listing = work();
            for other in others {
                listing.merge(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            listing
        })
    }
}

/// A folder to be listed.
enum Todo {
    Root,
    Below(Pending),
}

/// Names in a folder whose attributes are wanted, each with its NUL.
struct Names {
    folder: Arc<Folder>,
    bytes: Vec<u8>,
}

/// One thread.
struct Walker<'a> {
    tree: &'a Tree<'a>,
    out: Collector<'a>,
    /// Found in the present folder, not yet in the queue.
    subfolders: Vec<Todo>,
}

impl<'a> Walker<'a> {
    fn new(tree: &'a Tree<'a>, sink: &'a Sink<'a>) -> Self {
        Self {
            tree,
            out: Collector::new(sink),
            subfolders: Vec::new(),
        }
    }

    fn run(mut self) -> Listing {
        let mut buffer = Vec::with_capacity(BUFFER);
        while let Some((piece, _busy)) = self.tree.queue.take() {
            let flow = match piece {
                Piece::Urgent(names) => self.ask(&names),
                Piece::Rest(todo) => self.enter(&todo, buffer.spare_capacity_mut()),
            };
            self.share();
            if flow.is_break() {
                self.tree.queue.close();
            }
        }
        if !self.tree.queue.is_closed() {
            let _ = self.out.flush();
        }
        self.out.found
    }

    /// Opens a folder and lists it.
    fn enter(&mut self, todo: &Todo, buffer: &mut [MaybeUninit<u8>]) -> ControlFlow<()> {
        self.go_on()?;
        let pending = match todo {
            Todo::Root => return self.list(&Arc::clone(&self.tree.root), buffer),
            Todo::Below(pending) => pending,
        };
        match self.open(pending) {
            Ok(Some(folder)) => return self.list(&Arc::new(folder), buffer),
            Ok(None) => self.out.found.excluded += 1,
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno) => self.problem(&pending.place().path, errno, "folder not listed"),
        }
        Continue(())
    }

    /// Nothing for a folder on another file system where only one is wanted.
    fn open(&self, pending: &Pending) -> Result<Option<Folder>, Errno> {
        let folder = pending.open(&self.tree.root)?;
        match self.tree.device {
            Some(device) if stat::device(&folder)? != device => Ok(None),
            _ => Ok(Some(folder)),
        }
    }

    fn list(&mut self, folder: &Arc<Folder>, buffer: &mut [MaybeUninit<u8>]) -> ControlFlow<()> {
        let mut entries = RawDir::new(folder.as_fd(), buffer);
        let mut later = Names::of(folder);
        let mut seen = 0;
        while let Some(entry) = entries.next() {
            self.go_on()?;
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    self.broken_off(folder, errno);
                    break;
                }
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            seen += 1;
            if self.must_ask(folder, name, entry.file_type()) {
                if seen > CROWD {
                    self.put_off(&mut later, name)?;
                } else {
                    self.ask_for(folder, name)?;
                }
            }
        }
        self.ask(&later)
    }

    /// Takes note of a name. Whether only the file system can tell what it is.
    fn must_ask(&mut self, folder: &Arc<Folder>, name: &CStr, kind: FileType) -> bool {
        if self.is_excluded(folder, name) {
            self.out.found.excluded += 1;
            return false;
        }
        match kind {
            FileType::RegularFile | FileType::Unknown => return true,
            FileType::Directory => self.subfolder(folder, name),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice => self.out.found.other += 1,
        }
        false
    }

    fn is_excluded(&self, folder: &Folder, name: &CStr) -> bool {
        let excludes = &self.tree.options.excludes;
        !excludes.is_empty() && excludes.matches(&join(folder.path(), name.to_bytes()))
    }

    /// Collects names of a crowded folder, and hands them to others unless these have enough to do.
    fn put_off(&mut self, later: &mut Names, name: &CStr) -> ControlFlow<()> {
        later.bytes.extend_from_slice(name.to_bytes_with_nul());
        if later.bytes.len() < HANDFUL {
            return Continue(());
        }
        let full = std::mem::replace(later, Names::of(&later.folder));
        match self.tree.queue.add_urgent(full) {
            Ok(()) => Continue(()),
            Err(full) => self.ask(&full),
        }
    }

    fn ask(&mut self, names: &Names) -> ControlFlow<()> {
        for name in names.bytes.split_inclusive(|byte| *byte == 0) {
            self.go_on()?;
            if let Ok(name) = CStr::from_bytes_with_nul(name) {
                self.ask_for(&names.folder, name)?;
            }
        }
        Continue(())
    }

    fn ask_for(&mut self, folder: &Arc<Folder>, name: &CStr) -> ControlFlow<()> {
        match stat::kind(folder.as_fd(), name) {
            Ok(Kind::File(attributes)) => {
                let path = join(folder.path(), name.to_bytes());
                return self.out.file(RelativePath::new(path), attributes);
            }
            Ok(Kind::Folder) => self.subfolder(folder, name),
            Ok(Kind::Other) => self.out.found.other += 1,
            Err(Errno::NOENT) => {}
            Err(errno) => self.problem(
                &join(folder.path(), name.to_bytes()),
                errno,
                "file not listed",
            ),
        }
        Continue(())
    }

    fn subfolder(&mut self, folder: &Arc<Folder>, name: &CStr) {
        let path = folder.path();
        if folder.place().depth >= self.tree.options.max_depth {
            let what = format!(
                "more than {} folders deep (folder not listed)",
                self.tree.options.max_depth
            );
            self.out
                .found
                .problems
                .add(&join(path, name.to_bytes()), what);
        } else if path.len() + 1 + name.count_bytes() > LONGEST_PATH {
            let what = format!("path longer than {LONGEST_PATH} bytes (folder not listed)");
            self.out
                .found
                .problems
                .add(&join(path, name.to_bytes()), what);
        } else {
            self.subfolders.push(Todo::Below(folder.pending(name)));
            if self.subfolders.len() >= SUBFOLDERS || self.tree.queue.is_hungry() {
                self.share();
            }
        }
    }

    fn share(&mut self) {
        if !self.subfolders.is_empty() {
            self.tree.queue.add(self.subfolders.drain(..));
        }
    }

    /// `Break` when somebody wants no more.
    fn go_on(&mut self) -> ControlFlow<()> {
        if self.tree.stop.load(Ordering::Relaxed) || self.tree.queue.is_closed() {
            self.out.found.stopped = true;
            return Break(());
        }
        Continue(())
    }

    /// A folder that was removed has no names any more. A root that was removed is not a tree without files.
    fn broken_off(&mut self, folder: &Folder, errno: Errno) {
        if errno != Errno::NOENT || folder.path().is_empty() {
            self.problem(folder.path(), errno, "folder not listed to its end");
        }
    }

    fn problem(&mut self, path: &[u8], errno: Errno, consequence: &str) {
        let what = format!("{} ({consequence})", stat::meaning(errno));
        self.out.found.problems.add(path, what);
    }
}

impl Names {
    fn of(folder: &Arc<Folder>) -> Self {
        Self {
            folder: Arc::clone(folder),
            bytes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
