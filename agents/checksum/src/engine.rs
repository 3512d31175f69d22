#![expect(
    clippy::disallowed_methods,
    reason = "an edge: it reads the clock for everything below it"
)]
//! A whole run. In: a folder and a store. Out: what was found. Touches: what listing, reading and storing touch.
//! Whatever happens, what is in the store is enough to go on: a run that died is simply run again.

pub mod adapt;
mod failures;
mod left;
mod remote;
pub mod shared;
mod sync;
mod work;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use thiserror::Error;

use crate::list::exclude::Excludes;
use crate::list::{self, Problems};
use crate::pack::Sizes;
use crate::queue::Queue;
use crate::read::{Medium, Root};
use crate::state::State;
use crate::store::{self, Ending, NewRun, Run, Store};

use failures::Failures;

pub use remote::clean_up;
pub use shared::Shared;

/// Problems that are forgotten at once.
const PROBLEMS: u32 = 20_000;

/// What to do.
#[derive(Clone, Debug)]
pub struct Job {
    /// The folder.
    pub root: PathBuf,
    /// Whether it may change meanwhile.
    pub source: Source,
    /// How its files are found.
    pub lister: Lister,
    /// What is left out.
    pub excludes: Excludes,
    /// A folder that is made for the listing, and removed.
    pub spill: PathBuf,
    /// How many bytes of it may be on disk; none means as many as it takes.
    pub spill_size: Option<u64>,
    /// Forget at most so many percent of all files.
    pub deletion_guard: u8,
    /// How many files are read at once; none means as many as the storage likes.
    pub readers: Option<usize>,
    /// Who reads; none means this process.
    pub queue: Option<Queue>,
    /// Where content comes from.
    pub medium: Medium,
    /// How large packs are.
    pub packs: Sizes,
    /// Parts of the listing that are compared at once.
    pub sync_concurrency: usize,
    /// Rows in one statement while they are compared, at most.
    pub sync_rows: usize,
    /// Transactions that store results at once, at most.
    pub writers: usize,
    /// Results that are stored together, at most.
    pub batch: usize,
    /// Whether the run ends when the files are listed.
    pub stop_after_sync: bool,
}

impl Job {
    /// What failed in a run; what was not listed may be gone for good, from a snapshot, too.
    fn failures(&self, run: &Run) -> Failures {
        Failures::of(if run.complete {
            self.source
        } else {
            Source::Live
        })
    }

    /// How many transactions store results at once: as many as asked for, if the store takes so many.
    fn writers_to(&self, store: &Store) -> usize {
        self.writers.clamp(1, store.writers())
    }
}

/// What a run reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Files that others may change meanwhile.
    Live,
    /// A consistent view: what is not as it was listed is not what it should be.
    Snapshot,
}

/// How files are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lister {
    /// By walking through the folders.
    Walk,
    /// In a list of paths that end with a NUL each.
    Paths(PathBuf),
    /// In what the policy engine of Spectrum Scale wrote; its paths begin with this.
    Policy(PathBuf, Vec<u8>),
}

/// What to do about an earlier run that was neither finished nor aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// Say so, and do nothing.
    Refuse,
    /// Go on with it, whatever else is asked for.
    Resume,
    /// Give it up, and begin another.
    Abort,
}

/// Why a run did not end.
#[derive(Debug, Error)]
pub enum Error {
    /// The store.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The listing.
    #[error(transparent)]
    List(#[from] list::Error),
    /// The folder, or a list of files.
    #[error("failed to open {path}")]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Space for the listing.
    #[error("failed to keep the listing in {path}")]
    Spill {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Too many files are gone.
    #[error(
        "{missing} of {known} files are gone, more than {percent} percent; see whether the right volume is mounted, and if the files were deleted on purpose, allow more"
    )]
    Guard {
        /// How many are gone.
        missing: u64,
        /// Of how many.
        known: u64,
        /// The guard.
        percent: u8,
    },
    /// The queue cannot be used at all; that it does not answer is no error, but waited for.
    #[error("failed to use the queue")]
    Queue(#[from] workqueue::Error),
    /// Somebody stopped it.
    #[error("stopped; --resume goes on with run {run}")]
    Stopped {
        /// Which.
        run: i64,
    },
    /// Somebody stopped what can only be begun again.
    #[error("stopped")]
    Interrupted,
    /// A thread ended before its time.
    #[error("a reader ended before its time")]
    Reader,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// The run with its counts.
    pub run: Run,
    /// What could not be listed, if it was listed now.
    pub problems: Problems,
}

/// The run to carry out: a new one, or one that was interrupted.
pub async fn begin(store: &Store, what: &NewRun, unresolved: Unresolved) -> Result<Run, Error> {
    let last = store.view().last_run().await?;
    match (last.filter(|it| !it.state.is_resolved()), unresolved) {
        (Some(run), Unresolved::Resume) => return Ok(run),
        (Some(run), Unresolved::Abort) => drop(abort(store, run, None).await?),
        (Some(_), Unresolved::Refuse) | (None, _) => {}
    }
    Ok(store.begin_run(what, Timestamp::now()).await?)
}

/// Carries a run out, from the state it is in to the end.
pub async fn run(
    job: &Job,
    store: &Store,
    mut run: Run,
    shared: &Arc<Shared>,
) -> Result<Ended, Error> {
    let root = open(&job.root).await?;
    let mut problems = Problems::default();
    let before = run.counts.bytes_read.cast_unsigned();
    shared.bytes_before.store(before, Ordering::Relaxed);
    shared.tell(&run);
    while let Some(next) = run.state.next() {
        match run.state {
            State::Initialised => forget_problems(store, &run, shared).await?,
            State::MetadataSync => {
                problems = Box::pin(sync::sync(job, store, &mut run, shared)).await?;
            }
            State::WorkQueue if job.stop_after_sync => {
                let ending = Ending {
                    result: "Stopped".into(),
                    message: "the files are listed, and the run ends as it was asked to".into(),
                };
                let run = abort(store, run, Some(&ending)).await?;
                return Ok(Ended { run, problems });
            }
            State::WorkQueue => match &job.queue {
                Some(queue) => {
                    Box::pin(remote::work(job, queue, store, &mut run, shared)).await?;
                }
                None => Box::pin(work::work(job, &root, store, &mut run, shared)).await?,
            },
            // Who makes a consistent view has made it before, and removes it after. A listing that was left is removed by
            // the next.
            State::Snapshot
            | State::CleanUp
            | State::Finished
            | State::AbortingMetadataSync
            | State::AbortingSnapshot
            | State::Aborted => {}
        }
        store.advance(&mut run, next, Timestamp::now()).await?;
        shared.tell(&run);
    }
    Ok(Ended { run, problems })
}

/// Opens a folder, on a thread of its own: a storage that does not answer keeps nobody from hearing signals.
pub async fn open(folder: &Path) -> Result<Arc<Root>, Error> {
    let path = folder.to_owned();
    let opened = tokio::task::spawn_blocking(move || Root::open(&path)).await;
    let opened = opened.map_err(|_| Error::Reader)?;
    let root = opened.map_err(|source| Error::Open {
        path: folder.into(),
        source,
    })?;
    Ok(Arc::new(root))
}

/// Forgets what earlier runs could not verify: whoever asks is told of the last one. In steps, because there may be as many as
/// files.
async fn forget_problems(store: &Store, run: &Run, shared: &Shared) -> Result<(), Error> {
    while store.forget_problems(run.id, PROBLEMS).await? {
        if shared.is_stopped() {
            return Err(Error::Stopped { run: run.id });
        }
    }
    Ok(())
}

/// Gives a run up: it can no longer be resumed, and the next may begin. Returns it as it is then.
pub async fn abort(store: &Store, mut run: Run, why: Option<&Ending>) -> Result<Run, Error> {
    if !run.state.is_resolved() {
        let aborted = run.state.aborted();
        store
            .give_up(&mut run, aborted, why, Timestamp::now())
            .await?;
    }
    while let Some(next) = run.state.next() {
        store.advance(&mut run, next, Timestamp::now()).await?;
    }
    Ok(run)
}

/// Where a store in a file keeps a listing.
pub fn spill_beside(store: &Path) -> PathBuf {
    store::beside(store, ".listing")
}
