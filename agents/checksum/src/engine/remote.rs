#![expect(
    clippy::disallowed_methods,
    reason = "an edge: it reads the clock for everything below it"
)]
//! Reading by others: packs go to a queue, and what workers found comes back. Only the store counts: what is lost on the way
//! is sent again, and a queue that is away is waited for.

mod monitor;
mod results;
mod send;
mod source;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use workqueue::{Counts, Enqueuer, Kind, NewJob, Pool, PoolOptions};

use super::failures::Failures;
use super::work::give_up;
use super::{Error, Job, Shared};
use crate::path::Key;
use crate::queue::{self, COMPUTE, Contact, Queue};
use crate::schedule::{Schedule, Seen};
use crate::split::Pieces;
use crate::store::{Run, Store};
use send::{Line, send};
use source::Source;

/// After so many rounds in which all was consumed and nothing came, what is left is told as unreadable.
const ROUNDS: usize = 3;
/// How often it is looked whether all has come back.
const LOOK: Duration = Duration::from_secs(1);
/// The queue must be seen empty so often: between two looks a pack may be on its way.
const LOOKS: usize = 3;
/// How long nothing may be in the queue but what was put off for later. That may be of others, who never come for it.
const PATIENCE: Duration = Duration::from_mins(10);

/// Has all read that the run has still to read.
pub(super) async fn work(
    job: &Job,
    queue: &Queue,
    store: &Store,
    run: &mut Run,
    shared: &Arc<Shared>,
) -> Result<(), Error> {
    let kinds = vec![Kind::new(queue.results())];
    let writers = u32::try_from(job.writers_to(store)).unwrap_or(1);
    let pool = Pool::new(
        queue.client.clone(),
        queue.namespace.clone(),
        PoolOptions::new(kinds, writers),
    )?;
    let mut pieces = Pieces::default();
    pieces.load(store.view().pieces(run).await?);
    let remote = Remote {
        job,
        queue,
        store,
        shared,
        pool: &pool,
        contact: Contact::default(),
        losses: AtomicU64::new(0),
        pieces: Mutex::new(pieces),
        failures: job.failures(run),
    };
    let stop = CancellationToken::new();
    let serving = (0..job.writers_to(store)).map(|_| remote.take_results(run));
    let living = pool.run(stop.clone());
    let working = async {
        let done = tokio::select! {
            done = remote.rounds(run) => done,
            done = try_join_all(serving) => done.map(drop),
            never = remote.monitor() => match never {},
            error = remote.contact.refused() => Err(error.into()),
        };
        stop.cancel();
        done
    };
    let (done, ()) = tokio::join!(working, living);
    done?;
    *run = store.view().run(run.id).await?;
    shared.tell(run);
    Ok(())
}

/// Removes all that a run has left in the queue. Best effort: a queue that is away has nothing of value.
pub async fn clean_up(queue: &Queue) {
    let inspector = queue.inspector();
    let _ = inspector.let_go(COMPUTE, &queue.results()).await;
    // Before the results: whoever is late sends none where nothing is published.
    let _ = queue.published().delete().await;
    let _ = inspector.remove(&queue.results()).await;
    // Packs of others who share the queue stay, and so does a pause of theirs.
    let unused = async {
        let is_held = inspector.is_paused(COMPUTE).await?;
        let is_drained = inspector.counts(COMPUTE).await?.is_drained();
        Ok::<_, workqueue::Error>(is_drained && !is_held)
    };
    if unused.await.unwrap_or(false) {
        let _ = inspector.remove(COMPUTE).await;
    }
}

struct Remote<'a> {
    job: &'a Job,
    queue: &'a Queue,
    store: &'a Store,
    shared: &'a Arc<Shared>,
    pool: &'a Pool,
    contact: Contact,
    /// How often the queue was found to have lost all it had.
    losses: AtomicU64,
    /// Of large files.
    pieces: Mutex<Pieces>,
    /// Of this process: who goes on with the run tries them again as often.
    failures: Failures,
}

/// Packs of this run, on their way to the queue.
struct Production<'a> {
    source: Source<'a>,
    enqueuer: Enqueuer,
}

impl Line for Production<'_> {
    type Pack = NewJob;

    fn size(pack: &NewJob) -> usize {
        queue::size(pack)
    }

    async fn next(&mut self) -> Result<Option<NewJob>, Error> {
        self.source.next().await
    }

    async fn push(&self, packs: Vec<NewJob>) -> Result<bool, workqueue::Error> {
        let enqueued = self.enqueuer.enqueue_many(packs).await?;
        Ok(enqueued.first().is_some_and(|it| it.length <= 1))
    }
}

impl Remote<'_> {
    /// Sends packs until nothing is left, or nothing comes back.
    async fn rounds(&self, run: &Run) -> Result<(), Error> {
        let mut fruitless = 0;
        loop {
            let before = self.remaining(run).await?;
            if before == 0 {
                return Ok(());
            }
            let keys = self.failures.begin_round(before);
            let losses = self.losses.load(Ordering::Relaxed);
            self.produce(run, keys).await?;
            self.drained(run).await?;
            if self.remaining(run).await? < before {
                fruitless = 0;
            } else if !self.has_lost_since(losses).await {
                fruitless += 1;
            }
            if fruitless >= ROUNDS {
                return Ok(give_up(self.store, run, &self.failures).await?);
            }
        }
    }

    async fn remaining(&self, run: &Run) -> Result<i64, Error> {
        if self.shared.is_stopped() {
            return Err(Error::Stopped { run: run.id });
        }
        let run = self.store.view().run(run.id).await?;
        self.shared.tell(&run);
        Ok(run.counts.remaining().max(0))
    }

    /// Enqueues all that is still to be read, no faster than it is consumed.
    async fn produce(&self, run: &Run, keys: Option<Vec<Key>>) -> Result<(), Error> {
        let inspector = self.queue.inspector();
        let mut schedule = Schedule::default();
        let mut line = Production {
            source: Source::new(self, run, keys),
            enqueuer: self.queue.enqueuer(),
        };
        let mut held = Vec::new();
        let (began, mut added, mut was_empty) = (Instant::now(), 0, false);
        while !self.shared.is_stopped() {
            let looked = async {
                let length = inspector.queue_length(COMPUTE).await?;
                Ok::<_, workqueue::Error>((length, inspector.workers(COMPUTE).await?))
            };
            let (length, workers) = match looked.await {
                Ok(seen) => seen,
                Err(error) => {
                    self.trouble(&error).await;
                    continue;
                }
            };
            self.shared.queued.store(length, Ordering::Relaxed);
            let seen = Seen {
                length,
                workers,
                added,
                was_empty,
            };
            let decision = schedule.step(began.elapsed(), seen);
            let wanted = decision.target.saturating_sub(length);
            let sent = send(&mut line, &mut held, wanted).await?;
            (added, was_empty) = (sent.packs, sent.found_empty);
            if sent.is_all {
                return Ok(());
            }
            if let Some(error) = sent.trouble {
                self.trouble(&error).await;
            }
            sleep(decision.wait).await;
        }
        Err(Error::Stopped { run: run.id })
    }

    /// Waits until all has come back, or nothing more will. What waits or is being read comes back: a large file may take
    /// hours, packs of a worker that died come by themselves, and those that end every worker go to the dead.
    async fn drained(&self, run: &Run) -> Result<(), Error> {
        let inspector = self.queue.inspector();
        let (mut empty, mut moved) = (0, Instant::now());
        while empty < LOOKS && moved.elapsed() < PATIENCE && self.remaining(run).await? > 0 {
            let looked = async {
                let packs = inspector.counts(COMPUTE).await?;
                let results = inspector.counts(&self.queue.results()).await?;
                Ok::<_, workqueue::Error>((packs, results))
            };
            match looked.await {
                Ok((packs, results)) => {
                    self.shared.queued.store(packs.queued, Ordering::Relaxed);
                    let is_empty = packs.is_drained() && results.is_drained();
                    empty = if is_empty { empty + 1 } else { 0 };
                    if is_under_way(packs) || is_under_way(results) || self.shared.is_paused() {
                        moved = Instant::now();
                    }
                }
                Err(error) => {
                    (empty, moved) = (0, Instant::now());
                    self.trouble(&error).await;
                }
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Whether the queue has lost what it had: then nobody could say what came of it. What is published is there as long as
    /// it has not, and whoever publishes it again counts that first.
    async fn has_lost_since(&self, losses: u64) -> bool {
        let is_there = matches!(self.queue.published().read().await, Ok(Some(_)));
        !is_there || self.losses.load(Ordering::Relaxed) != losses
    }

    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn trouble(&self, error: &workqueue::Error) {
        self.contact.lost(self.shared, error).await;
    }
}

/// Whether somebody has some of them, or will have.
fn is_under_way(jobs: Counts) -> bool {
    jobs.queued + jobs.in_progress > 0
}
