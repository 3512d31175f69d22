//! ChecksumRun: observe, plan, act, report. In: a key. Out: when to look again.
//! Touches the world only through the writer, the reporter, the fleet and the readers of Secrets.

pub mod build;
mod carry;
pub mod config;
pub mod credentials;
pub mod metrics;
pub mod observe;
pub mod plan;
pub mod pod;
pub mod snapshot;
pub mod status;
pub mod turns;

use std::{sync::Arc, time::Duration};

use crds::{checksum_run::ChecksumRun, name::CHECKSUM_RUN_MANAGER as MANAGER};
use jiff::Timestamp;
use kube::{Client, ResourceExt, core::error_boundary::InvalidObject};
use runtime::clock::Clock;

use crate::{
    act::{self, Writer},
    applied::Applied,
    class::Class,
    controller::Next,
    failure,
    fleet::{Fleet, Pod, Roster, Round, Subject},
    object::{Key, reference},
    pki::{self, Certificates},
    report::{Reporter, StatusWrite, Urgency},
    secrets::{self, Secrets},
    watch::{
        Store,
        child::{Child, ClaimState, ConfigState, JobState, WorkersState},
        custom::Custom,
        pod::SlimPod,
    },
};
use config::Validated;
use plan::{Observed, Plan, Stage};
use turns::Turns;

/// When to look again at an object whose namespace has not been listed yet.
const UNKNOWN: Duration = Duration::from_secs(1);

/// What the controller is called in metrics.
pub const NAME: &str = "checksumrun";

/// What the controller works with.
#[derive(Clone)]
pub struct Context {
    /// The runs.
    pub runs: Store<Custom<ChecksumRun>>,
    /// All claims.
    pub claims: Store<Child<ClaimState>>,
    /// Configurations of agents.
    pub configs: Store<Child<ConfigState>>,
    /// Our Jobs.
    pub jobs: Store<Child<JobState>>,
    /// Our Deployments.
    pub workers: Store<Child<WorkersState>>,
    /// Pods with agents.
    pub pods: Store<SlimPod>,
    /// What was applied.
    pub applied: Applied,
    /// Which runs have begun that no cache tells of yet.
    pub turns: Turns,
    /// Reads Secrets.
    pub secrets: Secrets,
    /// The certificates of the control port.
    pub certificates: Arc<Certificates>,
    /// The agents.
    pub fleet: Arc<Fleet>,
    /// The agents' control port.
    pub control_port: u16,
    /// What new pods run.
    pub image: pod::Image,
    /// Reads snapshots.
    pub client: Client,
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
    Invalid(#[from] config::Invalid),
    /// A write failed.
    #[error(transparent)]
    Act(#[from] act::Error),
    /// A Secret was not read.
    #[error(transparent)]
    Secrets(#[from] secrets::Error),
    /// The snapshot was not read.
    #[error(transparent)]
    Snapshot(#[from] snapshot::Error),
    /// Agents and operator may not be able to talk.
    #[error(transparent)]
    Certificates(#[from] pki::Error),
    /// Another pass was faster.
    #[error("another run has begun on the store meanwhile")]
    Overtaken,
}

impl Failure {
    /// How the failure is to be treated.
    pub fn class(&self) -> Class {
        match self {
            Self::Undecodable(_) | Self::Invalid(_) => Class::Invalid,
            Self::Act(error) => error.class(),
            Self::Secrets(error) => error.class(),
            Self::Snapshot(error) => error.class(),
            Self::Certificates(error) => error.class(),
            Self::Overtaken => Class::Conflict,
        }
    }
}

/// What a pass saw, whether it came to its end or not.
struct Seen {
    run: Option<Box<Validated>>,
    observed: Box<Observed>,
    round: Option<Round>,
}

/// One pass over one run, and its report, whatever happened.
pub async fn reconcile(context: Context, key: Key) -> Next {
    if !context.knows(&key.namespace) {
        return Next::After(UNKNOWN);
    }
    let cached = context.runs.get(&key);
    let Some(cached) = cached.filter(|run| run.meta().deletion_timestamp.is_none()) else {
        context.fleet.forget(&subject(&key));
        context.turns.forget(&key);
        return Next::Await;
    };
    match &cached.0 {
        Ok(run) => {
            let now = context.clock.wall();
            let (seen, outcome) = Box::pin(context.pass(run, now)).await;
            context.report(run, &seen, &outcome, now).await
        }
        Err(invalid) => context.report_undecodable(&key, invalid).await,
    }
}

fn subject(key: &Key) -> Subject {
    Subject {
        kind: "ChecksumRun",
        key: key.clone(),
    }
}

impl Context {
    /// Whether the caches hold everything of that namespace.
    fn knows(&self, namespace: &str) -> bool {
        self.runs.is_synced_in(namespace)
            && self.claims.is_synced_in(namespace)
            && self.configs.is_synced_in(namespace)
            && self.jobs.is_synced_in(namespace)
            && self.workers.is_synced_in(namespace)
            && self.pods.is_synced_in(namespace)
    }

    async fn pass(&self, run: &ChecksumRun, now: Timestamp) -> (Seen, Result<Box<Plan>, Failure>) {
        let checked = config::validate(run);
        let mut seen = Seen {
            observed: Box::new(observe::cached(self, run, checked.as_ref().ok())),
            run: checked.as_ref().ok().cloned().map(Box::new),
            round: None,
        };
        if seen.observed.job.is_some() || seen.observed.is_over() {
            self.turns.forget(&Key::of(run));
        }
        let outcome = match checked {
            Ok(checked) => self.pass_over(&checked, &mut seen, now).await,
            Err(invalid) => {
                self.pass_without_spec(run, invalid, &mut seen.observed, now)
                    .await
            }
        };
        (seen, outcome)
    }

    /// A run that cannot be used can still end, and then what was made for it goes.
    async fn pass_without_spec(
        &self,
        run: &ChecksumRun,
        invalid: config::Invalid,
        seen: &mut Observed,
        now: Timestamp,
    ) -> Result<Box<Plan>, Failure> {
        let (key, uid) = (Key::of(run), run.uid().unwrap_or_default());
        self.fleet.forget(&subject(&key));
        if seen.is_over() {
            observe::snapshot(self, &key, &uid, &run.spec, seen).await?;
        }
        let plan = plan::without_spec(&run.spec, seen, now).ok_or(invalid)?;
        self.remove(&key, &plan.remove).await?;
        Ok(Box::new(plan))
    }

    async fn pass_over(
        &self,
        run: &Validated,
        seen: &mut Seen,
        now: Timestamp,
    ) -> Result<Box<Plan>, Failure> {
        self.ask(run, seen).await?;
        observe::credentials(self, run, &mut seen.observed).await?;
        if plan::looks_at_snapshot(run, &seen.observed) {
            observe::snapshot(self, &run.key, &run.uid, &run.spec, &mut seen.observed).await?;
        }
        let plan = Box::new(plan::plan(run, &seen.observed, now));
        if plan.begins(&seen.observed) && !self.turns.take(run) {
            return Err(Failure::Overtaken);
        }
        self.act(run, &plan).await?;
        Ok(plan)
    }

    /// Asks the agents how they are; those that work by an older configuration are sent the newest.
    async fn ask(&self, run: &Validated, seen: &mut Seen) -> Result<(), Failure> {
        let pods = observe::pods(self, &run.key.namespace, &run.uid);
        let roster = Roster::new(
            Arc::new(run.document()),
            self.control_port,
            pods.iter().filter_map(|pod| Pod::of(pod)),
        );
        let subject = subject(&run.key);
        if roster.pods.is_empty() || seen.observed.is_over() {
            self.fleet.forget(&subject);
        } else {
            self.certificates.ensure(&run.key.namespace).await?;
            seen.round = Some(self.fleet.round(&subject, &roster).await);
        }
        let summary = seen.round.as_ref().map(|round| &round.summary);
        seen.observed.pods = observe::agents(&pods, summary);
        Ok(())
    }

    async fn report(
        &self,
        run: &ChecksumRun,
        seen: &Seen,
        outcome: &Result<Box<Plan>, Failure>,
        now: Timestamp,
    ) -> Next {
        if let Err(failure) = outcome {
            failure::log::<ChecksumRun>(&Key::of(run), failure.class(), failure);
            if failure.class() == Class::Conflict {
                // A lost race is no state of the object.
                return failure::again(Class::Conflict, &run.metadata);
            }
        }
        let told = self.tell(run, seen, outcome, now).await;
        match outcome {
            Err(failure) if failure.class() == Class::Invalid => told.unwrap_or(Next::Await),
            Err(failure) => failure::again(failure.class(), &run.metadata),
            Ok(plan) if plan.expired => self.expire(run).await,
            Ok(plan) => match told {
                Some(next @ Next::Failed { .. }) => next,
                told => next(plan, seen, told.as_ref(), now),
            },
        }
    }

    /// Writes the status, and the events that it makes true. `None` when there was nothing to tell.
    async fn tell(
        &self,
        run: &ChecksumRun,
        seen: &Seen,
        outcome: &Result<Box<Plan>, Failure>,
        now: Timestamp,
    ) -> Option<Next> {
        let old = &seen.observed.status;
        let generation = run.metadata.generation.unwrap_or_default();
        let agents = seen.round.as_ref().map(|round| &round.summary);
        let status = status::status(
            seen.run.as_deref(),
            generation,
            &seen.observed,
            agents,
            outcome.as_deref(),
            now,
        );
        let urgency = if status.observed_generation == old.observed_generation {
            Urgency::Usual
        } else {
            Urgency::NewGeneration
        };
        let written = self
            .reporter
            .status::<ChecksumRun, _>(MANAGER, &run.metadata, old, &status, urgency)
            .await;
        match written {
            Ok(StatusWrite::Unchanged) => None,
            Ok(StatusWrite::TooSoon(wait)) => Some(Next::After(wait)),
            Ok(StatusWrite::Written(stored)) => {
                self.runs.refresh(Custom::slim(*stored));
                let events = match outcome {
                    Ok(plan) => status::events(old, &status, &plan.stage),
                    Err(failure) => {
                        let event = status::event_of_failure(old, &status, failure);
                        event.into_iter().collect()
                    }
                };
                self.reporter.events(&reference(run), &events).await;
                None
            }
            Err(error) => {
                failure::log::<ChecksumRun>(&Key::of(run), error.class(), &error);
                Some(failure::again(error.class(), &run.metadata))
            }
        }
    }

    /// Deletes a run that has outlived its time.
    async fn expire(&self, run: &ChecksumRun) -> Next {
        let uid = run.uid().unwrap_or_default();
        match self.writer.delete::<ChecksumRun>(&Key::of(run), &uid).await {
            Ok(()) => Next::Await,
            Err(error) => {
                failure::log::<ChecksumRun>(&Key::of(run), error.class(), &error);
                failure::again(error.class(), &run.metadata)
            }
        }
    }

    async fn report_undecodable(&self, key: &Key, invalid: &InvalidObject) -> Next {
        let failure = Failure::Undecodable(invalid.error.clone());
        failure::log::<ChecksumRun>(key, failure.class(), &failure);
        let (meta, drafts) = (&invalid.metadata, status::failed(&failure));
        let now = self.clock.wall();
        failure::report_undecodable::<ChecksumRun>(&self.reporter, meta, &drafts, now).await
    }
}

/// When the status may be written, the agents are to be asked, or the plan wants to go on, whichever is first.
fn next(plan: &Plan, seen: &Seen, told: Option<&Next>, now: Timestamp) -> Next {
    let status = match told {
        Some(Next::After(wait)) => Some(*wait),
        // What waits for the end to be told goes on now.
        None if matches!(plan.stage, Stage::Ended(_)) => Some(Duration::ZERO),
        Some(_) | None => None,
    };
    let agents = seen.round.as_ref().and_then(|round| round.again);
    match [status, agents].into_iter().flatten().min() {
        None => plan.wake.map_or(Next::Await, Next::At),
        Some(wait) => Next::earlier(plan.wake, now, wait),
    }
}

#[cfg(test)]
pub(crate) mod fixture;
