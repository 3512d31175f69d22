//! Visits agents, few at a time. In: rosters. Out: what is known of their agents.
//! Touches the network and reads the clock; decides nothing.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crds::report::{ConfigDocument, DOCUMENT_LIMIT, StatusReport};
use futures::{StreamExt, stream};
use http::Uri;
use runtime::{
    clock::Clock,
    http::{Client, Error, InvalidServerName, Limits, Response},
    tls::IdentityReceiver,
};
use tokio::{
    sync::Semaphore,
    time::{sleep_until, timeout_at},
};
use tracing::{info, warn};

use super::{
    answer,
    known::{Call, Failure, Known, Now, Offered},
    metrics::FleetMetrics,
    plan::{self, Observed, Pace, Plan, Roster, Uid, Visit},
    summary::Summary,
};
use crate::{leader::Leadership, object::Key};

/// How many agents are visited at once, over all resources.
pub const AT_ONCE: usize = 32;

/// How many of them are agents that may not answer. They have places of their own, so that agents that hang do
/// not keep those that answer waiting, whichever resource they belong to.
pub const PROBES: usize = AT_ONCE / 4;
const VISITS: usize = AT_ONCE - PROBES;

/// How many of either for one resource: fewer than all, so that one does not keep the others waiting.
const SHARE: usize = 2;

/// How long one request may take, from connecting to the end of the answer.
pub const REQUEST: Duration = Duration::from_secs(3);

/// The resource that agents work for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub key: Key,
}

/// What differs between production and tests.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often agents are asked.
    pub pace: Pace,
    /// How long one request may take.
    pub request: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pace: Pace::default(),
            request: REQUEST,
        }
    }
}

/// How a round ended.
#[derive(Clone, Debug)]
pub struct Round {
    /// What is known now.
    pub summary: Summary,
    /// After which time to make the next round; `None` if only a change of the pods makes one worthwhile.
    pub again: Option<Duration>,
}

/// The agents of all resources, as the operator knows them. One per process.
///
/// A controller calls [`Fleet::round`] in each pass, after it has brought the pods into being:
///
/// ```text
/// let pods = pods.owned_by(namespace, workload_uid);            // not those that have ended
/// let roster = Roster::new(config, CONTROL_PORT, pods.iter().filter_map(|pod| Pod::of(pod)));
/// let round = fleet.round(&subject, &roster).await;             // polls, pushes; a few seconds at worst
/// conditions.push(round.summary.agents_reachable());
/// conditions.push(round.summary.clocks_agree());
/// round.again.map_or(Next::Await, Next::After)                  // and on every change of spec or pods
/// ```
///
/// and [`Fleet::forget`] when the resource is gone. A pass that cannot wait reads [`Fleet::summary`] and leaves the
/// rounds to a loop of their own; values arrive while a round still waits for others.
///
/// Guarantees: at most [`AT_ONCE`] visits at a time, at most one per pod, each request within its time and
/// `DOCUMENT_LIMIT` bytes; a round that is dropped leaves nothing behind. Nothing is pushed but by a leader, right
/// after the pod has answered under its own UID. Knowledge is of pods on the last roster only, and lives in memory:
/// a new leader asks everybody again.
#[derive(Debug)]
pub struct Fleet {
    client: Client,
    clock: Arc<dyn Clock>,
    leadership: Leadership,
    metrics: FleetMetrics,
    pace: Pace,
    visits: Semaphore,
    probes: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<Subject, HashMap<Uid, Known>>,
    busy: HashSet<Uid>,
}

impl Fleet {
    /// Nothing is known yet. `identity` is shown to agents, all of which have a certificate for `server_name`.
    pub fn new(
        identity: IdentityReceiver,
        server_name: &str,
        settings: Settings,
        clock: Arc<dyn Clock>,
        leadership: Leadership,
        metrics: FleetMetrics,
    ) -> Result<Self, InvalidServerName> {
        let limits = Limits {
            // Shorter than the whole, so that a failure to connect is always told in the same words.
            connect: settings.request * 2 / 3,
            total: settings.request,
            body: DOCUMENT_LIMIT,
            ..Limits::default()
        };
        Ok(Self {
            client: Client::mutual_tls(limits, identity, server_name)?,
            clock,
            leadership,
            metrics,
            pace: settings.pace,
            visits: Semaphore::new(VISITS),
            probes: Semaphore::new(PROBES),
            state: Mutex::default(),
        })
    }

    /// Visits the agents of one resource that are due, and says what is known then.
    ///
    /// Visits begin in the first half of the poll interval only: when many agents hang, what is left over has its
    /// turn in the next round, and the agents that answer are asked as often as ever.
    pub async fn round(&self, subject: &Subject, roster: &Roster) -> Round {
        let (visits, probes) = self.begin(subject, roster);
        tokio::join!(
            self.redeem(subject, roster, visits, &self.visits, VISITS / SHARE),
            self.redeem(subject, roster, probes, &self.probes, PROBES / SHARE),
        );
        let now = self.clock.monotonic();
        let next = self.plan(subject, roster, &self.lock()).next;
        Round {
            summary: self.summary(subject, roster),
            again: next.map(|next| next.saturating_duration_since(now)),
        }
    }

    /// What is known of the agents of one resource.
    pub fn summary(&self, subject: &Subject, roster: &Roster) -> Summary {
        let state = self.lock();
        let nothing = HashMap::new();
        Summary::new(roster, state.known.get(subject).unwrap_or(&nothing))
    }

    /// Forgets the agents of a resource that is gone.
    pub fn forget(&self, subject: &Subject) {
        self.lock().known.remove(subject);
    }

    /// Forgets who is gone, and claims those that are to be visited.
    fn begin(&self, subject: &Subject, roster: &Roster) -> (Vec<Claim<'_>>, Vec<Claim<'_>>) {
        let mut state = self.lock();
        let plan = self.plan(subject, roster, &state);
        let State { known, busy } = &mut *state;
        let agents = known.entry(subject.clone()).or_default();
        for uid in &plan.forget {
            agents.remove(uid);
        }
        let mut claim = |visit: Visit| {
            agents.entry(visit.uid.clone()).or_default();
            busy.insert(visit.uid.clone());
            Claim { fleet: self, visit }
        };
        let visits = plan.visits.into_iter().map(&mut claim).collect();
        let probes = plan.probes.into_iter().map(&mut claim).collect();
        if agents.is_empty() {
            known.remove(subject);
        }
        (visits, probes)
    }

    fn plan(&self, subject: &Subject, roster: &Roster, state: &State) -> Plan {
        let nothing = HashMap::new();
        let seen = Observed {
            known: state.known.get(subject).unwrap_or(&nothing),
            busy: &state.busy,
        };
        plan::plan(roster, &seen, &self.pace, self.clock.monotonic())
    }

    /// Makes as many of the visits as can be begun in time; the claims to the others are given back.
    async fn redeem(
        &self,
        subject: &Subject,
        roster: &Roster,
        claims: Vec<Claim<'_>>,
        places: &Semaphore,
        at_once: usize,
    ) {
        let enough = self.clock.monotonic() + self.pace.interval / 2;
        stream::iter(claims)
            .take_until(sleep_until(enough))
            .for_each_concurrent(at_once, async |claim| {
                if let Ok(_place) = timeout_at(enough, places.acquire()).await {
                    self.visit(subject, roster, &claim.visit).await;
                }
            })
            .await;
    }

    /// Polls; if there is something to push, pushes, and polls again for what came of it.
    async fn visit(&self, subject: &Subject, roster: &Roster, visit: &Visit) {
        self.poll(subject, visit).await;
        let Some(report) = self.to_push(subject, roster, visit) else {
            return;
        };
        if self.push(subject, roster, visit, &report).await == Offered::Taken {
            self.poll(subject, visit).await;
        }
    }

    async fn poll(&self, subject: &Subject, visit: &Visit) {
        let (answer, call) = self
            .request(visit, "/status", async |uri| self.client.get(&uri).await)
            .await;
        let report = answer::report(answer, &visit.uid);
        let failure = report.as_ref().err().map(|failure| failure.cause);
        self.metrics.polled(failure);
        self.update(subject, visit, |known| {
            tell(subject, visit, known, report.as_ref().err());
            match report {
                Ok(report) => known.heard(report, &call),
                Err(failure) => known.failed(failure, &call),
            }
        });
    }

    /// The agent's last report, if it should be sent the configuration.
    fn to_push(
        &self,
        subject: &Subject,
        roster: &Roster,
        visit: &Visit,
    ) -> Option<Arc<StatusReport>> {
        let state = self.lock();
        let known = state.known.get(subject)?.get(&visit.uid)?;
        let pod = roster.pods.get(&visit.uid)?;
        let report = &known.heard.as_ref()?.report;
        plan::pushes(&roster.config, pod, known).then(|| Arc::clone(report))
    }

    async fn push(
        &self,
        subject: &Subject,
        roster: &Roster,
        visit: &Visit,
        last: &StatusReport,
    ) -> Offered {
        let config = &*roster.config;
        let (outcome, call) = match self.leadership.check() {
            Ok(()) => self.offer(visit, config, last).await,
            Err(error) => (answer::unsent(error), self.call(visit, self.now())),
        };
        if let Offered::Refused { words, .. } = &outcome {
            warn!(kind = subject.kind, resource = %subject.key, pod.uid = %visit.uid, error = words, "agent refused its configuration");
        }
        self.update(subject, visit, |known| {
            known.offered(config, outcome.clone(), &call);
        });
        outcome
    }

    async fn offer(
        &self,
        visit: &Visit,
        config: &ConfigDocument,
        last: &StatusReport,
    ) -> (Offered, Call) {
        let (answer, call) = self
            .request(visit, "/config", async |uri| {
                self.client.put(&uri, config).await
            })
            .await;
        let outcome = answer::offered(answer, config, last);
        self.metrics.pushed(&outcome);
        (outcome, call)
    }

    async fn request(
        &self,
        visit: &Visit,
        path: &str,
        exchange: impl AsyncFnOnce(Uri) -> Result<Response, Error>,
    ) -> (Result<Response, Error>, Call) {
        let sent = self.now();
        let answer = match uri(visit.address, path) {
            Ok(uri) => exchange(uri).await,
            Err(error) => Err(error),
        };
        (answer, self.call(visit, sent))
    }

    /// A request that ends now.
    fn call(&self, visit: &Visit, sent: Now) -> Call {
        Call {
            address: visit.address.ip(),
            sent,
            ended: self.now(),
        }
    }

    fn now(&self) -> Now {
        Now {
            monotonic: self.clock.monotonic(),
            wall: self.clock.wall(),
        }
    }

    /// Writes down what was learned, unless the pod was forgotten meanwhile.
    fn update(&self, subject: &Subject, visit: &Visit, learn: impl FnOnce(&mut Known)) {
        let mut state = self.lock();
        let agents = state.known.get_mut(subject);
        if let Some(known) = agents.and_then(|agents| agents.get_mut(&visit.uid)) {
            learn(known);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn uri(address: SocketAddr, path: &str) -> Result<Uri, Error> {
    let uri = format!("https://{address}{path}").parse();
    uri.map_err(|_| Error::Address)
}

/// Logs when an agent stops to answer, and when it answers again; not in between.
fn tell(subject: &Subject, visit: &Visit, known: &Known, failure: Option<&Failure>) {
    let (kind, resource) = (subject.kind, &subject.key);
    match (known.failing.is_some(), failure) {
        (false, Some(failure)) => {
            warn!(kind, %resource, pod.uid = %visit.uid, address = %visit.address, error = failure.words, "agent does not answer");
        }
        (true, None) => {
            info!(kind, %resource, pod.uid = %visit.uid, address = %visit.address, "agent answers again");
        }
        (true, Some(_)) | (false, None) => {}
    }
}

/// The right to send requests to a pod. Given back when it is dropped, so that a round can be.
struct Claim<'a> {
    fleet: &'a Fleet,
    visit: Visit,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.fleet.lock().busy.remove(&self.visit.uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_addresses_can_be_asked() {
        for address in ["10.0.0.1:8444", "[fd00::1]:8444"] {
            let uri = uri(address.parse().unwrap(), "/status").unwrap();
            assert_eq!(uri.to_string(), format!("https://{address}/status"));
        }
    }
}
