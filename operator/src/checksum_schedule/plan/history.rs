//! Which runs of a schedule nobody is to keep: those beyond the limits of its history, and those that have outlived their time.
//! Only once the status has told of them. Pure.

use jiff::Timestamp;

use super::{Doomed, Observed, Run, Validated};

impl Observed {
    /// Runs that have ended, of which the status has told.
    fn told(&self) -> impl Iterator<Item = &Run> {
        let ended = self.runs.iter().filter(|run| run.ended.is_some());
        ended.filter(|run| !run.deleting && self.has_told(run))
    }

    /// Those that have outlived their time.
    pub fn outlived(&self, now: Timestamp) -> Vec<Doomed> {
        let over = self.told().filter(|run| run.has_outlived(now));
        over.map(Doomed::from).collect()
    }

    /// When the next of them will have.
    pub fn next_expiry(&self, now: Timestamp) -> Option<Timestamp> {
        let expiries = self.told().filter_map(Run::expires);
        expiries.filter(|end| *end > now).min()
    }
}

impl Run {
    /// When it has outlived its time.
    fn expires(&self) -> Option<Timestamp> {
        let ended = self.ended.as_ref()?;
        ended.at.checked_add(self.keep?).ok()
    }

    fn has_outlived(&self, now: Timestamp) -> bool {
        self.expires().is_some_and(|end| end <= now)
    }
}

impl Validated {
    /// Ended runs beyond the limits, the oldest first, and those that have outlived their time; only once the status has told
    /// of them.
    pub(super) fn prunable(&self, seen: &Observed, now: Timestamp) -> Vec<Doomed> {
        let kept = seen.told().filter(|run| !run.has_outlived(now));
        let mut kept: Vec<&Run> = kept.collect();
        kept.sort_by_key(|run| run.created);
        let (verified, others): (Vec<&Run>, Vec<&Run>) =
            kept.into_iter().partition(|run| run.is_verified());
        let beyond = |runs: Vec<&Run>, keep: usize| {
            let excess = runs.len().saturating_sub(keep);
            runs.into_iter()
                .take(excess)
                .map(Doomed::from)
                .collect::<Vec<_>>()
        };
        let mut doomed = seen.outlived(now);
        doomed.extend(beyond(verified, self.keep_verified));
        doomed.extend(beyond(others, self.keep_others));
        doomed
    }
}
