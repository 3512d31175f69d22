#![expect(
    clippy::disallowed_methods,
    reason = "an edge: it reads the clock for everything below it"
)]
//! Reading by others: packs go to a queue, and what workers found comes back. Only the store counts: what is lost on the way
//! is sent again, and a queue that is away is waited for.

mod monitor;
mod send;
mod source;

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use jiff::Timestamp;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use workqueue::{Enqueuer, Idle, Kind, NewJob, Pool, PoolOptions, Taken, Tries};

use super::failures::Failures;
use super::work::give_up;
use super::{Error, Job, Shared};
use crate::algorithm::{Algorithm, Digest};
use crate::judge::Reading;
use crate::path::Key;
use crate::queue::{self, COMPUTE, Contact, Queue, payload};
use crate::schedule::{Schedule, Seen};
use crate::split::Pieces;
use crate::store::{FileResult, Run, Store};
use crate::wire::BackPack;
use send::{Line, send};
use source::Source;

/// After so many rounds of which nothing came, what is left is told as unreadable.
const ROUNDS: usize = 3;
/// How often it is looked whether all has come back.
const LOOK: Duration = Duration::from_secs(1);
/// The queue must be seen empty so often: between two looks a pack may be on its way.
const LOOKS: usize = 3;
/// How long a run waits for results while others keep the queue busy, before it sends again what is missing.
const PATIENCE: Duration = Duration::from_mins(10);
/// A worker waits at most so long before it looks for results again.
const IDLE: Duration = Duration::from_millis(500);

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
    let remote = Remote {
        job,
        queue,
        store,
        shared,
        pool: &pool,
        contact: Contact::default(),
        pieces: Mutex::default(),
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
    let _ = inspector.remove(&queue.results()).await;
    let _ = queue.published().delete().await;
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
    /// Of large files. Who goes on with the run reads them again.
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

    async fn push(&self, packs: Vec<NewJob>) -> Result<(), workqueue::Error> {
        self.enqueuer.enqueue_many(packs).await.map(|_| ())
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
            self.produce(run, keys).await?;
            self.drained(run).await?;
            let is_fruitless = self.remaining(run).await? >= before;
            fruitless = if is_fruitless { fruitless + 1 } else { 0 };
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
        let (began, mut added) = (Instant::now(), 0);
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
                was_empty: length == 0 && added > 0,
            };
            let decision = schedule.step(began.elapsed(), seen);
            let wanted = decision.target.saturating_sub(length);
            let sent = send(&mut line, &mut held, wanted).await?;
            added = sent.packs;
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

    /// Waits until all has come back, or nothing more will.
    async fn drained(&self, run: &Run) -> Result<(), Error> {
        let inspector = self.queue.inspector();
        let (mut empty, mut last, mut moved) = (0, i64::MAX, Instant::now());
        loop {
            let remaining = self.remaining(run).await?;
            if remaining != last || self.shared.is_paused() {
                (last, moved) = (remaining, Instant::now());
            }
            if remaining == 0 || moved.elapsed() > PATIENCE {
                return Ok(());
            }
            let looked = async {
                let packs = inspector.counts(COMPUTE).await?;
                let results = inspector.counts(&self.queue.results()).await?;
                let workers = inspector.workers(COMPUTE).await?;
                let is_held = inspector.is_paused(COMPUTE).await?;
                Ok::<_, workqueue::Error>((packs, results, workers, is_held))
            };
            match looked.await {
                Ok((packs, results, workers, is_held)) => {
                    self.shared.queued.store(packs.queued, Ordering::Relaxed);
                    let is_empty = packs.is_drained() && results.is_drained();
                    empty = if is_empty { empty + 1 } else { 0 };
                    // A large file may take hours, and a worker that died gives its pack back by itself. Without workers,
                    // or while somebody holds packs back, there is nobody to lose anything.
                    let is_served = packs.in_progress + results.in_progress > 0;
                    if is_served || workers == 0 || is_held {
                        moved = Instant::now();
                    }
                }
                Err(error) => {
                    empty = 0;
                    self.trouble(&error).await;
                }
            }
            if empty >= LOOKS {
                return Ok(());
            }
            sleep(LOOK).await;
        }
    }

    /// Stores results as they come. They are acknowledged when they are stored: who dies in between has them sent again.
    async fn take_results(&self, run: &Run) -> Result<Infallible, Error> {
        let mut idle = Idle::at_most(IDLE);
        loop {
            let mut batch = Batch::default();
            while batch.results.len() < self.job.batch {
                match self.pool.take().await {
                    Ok(Some(taken)) => self.open(taken, &mut batch).await?,
                    Ok(None) => break,
                    Err(error) => {
                        self.trouble(&error).await;
                        break;
                    }
                }
            }
            if batch.taken.is_empty() {
                sleep(idle.pause()).await;
                continue;
            }
            idle.reset();
            self.store_all(run, batch.results).await?;
            *self.shared.queue_trouble() = None;
            for taken in &batch.taken {
                if let Err(error) = self.pool.finish(taken).await {
                    // It comes again, and changes nothing then.
                    self.trouble(&error).await;
                }
            }
        }
    }

    /// Without what is to be read again.
    async fn store_all(&self, run: &Run, mut results: Vec<FileResult>) -> Result<(), Error> {
        self.failures
            .settle(&mut results, |(key, reading)| (*key, reading));
        if results.is_empty() {
            return Ok(());
        }
        {
            let mut pieces = self.pieces();
            for (key, _) in &results {
                pieces.forget(*key);
            }
        }
        let stored = self
            .store
            .write_back(run, &results, Timestamp::now())
            .await?;
        self.shared.tell(&stored);
        Ok(())
    }

    async fn open(&self, taken: Taken, batch: &mut Batch) -> Result<(), Error> {
        let pack = payload(taken.job())
            .map_err(str::to_owned)
            .and_then(|it| BackPack::decode(it).map_err(|error| error.to_string()));
        let pack = match pack {
            Ok(pack) => pack,
            Err(why) => {
                warn!(
                    why,
                    "a result that cannot be read is left among the dead jobs"
                );
                let tries = Tries {
                    max_fails: 1,
                    skip_dead: false,
                };
                let _ = self.pool.fail(&taken, &why, tries).await;
                return Ok(());
            }
        };
        for (id, sum) in pack.files {
            let known = self.store.view().file_of_id(id).await?;
            let fits = |_: &_| sum.len() == Algorithm::Sha1.length();
            let Some((key, bytes)) = known.filter(fits) else {
                warn!(id, "a result that fits no file is left out");
                continue;
            };
            let digests = vec![Digest::new(Algorithm::Sha1, &sum)];
            batch.results.push((key, Reading::Read { digests, bytes }));
        }
        batch.results.extend(pack.results);
        for (key, sum) in pack.pieces {
            if let Some((digest, bytes)) = self.pieces().add(key, sum) {
                let digests = vec![digest];
                batch.results.push((key, Reading::Read { digests, bytes }));
            }
        }
        batch.taken.push(taken);
        Ok(())
    }

    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn trouble(&self, error: &workqueue::Error) {
        self.contact.lost(self.shared, error).await;
    }
}

/// What is stored together, and the jobs it came in.
#[derive(Default)]
struct Batch {
    results: Vec<FileResult>,
    taken: Vec<Taken>,
}
