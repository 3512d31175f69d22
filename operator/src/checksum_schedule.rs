//! ChecksumSchedule: observe, plan, act, report. In: a key. Out: when to look again.
//! Touches the world only through the writer and the reporter.

pub mod build;
mod due;
pub mod metrics;
pub mod observe;
pub mod plan;
pub mod status;

use std::{sync::Arc, time::Duration};

use crds::{
    checksum_run::ChecksumRun, checksum_schedule::ChecksumSchedule,
    name::CHECKSUM_SCHEDULE_MANAGER as MANAGER,
};
use jiff::Timestamp;
use kube::{ResourceExt, core::error_boundary::InvalidObject};
use runtime::{clock::Clock, telemetry::chain};
use tracing::info;

use crate::{
    act::{self, Writer},
    class::Class,
    controller::Next,
    failure,
    object::{Key, reference},
    received::Received,
    report::{Reporter, StatusWrite, Urgency},
    watch::Store,
};
use observe::{CachedRun, CachedSchedule, Started};
use plan::{Doomed, Observed, Plan};

/// When to look again at an object whose namespace has not been listed yet.
const UNKNOWN: Duration = Duration::from_secs(1);

/// When a deletion that failed is tried again.
const PRUNE_AGAIN: Duration = Duration::from_mins(1);

/// What the controller is called in metrics.
pub const NAME: &str = "checksumschedule";

/// What the controller works with.
#[derive(Clone)]
pub struct Context {
    /// The schedules.
    pub schedules: Store<CachedSchedule>,
    /// The runs.
    pub runs: Store<CachedRun>,
    /// Runs made here that the watch has not told of yet.
    pub started: Started,
    /// Writes objects.
    pub writer: Writer,
    /// Writes status and events.
    pub reporter: Reporter,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// This release cannot read the object.
    #[error("this release of the operator cannot read the object: {0}")]
    Undecodable(String),
    /// A field cannot be used.
    #[error(transparent)]
    Invalid(#[from] plan::Invalid),
    /// A write failed.
    #[error("{}", chain(error))]
    Act {
        /// Why.
        error: act::Error,
        /// What was to be done: what it promises holds, whatever failed.
        plan: Box<Plan>,
    },
}

impl Failure {
    /// How the failure is to be treated.
    pub fn class(&self) -> Class {
        match self {
            Self::Undecodable(_) | Self::Invalid(_) => Class::Invalid,
            Self::Act { error, .. } => error.class(),
        }
    }

    /// What was to be done, if that was known.
    fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Undecodable(_) | Self::Invalid(_) => None,
            Self::Act { plan, .. } => Some(plan),
        }
    }
}

/// One pass over one schedule, and its report, whatever happened.
pub async fn reconcile(context: Context, key: Key) -> Next {
    if !context.knows(&key.namespace) {
        return Next::After(UNKNOWN);
    }
    let Some(cached) = context.schedules.get(&key) else {
        return Next::Await;
    };
    if cached.meta().deletion_timestamp.is_some() {
        return Next::Await;
    }
    match &cached.0 {
        Ok(schedule) => {
            let now = context.clock.wall();
            let seen = observe::observe(schedule, &context.runs, &context.started);
            let outcome = pass(&context, schedule, &seen, now).await;
            context.report(schedule, &seen, &outcome, now).await
        }
        Err(invalid) => context.report_undecodable(&key, invalid).await,
    }
}

async fn pass(
    context: &Context,
    schedule: &ChecksumSchedule,
    seen: &Observed,
    now: Timestamp,
) -> Result<Plan, Failure> {
    let spec = plan::validate(&schedule.spec)?;
    let plan = plan::plan(&spec, seen, now);
    match context.act(schedule, &plan).await {
        Ok(()) => Ok(plan),
        Err(error) => Err(Failure::Act {
            error,
            plan: Box::new(plan),
        }),
    }
}

impl Context {
    /// Whether the caches hold everything of that namespace.
    fn knows(&self, namespace: &str) -> bool {
        self.schedules.is_synced_in(namespace) && self.runs.is_synced_in(namespace)
    }

    /// What was done is told at once: the next step may fail, and the next pass does not do it again.
    async fn act(&self, schedule: &ChecksumSchedule, plan: &Plan) -> Result<(), act::Error> {
        let regarding = reference(schedule);
        for doomed in &plan.replace {
            self.delete_run(schedule, doomed).await?;
            let event = status::event_of_replacement(doomed);
            self.reporter.events(&regarding, &[event]).await;
        }
        for start in &plan.start {
            let run = build::run(schedule, start);
            let made = self.writer.create(MANAGER, &run).await?;
            self.started.note(CachedRun::slim(Received(Ok(made))));
            info!(schedule = %Key::of(schedule), run = start.name, "run started");
            let events = status::events_of_start(plan, start);
            self.reporter.events(&regarding, &events).await;
        }
        Ok(())
    }

    async fn delete_run(
        &self,
        schedule: &ChecksumSchedule,
        doomed: &Doomed,
    ) -> Result<(), act::Error> {
        let key = Key {
            namespace: schedule.namespace().unwrap_or_default(),
            name: doomed.name.clone(),
        };
        self.writer.delete::<ChecksumRun>(&key, &doomed.uid).await
    }

    async fn report(
        &self,
        schedule: &ChecksumSchedule,
        seen: &Observed,
        outcome: &Result<Plan, Failure>,
        now: Timestamp,
    ) -> Next {
        if let Err(failure) = outcome {
            failure::log::<ChecksumSchedule>(&Key::of(schedule), failure.class(), failure);
            if failure.class() == Class::Conflict {
                // A lost race is no state of the object.
                return failure::again(Class::Conflict, &schedule.metadata);
            }
        }
        let told = self.tell(schedule, seen, outcome, now).await;
        match outcome {
            Err(failure) => {
                let next = match told {
                    Some(next) => next,
                    None => self.prune_nevertheless(schedule, seen, failure, now).await,
                };
                if failure.class() == Class::Invalid {
                    return next;
                }
                failure::again(failure.class(), &schedule.metadata)
            }
            Ok(plan) => match told {
                Some(Next::After(wait)) if !wait.is_zero() => Next::earlier(plan.wake, now, wait),
                Some(next) => next,
                None => self.prune(schedule, &plan.prune, plan.wake, now).await,
            },
        }
    }

    /// Runs outlive their time for no failure of their schedule: they may be what is in its way.
    async fn prune_nevertheless(
        &self,
        schedule: &ChecksumSchedule,
        seen: &Observed,
        failure: &Failure,
        now: Timestamp,
    ) -> Next {
        let doomed = match failure.plan() {
            Some(plan) => plan.prune.clone(),
            None => seen.outlived(now),
        };
        self.prune(schedule, &doomed, seen.next_expiry(now), now)
            .await
    }

    /// Writes the status, and the events that it makes true. `None` when there was nothing to tell.
    async fn tell(
        &self,
        schedule: &ChecksumSchedule,
        seen: &Observed,
        outcome: &Result<Plan, Failure>,
        now: Timestamp,
    ) -> Option<Next> {
        let status = status::status(seen, schedule.spec.suspend, outcome.as_ref(), now);
        let urgency = if status.observed_generation == seen.status.observed_generation {
            Urgency::Usual
        } else {
            Urgency::NewGeneration
        };
        let meta = &schedule.metadata;
        let written = self
            .reporter
            .status::<ChecksumSchedule, _>(MANAGER, meta, &seen.status, &status, urgency)
            .await;
        match written {
            Ok(StatusWrite::Unchanged) => None,
            Ok(StatusWrite::TooSoon(wait)) => Some(Next::After(wait)),
            Ok(StatusWrite::Written(stored)) => {
                self.schedules.refresh(CachedSchedule::slim(*stored));
                let events = status::events(seen, &status, outcome.as_ref(), now);
                self.reporter.events(&reference(schedule), &events).await;
                // What waits for the status to have told of something can go on now.
                Some(Next::After(Duration::ZERO))
            }
            Err(error) => {
                failure::log::<ChecksumSchedule>(&Key::of(schedule), error.class(), &error);
                Some(failure::again(error.class(), &schedule.metadata))
            }
        }
    }

    /// Deletes what nobody is to keep. Failing to do so delays nothing else.
    async fn prune(
        &self,
        schedule: &ChecksumSchedule,
        all: &[Doomed],
        wake: Option<Timestamp>,
        now: Timestamp,
    ) -> Next {
        for doomed in all {
            if let Err(error) = self.delete_run(schedule, doomed).await {
                failure::log::<ChecksumSchedule>(&Key::of(schedule), error.class(), &error);
                return Next::earlier(wake, now, PRUNE_AGAIN);
            }
        }
        wake.map_or(Next::Await, Next::At)
    }

    async fn report_undecodable(&self, key: &Key, invalid: &InvalidObject) -> Next {
        let failure = Failure::Undecodable(invalid.error.clone());
        failure::log::<ChecksumSchedule>(key, failure.class(), &failure);
        let (meta, drafts) = (&invalid.metadata, status::failed(&failure));
        let now = self.clock.wall();
        failure::report_undecodable::<ChecksumSchedule>(&self.reporter, meta, &drafts, now).await
    }
}

#[cfg(test)]
pub(crate) mod fixture;
