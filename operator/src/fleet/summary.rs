//! What a resource's status says of its agents. In: who should be there, and what is known of them.
//! Out: numbers, last values, drafts of conditions. Pure.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, time::Duration};

use crds::{
    condition::{Draft, Status},
    report::ConfigDocument,
};
use jiff::Timestamp;

use super::{
    answer::shortened,
    known::{Cause, Failing, Heard, Known, Offered, acknowledges},
    plan::{Pod, Roster, Uid},
    reason::{
        AGENTS_REACHABLE, AGENTS_UNREACHABLE, ALL_REACHABLE, CLOCKS_AGREE, CLOCKS_DIFFER,
        NO_AGENTS, NO_REPORTS, NOT_ASKED_YET, WITHIN_ONE_SECOND, WRONG_POD,
    },
};

/// Lists in a status hold at most this many.
pub const LIST_LIMIT: usize = 20;

/// A condition's message names at most this many pods.
const NAMES_LIMIT: usize = 5;

/// A difference between two clocks that is not worth a word.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// Whether an agent answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contact {
    /// It answered when it was asked last.
    Reachable,
    /// It was not asked yet.
    NotAsked,
    /// Its pod has no address yet.
    NoAddress,
    /// It fails.
    Failing(Failing),
}

/// Which configuration an agent works by, as far as it has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Config {
    /// The one it should, or a later generation of it.
    Acknowledged,
    /// Another one, or an older one.
    Outdated,
    /// None.
    Waiting,
    /// It never said.
    Unknown,
}

/// What is known of the agent in one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub uid: Uid,
    /// Whether the pod is being deleted; it is not counted any more.
    pub leaving: bool,
    /// Whether it answers.
    pub contact: Contact,
    /// The last values and their time; they stay while it fails.
    pub heard: Option<Heard>,
    /// Which configuration it works by.
    pub config: Config,
    /// Why it does not work by the one it should, if somebody said why.
    pub config_problem: Option<String>,
    /// Since when it is asked in vain to work by that one.
    pub behind_since: Option<Timestamp>,
}

impl Agent {
    fn new(config: &ConfigDocument, pod: &Pod, known: Option<&Known>) -> Self {
        let heard = known.and_then(|known| known.heard.clone());
        Self {
            pod: pod.key.name.clone(),
            uid: pod.uid.clone(),
            leaving: pod.deleting,
            contact: contact(pod, known),
            config: config_of(heard.as_ref(), config),
            config_problem: known.and_then(|known| config_problem(known, config)),
            behind_since: known.and_then(|known| known.behind_since(config)),
            heard,
        }
    }

    /// Whether it answered when it was asked last.
    pub fn is_reachable(&self) -> bool {
        self.contact == Contact::Reachable
    }

    /// Whether its clock is certain to be more than a second off, as it said when it was asked last.
    pub fn is_off_clock(&self) -> bool {
        let heard = self.heard.as_ref().filter(|_| self.is_reachable());
        heard.is_some_and(|heard| heard.offset.unsigned_abs() > CLOCK_TOLERANCE + heard.doubt)
    }

    /// The lower, the worse.
    fn rank(&self) -> (bool, u8, Option<Timestamp>) {
        let (rank, since) = match (&self.contact, self.config) {
            (Contact::Failing(failing), _) => (0, Some(failing.since)),
            (Contact::NoAddress, _) => (1, None),
            (Contact::NotAsked, _) => (2, None),
            (Contact::Reachable, Config::Outdated | Config::Waiting | Config::Unknown) => {
                (if self.config_problem.is_some() { 3 } else { 4 }, None)
            }
            (Contact::Reachable, Config::Acknowledged) => {
                (if self.is_off_clock() { 5 } else { 6 }, None)
            }
        };
        (self.leaving, rank, since)
    }
}

fn contact(pod: &Pod, known: Option<&Known>) -> Contact {
    match known {
        Some(Known {
            failing: Some(failing),
            ..
        }) => Contact::Failing(failing.clone()),
        Some(Known { heard: Some(_), .. }) => Contact::Reachable,
        Some(_) | None if pod.ip.is_none() => Contact::NoAddress,
        Some(_) | None => Contact::NotAsked,
    }
}

fn config_of(heard: Option<&Heard>, config: &ConfigDocument) -> Config {
    match heard.map(|heard| &heard.report) {
        None => Config::Unknown,
        Some(report) if acknowledges(report, config) => Config::Acknowledged,
        Some(report) if report.config_generation.is_none() => Config::Waiting,
        Some(_) => Config::Outdated,
    }
}

fn config_problem(known: &Known, config: &ConfigDocument) -> Option<String> {
    let report = &known.heard.as_ref()?.report;
    if acknowledges(report, config) {
        return None;
    }
    match known.outcome(config) {
        Some(Offered::Refused { words, .. }) => Some(words.clone()),
        Some(Offered::Failed(failure)) => Some(failure.words.clone()),
        Some(Offered::Taken) | None => report.config_error.as_deref().map(shortened),
    }
}

/// What is known of all agents of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// How many pods should carry an agent. Those that are being deleted are not counted here nor below.
    pub desired: usize,
    /// How many agents answered when they were asked last.
    pub reachable: usize,
    /// How many work by the wanted configuration, as they said last.
    pub acknowledged: usize,
    /// How many work by another or an older configuration, as they said last.
    pub outdated: usize,
    /// How many wait for their first configuration, as they said last.
    pub waiting: usize,
    /// All of them, worst first, those that are leaving last.
    pub agents: Vec<Agent>,
}

impl Summary {
    /// Puts together what is known.
    pub fn new(roster: &Roster, known: &HashMap<Uid, Known>) -> Self {
        let agent = |pod: &Pod| Agent::new(&roster.config, pod, known.get(&pod.uid));
        let mut agents: Vec<_> = roster.pods.values().map(agent).collect();
        agents.sort_by(|a, b| (a.rank(), &a.pod).cmp(&(b.rank(), &b.pod)));
        let count = |is: &dyn Fn(&Agent) -> bool| staying(&agents).filter(|a| is(a)).count();
        Self {
            desired: count(&|_| true),
            reachable: count(&Agent::is_reachable),
            acknowledged: count(&|agent| agent.config == Config::Acknowledged),
            outdated: count(&|agent| agent.config == Config::Outdated),
            waiting: count(&|agent| agent.config == Config::Waiting),
            agents,
        }
    }

    /// As many agents as a list in a status holds, worst first.
    pub fn worst(&self) -> &[Agent] {
        &self.agents[..self.agents.len().min(LIST_LIMIT)]
    }

    /// The condition that tells whether agents answer.
    pub fn agents_reachable(&self) -> Draft {
        let draft = |status: Status, reason, message: String| {
            Draft::new(AGENTS_REACHABLE, status, reason, message)
        };
        let desired = self.desired;
        let missing: Vec<_> = staying(&self.agents)
            .filter(|agent| !agent.is_reachable())
            .collect();
        if desired == 0 {
            let message = "no pod should carry an agent";
            return draft(Status::Unknown, &NO_AGENTS, message.into());
        }
        if missing.is_empty() {
            let message = format!("all {desired} agents answer");
            return draft(Status::True, &ALL_REACHABLE, message);
        }
        let names = named(missing.iter().map(|agent| agent.pod.clone()));
        let count = missing.len();
        if missing.iter().all(|a| a.contact == Contact::NotAsked) {
            let message = format!("{count} of {desired} agents were not asked yet: {names}");
            return draft(Status::Unknown, &NOT_ASKED_YET, message);
        }
        if missing.iter().all(|agent| is_wrong_pod(agent)) {
            let message = format!(
                "another pod answered at the address of {count} of {desired} agents: {names}"
            );
            return draft(Status::False, &WRONG_POD, message);
        }
        let why = missing.first().map_or("", |agent| words(agent));
        let message =
            format!("{count} of {desired} agents do not answer: {names}; the first: {why}");
        draft(Status::False, &AGENTS_UNREACHABLE, message)
    }

    /// The condition that tells whether the agents' clocks agree with the operator's.
    pub fn clocks_agree(&self) -> Draft {
        let draft = |status: Status, reason, message: String| {
            Draft::new(CLOCKS_AGREE, status, reason, message)
        };
        let mut off: Vec<_> = staying(&self.agents).filter_map(offset).collect();
        if self.reachable == 0 {
            return draft(Status::Unknown, &NO_REPORTS, "no agent answers".into());
        }
        if off.is_empty() {
            let message = format!("the clocks of {} agents agree", self.reachable);
            return draft(Status::True, &WITHIN_ONE_SECOND, message);
        }
        off.sort_by_key(|(seconds, pod)| (std::cmp::Reverse(seconds.unsigned_abs()), *pod));
        let names = named(
            off.iter()
                .map(|(seconds, pod)| format!("{pod} by {seconds:+} s")),
        );
        let message = format!(
            "{} of {} clocks differ from the operator's: {names}",
            off.len(),
            self.reachable
        );
        draft(Status::False, &CLOCKS_DIFFER, message)
    }
}

fn staying(agents: &[Agent]) -> impl Iterator<Item = &Agent> {
    agents.iter().filter(|agent| !agent.leaving)
}

fn is_wrong_pod(agent: &Agent) -> bool {
    matches!(&agent.contact, Contact::Failing(failing) if failing.failure.cause == Cause::WrongPod)
}

fn words(agent: &Agent) -> &str {
    match &agent.contact {
        Contact::Failing(failing) => &failing.failure.words,
        Contact::NoAddress => "its pod has no address yet",
        Contact::NotAsked | Contact::Reachable => "it was not asked yet",
    }
}

/// In whole seconds: a finer number would change with every poll, and the status with it.
fn offset(agent: &Agent) -> Option<(i64, &str)> {
    let heard = agent.heard.as_ref().filter(|_| agent.is_off_clock())?;
    Some((heard.offset.as_secs(), &agent.pod))
}

fn named(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(NAMES_LIMIT);
    let names = names.take(NAMES_LIMIT).collect::<Vec<_>>().join(", ");
    match more {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}
