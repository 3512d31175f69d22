//! In: how often something went wrong or came back empty. Out: how long to wait.
//! Pure.

use std::time::Duration;

/// Seconds until a job is tried again that has failed `fails` times: 16 to 74, then 31 to 118, then 96 to 212.
///
/// `draw` is a random number from 0 to 29.
pub(crate) fn until_retry(fails: i64, draw: i64) -> i64 {
    let power = fails.saturating_pow(4);
    let spread = draw.saturating_mul(fails.saturating_add(1));
    power.saturating_add(15).saturating_add(spread)
}

/// How long to wait between fetches that find nothing: 10 ms, 100 ms, 1 s, then 5 s again and again.
///
/// gocraft/work waits like this in each worker. There is no message when a job comes, since a job cannot be taken
/// by a blocking command and counted at the same time; who wants to be quicker takes a smaller
/// [`longest`](Self::at_most) pause, which costs one script call of some microseconds per pause.
#[derive(Clone, Debug)]
pub struct Idle {
    in_vain: usize,
    longest: Duration,
}

const PAUSES: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

impl Default for Idle {
    fn default() -> Self {
        Self::at_most(PAUSES[3])
    }
}

impl Idle {
    /// The same pauses, but none longer than this.
    pub fn at_most(longest: Duration) -> Self {
        Self {
            in_vain: 0,
            longest,
        }
    }

    /// The pause after one more fetch in vain.
    pub fn pause(&mut self) -> Duration {
        let pause = PAUSES[self.in_vain.min(PAUSES.len() - 1)];
        self.in_vain = self.in_vain.saturating_add(1);
        pause.min(self.longest)
    }

    /// A job was found: the next pause is a short one.
    pub fn reset(&mut self) {
        self.in_vain = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_come_when_gocraft_says() {
        for (fails, soonest, latest) in [(1, 16, 74), (2, 31, 118), (3, 96, 212)] {
            assert_eq!(until_retry(fails, 0), soonest);
            assert_eq!(until_retry(fails, 29), latest);
        }
    }

    #[test]
    fn absurd_numbers_of_failures_do_not_overflow() {
        assert_eq!(until_retry(i64::MAX, 29), i64::MAX);
        until_retry(i64::MIN, 29);
    }

    #[test]
    fn idling_slows_down_and_a_job_ends_it() {
        let mut idle = Idle::default();
        let pauses: Vec<_> = (0..6).map(|_| idle.pause().as_millis()).collect();
        assert_eq!(pauses, [10, 100, 1000, 5000, 5000, 5000]);
        idle.reset();
        assert_eq!(idle.pause().as_millis(), 10);
    }

    #[test]
    fn a_longest_pause_can_be_chosen() {
        let mut idle = Idle::at_most(Duration::from_millis(250));
        let pauses: Vec<_> = (0..4).map(|_| idle.pause().as_millis()).collect();
        assert_eq!(pauses, [10, 100, 250, 250]);
    }
}
