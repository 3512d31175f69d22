#![expect(
    clippy::disallowed_methods,
    reason = "the Lease is read and written outside of caches: it is what allows everybody else to write"
)]
//! Leader election by a Kubernetes Lease. In: the Lease. Out: whether this process may write now.
//! Touches one Lease, with the resource version as precondition.

pub mod state;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt, pin_mut};
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, PostParams},
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use runtime::clock::Clock;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    class::ApiError,
    metrics::Metrics,
    watch::{WATCH_TIMEOUT, patience},
};
use state::{Elector, Record, Step, Times};

/// How long one request for the Lease may take; several fit into the renew deadline.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// The lease was lost: another process leads, or the API server could not be reached in time.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("lost the lease: another process leads, or it could not be renewed in time")]
pub struct Lost;

/// A write was not sent because this process does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process does not lead")]
pub struct NotLeading;

/// Why there is no answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// This process does not lead, or stopped to while the request was under way.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// None came in time.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
}

/// Whether this process may write now. Clones share the answer.
#[derive(Clone, Debug)]
pub struct Leadership {
    until: Arc<Mutex<Option<Instant>>>,
    clock: Arc<dyn Clock>,
}

impl Leadership {
    /// Nobody leads yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            until: Arc::default(),
            clock,
        }
    }

    /// A leadership that does not end, for tests and tools that run alone.
    pub fn unchallenged(clock: Arc<dyn Clock>) -> Self {
        let leadership = Self::new(clock);
        leadership.set(Some(
            leadership.clock.monotonic() + Duration::from_hours(24 * 365),
        ));
        leadership
    }

    /// Whether a write may be sent now.
    pub fn check(&self) -> Result<(), NotLeading> {
        self.until().map(|_| ())
    }

    /// Sends a write, unless or until this process stops to lead, or `limit` has passed.
    ///
    /// The end is looked at before the request each time: a process that stood still sends nothing of
    /// what it had begun.
    pub async fn send<R>(
        &self,
        limit: Duration,
        request: impl Future<Output = R>,
    ) -> Result<R, Unanswered> {
        let until = self.until()?;
        let late = self.clock.monotonic() + limit;
        tokio::select! {
            biased;
            () = sleep_until(until.min(late)) => Err(if late < until { Unanswered::Late(limit) } else { NotLeading.into() }),
            answer = request => Ok(answer),
        }
    }

    fn until(&self) -> Result<Instant, NotLeading> {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until
            .filter(|until| self.clock.monotonic() < *until)
            .ok_or(NotLeading)
    }

    fn set(&self, until: Option<Instant>) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// Which Lease, and under which name this process holds it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The Lease's namespace comes with it.
    pub api: Api<Lease>,
    /// The Lease's name.
    pub lease: String,
    /// This process, unlike any other that ever ran.
    pub identity: String,
    /// The three times.
    pub times: Times,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Told of each change.
    pub leadership: Leadership,
    /// Told of each change.
    pub metrics: Metrics,
    /// The Lease as it was last seen.
    pub seen: Arc<Mutex<Lease>>,
}

/// Competes for the lease until `stop`, then releases it. Says through `leading` when it was won.
pub async fn run(
    candidate: Candidate,
    stop: CancellationToken,
    leading: watch::Sender<bool>,
) -> Result<(), Lost> {
    let mut elector = Elector::new(candidate.identity.clone(), candidate.times);
    let nudge = Notify::new();
    let campaign = candidate.campaign(&mut elector, &nudge, &leading);
    let result = tokio::select! {
        lost = campaign => Err(lost),
        () = candidate.follow(&nudge) => Err(Lost),
        () = stop.cancelled() => Ok(()),
    };
    candidate.leadership.set(None);
    candidate.metrics.set_leading(false);
    if result.is_ok() {
        candidate.release(elector.held()).await;
    }
    result
}

impl Candidate {
    async fn campaign(
        &self,
        elector: &mut Elector,
        nudge: &Notify,
        leading: &watch::Sender<bool>,
    ) -> Lost {
        let mut failing = false;
        loop {
            let result = match elector.step(self.clock.monotonic()) {
                Step::Look => self.look(elector).await,
                Step::Create => self.claim(elector, None).await,
                Step::Claim(record) => self.claim(elector, Some(record)).await,
                Step::Lost => return Lost,
                Step::Wait(until) => {
                    tokio::select! {
                        () = sleep_until(until) => {}
                        () = nudge.notified() => elector.nudged(),
                    }
                    continue;
                }
            };
            if let Err(error) = &result
                && !failing
            {
                warn!(error, "the lease cannot be read or written, trying again");
            }
            failing = result.is_err();
            self.leadership.set(elector.leads_until());
            let leads = elector.leads_until().is_some();
            if leading.send_if_modified(|known| std::mem::replace(known, leads) != leads) {
                self.metrics.set_leading(leads);
                info!(
                    leader.identity = self.identity,
                    leader.leads = leads,
                    "leadership changed"
                );
            }
        }
    }

    /// Wakes the campaign when the Lease changes, so that a release is taken up at once.
    async fn follow(&self, nudge: &Notify) {
        let config = watcher::Config::default()
            .fields(&format!("metadata.name={}", self.lease))
            .timeout(u32::try_from(WATCH_TIMEOUT.as_secs()).unwrap_or(60));
        let changes = watcher(self.api.clone(), config).backoff(patience());
        pin_mut!(changes);
        // A failed watch costs promptness only: the campaign looks for itself.
        while changes.next().await.is_some() {
            nudge.notify_one();
        }
    }

    async fn look(&self, elector: &mut Elector) -> Result<(), String> {
        let answer = self.read().await;
        let now = self.clock.monotonic();
        match answer {
            Ok(record) => elector.saw(record, now),
            Err(error) => {
                elector.failed(now);
                return Err(error.to_string());
            }
        }
        Ok(())
    }

    async fn read(&self) -> Result<Option<Record>, Failed> {
        let lease = answer(self.api.get_opt(&self.lease)).await?;
        Ok(lease.map(|lease| self.note(lease)))
    }

    async fn claim(&self, elector: &mut Elector, current: Option<Record>) -> Result<(), String> {
        let sent = self.clock.monotonic();
        let lease = self.wanted(current.as_ref(), Some(&self.identity));
        let answer = answer(self.write(&lease, current.is_some())).await;
        let now = self.clock.monotonic();
        match answer {
            Ok(lease) => elector.claimed(self.note(lease), sent, now),
            Err(Failed::Refused) => elector.refused(),
            Err(error) => {
                if matches!(error, Failed::Gone) {
                    elector.saw(None, now);
                }
                elector.failed(now);
                return Err(error.to_string());
            }
        }
        Ok(())
    }

    /// Keeps the Lease as it was last seen, because a replacement must not lose what others wrote into it.
    fn note(&self, lease: Lease) -> Record {
        let record = record(&lease);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = lease;
        record
    }

    async fn write(&self, lease: &Lease, exists: bool) -> kube::Result<Lease> {
        let params = PostParams::default();
        if exists {
            self.api.replace(&self.lease, &params, lease).await
        } else {
            self.api.create(&params, lease).await
        }
    }

    /// Gives the Lease up. A claim may have been under way when this was asked for, so what was seen
    /// last need not be what is there: if it is refused, the Lease is read and tried once more.
    async fn release(&self, held: Option<&Record>) {
        let mut result = match held {
            Some(record) => self.give_up(record).await,
            None => Err(Failed::Refused),
        };
        if matches!(result, Err(Failed::Refused)) {
            result = match self.read().await {
                Ok(Some(record)) if record.holder.as_ref() == Some(&self.identity) => {
                    self.give_up(&record).await
                }
                Ok(_) => return,
                Err(error) => Err(error),
            };
        }
        match result {
            Ok(()) => info!("released the lease"),
            Err(error) => warn!(%error, "failed to release the lease, it will run out"),
        }
    }

    async fn give_up(&self, record: &Record) -> Result<(), Failed> {
        let lease = self.wanted(Some(record), None);
        answer(self.write(&lease, true)).await.map(|_| ())
    }

    /// The Lease as it should be. Its times are for people: no candidate reads them.
    fn wanted(&self, current: Option<&Record>, holder: Option<&str>) -> Lease {
        let now = self.clock.wall();
        let changes = current.is_some_and(|record| record.holder.as_deref() != holder);
        let acquired = current
            .filter(|_| !changes)
            .and_then(|record| record.acquired);
        let duration = holder.map_or(1, |_| self.times.duration.as_secs());
        let mut lease = self
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        lease.metadata.name = Some(self.lease.clone());
        lease.metadata.managed_fields = None;
        lease.metadata.resource_version = current.map(|record| record.version.clone());
        if current.is_none() {
            lease.metadata = ObjectMeta {
                name: lease.metadata.name,
                ..ObjectMeta::default()
            };
        }
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(holder.unwrap_or_default().into()),
            lease_duration_seconds: i32::try_from(duration).ok(),
            lease_transitions: Some(current.map_or(0, |r| r.transitions) + i32::from(changes)),
            acquire_time: Some(MicroTime(acquired.unwrap_or(now))),
            renew_time: Some(MicroTime(now)),
            ..lease.spec.unwrap_or_default()
        });
        lease
    }
}

/// Why a request for the Lease did not succeed.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("the lease has changed meanwhile")]
    Refused,
    #[error("the lease, or its namespace, does not exist")]
    Gone,
    #[error(transparent)]
    Request(ApiError),
    #[error("no answer within {} s", REQUEST_TIMEOUT.as_secs())]
    Late,
}

async fn answer<R>(request: impl Future<Output = kube::Result<R>>) -> Result<R, Failed> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => match ApiError::from(error) {
            error if error.code == Some(409) => Err(Failed::Refused),
            error if error.code == Some(404) => Err(Failed::Gone),
            error => Err(Failed::Request(error)),
        },
        Err(_) => Err(Failed::Late),
    }
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec
        .lease_duration_seconds
        .and_then(|s| u64::try_from(s).ok());
    Record {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        transitions: spec.lease_transitions.unwrap_or(0),
        version: lease.resource_version().unwrap_or_default(),
        duration: seconds.map(Duration::from_secs),
        acquired: spec.acquire_time.map(|time| time.0),
    }
}

/// A name for this process that no other process has or had: that of the pod, and when it began.
pub fn identity(pod: &str, now: Timestamp, process: u32) -> String {
    format!("{pod}_{:x}-{process:x}", now.as_microsecond())
}
