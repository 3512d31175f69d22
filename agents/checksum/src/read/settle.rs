#![expect(
    clippy::disallowed_methods,
    reason = "an edge: the time of a file is compared with that of now"
)]
//! Files that were written a moment ago. In: a modification time. Out: nothing, once a later write would show in it.
//! Touches: reads the clock, and waits.
//!
//! File systems tell times in ticks. Who reads a file in the tick in which it was written, and has it written once more in the
//! same, finds it as it was listed, before and after; and takes it for damaged for ever after. So the tick must be over
//! before the first byte is read.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECOND: i64 = 1_000_000_000;
/// What a kernel's clock for files is exact to.
const TICK: i64 = SECOND / 100;
/// What file systems are exact to that know no fractions of a second: FAT knows every other one.
const COARSE: i64 = 2 * SECOND;

/// Waits until the tick of this modification time is over.
pub(super) fn settle(mtime: i64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.ok().and_then(|it| i64::try_from(it.as_nanos()).ok());
    let rest = now.map_or(Duration::ZERO, |now| rest(mtime, now));
    if !rest.is_zero() {
        thread::sleep(rest);
    }
}

/// How long that tick goes on. A time that is yet to come says nothing: clocks differ.
fn rest(mtime: i64, now: i64) -> Duration {
    let tick = if mtime % SECOND == 0 { COARSE } else { TICK };
    let rest = mtime.saturating_add(tick).saturating_sub(now);
    let goes_on = mtime <= now && rest > 0;
    Duration::from_nanos(if goes_on { rest.unsigned_abs() } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_as_long_as_the_file_system_is_exact() {
        let (fine, coarse) = (5 * SECOND + 1, 5 * SECOND);
        let nanoseconds = |mtime, now| rest(mtime, now).as_nanos();
        assert_eq!(nanoseconds(fine, fine), 10_000_000);
        assert_eq!(nanoseconds(fine, fine + TICK - 1), 1);
        assert_eq!(nanoseconds(fine, fine + TICK), 0);
        assert_eq!(nanoseconds(coarse, coarse + SECOND), 1_000_000_000);
        assert_eq!(nanoseconds(coarse, coarse + COARSE), 0);
    }

    #[test]
    fn nobody_waits_for_a_time_that_is_to_come_or_long_past() {
        for mtime in [i64::MIN, -1, 0, 7 * SECOND, i64::MAX] {
            assert!(rest(mtime, 6 * SECOND).is_zero(), "{mtime}");
        }
    }
}
