//! How fast something grows, lately. In: looks at it. Out: how much per second. Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What counts is this time.
const WINDOW: Duration = Duration::from_secs(10);

/// Looks of the last seconds.
#[derive(Debug, Default)]
pub(crate) struct Rate(VecDeque<(Instant, u64)>);

impl Rate {
    /// So much per second, with this look.
    pub(crate) fn observe(&mut self, now: Instant, bytes: u64) -> u64 {
        self.0.push_back((now, bytes));
        while self.0.len() > 2
            && let Some((at, _)) = self.0.get(1)
            && now.duration_since(*at) >= WINDOW
        {
            self.0.pop_front();
        }
        let Some((at, before)) = self.0.front() else {
            return 0;
        };
        let time = u64::try_from(now.duration_since(*at).as_millis()).unwrap_or(u64::MAX);
        bytes.saturating_sub(*before).saturating_mul(1000) / time.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "needs some instant to begin at")]
    fn the_rate_is_of_the_last_seconds() {
        let mut rate = Rate::default();
        let began = Instant::now();
        // Nothing for an hour, then a hundred per second, then nothing again.
        let mut look =
            |second: u64, bytes| rate.observe(began + Duration::from_secs(second), bytes);
        let steps = (0..3600).map(|second| (second, 0));
        let steps = steps.chain((0..15).map(|n| (3600 + n, n * 100)));
        let rates: Vec<_> = steps.map(|(second, bytes)| look(second, bytes)).collect();
        assert_eq!(rates.last(), Some(&100));
        let rates: Vec<_> = (15..30).map(|n| look(3600 + n, 1400)).collect();
        assert_eq!(rates.last(), Some(&0));
    }
}
