//! How fast may be read. In: bytes that were read, and the time. Out: how long to wait. Pure; readers sleep.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What may be read at once after a pause: a tenth of a second's worth.
const BURST: f64 = 0.1;

/// A token bucket that many readers share. It is charged with what was read already, so a reader is never held back for more
/// than it used, whatever the size of its reads. The rate may change at any time.
#[derive(Debug)]
pub struct Limit(Mutex<Bucket>);

#[derive(Debug)]
struct Bucket {
    /// Bytes per second; none is no limit.
    rate: Option<f64>,
    /// Bytes that may be read now; below zero is a debt.
    level: f64,
    at: Instant,
}

impl Limit {
    /// So many bytes per second, or no limit.
    pub fn new(rate: Option<u64>, now: Instant) -> Self {
        Self(Mutex::new(Bucket {
            rate: rate.map(number),
            level: 0.0,
            at: now,
        }))
    }

    /// Changes the rate. A debt at the old rate is paid at the new one.
    pub fn set(&self, rate: Option<u64>, now: Instant) {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.fill(now);
        bucket.rate = rate.map(number);
        bucket.level = bucket.level.min(0.0);
    }

    /// Charges these bytes, and says how long to wait before the next read.
    pub fn charge(&self, bytes: u64, now: Instant) -> Duration {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.fill(now);
        let Some(rate) = bucket.rate else {
            return Duration::ZERO;
        };
        bucket.level -= number(bytes);
        Duration::try_from_secs_f64(-bucket.level / rate).unwrap_or_default()
    }

    /// How long until all that was charged is paid, at the rate of now.
    pub fn left(&self, now: Instant) -> Duration {
        self.charge(0, now)
    }
}

impl Bucket {
    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        if let Some(rate) = self.rate {
            self.level = (self.level + passed * rate).min(rate * BURST);
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a limit need not be exact to the byte above 2^53"
)]
fn number(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "needs some instant to begin at")]
mod tests {
    use super::*;

    /// Reads in pieces, waiting as told; how long it takes.
    fn took(limit: &Limit, pieces: u64, size: u64) -> f64 {
        let began = Instant::now();
        let mut now = began;
        limit.set(Some(10 << 20), now);
        for _ in 0..pieces {
            now += limit.charge(size, now);
        }
        (now - began).as_secs_f64()
    }

    #[test]
    fn large_and_small_reads_come_to_the_same_rate() {
        let limit = Limit::new(None, Instant::now());
        for (pieces, size) in [(100, 1 << 20), (102_400, 1 << 10), (1, 100 << 20)] {
            let took = took(&limit, pieces, size);
            assert!((9.5..10.5).contains(&took), "{took}");
        }
    }

    #[test]
    fn a_pause_saves_up_no_more_than_a_burst() {
        let now = Instant::now();
        let limit = Limit::new(Some(1000), now);
        let later = now + Duration::from_hours(1);
        assert_eq!(limit.charge(100, later), Duration::ZERO);
        assert_eq!(limit.charge(1000, later), Duration::from_secs(1));
    }

    #[test]
    fn a_higher_rate_shortens_waits_that_are_under_way() {
        let now = Instant::now();
        let limit = Limit::new(Some(1000), now);
        assert_eq!(limit.charge(60_000, now), Duration::from_mins(1));
        limit.set(Some(10_000), now);
        assert_eq!(limit.left(now), Duration::from_secs(6));
        limit.set(None, now);
        assert_eq!(limit.left(now), Duration::ZERO);
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let now = Instant::now();
        assert_eq!(Limit::new(None, now).charge(u64::MAX, now), Duration::ZERO);
    }
}
