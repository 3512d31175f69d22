//! What the calendar owes. In: the schedule, what was observed, the time. Out: the slot to start,
//! and the slots that are given up. Pure.

use jiff::{SignedDuration, Timestamp};

use super::plan::{MISSED_LIMIT, Missed, Observed, Validated};

/// What the calendar says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    /// The slot to start.
    pub(super) slot: Option<Timestamp>,
    /// The newest slot that is dealt with even if nothing starts.
    pub(super) handled: Option<Timestamp>,
    pub(super) missed: Option<Missed>,
}

impl Validated {
    /// The newest slot that is owed, and what is given up.
    pub(super) fn due(&self, seen: &Observed, now: Timestamp) -> Due {
        let base = handled_until(seen, now);
        let newest = self.cron.last_between(base, now, &self.zone);
        let Some(newest) = newest else {
            return Due::nothing(base, seen);
        };
        if self.suspended || not_promised(seen, now) {
            return Due {
                slot: None,
                handled: Some(newest).filter(|_| !self.suspended),
                missed: None,
            };
        }
        let count = self
            .cron
            .count_between(base, newest, &self.zone, MISSED_LIMIT + 2);
        if self.is_too_late(newest, now) {
            return Due {
                slot: None,
                handled: Some(newest),
                missed: Some(Missed {
                    count,
                    last: newest,
                }),
            };
        }
        Due {
            slot: Some(newest),
            handled: None,
            missed: self.earlier_missed(base, newest, count),
        }
    }

    fn is_too_late(&self, slot: Timestamp, now: Timestamp) -> bool {
        self.given_up_at(slot).is_some_and(|end| now >= end)
    }

    /// When a slot that could not be started is given up.
    pub(super) fn given_up_at(&self, slot: Timestamp) -> Option<Timestamp> {
        let deadline = SignedDuration::try_from(self.deadline?).ok()?;
        slot.checked_add(deadline)
            .ok()?
            .checked_add(SignedDuration::from_secs(1))
            .ok()
    }

    fn earlier_missed(&self, base: Timestamp, newest: Timestamp, count: usize) -> Option<Missed> {
        let before = newest.checked_sub(SignedDuration::from_secs(1)).ok()?;
        let last = self.cron.last_between(base, before, &self.zone)?;
        Some(Missed {
            count: count.saturating_sub(1).max(1),
            last,
        })
    }
}

impl Due {
    fn nothing(base: Timestamp, seen: &Observed) -> Self {
        let adopted = seen
            .status
            .last_schedule_time
            .is_none_or(|last| last < base);
        let by_run = seen.runs.iter().any(|run| run.slot == Some(base));
        Self {
            slot: None,
            handled: Some(base).filter(|_| adopted && by_run),
            missed: None,
        }
    }
}

/// The newest slot that the status tells of.
pub(super) fn told_slot(seen: &Observed, now: Timestamp) -> Option<Timestamp> {
    let told = seen.status.last_schedule_time;
    told.filter(|slot| is_sane(*slot, now))
}

/// A slot or an end far in the future was told by a clock that was wrong then: believing it would stop the
/// schedule, or hide all results, until that time.
pub(super) fn is_sane(at: Timestamp, now: Timestamp) -> bool {
    at.duration_since(now) <= SANE
}

const SANE: SignedDuration = SignedDuration::from_hours(1);

/// Slots up to this one are dealt with: by the status, by a run that exists, or before the schedule did.
fn handled_until(seen: &Observed, now: Timestamp) -> Timestamp {
    let by_runs = seen
        .runs
        .iter()
        .filter_map(|run| run.slot)
        .filter(|slot| is_sane(*slot, now))
        .max();
    let by_status = told_slot(seen, now);
    by_runs
        .into_iter()
        .chain(by_status)
        .fold(seen.created, Timestamp::max)
}

/// Whether the slots up to now were never promised: the schedule was suspended when they passed, or has
/// changed since, and the slot that users were told of is still to come. A new schedule needs no promise.
fn not_promised(seen: &Observed, now: Timestamp) -> bool {
    let status = &seen.status;
    let promised = status.next_schedule_time.is_some_and(|next| next <= now);
    status.observed_generation > 0 && !promised
}
