//! What a ChecksumRun needs now. In: the run, what was observed, the time.
//! Out: objects to make, change or remove, how far the run is, and when to look again. Pure.

mod finish;
mod idle;
mod prepare;
mod stage;
#[cfg(test)]
mod tests;
mod work;

use std::{sync::Arc, time::Duration};

use crds::{
    checksum_run::{
        ChecksumRunSpec, ChecksumRunStatus,
        reason::{CHANGED_MEANWHILE, STOPPED, VERIFIED},
        status::RunState,
    },
    condition::{COMPLETE, Reason, is_true},
    report::checksum::{CoordinatorReport, WorkerReport},
};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolumeClaim},
};
use serde::Serialize;

use super::{
    build,
    config::Validated,
    credentials::{Credentials, Files},
    pod::Image,
    snapshot::{Found, VolumeSnapshot},
};
use crate::{
    secrets::Content,
    watch::{
        child::{ClaimState, JobState},
        pod::Exit,
    },
};
pub use finish::without_spec;
use finish::{cancelled, finished, keeps};
use prepare::prepare;
pub use stage::{Stage, Told};
use stage::{before_reading, before_start, earlier_pod};
use work::work;

/// How often a run that waits for another, or for what it refers to, looks whether it may go on.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Results that are no reason to worry: what was asked for was done.
pub const GOOD: [&Reason; 3] = [&VERIFIED, &CHANGED_MEANWHILE, &STOPPED];

/// What must be known to plan.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The status as it is stored.
    pub status: ChecksumRunStatus,
    /// What new pods run.
    pub image: Image,
    /// The claim that is to be read, if it exists.
    pub source: Option<ClaimState>,
    /// The claim of an embedded store, if it exists.
    pub store: Option<StoreClaim>,
    /// The Job that makes it writable.
    pub preparation: Option<(Made, JobState)>,
    /// Whether this run has begun: it does not wait for others any more.
    pub begun: bool,
    /// When it was made.
    pub created: Timestamp,
    /// Whether a schedule controls it.
    pub scheduled: bool,
    /// Other runs of the namespace that use the same store and have not ended.
    pub rivals: Vec<Rival>,
    /// The ConfigMap.
    pub config: Option<Made>,
    /// The credentials as they should be mounted.
    pub credentials: Credentials,
    /// The Secret that is mounted.
    pub copy: Option<Arc<Content>>,
    /// The Job.
    pub job: Option<(Made, JobState)>,
    /// The Deployment.
    pub workers: Option<Made>,
    /// The snapshot, if the run wants one.
    pub snapshot: Found,
    /// The claim that was made from it.
    pub restored: Option<Restored>,
    /// The pods, the newest first.
    pub pods: Vec<Pod>,
}

/// The claim of an embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreClaim {
    /// Whether it was made for nothing else.
    pub ours: bool,
}

/// The claim that was made from the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Its UID.
    pub uid: String,
    /// Whether it was made for this run.
    pub ours: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// Another run that wants the same store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Its name.
    pub name: String,
    /// Whether it has begun.
    pub begun: bool,
    /// When it was made.
    pub created: Timestamp,
    /// The reason why it has not begun, if it told one.
    pub reason: Option<String>,
}

/// A child that is there and is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its UID.
    pub uid: String,
    /// The digest of what it was asked to be, if it still is.
    pub applied: Option<String>,
}

/// What an agent is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Leads the run.
    Coordinator,
    /// Reads for it.
    Worker,
}

/// Whether the agent of a pod runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It has not run yet.
    NotStarted,
    /// It has been running.
    Started,
    /// It runs, and is ready.
    Ready,
    /// Nothing runs in the pod any more, or ever will.
    Over,
}

/// A pod of the run, and what is known of its agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// What its agent is there for.
    pub role: Role,
    /// Whether its agent runs.
    pub life: Life,
    /// How its agent ended.
    pub exit: Option<Exit>,
    /// What keeps it from starting.
    pub holdup: Option<String>,
    /// What its agent said last, if it leads.
    pub heard: Option<CoordinatorReport>,
    /// What its agent said last, if it reads for another.
    pub works: Option<WorkerReport>,
    /// Whether its agent works by the newest configuration.
    pub heeds: bool,
    /// Why it does not, if somebody said why.
    pub refusal: Option<String>,
    /// Since when it is asked in vain to.
    pub behind_since: Option<Timestamp>,
    /// Since when its agent does not answer.
    pub silent_since: Option<Timestamp>,
}

impl Pod {
    fn is_alive(&self) -> bool {
        self.exit.is_none() && self.life != Life::Over
    }

    fn is_ready(&self) -> bool {
        self.exit.is_none() && self.life == Life::Ready
    }

    /// Whether it may read, and has not taken up what it is told now.
    fn may_read_on(&self) -> bool {
        self.is_alive() && self.life != Life::NotStarted && !self.heeds
    }

    /// The last that its agent said: what it left behind, else what it answered.
    fn report(&self) -> Option<CoordinatorReport> {
        let left = self.exit.as_ref().and_then(|exit| parse(&exit.message));
        left.or_else(|| self.heard.clone())
    }
}

/// What an agent left behind, if it is a report: any object reads as an empty one.
fn parse(message: &str) -> Option<CoordinatorReport> {
    let report: CoordinatorReport = serde_json::from_str(message).ok()?;
    let says = report.state.is_some() || report.result.is_some() || report.waiting.is_some();
    says.then_some(report)
}

impl Observed {
    /// Whether somebody should look at the snapshot: before there is a Job to read it, and after the end until it is gone.
    pub fn wants_snapshot(&self, spec: &ChecksumRunSpec) -> bool {
        spec.source.csi().is_some()
            && if self.is_over() {
                self.status.snapshot.is_some() && self.restored.is_none() && !keeps(spec, self)
            } else {
                self.job.is_none()
            }
    }

    /// Whether the end of the run is in its status.
    pub fn is_over(&self) -> bool {
        is_true(&self.status.conditions, COMPLETE)
    }

    fn coordinators(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| pod.role == Role::Coordinator)
    }

    /// What the coordinator said last. Only the newest pod counts: an older one knows less than the status.
    pub fn report(&self) -> Option<CoordinatorReport> {
        self.coordinators().next()?.report()
    }

    /// How far the run is.
    fn state(&self) -> Option<RunState> {
        let said = self.report().and_then(|report| report.state);
        said.or(self.status.state)
    }

    fn workers(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| pod.role == Role::Worker)
    }

    /// Worker pods that are ready.
    pub fn ready_workers(&self) -> i32 {
        i32::try_from(self.workers().filter(|pod| pod.is_ready()).count()).unwrap_or(i32::MAX)
    }
}

/// What to do, complete enough that nothing is left to decide.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The claim for checksums, if it has to be made.
    pub store: Option<PersistentVolumeClaim>,
    /// The Job that makes the store writable, if it is not what it should be.
    pub preparation: Option<Apply<Job>>,
    /// The snapshot, if it has to be made.
    pub snapshot: Option<VolumeSnapshot>,
    /// The claim from the snapshot, if it has to be made.
    pub restored: Option<PersistentVolumeClaim>,
    /// The ConfigMap, if it is not what it should be.
    pub config: Option<Apply<ConfigMap>>,
    /// The credentials, if they are not what they should be.
    #[serde(skip)]
    pub credentials: Option<Apply<Files>>,
    /// The Job, if it is not what it should be.
    pub job: Option<Apply<Job>>,
    /// The workers, if they are not what they should be.
    pub workers: Option<Apply<Deployment>>,
    /// What has to go.
    pub remove: Vec<Doomed>,
    /// Whether the run itself has outlived its time.
    pub expired: bool,
    /// How far the run is.
    pub stage: Stage,
    /// When to look again, if nothing changes before.
    pub wake: Option<Timestamp>,
}

/// An object to make, or to put right.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Apply<K> {
    /// As it should be.
    pub object: K,
    /// The UID of the one that is there.
    pub known: Option<String>,
}

/// An object to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Doomed {
    /// The Job with that UID.
    Job(String),
    /// The Job with that UID that makes a store writable.
    Preparation(String),
    /// The Deployment with that UID.
    Workers(String),
    /// The claim from the snapshot with that UID.
    Restored(String),
    /// The snapshot with that UID.
    Snapshot(String),
}

impl Plan {
    /// Nothing but words.
    fn only(stage: Stage) -> Self {
        Self {
            store: None,
            preparation: None,
            snapshot: None,
            restored: None,
            config: None,
            credentials: None,
            job: None,
            workers: None,
            remove: Vec::new(),
            expired: false,
            stage,
            wake: None,
        }
    }

    /// Whether it makes the first of what uses the store: from then on others wait for the run.
    pub fn begins(&self, seen: &Observed) -> bool {
        seen.job.is_none() && (self.snapshot.is_some() || self.job.is_some())
    }

    fn waking(self, wake: Timestamp) -> Self {
        let wake = self.wake.map_or(wake, |earlier| earlier.min(wake));
        Self {
            wake: Some(wake),
            ..self
        }
    }
}

/// Whether the snapshot matters now. A run that waits to begin has none to look at, and there may be many that wait; one that
/// is cancelled has to know what it leaves behind.
pub fn looks_at_snapshot(run: &Validated, seen: &Observed) -> bool {
    seen.is_over() || run.is_cancelled() || before_start(run, seen).is_none()
}

/// Decides.
pub fn plan(run: &Validated, seen: &Observed, now: Timestamp) -> Plan {
    if let Some(plan) = finished(&run.spec, run.keep, seen, now) {
        return plan;
    }
    if run.is_cancelled() {
        return cancelled(run, seen, now);
    }
    if let Some(plan) = prepare(run, seen, now) {
        return plan;
    }
    if seen.job.is_none()
        && let Some(stage) = before_start(run, seen)
            .or_else(|| before_reading(run, seen))
            .or_else(|| earlier_pod(seen))
    {
        let again = matches!(stage, Stage::Waiting(_) | Stage::Working(_));
        let mut plan = Plan::only(stage);
        if plan.stage.is_snapshotting() && seen.snapshot == Found::Absent {
            plan.snapshot = Some(build::snapshot(run));
        }
        return if again {
            plan.waking(now + LOOK_AGAIN)
        } else {
            plan
        };
    }
    let mut plan = work(run, seen, now);
    if let Some((made, job)) = &seen.job
        && job.complete
    {
        // Its pod is gone, and the result with it: a coordinator of a finished run tells it again.
        plan.remove.push(Doomed::Job(made.uid.clone()));
    }
    plan
}
