#![expect(
    clippy::disallowed_methods,
    reason = "the one file of this crate that reads a clock, and only the one for waits: the time of day is that of Redis"
)]
//! In: nothing. Out: the time for measuring and waiting.
//! Reads the monotonic clock.

use tokio::time::Instant;

/// Never goes back, and agrees with tokio's sleeps.
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}
