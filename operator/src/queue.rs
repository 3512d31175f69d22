//! The work queue: which objects are to be looked at, and when.
//! In: keys with their times. Out: keys whose time has come, never one that is being worked on. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

/// Keys ordered by the time at which they are due. Each key is in it at most once, and the earliest
/// time asked for wins, so its size is bounded by the number of objects.
#[derive(Debug)]
pub struct Queue<K> {
    order: BTreeMap<(Instant, u64), K>,
    waiting: HashMap<K, (Instant, u64)>,
    /// Keys being worked on, with the time at which they were asked for again meanwhile.
    running: HashMap<K, Option<Instant>>,
    /// Tells keys apart that are due at the same time: first come, first served.
    sequence: u64,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            order: BTreeMap::new(),
            waiting: HashMap::new(),
            running: HashMap::new(),
            sequence: 0,
        }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Asks for `key` at `at`, or earlier if that was asked for before.
    pub fn add(&mut self, key: K, at: Instant) {
        if let Some(again) = self.running.get_mut(&key) {
            *again = Some(again.map_or(at, |earlier| earlier.min(at)));
            return;
        }
        if let Some(place) = self.waiting.get(&key) {
            if place.0 <= at {
                return;
            }
            self.order.remove(place);
        }
        let place = (at, self.sequence);
        self.sequence += 1;
        self.order.insert(place, key.clone());
        self.waiting.insert(key, place);
    }

    /// The key that has been due for the longest time, with that time. It is being worked on from
    /// now on, until [`Queue::finish`].
    pub fn take(&mut self, now: Instant) -> Option<(K, Duration)> {
        let entry = self.order.first_entry().filter(|e| e.key().0 <= now)?;
        let ((due, _), key) = entry.remove_entry();
        self.waiting.remove(&key);
        self.running.insert(key.clone(), None);
        Some((key, now.saturating_duration_since(due)))
    }

    /// Work on `key` is over; it comes back when it was asked for meanwhile.
    pub fn finish(&mut self, key: &K) {
        if let Some(Some(again)) = self.running.remove(key) {
            self.add(key.clone(), again);
        }
    }

    /// When the next key is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.order.first_key_value().map(|((at, _), _)| *at)
    }

    /// How many keys are due and wait for a worker.
    pub fn depth(&self, now: Instant) -> usize {
        self.order.range(..=(now, u64::MAX)).count()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn start() -> Instant {
        use runtime::clock::{Clock, SystemClock};
        SystemClock.monotonic()
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_earliest_time_wins() {
        let (t, mut queue) = (start(), Queue::default());
        queue.add("a", t + seconds(60));
        queue.add("a", t + seconds(5));
        queue.add("a", t + seconds(30));
        assert_eq!(queue.next_due(), Some(t + seconds(5)));
        assert_eq!(queue.take(t + seconds(4)), None);
        assert_eq!(queue.take(t + seconds(7)), Some(("a", seconds(2))));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn a_key_is_never_worked_on_twice_at_once() {
        let (t, mut queue) = (start(), Queue::default());
        queue.add("a", t);
        assert!(queue.take(t).is_some());
        queue.add("a", t);
        assert_eq!(queue.take(t), None);
        queue.finish(&"a");
        assert_eq!(queue.take(t).map(|(key, _)| key), Some("a"));
        queue.finish(&"a");
        assert_eq!(queue.take(t), None);
    }

    #[test]
    fn keys_due_together_are_served_in_order() {
        let (t, mut queue) = (start(), Queue::default());
        for key in ["c", "a", "b"] {
            queue.add(key, t);
        }
        assert_eq!(queue.depth(t), 3);
        let order: Vec<_> = std::iter::from_fn(|| queue.take(t).map(|(key, _)| key)).collect();
        assert_eq!(order, ["c", "a", "b"]);
    }

    proptest! {
        #[test]
        fn nothing_asked_for_is_ever_lost(steps in prop::collection::vec((0u8..4, 0u8..5, 0u64..10), 0..200)) {
            let (t, mut queue) = (start(), Queue::default());
            let mut wanted = HashSet::new();
            let mut running = HashSet::new();
            for (step, key, offset) in steps {
                match step {
                    0 | 1 => {
                        queue.add(key, t + seconds(offset));
                        wanted.insert(key);
                    }
                    2 => if let Some((taken, _)) = queue.take(t + seconds(offset)) {
                        prop_assert!(running.insert(taken), "{taken} is worked on twice");
                        wanted.remove(&taken);
                    },
                    _ => {
                        queue.finish(&key);
                        running.remove(&key);
                    }
                }
            }
            for key in running {
                queue.finish(&key);
            }
            let rest: HashSet<_> = std::iter::from_fn(|| queue.take(t + seconds(100)).map(|(k, _)| k)).collect();
            prop_assert!(wanted.is_subset(&rest));
        }
    }
}
