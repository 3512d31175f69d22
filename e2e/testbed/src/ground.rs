//! In: a name. Out: the place where a set of real parts lives and writes, until they are gone.
//! Touches: a state folder; `target/testbed-logs` after a failure.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Result;

use crate::folder::Folder;
use crate::layout::Layout;

static MADE: AtomicUsize = AtomicUsize::new(0);

/// A state folder with a say in whether its logs are worth keeping. Dropped after the processes in it.
#[derive(Debug)]
pub(crate) struct Ground {
    folder: Folder,
    name: String,
    ending: Ending,
}

/// What a drop means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Something went wrong: an orderly end would have come before the drop.
    Failure,
    /// The usual end, unless a panic is going on.
    Usual,
}

impl Ground {
    /// A folder whose logs, if kept, are kept under `name`; the second of a process gets a number.
    pub(crate) fn create(name: String) -> Result<Self> {
        let name = match MADE.fetch_add(1, Ordering::Relaxed) {
            0 => name,
            earlier => format!("{name}-{}", earlier + 1),
        };
        Ok(Self {
            folder: Folder::create()?,
            name,
            ending: Ending::Failure,
        })
    }

    pub(crate) fn layout(&self) -> Layout {
        self.folder.layout()
    }

    /// From now on a drop is no sign of failure.
    pub(crate) fn ends_well(&mut self) {
        self.ending = Ending::Usual;
    }

    /// Copies the logs to where they stay; an earlier copy of that name is replaced.
    pub(crate) fn keep_logs(&self) -> Result<PathBuf> {
        self.folder.keep_logs(&self.name)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let failed = self.ending == Ending::Failure || thread::panicking();
        if failed || std::env::var_os("ORRERY_KEEP").is_some() {
            match self.keep_logs() {
                Ok(kept) => eprintln!("testbed: logs kept in {}", kept.display()),
                Err(error) => eprintln!("testbed: logs lost: {error:#}"),
            }
        }
    }
}

/// Test harnesses name the thread after the test; all others are named by nobody.
pub(crate) fn test_name() -> String {
    match thread::current().name() {
        None | Some("main" | "tokio-rt-worker") => "testbed".into(),
        Some(test) => test.replace("::", "-").replace('/', "-"),
    }
}
