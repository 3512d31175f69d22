//! ChecksumSchedule: observe, plan, act, report. In: a key. Out: when to look again.
//! Touches the world only through the writer and the reporter.

pub mod build;
pub mod observe;
pub mod plan;
pub mod status;

use std::{sync::Arc, time::Duration};

use crds::{
    checksum_run::ChecksumRun,
    checksum_schedule::{ChecksumSchedule, ChecksumScheduleStatus},
    name::CHECKSUM_SCHEDULE_MANAGER as MANAGER,
};
use jiff::Timestamp;
use kube::{ResourceExt, core::error_boundary::InvalidObject};
use runtime::{clock::Clock, telemetry::chain};
use tracing::{debug, info, warn};

use crate::{
    act::{self, Writer},
    class::Class,
    controller::Next,
    object::{Key, reference},
    report::{Reporter, StatusWrite},
    watch::Store,
};
use observe::{CachedRun, CachedSchedule};
use plan::{Observed, Plan};

/// What the controller is called in metrics.
pub const NAME: &str = "checksumschedule";

/// What the controller works with.
#[derive(Clone)]
pub struct Context {
    /// The schedules.
    pub schedules: Store<CachedSchedule>,
    /// The runs.
    pub runs: Store<CachedRun>,
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
    #[error(transparent)]
    Act(#[from] act::Error),
}

impl Failure {
    /// How the failure is to be treated.
    pub fn class(&self) -> Class {
        match self {
            Self::Undecodable(_) | Self::Invalid(_) => Class::Invalid,
            Self::Act(error) => error.class(),
        }
    }
}

/// One pass over one schedule, and its report, whatever happened.
pub async fn reconcile(context: Context, key: Key) -> Next {
    let Some(cached) = context.schedules.get(&key) else {
        return Next::Await;
    };
    if cached.meta().deletion_timestamp.is_some() {
        return Next::Await;
    }
    match &cached.0 {
        Ok(schedule) => {
            let now = context.clock.wall();
            let seen = observe::observe(schedule, &context.runs);
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
    context.act(schedule, &plan).await?;
    Ok(plan)
}

impl Context {
    async fn act(&self, schedule: &ChecksumSchedule, plan: &Plan) -> Result<(), act::Error> {
        let namespace = schedule.namespace().unwrap_or_default();
        for doomed in plan.replace.iter().chain(&plan.prune) {
            let key = Key {
                namespace: namespace.clone(),
                name: doomed.name.clone(),
            };
            self.writer.delete::<ChecksumRun>(&key, &doomed.uid).await?;
        }
        for start in &plan.start {
            let run = build::run(schedule, start);
            self.writer.create(MANAGER, &run).await?;
            info!(schedule = %Key::of(schedule), run = start.name, "run started");
        }
        if !plan.start.is_empty() {
            self.reporter
                .events(&reference(schedule), &status::events_of_plan(plan))
                .await;
        }
        Ok(())
    }

    async fn report(
        &self,
        schedule: &ChecksumSchedule,
        seen: &Observed,
        outcome: &Result<Plan, Failure>,
        now: Timestamp,
    ) -> Next {
        if let Err(failure) = outcome {
            log_failure(&Key::of(schedule), failure.class(), failure);
        }
        let status = status::status(seen, schedule.spec.suspend, outcome.as_ref(), now);
        let meta = &schedule.metadata;
        let written = self
            .reporter
            .status::<ChecksumSchedule, _>(MANAGER, meta, &seen.status, &status)
            .await;
        let after = match written {
            Ok(StatusWrite::Unchanged) => None,
            Ok(StatusWrite::TooSoon(wait)) => Some(Next::After(wait)),
            Ok(StatusWrite::Written(now_stored)) => {
                self.schedules.refresh(CachedSchedule::slim(*now_stored));
                self.tell(schedule, seen, outcome.as_ref().ok()).await;
                // What waits for the status to have told of something can go on now.
                Some(Next::After(Duration::ZERO))
            }
            Err(error) => {
                log_failure(&Key::of(schedule), error.class(), &error);
                Some(failed(error.class(), seen))
            }
        };
        match outcome {
            Err(failure) if failure.class() == Class::Invalid => after.unwrap_or(Next::Await),
            Err(failure) => failed(failure.class(), seen),
            Ok(plan) => after.unwrap_or_else(|| plan.wake.map_or(Next::Await, Next::At)),
        }
    }

    /// Events that the new status makes true.
    async fn tell(&self, schedule: &ChecksumSchedule, seen: &Observed, plan: Option<&Plan>) {
        let mut events = status::events_of_results(seen);
        if let Some(plan) = plan.filter(|plan| plan.start.is_empty()) {
            events.extend(status::events_of_plan(plan));
        }
        self.reporter.events(&reference(schedule), &events).await;
    }

    async fn report_undecodable(&self, key: &Key, invalid: &InvalidObject) -> Next {
        let failure = Failure::Undecodable(invalid.error.clone());
        let seen = Observed {
            name: invalid.metadata.name.clone().unwrap_or_default(),
            created: Timestamp::UNIX_EPOCH,
            generation: invalid.metadata.generation.unwrap_or_default(),
            token: None,
            status: ChecksumScheduleStatus::default(),
            runs: Vec::new(),
        };
        log_failure(key, failure.class(), &failure);
        let status = status::status(&seen, false, Err(&failure), self.clock.wall());
        let meta = &invalid.metadata;
        let written = self
            .reporter
            .status::<ChecksumSchedule, _>(MANAGER, meta, &seen.status, &status)
            .await;
        match written {
            Ok(_) => Next::Await,
            Err(error) => failed(error.class(), &seen),
        }
    }
}

/// A lost race is part of normal life and not worth a line.
fn log_failure(key: &Key, class: Class, error: &(dyn std::error::Error + 'static)) {
    let error = chain(error);
    match class {
        Class::Conflict => debug!(schedule = %key, error, "somebody else was faster"),
        Class::Transient | Class::Invalid | Class::Blocked => {
            warn!(schedule = %key, error, "reconcile failed");
        }
    }
}

fn failed(class: Class, seen: &Observed) -> Next {
    Next::Failed {
        class,
        generation: Some(seen.generation),
    }
}

#[cfg(test)]
pub(crate) mod fixture;
