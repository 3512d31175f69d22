//! When to try again after a failure. In: failures by object. Out: the time of the next attempt. Pure.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;

use crate::{class::Class, object::Key};

/// The longest pause between two attempts.
pub const LONGEST: Duration = Duration::from_mins(5);

/// Objects whose last attempt failed. Holds one entry per failing object.
#[derive(Debug, Default)]
pub struct Backoff {
    failing: HashMap<Key, Failing>,
}

/// Which revision of which object failed; another one is tried at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    uid: String,
    generation: i64,
}

impl Stamp {
    /// The stamp of the object with that metadata.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
        }
    }
}

#[derive(Debug)]
struct Failing {
    attempts: u32,
    stamp: Stamp,
    until: Instant,
}

impl Backoff {
    /// Notes a failed attempt and says when to make the next one.
    pub fn failed(&mut self, key: &Key, stamp: &Stamp, class: Class, now: Instant) -> Instant {
        let before = self.failing.get(key).filter(|f| f.stamp == *stamp);
        let attempts = before.map_or(0, |f| f.attempts) + 1;
        let until = now + pause(key, class, attempts);
        let failing = Failing {
            attempts,
            stamp: stamp.clone(),
            until,
        };
        self.failing.insert(key.clone(), failing);
        until
    }

    /// Forgets the failures of an object that succeeded or is gone.
    pub fn succeeded(&mut self, key: &Key) {
        self.failing.remove(key);
    }

    /// The time before which a failing object is not tried again, unless `stamp` says that it changed.
    pub fn not_before(&self, key: &Key, stamp: Option<&Stamp>) -> Option<Instant> {
        let failing = self.failing.get(key)?;
        let unchanged = stamp.is_none_or(|stamp| *stamp == failing.stamp);
        unchanged.then_some(failing.until)
    }
}

fn pause(key: &Key, class: Class, attempts: u32) -> Duration {
    let (first, longest) = match class {
        Class::Conflict => (Duration::from_millis(50), Duration::from_secs(5)),
        Class::Transient => (Duration::from_millis(500), LONGEST),
        Class::Blocked | Class::Invalid => (Duration::from_secs(2), LONGEST),
    };
    let doubled = first.saturating_mul(1 << (attempts - 1).min(16));
    jitter(key, attempts, doubled.min(longest))
}

/// Between 80 % and 100 % of `pause`, by the key, so that objects that failed together come back apart.
fn jitter(key: &Key, attempts: u32, pause: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    (key, attempts).hash(&mut hasher);
    let share = u32::try_from(hasher.finish() % 200).unwrap_or(0);
    pause.saturating_sub(pause / 1000 * share)
}

#[cfg(test)]
mod tests {
    use runtime::clock::{Clock, SystemClock};

    use super::*;

    fn key(name: &str) -> Key {
        Key {
            namespace: "ns".into(),
            name: name.into(),
        }
    }

    fn stamp(generation: i64) -> Stamp {
        Stamp {
            uid: "uid".into(),
            generation,
        }
    }

    fn pauses(class: Class, attempts: usize) -> Vec<Duration> {
        let (now, mut backoff) = (SystemClock.monotonic(), Backoff::default());
        let mut next = || backoff.failed(&key("a"), &stamp(1), class, now) - now;
        std::iter::repeat_with(&mut next).take(attempts).collect()
    }

    #[test]
    fn pauses_grow_to_their_cap() {
        let pauses = pauses(Class::Transient, 40);
        assert!(pauses[0] >= Duration::from_millis(400) && pauses[0] <= Duration::from_millis(500));
        assert!(pauses[5] > pauses[0] * 10);
        assert!(pauses.iter().all(|pause| *pause <= LONGEST));
        assert!(pauses[39] >= LONGEST * 8 / 10);
    }

    #[test]
    fn conflicts_are_retried_soon() {
        assert!(
            pauses(Class::Conflict, 3)
                .iter()
                .all(|p| *p < Duration::from_millis(250))
        );
    }

    #[test]
    fn a_new_generation_is_tried_at_once_and_starts_over() {
        let (now, mut backoff) = (SystemClock.monotonic(), Backoff::default());
        for _ in 0..10 {
            backoff.failed(&key("a"), &stamp(1), Class::Transient, now);
        }
        assert!(backoff.not_before(&key("a"), Some(&stamp(1))).is_some());
        assert!(backoff.not_before(&key("a"), None).is_some());
        assert_eq!(backoff.not_before(&key("a"), Some(&stamp(2))), None);
        let until = backoff.failed(&key("a"), &stamp(2), Class::Transient, now);
        assert!(until - now <= Duration::from_millis(500));
    }

    #[test]
    fn success_forgets() {
        let (now, mut backoff) = (SystemClock.monotonic(), Backoff::default());
        backoff.failed(&key("a"), &stamp(1), Class::Transient, now);
        backoff.succeeded(&key("a"));
        assert_eq!(backoff.not_before(&key("a"), Some(&stamp(1))), None);
    }

    #[test]
    fn objects_that_fail_together_come_back_apart() {
        let (now, mut backoff) = (SystemClock.monotonic(), Backoff::default());
        let mut times: Vec<_> = (0..100)
            .map(|n| backoff.failed(&key(&n.to_string()), &stamp(1), Class::Transient, now))
            .collect();
        times.sort_unstable();
        times.dedup();
        assert!(times.len() > 30);
    }
}
