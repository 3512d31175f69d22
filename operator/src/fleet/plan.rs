//! Which agents to visit now, and when to look again. In: a resource's pods and what is known of their agents.
//! Out: a plan. Pure.

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use crds::report::ConfigDocument;
use tokio::time::Instant;

use super::known::{Known, Offered, Stand, acknowledges};
use crate::{object::Key, watch::pod::SlimPod};

/// The UID of a pod.
pub type Uid = Box<str>;

/// How often agents are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The time between two polls of an agent that answers.
    pub interval: Duration,
    /// The pause after a first failure; it doubles with each further one.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
        }
    }
}

/// A pod that should carry an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub key: Key,
    /// Its UID: a pod of the same name and another UID is another pod.
    pub uid: Uid,
    /// Its address, once it has one.
    pub ip: Option<IpAddr>,
    /// Whether it is being deleted: it is polled to the end, but gets no new work.
    pub deleting: bool,
}

impl Pod {
    /// A pod that carries an agent; one that has ended carries none.
    pub fn of(pod: &SlimPod) -> Option<Self> {
        (!pod.ended).then(|| Self {
            key: pod.key.clone(),
            uid: pod.uid.clone(),
            ip: pod.ip.as_deref().and_then(|ip| ip.parse().ok()),
            deleting: pod.deleting,
        })
    }
}

/// Who should be there for one resource, and what they should work by.
#[derive(Clone, Debug, PartialEq)]
pub struct Roster {
    /// The configuration every agent should have.
    pub config: Arc<ConfigDocument>,
    /// The control port, the same in every pod.
    pub port: u16,
    /// The pods, each once.
    pub pods: BTreeMap<Uid, Pod>,
}

impl Roster {
    /// The pods that should work by `config`. Leave out those that have ended: their addresses belong to others.
    pub fn new(
        config: Arc<ConfigDocument>,
        port: u16,
        pods: impl IntoIterator<Item = Pod>,
    ) -> Self {
        let pods = pods.into_iter().map(|pod| (pod.uid.clone(), pod));
        Self {
            config,
            port,
            pods: pods.collect(),
        }
    }
}

/// What the decision needs besides the roster.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// What is known of this resource's agents.
    pub known: &'a HashMap<Uid, Known>,
    /// The pods that are being visited, for whichever resource.
    pub busy: &'a HashSet<Uid>,
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Whom to visit of those that answered when they were asked last: poll, then push if [`pushes`] says so.
    /// Those that have waited longest come first, here and below.
    pub visits: Vec<Visit>,
    /// Whom else to visit, in the same way. They may hang, so they should not stand in the way of the others.
    pub probes: Vec<Visit>,
    /// Who is not visited.
    pub waiting: Vec<Waiting>,
    /// Of whom nothing should be known any more: the pods are gone.
    pub forget: Vec<Uid>,
    /// When the next visit is due: now, if there is one to make. `None` if none will be until the pods change.
    pub next: Option<Instant>,
}

/// A pod to visit. Each visit begins with a poll, so that nothing is pushed to a pod that has taken over the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The pod's UID.
    pub uid: Uid,
    /// Its control port.
    pub address: SocketAddr,
    /// Why now.
    pub why: Why,
}

/// Why a pod is visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has never been asked.
    New,
    /// It was asked at another address.
    Moved,
    /// It works by another configuration than it should, and was not sent the new one yet.
    Outdated,
    /// It is time to.
    Due,
}

/// A pod that is not visited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The pod's UID.
    pub uid: Uid,
    /// Why not.
    pub why: Idle,
    /// Until when.
    pub until: Option<Instant>,
}

/// Why a pod is not visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It has no address yet.
    NoAddress,
    /// It is being visited.
    Busy,
    /// It was asked a moment ago.
    Asked,
}

/// Decides about the agents of one resource.
pub fn plan(roster: &Roster, seen: &Observed<'_>, pace: &Pace, now: Instant) -> Plan {
    let mut plan = Plan {
        forget: gone(roster, seen),
        ..Plan::default()
    };
    for pod in roster.pods.values() {
        let known = seen.known.get(&pod.uid);
        match assess(roster, pod, seen, pace, now) {
            Ok(visit) if known.and_then(Known::current_report).is_some() => plan.visits.push(visit),
            Ok(probe) => plan.probes.push(probe),
            Err(waiting) => plan.waiting.push(waiting),
        }
    }
    for visits in [&mut plan.visits, &mut plan.probes] {
        visits.sort_by_key(|visit| seen.known.get(&visit.uid).and_then(|k| Some(k.asked?.at)));
    }
    let due = plan.waiting.iter().filter_map(|waiting| waiting.until);
    let at_once = plan.visits.iter().chain(&plan.probes).map(|_| now);
    plan.next = due.chain(at_once).min();
    plan
}

/// Whether the agent should be sent `config` now. Asked right after a poll.
///
/// It must have answered that poll, and work by another or an older configuration. What it refused is not sent to it
/// again, unless it has become another since.
pub fn pushes(config: &ConfigDocument, pod: &Pod, known: &Known) -> bool {
    let Some(report) = known.current_report() else {
        return false;
    };
    let has_refused = match known.outcome(config) {
        Some(Offered::Refused { by, .. }) => *by == Stand::of(report),
        Some(Offered::Taken | Offered::Failed(_)) | None => false,
    };
    !pod.deleting && !acknowledges(report, config) && !has_refused
}

fn gone(roster: &Roster, seen: &Observed<'_>) -> Vec<Uid> {
    let known = seen.known.keys();
    let mut gone: Vec<_> = known
        .filter(|uid| !roster.pods.contains_key(*uid))
        .collect();
    gone.sort_unstable();
    gone.into_iter().cloned().collect()
}

fn assess(
    roster: &Roster,
    pod: &Pod,
    seen: &Observed<'_>,
    pace: &Pace,
    now: Instant,
) -> Result<Visit, Waiting> {
    let wait = |why, until| Waiting {
        uid: pod.uid.clone(),
        why,
        until,
    };
    let ip = pod.ip.ok_or_else(|| wait(Idle::NoAddress, None))?;
    if seen.busy.contains(&pod.uid) {
        return Err(wait(Idle::Busy, Some(now + pace.interval)));
    }
    let known = seen.known.get(&pod.uid);
    let why = reason(&roster.config, pod, ip, known, pace, now);
    let why = why.map_err(|due| wait(Idle::Asked, Some(due)))?;
    Ok(Visit {
        uid: pod.uid.clone(),
        address: SocketAddr::new(ip, roster.port),
        why,
    })
}

/// Why to visit the pod at `ip` now, or when the next visit is due.
fn reason(
    config: &ConfigDocument,
    pod: &Pod,
    ip: IpAddr,
    known: Option<&Known>,
    pace: &Pace,
    now: Instant,
) -> Result<Why, Instant> {
    let Some((known, asked)) = known.and_then(|known| Some((known, known.asked?))) else {
        return Ok(Why::New);
    };
    if asked.address != ip {
        return Ok(Why::Moved);
    }
    // Once only: an agent that takes it and still reports the old one is sent it again at the pace of its polls.
    if pushes(config, pod, known) && known.outcome(config).is_none() {
        return Ok(Why::Outdated);
    }
    let due = asked.at + pause(config, pod, known, pace);
    // Agents that come due a moment later are asked in the same round.
    let is_due = due <= now + pace.interval / 10;
    is_due.then_some(Why::Due).ok_or(due)
}

/// The agents of a resource that answer are asked together, the resources apart from each other; agents that do
/// not answer each have a time of their own.
fn pause(config: &ConfigDocument, pod: &Pod, known: &Known, pace: &Pace) -> Duration {
    let Some(failing) = &known.failing else {
        return jitter(&config.uid, pace.interval);
    };
    let doublings = failing.attempts.saturating_sub(1).min(16);
    let pause = pace.first_pause.saturating_mul(1 << doublings);
    jitter(&(&pod.uid, failing.attempts), pause.min(pace.longest_pause))
}

/// Between 80 % and 100 % of `pause`, always the same for the same seed.
fn jitter(seed: &impl Hash, pause: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    let share = u32::try_from(hasher.finish() % 200).unwrap_or(0);
    pause.saturating_sub(pause / 1000 * share)
}
