//! The loop around a reconciler: takes due keys from the queue, runs a bounded number at once,
//! and puts them back at the time each asks for. It decides nothing about any kind.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use runtime::clock::Clock;
use tokio::{
    sync::Notify,
    task::{Id, JoinError, JoinSet},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::{
    class::Class,
    metrics::ControllerMetrics,
    object::Key,
    queue::Queue,
    requeue::{Backoff, Stamp},
};

/// How many objects of a kind are reconciled at once.
pub const CONCURRENCY: usize = 16;

/// How often the wall clock is compared with the monotonic one.
const CLOCK_CHECK: Duration = Duration::from_secs(1);

/// A difference between the two clocks that is not called a jump.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// What a pass over an object ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do until something changes.
    Await,
    /// Look again at this time of day.
    At(Timestamp),
    /// Look again after this time.
    After(Duration),
    /// It failed; try again by its class.
    Failed {
        /// How the failure is treated.
        class: Class,
        /// What failed; another object or generation is tried at once.
        stamp: Stamp,
    },
}

impl Next {
    /// After `wait`, or at `wake`, whichever is first.
    pub fn earlier(wake: Option<Timestamp>, now: Timestamp, wait: Duration) -> Self {
        let soon = now + SignedDuration::try_from(wait).unwrap_or(SignedDuration::ZERO);
        Self::At(wake.map_or(soon, |wake| wake.min(soon)))
    }
}

/// The way into a controller's queue. Cheap to clone; never blocks for long.
#[derive(Clone, Debug)]
pub struct Handle {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    clock: Arc<dyn Clock>,
    metrics: ControllerMetrics,
}

#[derive(Debug, Default)]
struct State {
    queue: Queue<Key>,
    backoff: Backoff,
    running: bool,
}

impl Handle {
    /// A queue without a worker.
    pub fn new(clock: Arc<dyn Clock>, metrics: ControllerMetrics) -> Self {
        Self {
            state: Arc::default(),
            changed: Arc::default(),
            clock,
            metrics,
        }
    }

    /// Something about the object changed: look at it now, or when its back-off ends if the change
    /// is not a new generation.
    ///
    /// Before [`run`] has begun nothing is kept: it begins by asking for everything.
    pub fn changed(&self, key: Key, stamp: Option<&Stamp>) {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        if !state.running {
            return;
        }
        let at = state
            .backoff
            .not_before(&key, stamp)
            .map_or(now, |until| until.max(now));
        state.queue.add(key, at);
        self.metrics.adds.inc();
        drop(state);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Key> {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let taken = state.queue.take(now);
        let (key, waited) = taken?;
        self.metrics.queue_duration.observe(waited.as_secs_f64());
        Some(key)
    }

    fn measure(&self) {
        let depth = self.lock().queue.depth(self.clock.monotonic());
        self.metrics
            .depth
            .set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    fn next_due(&self) -> Option<Instant> {
        self.lock().queue.next_due()
    }

    fn finish(&self, key: &Key, next: &Next) {
        let (now, wall) = (self.clock.monotonic(), self.clock.wall());
        let mut state = self.lock();
        let again = match next {
            Next::Failed { class, stamp } => {
                self.metrics.failed(*class);
                Some(state.backoff.failed(key, stamp, *class, now))
            }
            Next::Await => None,
            Next::After(pause) => Some(now + *pause),
            Next::At(at) => Some(now + until(wall, *at)),
        };
        if !matches!(next, Next::Failed { .. }) {
            state.backoff.succeeded(key);
        }
        state.queue.finish(key);
        if let Some(at) = again {
            state.queue.add(key.clone(), at);
        }
    }
}

fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}

/// Runs `reconcile` for every key that comes due, until `stop`; then waits for those that are running.
///
/// `resync` asks for every object: at the beginning, and when the wall clock jumped.
pub async fn run<R, F>(
    handle: Handle,
    stop: CancellationToken,
    reconcile: R,
    resync: impl Fn() + Send,
) where
    R: Fn(Key) -> F + Send,
    F: Future<Output = Next> + Send + 'static,
{
    handle.lock().running = true;
    resync();
    let mut workers = Workers::default();
    let mut clocks = Clocks::new(&handle);
    while !stop.is_cancelled() {
        while workers.tasks.len() < CONCURRENCY
            && let Some(key) = handle.take()
        {
            workers.start(key.clone(), reconcile(key), &handle);
        }
        let wake = handle
            .next_due()
            .filter(|_| workers.tasks.len() < CONCURRENCY);
        let check = clocks.next_check();
        tokio::select! {
            () = stop.cancelled() => {}
            () = handle.changed.notified() => {}
            () = sleep_until(wake.map_or(check, |wake| wake.min(check))) => {}
            Some(ended) = workers.tasks.join_next_with_id() => workers.ended(ended, &handle),
        }
        if clocks.is_due(&handle) {
            handle.measure();
            if clocks.jumped(&handle) {
                resync();
            }
        }
    }
    while let Some(ended) = workers.tasks.join_next_with_id().await {
        workers.ended(ended, &handle);
    }
}

/// The reconcilers that are running.
#[derive(Default)]
struct Workers {
    tasks: JoinSet<Next>,
    keys: HashMap<Id, (Key, Instant)>,
}

impl Workers {
    fn start(
        &mut self,
        key: Key,
        pass: impl Future<Output = Next> + Send + 'static,
        handle: &Handle,
    ) {
        let id = self.tasks.spawn(pass).id();
        self.keys.insert(id, (key, handle.clock.monotonic()));
        handle.metrics.active_workers.inc();
    }

    fn ended(&mut self, ended: Result<(Id, Next), JoinError>, handle: &Handle) {
        let (id, next) = match ended {
            Ok((id, next)) => (id, next),
            Err(panic) => (panic.id(), panicked(&panic, handle)),
        };
        let Some((key, began)) = self.keys.remove(&id) else {
            return;
        };
        let took = handle.clock.monotonic().saturating_duration_since(began);
        handle.metrics.active_workers.dec();
        handle.metrics.reconciled(&next, took);
        handle.finish(&key, &next);
    }
}

/// A panic is a bug; it costs its object a pause, and the others nothing.
fn panicked(panic: &JoinError, handle: &Handle) -> Next {
    error!(error = %panic, "a reconciler panicked");
    handle.metrics.panics.inc();
    Next::Failed {
        class: Class::Transient,
        stamp: Stamp::default(),
    }
}

/// Notices when the time of day jumps: what waits for a slot would otherwise wake up at the wrong time.
struct Clocks {
    wall: Timestamp,
    monotonic: Instant,
}

impl Clocks {
    fn new(handle: &Handle) -> Self {
        Self {
            wall: handle.clock.wall(),
            monotonic: handle.clock.monotonic(),
        }
    }

    fn next_check(&self) -> Instant {
        self.monotonic + CLOCK_CHECK
    }

    fn is_due(&self, handle: &Handle) -> bool {
        handle.clock.monotonic() >= self.next_check()
    }

    fn jumped(&mut self, handle: &Handle) -> bool {
        let now = Self::new(handle);
        let by_wall = now.wall.duration_since(self.wall).as_millis();
        let by_monotonic = now.monotonic.duration_since(self.monotonic).as_millis();
        let drift = by_wall - i128::try_from(by_monotonic).unwrap_or(i128::MAX);
        *self = now;
        let jumped = drift.unsigned_abs() > CLOCK_TOLERANCE.as_millis();
        if jumped {
            warn!(clock.drift_ms = %drift, "the wall clock jumped, looking at every object again");
        }
        jumped
    }
}

#[cfg(test)]
mod tests;
