//! In: which jobs to serve. Out: jobs, one by one, each to be finished or failed by name.
//! Touches: Redis. What keeps the pool alive meanwhile is in `pool/house.rs`.

mod end;
mod host;
mod house;
mod options;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, RwLock};

pub use self::end::{Failed, Outcome, Tries};
pub(crate) use self::end::{stray, wrapped};
use self::house::Mode;
pub use self::options::{Kind, PoolOptions};
use crate::clock::monotonic;
use crate::identity::Identities;
use crate::ledger::{Entry, Ledger};
use crate::observe::Workers;
use crate::reap::Contact;
use crate::{Client, Error, Job, Namespace, id, sample, scripts};

/// So many elements that are no jobs are put aside by one call, so that a poisoned queue cannot hold it for ever.
const POISON_PER_TAKE: usize = 16;

/// What a pool has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Elements of queues that were no jobs of that queue, and were put to the dead.
    pub buried: u64,
    /// Jobs that had gone to others before they were finished here.
    pub fenced: u64,
    /// Identifiers the pool has had.
    pub identities: u64,
    /// Jobs of dead pools that were put back into their queues, or to the dead if they came back too often.
    pub reaped: u64,
    /// Jobs that were due and put into their queues.
    pub requeued: u64,
    /// Jobs that this pool had taken and nobody worked on, put back into their queues.
    pub given_back: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) buried: AtomicU64,
    pub(crate) fenced: AtomicU64,
    pub(crate) identities: AtomicU64,
    pub(crate) reaped: AtomicU64,
    pub(crate) requeued: AtomicU64,
    pub(crate) given_back: AtomicU64,
}

/// Serves jobs of some names.
///
/// [`run`](Self::run) must be running meanwhile: it writes the heartbeat without which [`take`](Self::take) would
/// have to stop, and looks after what other pools have left behind. Clones are the same pool.
///
/// Two things that a Go pool in the same namespace does cannot be helped from here. It moves retries and scheduled
/// jobs whose names it does not serve to the dead; ours never does. And it compares heartbeats with its own clock, so
/// if that is 5 s ahead of Redis it takes living pools for dead, once in ten minutes. Give Go pools that do not serve
/// all names, or whose clocks are wrong, a namespace of their own.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    namespace: Namespace,
    options: PoolOptions,
    names: Vec<Arc<str>>,
    state: Mutex<State>,
    /// Held for reading during a fetch: who holds it for writing knows that no fetch is under way.
    fetching: RwLock<()>,
    registering: tokio::sync::Mutex<()>,
    /// Somebody began a first job, which is to be shown at once.
    shown: Notify,
    stopped: AtomicBool,
    counters: Counters,
}

struct State {
    identities: Identities,
    ledger: Ledger,
    workers: Workers,
    contact: Contact,
}

/// A job that is ours until it is finished or failed, or until the pool is taken for dead.
///
/// One that is dropped before goes back to its queue with one of the next heartbeats.
pub struct Taken {
    job: Job,
    entry: Entry,
    place: Option<usize>,
    inner: Arc<Inner>,
}

enum Fetched {
    Job(Box<Taken>),
    Nothing,
    Fenced,
    Buried,
}

impl Pool {
    /// Fails only if the options cannot be. Registers with the first heartbeat or the first fetch.
    pub fn new(
        client: Client,
        namespace: Namespace,
        mut options: PoolOptions,
    ) -> Result<Self, Error> {
        options.check()?;
        if options.host.is_empty() {
            options.host = host::name();
        }
        let workers = Workers::new((0..options.concurrency).map(|_| id::fresh()));
        let names = options.kinds.iter().map(|kind| kind.name.as_str().into());
        let inner = Inner {
            client,
            namespace,
            names: names.collect(),
            state: Mutex::new(State {
                identities: Identities::default(),
                ledger: Ledger::default(),
                workers,
                contact: Contact::default(),
            }),
            fetching: RwLock::new(()),
            registering: tokio::sync::Mutex::new(()),
            shown: Notify::new(),
            stopped: AtomicBool::new(false),
            counters: Counters::default(),
            options,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Takes one job, if there is one, the queues are not paused and the limits allow it.
    ///
    /// Nothing is also the answer of a pool that has stopped. After an error a job may have been taken that nobody
    /// knows of: it goes back to its queue with one of the next heartbeats, as it does if this call is cancelled.
    pub async fn take(&self) -> Result<Option<Taken>, Error> {
        for _ in 0..POISON_PER_TAKE {
            if self.inner.stopped.load(Ordering::Acquire) {
                return Ok(None);
            }
            match self.inner.fetch().await? {
                Fetched::Job(taken) => return Ok(Some(*taken)),
                Fetched::Nothing => return Ok(None),
                Fetched::Fenced | Fetched::Buried => {}
            }
        }
        Ok(None)
    }

    /// Under which identifier it takes jobs now.
    pub fn id(&self) -> Option<String> {
        let current = self.inner.state().identities.current();
        current.map(|id| id.to_string())
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.inner.counters;
        Stats {
            buried: read(&counters.buried),
            fenced: read(&counters.fenced),
            identities: read(&counters.identities),
            reaped: read(&counters.reaped),
            requeued: read(&counters.requeued),
            given_back: read(&counters.given_back),
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The identifier to take jobs with; a new one if the last could be taken for dead.
    async fn identity(&self) -> Result<Arc<str>, Error> {
        let usable = || {
            let identities = &self.state().identities;
            identities.usable(monotonic(), self.options.patience)
        };
        if let Some(id) = usable() {
            return Ok(id);
        }
        let _one_at_a_time = self.registering.lock().await;
        if let Some(id) = usable() {
            return Ok(id);
        }
        let id = self.state().identities.candidate(|| id::fresh().into());
        let sent = monotonic();
        self.beat(&id, Mode::New).await?;
        self.state().identities.adopt(id.clone(), sent);
        self.counters.identities.fetch_add(1, Ordering::Relaxed);
        Ok(id)
    }

    async fn fetch(self: &Arc<Self>) -> Result<Fetched, Error> {
        let pool = self.identity().await?;
        let fetching = self.fetching.read().await;
        let order = self.order();
        let mut call = scripts::TAKE.prepare_invoke();
        for index in &order {
            self.add_keys(&mut call, &self.names[*index], &pool);
        }
        call.key(self.namespace.heartbeat(&pool));
        call.arg(&*pool).arg(self.options.patience.as_secs());
        let answer: Option<(usize, Vec<u8>, i64)> = self.client.run(&call).await?;
        let Some((place, element, now)) = answer else {
            return Ok(Fetched::Nothing);
        };
        let Some(index) = place.checked_sub(1).and_then(|place| order.get(place)) else {
            self.state().identities.abandon(&pool);
            return Ok(Fetched::Fenced);
        };
        let entry = Entry {
            pool,
            name: self.names[*index].clone(),
            element: element.into(),
        };
        self.state().ledger.hold(entry.clone());
        drop(fetching);
        self.accept(entry, now).await
    }

    fn order(&self) -> Vec<usize> {
        let kinds = self.options.kinds.iter();
        let priorities: Vec<u32> = kinds.map(|kind| kind.priority).collect();
        sample::order(&priorities, |sum| fastrand::u64(0..sum))
    }

    fn add_keys(&self, call: &mut redis::ScriptInvocation<'_>, name: &str, pool: &str) {
        let keys = &self.namespace;
        call.key(keys.queue(name))
            .key(keys.in_progress(name, pool))
            .key(keys.paused(name))
            .key(keys.lock(name))
            .key(keys.lock_info(name))
            .key(keys.max_concurrency(name));
    }

    /// Lets go of everything that is no job of its queue, so that it neither is lost nor comes again and again.
    async fn accept(self: &Arc<Self>, entry: Entry, now: i64) -> Result<Fetched, Error> {
        let held = Taken {
            job: Job::default(),
            entry,
            place: None,
            inner: self.clone(),
        };
        let element = held.entry.element.clone();
        match Job::decode(&element) {
            Ok(job) if *job.name == *held.entry.name => Ok(self.begin(held, job, now).await),
            Ok(job) => {
                let reason = format!("found in the queue of {}", held.entry.name);
                self.bury(&held, end::stray(job, &reason)).await
            }
            Err(reason) => {
                let wrapped = end::wrapped(&held.entry.name, &element, &reason.to_string());
                self.bury(&held, wrapped).await
            }
        }
    }

    async fn begin(&self, mut held: Taken, job: Job, now: i64) -> Fetched {
        if job.unique {
            self.forget_marker(&job).await;
        }
        let started = self.state().workers.start(&job, now);
        if let Some((place, is_first)) = started {
            held.place = Some(place);
            if is_first {
                self.shown.notify_one();
            }
        }
        held.job = job;
        Fetched::Job(Box::new(held))
    }

    /// An equal job may be enqueued from now on. If this fails, then a day later.
    async fn forget_marker(&self, job: &Job) {
        let made = || self.namespace.unique(&job.name, &job.unique_args());
        let marker = job.unique_key.clone().unwrap_or_else(made);
        let mut command = redis::cmd("DEL");
        let forgotten: Result<(), Error> = self.client.query(command.arg(marker)).await;
        if let Err(error) = forgotten {
            tracing::debug!(%error, job.name, "the marker of a unique job stays");
        }
    }
}

impl Taken {
    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        state.ledger.let_go(&self.entry);
        if let Some(place) = self.place {
            state.workers.done(place);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("namespace", &self.inner.namespace)
            .field("options", &self.inner.options)
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken")
            .field("name", &self.job.name)
            .field("id", &self.job.id)
            .field("pool", &self.entry.pool)
            .finish_non_exhaustive()
    }
}
