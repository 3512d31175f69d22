#![expect(
    clippy::disallowed_methods,
    reason = "an edge: it reads the clock for everything below it"
)]
//! Reading: files that are to be read go to threads in packs, and what they find goes to the store in batches.

mod found;
mod round;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use jiff::Timestamp;
use tokio::sync::mpsc::{Receiver, Sender, WeakSender, channel};
use tokio::task::JoinSet;
use tokio::time::sleep;

use round::Round;

use super::adapt::Adapt;
use super::failures::{Failures, TRIES};
use super::left::Left;
use super::{Error, Job, Shared};
use crate::judge::Reading;
use crate::pack::Packer;
use crate::read::Root;
use crate::store::{self, Pending, Run, Store};

/// Packs that wait for a reader, for each processor.
const AHEAD: usize = 4;
/// The most readers where nobody says how many files are read at once.
const MOST_READERS: usize = 64;
/// What could not be read is left alone for so long.
const BREAK: Duration = Duration::from_millis(500);
/// How long a number of readers is tried.
const TRIAL: Duration = Duration::from_secs(2);

/// What is told of a file of which nothing was heard.
const NOTHING: &str = "nothing came back, although it was read several times";

type Pack = Vec<Pending>;
/// A file, and what came of reading it.
type Read = (Pending, Reading);

/// Reads all that the run has still to read. What came to nothing in every round is told as unreadable.
pub(super) async fn work(
    job: &Job,
    root: &Arc<Root>,
    store: &Store,
    run: &mut Run,
    shared: &Arc<Shared>,
) -> Result<(), Error> {
    let failures = job.failures(run);
    for tries in 0..TRIES {
        if run.counts.remaining() <= 0 {
            return Ok(());
        }
        if tries > 0 {
            sleep(BREAK).await;
        }
        let keys = failures.begin_round(run.counts.remaining());
        let left = Left::of(store.view(), run, keys);
        round(job, root, store, run, shared, &failures, left).await?;
        *run = store.view().run(run.id).await?;
        shared.tell(run);
        if shared.is_stopped() {
            return Err(Error::Stopped { run: run.id });
        }
    }
    if run.counts.remaining() > 0 {
        give_up(store, run, &failures).await?;
        *run = store.view().run(run.id).await?;
        shared.tell(run);
    }
    Ok(())
}

/// Tells what is left as unreadable.
pub(super) async fn give_up(
    store: &Store,
    run: &Run,
    failures: &Failures,
) -> Result<(), store::Error> {
    let mut left = Left::of(store.view(), run, None);
    while let Some(pending) = left.next().await? {
        let failed = |file: Pending| {
            let why = failures.why(file.key);
            let why = why.unwrap_or_else(|| NOTHING.into());
            (file, Reading::Failed { why })
        };
        let results: Vec<Read> = pending.into_iter().map(failed).collect();
        if !results.is_empty() {
            let now = Timestamp::now();
            store.write_back_pending(run, &results, now).await?;
        }
    }
    Ok(())
}

/// Ends the readers of a round that was given up.
struct EndWith(Arc<Round>);

impl Drop for EndWith {
    fn drop(&mut self) {
        self.0.is_given_up.store(true, Ordering::Relaxed);
    }
}

async fn round(
    job: &Job,
    root: &Arc<Root>,
    store: &Store,
    run: &Run,
    shared: &Arc<Shared>,
    failures: &Failures,
    left: Left<'_>,
) -> Result<(), Error> {
    let processors = thread::available_parallelism().map_or(2, usize::from);
    let (least, most) = match job.readers {
        Some(readers) => (readers, readers),
        None => (processors, MOST_READERS.max(processors)),
    };
    let waiting_room = processors.min(most) * AHEAD;
    let (packs, waiting) = channel::<Pack>(waiting_room);
    let (results, found) = channel::<Vec<Read>>(waiting_room);
    let round = Arc::new(Round::new(job, root, run, shared, waiting, least));
    let _end = EndWith(round.clone());
    let mut readers = Readers {
        round: round.clone(),
        results: results.downgrade(),
        threads: JoinSet::new(),
    };
    readers.grow_to(least);
    drop(results);
    let found = tokio::sync::Mutex::new(found);
    let writer = WriteBack {
        store,
        run,
        most: job.batch,
        found: &found,
        shared,
        failures,
    };
    let storing = (0..job.writers_to(store)).map(|_| writer.store_all());
    let (producing, adapting) = (produce(left, job, packs), adapt(&mut readers, least, most));
    let work = async {
        tokio::try_join!(producing, try_join_all(storing))?;
        Ok::<_, Error>(())
    };
    tokio::select! {
        done = work => done?,
        never = adapting => match never {},
    }
    while let Some(ended) = readers.threads.join_next().await {
        ended.map_err(|_| Error::Reader)?;
    }
    Ok(())
}

/// The threads of a round: no more than were ever allowed.
struct Readers {
    round: Arc<Round>,
    /// Closed when all have ended that were begun.
    results: WeakSender<Vec<Read>>,
    threads: JoinSet<()>,
}

impl Readers {
    /// Begins so many, if there are fewer. None is taken out before the end, so no two have one number.
    fn grow_to(&mut self, wanted: usize) {
        while self.threads.len() < wanted
            && let Some(results) = self.results.upgrade()
        {
            let (round, number) = (self.round.clone(), self.threads.len());
            self.threads
                .spawn_blocking(move || round.read(number, &results));
        }
    }
}

/// Tries how many readers the storage likes, until it is dropped.
async fn adapt(readers: &mut Readers, least: usize, most: usize) -> std::convert::Infallible {
    if least == most {
        return std::future::pending().await;
    }
    let mut adapt = Adapt::new(least, most);
    let round = readers.round.clone();
    let read = || {
        let bytes = round.shared.bytes.load(Ordering::Relaxed);
        let files = round.shared.files.load(Ordering::Relaxed);
        (bytes, files, Instant::now())
    };
    let mut before = read();
    loop {
        sleep(TRIAL).await;
        let now = read();
        if !round.shared.is_paused() {
            let rate = rate(now.0 - before.0, now.1 - before.1, now.2 - before.2);
            let allowed = adapt.observe(rate);
            round.allowed.store(allowed, Ordering::Relaxed);
            readers.grow_to(allowed);
        }
        before = now;
    }
}

/// Opening a file costs about as much as reading so many bytes.
#[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
fn rate(bytes: u64, files: u64, time: Duration) -> f64 {
    const FILE: f64 = 65_536.0;
    (bytes as f64 + files as f64 * FILE) / time.as_secs_f64().max(0.001)
}

/// Ends when all was produced, or nobody takes packs any more.
async fn produce(mut left: Left<'_>, job: &Job, packs: Sender<Pack>) -> Result<(), Error> {
    let mut packer = Packer::new(job.packs);
    while let Some(pending) = left.next().await? {
        for file in pending {
            if let Some(pack) = packer.add(file)
                && packs.send(pack).await.is_err()
            {
                return Ok(());
            }
        }
    }
    if let Some(pack) = packer.rest() {
        let _ = packs.send(pack).await; // nobody is left to read it
    }
    Ok(())
}

/// Brings what was read to the store.
struct WriteBack<'a> {
    store: &'a Store,
    run: &'a Run,
    most: usize,
    found: &'a tokio::sync::Mutex<Receiver<Vec<Read>>>,
    shared: &'a Shared,
    failures: &'a Failures,
}

impl WriteBack<'_> {
    async fn store_all(&self) -> Result<(), Error> {
        while let Some(batch) = self.next().await {
            if batch.is_empty() {
                continue;
            }
            let now = Timestamp::now();
            let stored = self.store.write_back_pending(self.run, &batch, now).await?;
            self.shared.tell(&stored);
        }
        Ok(())
    }

    /// What is to be stored together, without what is to be read again; none at the end.
    async fn next(&self) -> Option<Vec<Read>> {
        let mut found = self.found.lock().await;
        let mut batch = found.recv().await?;
        while batch.len() < self.most {
            let Ok(more) = found.try_recv() else { break };
            batch.extend(more);
        }
        drop(found);
        self.failures
            .settle(&mut batch, |(file, reading)| (file.key, reading));
        Some(batch)
    }
}
