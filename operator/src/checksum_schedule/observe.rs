//! Reads what planning needs from the caches. In: stores. Out: [`Observed`]. Touches memory only.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crds::{
    checksum_run::ChecksumRun,
    checksum_schedule::ChecksumSchedule,
    name::{RUN_NOW_ANNOTATION, RUN_TOKEN_ANNOTATION, SCHEDULED_AT_ANNOTATION},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};

use runtime::clock::Clock;
use tokio::time::Instant;

use super::plan::{Ended, Observed, Run};
use crate::{
    checksum_run::config,
    object::Key,
    watch::{Cached, Store, WATCH_TIMEOUT, custom::Custom},
};

/// A schedule as it is cached.
pub type CachedSchedule = Custom<ChecksumSchedule>;
/// A run as it is cached, for its own controller as well.
pub type CachedRun = Custom<ChecksumRun>;

/// The schedule that controls the run with that metadata.
pub fn schedule_of(run: &ObjectMeta) -> Option<Key> {
    let owners = run.owner_references.as_ref()?;
    let kind = ChecksumSchedule::kind(&());
    let owner = owners
        .iter()
        .find(|owner| owner.controller == Some(true) && owner.kind == kind)?;
    Some(Key {
        namespace: run.namespace.clone().unwrap_or_default(),
        name: owner.name.clone(),
    })
}

/// What planning needs of a run. One that cannot be read counts as active: nobody knows better.
fn run(cached: &CachedRun) -> Run {
    let meta = cached.meta();
    let annotation = |name: &str| meta.annotations.as_ref()?.get(name);
    Run {
        name: meta.name.clone().unwrap_or_default(),
        uid: cached.uid().into(),
        created: created(meta),
        deleting: meta.deletion_timestamp.is_some(),
        slot: annotation(SCHEDULED_AT_ANNOTATION).and_then(|text| text.parse().ok()),
        token: annotation(RUN_TOKEN_ANNOTATION).cloned(),
        ended: cached.0.as_ref().ok().and_then(ended),
        keep: cached.0.as_ref().ok().and_then(kept),
    }
}

fn ended(run: &ChecksumRun) -> Option<Ended> {
    let condition = run.ended()?;
    let status = run.status.as_ref()?;
    Some(Ended {
        result: condition.reason.clone(),
        at: status
            .completion_time
            .unwrap_or(condition.last_transition_time.0),
    })
}

/// What cannot be read is told by the run itself, and keeps it.
fn kept(run: &ChecksumRun) -> Option<SignedDuration> {
    config::keep(&run.spec).ok().flatten()
}

fn created(meta: &ObjectMeta) -> Timestamp {
    meta.creation_timestamp
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// Runs that were made here, until the watch tells of them: a decision on a cache that lags would
/// start a second run beside the first.
#[derive(Clone, Debug)]
pub struct Started {
    runs: Arc<Mutex<HashMap<Key, (CachedRun, Instant)>>>,
    clock: Arc<dyn Clock>,
}

impl Started {
    /// Nothing was started yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            runs: Arc::default(),
            clock,
        }
    }

    /// Remembers a run, for as long as a watch may take to tell of it.
    pub fn note(&self, run: CachedRun) {
        let now = self.clock.monotonic();
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|_, (_, until)| *until > now);
        runs.insert(run.key(), (run, now + UNSEEN));
    }

    /// The runs of an owner that the cache does not know yet.
    fn unseen(&self, owner: &str, known: &Store<CachedRun>) -> Vec<Run> {
        let now = self.clock.monotonic();
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|key, (_, until)| *until > now && known.get(key).is_none());
        let theirs = runs.values().filter(|(run, _)| run.owner() == Some(owner));
        theirs.map(|(cached, _)| run(cached)).collect()
    }
}

/// How long a watch may take to tell of a run: until it notices that its connection is dead, and a little.
const UNSEEN: Duration = WATCH_TIMEOUT.saturating_add(Duration::from_secs(10));

/// Everything the decision needs.
pub fn observe(
    schedule: &ChecksumSchedule,
    runs: &Store<CachedRun>,
    started: &Started,
) -> Observed {
    let namespace = schedule.namespace().unwrap_or_default();
    let uid = schedule.uid().unwrap_or_default();
    let seen = runs.owned_by(&namespace, &uid);
    let seen = seen.iter().map(|cached| run(cached));
    Observed {
        name: schedule.name_any(),
        created: created(schedule.meta()),
        generation: schedule.metadata.generation.unwrap_or_default(),
        token: schedule.annotations().get(RUN_NOW_ANNOTATION).cloned(),
        status: schedule.status.clone().unwrap_or_default(),
        runs: seen.chain(started.unseen(&uid, runs)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use runtime::clock::SystemClock;

    use super::{
        super::{build, fixture::schedule, plan::Start},
        *,
    };
    use crate::{received::Received, watch::Scope};

    fn made() -> CachedRun {
        let start = Start {
            name: "nightly-2611160300".into(),
            slot: "2026-11-16T03:00:00Z".parse().ok(),
            token: None,
        };
        CachedRun::slim(Received(Ok(build::run(&schedule(), &start))))
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_made_here_is_seen_before_the_watch_tells_of_it_and_not_for_ever() {
        let runs = Store::new(&Scope::Cluster);
        let started = Started::new(Arc::new(SystemClock));
        started.note(made());
        let seen = observe(&schedule(), &runs, &started);
        assert_eq!(seen.runs[0].name, "nightly-2611160300");
        assert_eq!(seen.runs[0].slot, "2026-11-16T03:00:00Z".parse().ok());
        tokio::time::advance(UNSEEN).await;
        assert!(observe(&schedule(), &runs, &started).runs.is_empty());
    }
}
