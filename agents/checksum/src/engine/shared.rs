//! What others may see and change while a run goes on. Touches nothing but its own counters.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use crate::limit::Limit;
use crate::store::Run;

/// A reader that waits for its turn looks so often whether it should stop.
const NAP: Duration = Duration::from_millis(100);

/// What others may see and change while a run goes on.
pub struct Shared {
    /// Ends the run soon, so that it can be resumed.
    pub stop: AtomicBool,
    /// Nothing is read while this is true.
    pub pause: AtomicBool,
    /// How fast all readers here may read together: what this process was told itself.
    pub own_limit: Limit,
    /// The same: its share of what all processes may read together.
    pub shared_limit: Limit,
    /// Files listed so far.
    pub listed: AtomicU64,
    /// Bytes read so far, also of files that are not done.
    pub bytes: AtomicU64,
    /// Files read so far, whatever came of it.
    pub files: AtomicU64,
    /// Bytes that the run had read before.
    pub bytes_before: AtomicU64,
    /// Files that are being read.
    pub reading: AtomicI64,
    /// Packs that wait for a reader.
    pub queued: AtomicU64,
    /// How fast all processes may read together, where several do; 0 is no limit.
    pub total_limit: AtomicU64,
    trouble: Mutex<Option<String>>,
    run: Mutex<Option<Arc<Run>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// With this limit of bytes per second.
    pub fn new(limit: Option<u64>, now: Instant) -> Self {
        Self {
            stop: AtomicBool::new(false),
            pause: AtomicBool::new(false),
            own_limit: Limit::new(limit, now),
            shared_limit: Limit::new(None, now),
            listed: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
            bytes_before: AtomicU64::new(0),
            reading: AtomicI64::new(0),
            queued: AtomicU64::new(0),
            total_limit: AtomicU64::new(0),
            trouble: Mutex::new(None),
            run: Mutex::new(None),
        }
    }

    /// The run as it was stored last.
    pub fn run(&self) -> Option<Arc<Run>> {
        self.run
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What is wrong with the queue, while something is.
    pub fn queue_trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all is to end soon.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether nothing is to be read for now.
    pub fn is_paused(&self) -> bool {
        self.pause.load(Ordering::Relaxed)
    }

    /// Takes note of a run as it is stored. Results are stored by several at once, so an earlier state may come later.
    pub(crate) fn tell(&self, run: &Run) {
        let mut known = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        let is_older = known.as_ref().is_some_and(|known| {
            known.state == run.state && known.counts.remaining() < run.counts.remaining()
        });
        if !is_older {
            *known = Some(Arc::new(run.clone()));
        }
    }

    /// Charges what was read, and waits as long as the limits and a pause want; sooner when all is to end.
    #[expect(clippy::disallowed_methods, reason = "an edge: readers wait here")]
    pub(crate) fn pace(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut now = Instant::now();
        let wait = self
            .own_limit
            .charge(bytes, now)
            .max(self.shared_limit.charge(bytes, now));
        let until = now + wait;
        while !self.is_stopped() {
            // A limit that was raised meanwhile lets go sooner.
            let debt = self.own_limit.left(now).max(self.shared_limit.left(now));
            let left = until.saturating_duration_since(now).min(debt);
            if left.is_zero() && !self.is_paused() {
                return;
            }
            let nap = if left.is_zero() { NAP } else { left.min(NAP) };
            thread::sleep(nap);
            now = Instant::now();
        }
    }
}
