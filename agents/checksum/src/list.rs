//! Which regular files are below a folder. In: a folder, or a list that another program wrote. Out: batches of entries to a
//! sink, and a [`Listing`] that tells whether these were all. Touches: reads folders and attributes, opens no file.

mod collect;
pub mod exclude;
pub mod file_list;
mod folder;
mod policy;
mod queue;
mod records;
mod share;
pub(crate) mod stat;
pub mod walk;

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::entry::Entry;
use crate::path::RelativePath;

/// Most entries that a sink gets at once.
pub const BATCH: usize = 1024;

/// Takes batches of at most [`BATCH`] entries, from several threads at once and in no order. `Break` ends the listing early.
pub type Sink<'a> = dyn Fn(Vec<Entry>) -> ControlFlow<()> + Sync + 'a;

/// How a listing went. Only after a complete one may a file that was not listed be taken for deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Regular files that the sink was given.
    pub files: u64,
    /// Their sizes together.
    pub bytes: u64,
    /// Links, FIFOs, sockets and devices: seen, and left out.
    pub other: u64,
    /// Files and folders that a pattern left out, and folders on other file systems where these were not wanted. What is
    /// below such a folder was not counted.
    pub excluded: u64,
    /// What could not be listed.
    pub problems: Problems,
    /// It was ended early, by the sink or from outside.
    pub stopped: bool,
}

impl Listing {
    /// Whether every file that exists was listed.
    pub fn is_complete(&self) -> bool {
        self.problems.total == 0 && !self.stopped
    }

    fn merge(&mut self, other: Self) {
        let Self {
            files,
            bytes,
            other,
            excluded,
            problems,
            stopped,
        } = other;
        self.files += files;
        self.bytes = self.bytes.saturating_add(bytes);
        self.other += other;
        self.excluded += excluded;
        self.problems.merge(problems);
        self.stopped |= stopped;
    }
}

/// What could not be listed: all are counted, some are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// How many there were.
    pub total: u64,
    /// At most [`Problems::TOLD`] of them.
    pub first: Vec<Problem>,
}

impl Problems {
    /// How many are told.
    pub const TOLD: usize = 100;

    fn add(&mut self, path: &[u8], what: String) {
        self.total += 1;
        if self.first.len() < Self::TOLD {
            self.first.push(Problem {
                path: RelativePath::new(path),
                what,
            });
        }
    }

    fn merge(&mut self, other: Self) {
        self.total += other.total;
        let room = Self::TOLD - self.first.len();
        self.first.extend(other.first.into_iter().take(room));
    }
}

/// One thing that could not be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where. Empty for the root itself; the beginning of the record for one of a list that cannot be understood.
    pub path: RelativePath,
    /// What happened, and what follows: `permission denied (folder not listed)`.
    pub what: String,
}

/// Why nothing, or not all of a list, could be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The root is missing, is no folder, or may not be opened.
    #[error("failed to open the folder {path:?}: {why}", why = stat::meaning(*.errno))]
    Root {
        /// The root.
        path: PathBuf,
        /// Why.
        errno: rustix::io::Errno,
    },
    /// The list of files broke off. Some of what was read of it went to the sink.
    #[error("failed to read the list of files after record {after}")]
    List {
        /// How many records were read.
        after: u64,
        /// Why.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_counted_and_a_hundred_told() {
        let mut all = Problems::default();
        for _ in 0..3 {
            let mut some = Problems::default();
            (0..70).for_each(|_| some.add(b"a", "gone".into()));
            all.merge(some);
        }
        assert_eq!((all.total, all.first.len()), (210, 100));
    }

    #[test]
    fn a_listing_with_a_problem_or_a_stop_is_not_complete() {
        let mut broken = Listing::default();
        assert!(broken.is_complete());
        broken.problems.add(b"a", "gone".into());
        assert!(!broken.is_complete());
        assert!(
            !Listing {
                stopped: true,
                ..Listing::default()
            }
            .is_complete()
        );
    }
}
