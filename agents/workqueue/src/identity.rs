//! In: when heartbeats were sent and answered. Out: under which identifier jobs may be taken now.
//! Pure: time is an argument.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Each long absence of Redis adds one while its jobs are held; what is more is left to the reapers.
const OLD_ONES: usize = 16;

/// The identifiers of one pool: the one that takes jobs, and former ones that still hold some.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    /// The next one, until Redis has answered its first heartbeat: that may be written although the answer was lost.
    candidate: Option<Arc<str>>,
    current: Option<Current>,
    old: Vec<Arc<str>>,
}

#[derive(Debug)]
struct Current {
    id: Arc<str>,
    /// From before the last heartbeat that succeeded was sent: it may have been written at once.
    renewed: Instant,
}

impl Identities {
    /// The identifier to take jobs with, unless nobody would wonder if a reaper had taken the pool for dead.
    pub(crate) fn usable(&self, now: Instant, patience: Duration) -> Option<Arc<str>> {
        let current = self.current.as_ref()?;
        let is_fresh = now.duration_since(current.renewed) < patience;
        is_fresh.then(|| current.id.clone())
    }

    /// The identifier to register with. It is the same until one is registered: an absence of Redis takes many attempts, and
    /// former identifiers that hold jobs must not have to make room for as many that never held any.
    pub(crate) fn candidate(&mut self, fresh: impl FnOnce() -> Arc<str>) -> Arc<str> {
        self.candidate.get_or_insert_with(fresh).clone()
    }

    /// That new identifier has been registered by a heartbeat sent at `sent`.
    pub(crate) fn adopt(&mut self, id: Arc<str>, sent: Instant) {
        self.candidate = None;
        let former = self.current.replace(Current { id, renewed: sent });
        self.keep(former.map(|former| former.id));
    }

    /// A heartbeat of `id` sent at `sent` has succeeded.
    pub(crate) fn renewed(&mut self, id: &str, sent: Instant) {
        if let Some(current) = &mut self.current
            && *current.id == *id
        {
            current.renewed = sent;
        }
    }

    /// Redis says that `id` counts as dead.
    pub(crate) fn abandon(&mut self, id: &str) {
        if self.current.as_ref().is_some_and(|now| *now.id == *id) {
            let former = self.current.take();
            self.keep(former.map(|former| former.id));
        }
    }

    /// Nothing is left under that former identifier.
    pub(crate) fn retire(&mut self, id: &str) {
        self.old.retain(|old| **old != *id);
    }

    pub(crate) fn current(&self) -> Option<Arc<str>> {
        Some(self.current.as_ref()?.id.clone())
    }

    pub(crate) fn old(&self) -> Vec<Arc<str>> {
        self.old.clone()
    }

    /// All that may be known to others, the current one first.
    pub(crate) fn all(&self) -> Vec<Arc<str>> {
        let all = self.current().into_iter().chain(self.old());
        all.chain(self.candidate.clone()).collect()
    }

    fn keep(&mut self, former: Option<Arc<str>>) {
        self.old.extend(former);
        if self.old.len() > OLD_ONES {
            self.old.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn names(ids: &[Arc<str>]) -> Vec<&str> {
        ids.iter().map(|id| &**id).collect()
    }

    #[test]
    fn an_identifier_is_usable_while_its_heartbeat_is_young() {
        let start = monotonic();
        let mut identities = Identities::default();
        assert_eq!(identities.usable(start, PATIENCE), None);
        identities.adopt("a".into(), start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(identities.usable(at(9), PATIENCE).is_some());
        assert!(identities.usable(at(10), PATIENCE).is_none());
        identities.renewed("a", at(8));
        assert!(identities.usable(at(17), PATIENCE).is_some());
        identities.renewed("b", at(20));
        assert!(identities.usable(at(18), PATIENCE).is_none());
    }

    #[test]
    fn former_identifiers_are_kept_until_they_are_retired() {
        let start = monotonic();
        let mut identities = Identities::default();
        identities.adopt("a".into(), start);
        identities.adopt("b".into(), start);
        identities.abandon("a");
        assert_eq!(identities.current().as_deref(), Some("b"));
        identities.abandon("b");
        assert_eq!(identities.usable(start, PATIENCE), None);
        assert_eq!(names(&identities.all()), ["a", "b"]);
        identities.retire("a");
        assert_eq!(names(&identities.old()), ["b"]);
    }

    #[test]
    fn an_identifier_whose_registration_is_in_doubt_is_not_forgotten() {
        let mut identities = Identities::default();
        identities.candidate(|| "a".into());
        assert_eq!(identities.usable(monotonic(), PATIENCE), None);
        assert_eq!(names(&identities.all()), ["a"]);
        identities.adopt("a".into(), monotonic());
        assert!(identities.old().is_empty());
        assert_eq!(names(&identities.all()), ["a"]);
    }

    #[test]
    fn attempts_to_register_push_out_no_identifier_that_holds_jobs() {
        let mut identities = Identities::default();
        identities.adopt("holds a job".into(), monotonic());
        for absence in ["first", "second"] {
            let tried = (0..100).map(|_| identities.candidate(|| absence.into()));
            assert!(tried.collect::<Vec<_>>().iter().all(|id| **id == *absence));
            identities.adopt(absence.into(), monotonic());
        }
        assert_eq!(names(&identities.all()), ["second", "holds a job", "first"]);
    }

    #[test]
    fn there_are_only_so_many_former_identifiers() {
        let mut identities = Identities::default();
        for number in 0..100 {
            identities.adopt(number.to_string().into(), monotonic());
        }
        assert_eq!(identities.old().len(), OLD_ONES);
        assert_eq!(identities.old().last().map(|id| &**id), Some("98"));
    }
}
