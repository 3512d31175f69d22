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
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt, core::error_boundary::InvalidObject};

use runtime::clock::Clock;
use tokio::time::Instant;

use super::plan::{Ended, Observed, Run};
use crate::{
    object::{Key, owner_uid},
    received::Received,
    watch::{Cached, Store, WATCH_TIMEOUT, pod::version},
};

/// A schedule as it is cached: also one that this release cannot read, so that it can be told.
#[derive(Clone, Debug)]
pub struct CachedSchedule(pub Result<ChecksumSchedule, InvalidObject>);

impl CachedSchedule {
    /// Drops what nobody reads.
    pub fn slim(mut wire: Received<ChecksumSchedule>) -> Self {
        wire.meta_mut().managed_fields = None;
        wire.annotations_mut()
            .remove("kubectl.kubernetes.io/last-applied-configuration");
        Self(wire.0)
    }

    /// Its metadata, which can always be read.
    pub fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(schedule) => &schedule.metadata,
            Err(invalid) => &invalid.metadata,
        }
    }
}

impl Cached for CachedSchedule {
    fn key(&self) -> Key {
        let meta = self.meta();
        Key {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn owner(&self) -> Option<&str> {
        None
    }

    fn version(&self) -> u64 {
        let version = self.meta().resource_version.as_deref();
        version.and_then(|v| v.parse().ok()).unwrap_or(u64::MAX)
    }
}

/// What is kept of a run.
#[derive(Clone, Debug)]
pub struct CachedRun {
    key: Key,
    owner: Option<Box<str>>,
    schedule: Option<Box<str>>,
    version: u64,
    run: Run,
}

impl CachedRun {
    /// Keeps what planning needs. A run that cannot be read counts as active: nobody knows better.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "what is not kept is dropped here"
    )]
    pub fn slim(wire: Received<ChecksumRun>) -> Self {
        let ended = wire.0.as_ref().ok().and_then(ended);
        let slot = wire.annotations().get(SCHEDULED_AT_ANNOTATION);
        Self {
            key: Key::of(&wire),
            owner: owner_uid(&wire).map(Into::into),
            schedule: owner(&wire).map(Into::into),
            version: version(&wire),
            run: Run {
                name: wire.name_any(),
                uid: wire.uid().unwrap_or_default(),
                created: created(wire.meta()),
                deleting: wire.meta().deletion_timestamp.is_some(),
                slot: slot.and_then(|text| text.parse().ok()),
                token: wire.annotations().get(RUN_TOKEN_ANNOTATION).cloned(),
                ended,
            },
        }
    }
}

impl CachedRun {
    /// The schedule that controls this run.
    pub fn schedule(&self) -> Option<Key> {
        Some(Key {
            namespace: self.key.namespace.clone(),
            name: self.schedule.as_deref()?.into(),
        })
    }
}

/// The name of the schedule that controls a run.
fn owner(run: &impl Resource) -> Option<&str> {
    let owners = run.meta().owner_references.as_ref()?;
    let kind = ChecksumSchedule::kind(&());
    let owner = owners
        .iter()
        .find(|owner| owner.controller == Some(true) && owner.kind == kind)?;
    Some(&owner.name)
}

impl Cached for CachedRun {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn uid(&self) -> &str {
        &self.run.uid
    }

    fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    fn version(&self) -> u64 {
        self.version
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
        runs.insert(run.key.clone(), (run, now + UNSEEN));
    }

    /// The runs of an owner that the cache does not know yet.
    fn unseen(&self, owner: &str, known: &Store<CachedRun>) -> Vec<Run> {
        let now = self.clock.monotonic();
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|key, (_, until)| *until > now && known.get(key).is_none());
        let theirs = runs.values().filter(|(run, _)| run.owner() == Some(owner));
        theirs.map(|(run, _)| run.run.clone()).collect()
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
    let seen = seen.iter().map(|cached| cached.run.clone());
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
    use crate::watch::Scope;

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

    #[test]
    fn an_object_that_cannot_be_read_keeps_its_name() {
        let wire = r#"{"metadata": {"namespace": "ns", "name": "s", "uid": "u", "resourceVersion": "7"}, "spec": {"schedule": 3}}"#;
        let cached = CachedSchedule::slim(serde_json::from_str(wire).unwrap());
        assert!(cached.0.is_err());
        assert_eq!(
            (cached.key().to_string().as_str(), cached.version()),
            ("ns/s", 7)
        );
    }
}
