//! How many packs should wait in the queue. In: how long it is, how many workers there are, and the time. Out: how long it
//! should be, and when to look again. Pure.
//!
//! The queue should never be empty, and never longer than needed: what waits in it takes memory, and waits the longer the
//! slower the workers get. So its length follows a moving average of what is consumed, plus what that has deviated lately.
//! It begins with a warm-up in which it is looked at often, and grows exponentially whenever it runs empty.

use std::time::Duration;

/// The least that waits.
const LEAST: u64 = 4;
/// The least for each worker, as a share.
const LEAST_PER_WORKER: f64 = 0.25;
/// What waits for each worker during the warm-up.
const WARM_UP_PER_WORKER: u64 = 5;
/// How often it is looked at during the warm-up.
const WARM_UP_STEPS: u32 = 1000;
const WARM_UP: Duration = Duration::from_millis(10);
/// How often it is looked at then.
const MAINTAINING: Duration = Duration::from_secs(10);
/// After which time a consumption counts for little.
const LIFETIME: f64 = 10.0;
/// How much a deviation counts, and how fast it is forgotten.
const DEVIATION_FACTOR: f64 = 10.0;
const DEVIATION_ALPHA: f64 = 0.1;

/// What was seen since the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Packs that wait.
    pub length: u64,
    /// Workers there are.
    pub workers: u64,
    /// Packs that were added since the last step.
    pub added: u64,
    /// Whether the queue was seen empty since the last step.
    pub was_empty: bool,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Packs that should wait.
    pub target: u64,
    /// When to look again.
    pub wait: Duration,
}

/// Follows what is consumed.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    steps: u32,
    before: Option<(Duration, u64)>,
    /// Per second.
    consumption: f64,
    deviation: f64,
    target: u64,
}

impl Schedule {
    /// Looks at the queue. `now` counts from any moment, always the same.
    pub fn step(&mut self, now: Duration, seen: Seen) -> Decision {
        let consumed = self.observe(now, seen);
        self.before = Some((now, seen.length));
        let is_exhausted = seen.length == 0 || seen.was_empty;
        if !is_exhausted {
            // The last step of the warm-up is the first after which it is not looked at for long.
            self.steps = (self.steps + 1).min(WARM_UP_STEPS);
        }
        let wanted = if is_exhausted {
            self.target
                .max(consumed.saturating_mul(2))
                .max(self.warm_up(seen))
        } else if self.steps < WARM_UP_STEPS {
            self.warm_up(seen)
        } else {
            let period = MAINTAINING.as_secs_f64();
            ceil(DEVIATION_FACTOR * self.deviation * period + self.consumption * period)
        };
        self.target = wanted.max(least(seen.workers));
        Decision {
            target: self.target,
            wait: if self.steps < WARM_UP_STEPS {
                WARM_UP
            } else {
                MAINTAINING
            },
        }
    }

    /// While it is warm, workers are what is known.
    fn warm_up(&self, seen: Seen) -> u64 {
        if self.steps < WARM_UP_STEPS {
            seen.workers.saturating_mul(WARM_UP_PER_WORKER)
        } else {
            0
        }
    }

    fn observe(&mut self, now: Duration, seen: Seen) -> u64 {
        let Some((then, length)) = self.before else {
            return 0;
        };
        let consumed = (length + seen.added).saturating_sub(seen.length);
        let time = now.saturating_sub(then).as_secs_f64();
        if time > 0.0 {
            let rate = number(consumed) / time;
            let off = (number(consumed) - self.consumption * time).abs() / time;
            let weight = 1.0 - (-time / LIFETIME).exp();
            self.consumption += weight * (rate - self.consumption);
            self.deviation += DEVIATION_ALPHA * (off - self.deviation);
        }
        consumed
    }
}

fn least(workers: u64) -> u64 {
    ceil(LEAST_PER_WORKER * number(workers)).max(LEAST)
}

#[expect(clippy::cast_precision_loss, reason = "queues are shorter than 2^53")]
fn number(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative, and saturating is right"
)]
fn ceil(value: f64) -> u64 {
    value.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(length: u64, workers: u64) -> Seen {
        Seen {
            length,
            workers,
            added: 0,
            was_empty: false,
        }
    }

    /// A queue that workers empty at this rate, for so many seconds; its lengths after the first minute.
    fn simulated(rate: impl Fn(f64) -> f64, workers: u64, seconds: f64) -> Vec<(f64, f64, u64)> {
        let mut schedule = Schedule::default();
        let (mut now, mut length, mut added) = (0.0, 0.0_f64, 0);
        let mut lengths = Vec::new();
        while now < seconds {
            let at = Duration::from_secs_f64(now);
            let decision = schedule.step(
                at,
                Seen {
                    length: ceil(length),
                    workers,
                    added,
                    was_empty: length <= 0.0,
                },
            );
            added = decision.target.saturating_sub(ceil(length));
            length += number(added);
            let wait = decision.wait.as_secs_f64();
            lengths.push((now, length, decision.target));
            length = (length - rate(now) * wait).max(0.0);
            now += wait;
        }
        lengths
    }

    #[test]
    fn the_warm_up_has_five_packs_per_worker_and_four_without_any() {
        let mut schedule = Schedule::default();
        let decision = schedule.step(Duration::ZERO, seen(1, 6));
        assert_eq!((decision.target, decision.wait), (30, WARM_UP));
        assert_eq!(
            Schedule::default().step(Duration::ZERO, seen(1, 0)).target,
            4
        );
    }

    #[test]
    fn steady_consumption_is_kept_ahead_of_by_about_ten_seconds() {
        let late = simulated(|_| 20.0, 4, 900.0);
        let late: Vec<_> = late.iter().filter(|(at, ..)| *at > 600.0).collect();
        assert!(
            late.iter()
                .all(|(_, length, _)| (180.0..300.0).contains(length)),
            "{late:?}"
        );
    }

    #[test]
    fn what_waits_lasts_until_it_is_looked_at_again_also_after_the_warm_up() {
        let lengths = simulated(|_| 2.0, 2, 60.0);
        for pair in lengths.windows(2) {
            let [(at, length, _), (next, ..)] = pair else {
                continue;
            };
            let needed = 2.0 * (next - at);
            assert!(*length >= needed, "{length} at {at}, {needed} until {next}");
        }
    }

    #[test]
    fn what_is_always_found_empty_doubles_with_every_look() {
        // Whatever waits is taken at once.
        let rate = |at: f64| if at < 200.0 { 20.0 } else { f64::INFINITY };
        let lengths = simulated(rate, 4, 300.0);
        let starving = lengths.iter().filter(|(at, ..)| *at > 220.0);
        let targets: Vec<_> = starving.map(|(.., target)| *target).collect();
        assert!(targets.len() > 5, "{lengths:?}");
        for pair in targets.windows(2) {
            assert_eq!(pair[1], 2 * pair[0], "{targets:?}");
        }
    }

    #[test]
    fn ten_times_more_workers_are_caught_up_with() {
        let rate = |at: f64| if at < 200.0 { 20.0 } else { 200.0 };
        let lengths = simulated(rate, 4, 400.0);
        let late = lengths.iter().filter(|(at, ..)| *at > 280.0);
        for (at, _, target) in late {
            assert!(*target >= 1500, "{target} at {at}");
        }
    }
}
