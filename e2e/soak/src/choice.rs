//! In: a seed. Out: choices, the same ones for the same seed.
//! Pure.

use std::{ops::RangeInclusive, time::Duration};

use fastrand::Rng;

/// A time to the tenth of a second.
pub fn pause(rng: &mut Rng, seconds: RangeInclusive<u64>) -> Duration {
    let (least, most) = seconds.into_inner();
    Duration::from_millis(100 * rng.u64(10 * least..=10 * most))
}

/// Rounds of faults without end: each seed has its own, and always the same.
pub fn rounds<R>(seed: u64, round: impl Fn(&mut Rng) -> R) -> impl Iterator<Item = R> {
    let mut rng = Rng::with_seed(seed);
    std::iter::repeat_with(move || round(&mut rng))
}
