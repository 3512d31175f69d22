#![expect(
    clippy::disallowed_methods,
    reason = "the one file that reads the clocks, so that everything else can be tested without waiting"
)]
//! In: nothing. Out: the time, for users (wall) and for waits (monotonic).
//! Reads the system's clocks; nothing else in the workspace does.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Where the time comes from. Shared as `Arc<dyn Clock>`.
pub trait Clock: Debug + Send + Sync {
    /// The time of day, which people and other machines see. It may jump.
    fn wall(&self) -> Timestamp;

    /// The time for measuring and waiting: never goes back, and agrees with tokio's sleeps.
    fn monotonic(&self) -> Instant;
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

/// A clock whose time of day stands still until a test moves it.
///
/// Its monotonic side is tokio's own, so that it agrees with sleeps: a test moves that one with
/// `tokio::time::pause` and `tokio::time::advance`.
#[derive(Debug)]
pub struct ManualClock {
    wall: Mutex<Timestamp>,
}

impl ManualClock {
    /// A clock that shows `wall`.
    pub fn new(wall: Timestamp) -> Self {
        Self {
            wall: Mutex::new(wall),
        }
    }

    /// Shows `wall` from now on; it may lie in the past.
    pub fn set(&self, wall: Timestamp) {
        *self.wall.lock().unwrap_or_else(PoisonError::into_inner) = wall;
    }

    /// Moves the time of day by `step`, backwards if it is negative, and stops at the ends of time.
    pub fn advance(&self, step: SignedDuration) {
        let mut wall = self.wall.lock().unwrap_or_else(PoisonError::into_inner);
        let end = if step.is_negative() {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        };
        *wall = wall.checked_add(step).unwrap_or(end);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Timestamp {
        *self.wall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        clock.advance(SignedDuration::from_secs(90));
        assert_eq!(clock.wall().as_second(), 90);
        clock.advance(SignedDuration::from_secs(-30));
        assert_eq!(clock.wall().as_second(), 60);
        clock.set(Timestamp::MAX);
        clock.advance(SignedDuration::MAX);
        assert_eq!(clock.wall(), Timestamp::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_monotonic_side_agrees_with_sleeps() {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        let before = clock.monotonic();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(clock.monotonic() - before, Duration::from_secs(3));
        assert_eq!(clock.wall(), Timestamp::UNIX_EPOCH);
    }
}
