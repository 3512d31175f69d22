#![expect(
    clippy::disallowed_methods,
    reason = "an edge: it reads the clock for everything below it"
)]
//! Reading: files that are to be read go to threads in packs, and what they find goes to the store in batches.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use jiff::Timestamp;
use tokio::sync::mpsc::{Receiver, Sender, WeakSender, channel};
use tokio::task::JoinSet;

use super::adapt::Adapt;
use super::{Error, Job, Shared};
use crate::algorithm::Algorithm;
use crate::judge::Reading;
use crate::pack::Packer;
use crate::read::{Reader, Root, Stopped};
use crate::store::{self, Pending, Run, Store};

/// Rows that are asked for at once.
const PAGE: u32 = 4000;
/// Packs that wait for a reader, for each processor.
const AHEAD: usize = 4;
/// A file of which nothing came back is read again so often.
const ROUNDS: usize = 3;
/// The most files that are read at once where nobody says how many.
const MOST_READERS: usize = 64;
/// How long a number of readers is tried.
const TRIAL: Duration = Duration::from_secs(2);
/// A reader whose turn it is not looks so often whether it is.
const NAP: Duration = Duration::from_millis(50);

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
    for _ in 0..ROUNDS {
        if run.counts.remaining() <= 0 {
            return Ok(());
        }
        round(job, root, store, run, shared).await?;
        *run = store.view().run(run.id).await?;
        shared.tell(run);
        if shared.is_stopped() {
            return Err(Error::Stopped { run: run.id });
        }
    }
    give_up(store, run).await?;
    *run = store.view().run(run.id).await?;
    shared.tell(run);
    Ok(())
}

/// Tells what is left as unreadable.
pub(super) async fn give_up(store: &Store, run: &Run) -> Result<(), store::Error> {
    let mut after = None;
    loop {
        let (pending, last) = store.view().pending(run, after, PAGE).await?;
        let why = "nothing came back, although it was read several times";
        let nothing = |file: Pending| (file, Reading::Failed { why: why.into() });
        let results: Vec<Read> = pending.into_iter().map(nothing).collect();
        let now = Timestamp::now();
        store.write_back_pending(run, &results, now).await?;
        if last.is_none() {
            return Ok(());
        }
        after = last;
    }
}

/// The readers of one round, and who keeps them busy.
struct Round {
    root: Arc<Root>,
    shared: Arc<Shared>,
    algorithm: Algorithm,
    medium: crate::read::Medium,
    waiting: Mutex<Receiver<Pack>>,
    /// Readers with a lower number may read.
    allowed: AtomicUsize,
    /// Nobody waits for results any more.
    is_given_up: AtomicBool,
    /// No more packs will come.
    is_drained: AtomicBool,
    /// Those whose turn it is not wait here, and nobody for them when there is nothing left.
    turn: Mutex<()>,
    changed: Condvar,
}

/// Ends the readers of a round that was given up.
struct EndWith(Arc<Round>);

impl Drop for EndWith {
    fn drop(&mut self) {
        self.0.is_given_up.store(true, Ordering::Relaxed);
    }
}

/// Lets nobody wait for a reader that has ended, however it did.
struct CloseWith<'a>(&'a Round);

impl Drop for CloseWith<'_> {
    fn drop(&mut self) {
        let waiting = &self.0.waiting;
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.close();
    }
}

async fn round(
    job: &Job,
    root: &Arc<Root>,
    store: &Store,
    run: &Run,
    shared: &Arc<Shared>,
) -> Result<(), Error> {
    let processors = thread::available_parallelism().map_or(2, usize::from);
    let (least, most) = match job.readers {
        Some(readers) => (readers, readers),
        None => (processors, MOST_READERS.max(processors)),
    };
    let waiting_room = processors.min(most) * AHEAD;
    let (packs, waiting) = channel::<Pack>(waiting_room);
    let (results, found) = channel::<Vec<Read>>(waiting_room);
    let round = Arc::new(Round {
        root: root.clone(),
        shared: shared.clone(),
        algorithm: run.what.algorithm,
        medium: job.medium,
        waiting: Mutex::new(waiting),
        allowed: AtomicUsize::new(least),
        is_given_up: AtomicBool::new(false),
        is_drained: AtomicBool::new(false),
        turn: Mutex::default(),
        changed: Condvar::new(),
    });
    let _end = EndWith(round.clone());
    let mut readers = Readers {
        round: round.clone(),
        results: results.downgrade(),
        threads: JoinSet::new(),
    };
    readers.grow_to(least);
    drop(results);
    let found = tokio::sync::Mutex::new(found);
    let storing =
        (0..job.writers_to(store)).map(|_| write_back(store, run, job.batch, &found, shared));
    let (producing, adapting) = (
        produce(store, run, job, packs),
        adapt(&mut readers, least, most),
    );
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
        tokio::time::sleep(TRIAL).await;
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
async fn produce(store: &Store, run: &Run, job: &Job, packs: Sender<Pack>) -> Result<(), Error> {
    let mut packer = Packer::new(job.packs);
    let mut after = None;
    loop {
        let (pending, last) = store.view().pending(run, after, PAGE).await?;
        for file in pending {
            if let Some(pack) = packer.add(file)
                && packs.send(pack).await.is_err()
            {
                return Ok(());
            }
        }
        if last.is_none() {
            break;
        }
        after = last;
    }
    if let Some(pack) = packer.rest() {
        let _ = packs.send(pack).await; // nobody is left to read it
    }
    Ok(())
}

impl Round {
    /// One reader, on a thread of its own, until there are no more packs or all reading ends. Then nobody waits for room
    /// for more.
    fn read(&self, number: usize, results: &Sender<Vec<Read>>) {
        let _close = CloseWith(self);
        self.read_packs(number, results);
    }

    fn read_packs(&self, number: usize, results: &Sender<Vec<Read>>) {
        let pace = |bytes| {
            self.shared.pace(bytes);
            self.go_on()
        };
        let mut reader: Option<Reader<'_>> = None;
        while let Some(pack) = self.next(number) {
            let reader = reader.get_or_insert_with(|| Reader::new(&self.root, self.medium, &pace));
            let mut found = Vec::with_capacity(pack.len());
            for file in pack {
                self.shared.reading.fetch_add(1, Ordering::Relaxed);
                let reading = read_one(reader, &file, self.algorithm);
                self.shared.reading.fetch_sub(1, Ordering::Relaxed);
                let Ok(reading) = reading else {
                    let _ = results.blocking_send(found); // what was read is not read again
                    return;
                };
                self.shared.files.fetch_add(1, Ordering::Relaxed);
                found.push((file, reading));
            }
            if results.blocking_send(found).is_err() {
                return;
            }
        }
    }

    fn go_on(&self) -> bool {
        !self.shared.is_stopped() && !self.is_given_up.load(Ordering::Relaxed)
    }

    /// The next pack, when it is this reader's turn and nothing keeps it from reading.
    fn next(&self, number: usize) -> Option<Pack> {
        loop {
            if !self.go_on() || self.is_drained.load(Ordering::Relaxed) {
                return None;
            }
            let is_waiting = number >= self.allowed.load(Ordering::Relaxed);
            if !is_waiting && !self.shared.is_paused() {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let pack = waiting.blocking_recv();
                if pack.is_none() {
                    self.is_drained.store(true, Ordering::Relaxed);
                    self.changed.notify_all();
                }
                return pack;
            }
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.changed.wait_timeout(turn, NAP));
        }
    }
}

/// A file whose checksum was computed with another algorithm is compared by that one, in the same reading.
fn read_one(
    reader: &mut Reader<'_>,
    file: &Pending,
    algorithm: Algorithm,
) -> Result<Reading, Stopped> {
    match file.algorithm() {
        Some(other) if other != algorithm => reader.read(&file.task, &[algorithm, other]),
        _ => reader.read(&file.task, &[algorithm]),
    }
}

async fn write_back(
    store: &Store,
    run: &Run,
    most: usize,
    found: &tokio::sync::Mutex<Receiver<Vec<Read>>>,
    shared: &Shared,
) -> Result<(), Error> {
    loop {
        let mut batch = Vec::new();
        {
            let mut found = found.lock().await;
            let Some(first) = found.recv().await else {
                return Ok(());
            };
            batch.extend(first);
            while batch.len() < most {
                let Ok(more) = found.try_recv() else { break };
                batch.extend(more);
            }
        }
        let now = Timestamp::now();
        let stored = store.write_back_pending(run, &batch, now).await?;
        shared.tell(&stored);
    }
}
