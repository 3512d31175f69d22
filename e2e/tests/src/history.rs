//! What the audit log says about leaders and their writes. In: audit events. Out: who led when, and
//! every write that was not the leader's. Pure.

use std::collections::{BTreeSet, HashSet};

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use testbed::audit::{Event, Log, Stage};

use crate::operator::AGENT;

/// A holder of the lease, from when on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    holder: String,
    from: Timestamp,
}

/// Everything the operators did, or a part of it that knows who led before.
#[derive(Debug, Default)]
pub struct History {
    before: Vec<Term>,
    events: Vec<Event>,
}

impl History {
    /// Reads what is there so far.
    pub fn read(log: &Log) -> Result<Self> {
        let mut events = log.events_from(AGENT)?;
        events.retain(|event| event.stage == Stage::ResponseComplete);
        events.sort_by_key(|event| event.request_received_timestamp);
        Ok(Self {
            before: Vec::new(),
            events,
        })
    }

    /// Reads what came after `earlier`, so that a long history takes the memory of its parts only.
    pub fn read_after(log: &Log, earlier: &Self) -> Result<Self> {
        Ok(Self::read(log)?.after(earlier))
    }

    /// An event that both parts of a log show is left out of the second.
    fn after(mut self, earlier: &Self) -> Self {
        let known: HashSet<&str> = earlier.events.iter().map(|e| &*e.audit_id).collect();
        self.events
            .retain(|event| !known.contains(&*event.audit_id));
        self.before = earlier.terms();
        self
    }

    /// Every accepted change of the lease that changed its holder, in order.
    fn terms(&self) -> Vec<Term> {
        let mut terms = self.before.clone();
        for event in self.events.iter().filter(|event| is_lease_write(event)) {
            let object = event.request_object.as_ref();
            let holder = object
                .and_then(|o| o.pointer("/spec/holderIdentity")?.as_str())
                .unwrap_or_default();
            terms.push(Term {
                holder: holder.into(),
                from: event.request_received_timestamp,
            });
        }
        // An answer may be logged after what followed from it: the parts of a history need not be in order.
        terms.sort_by_key(|term| term.from);
        terms.dedup_by(|later, earlier| later.holder == earlier.holder);
        terms
    }

    /// Every write of an operator, other than to the lease, was sent by the holder of the lease.
    pub fn only_leaders_wrote(&self) -> Result<()> {
        let terms = self.terms();
        ensure!(!terms.is_empty(), "nobody ever led");
        let writes: Vec<&Event> = self
            .events
            .iter()
            .filter(|e| e.is_write() && !e.is_about("coordination.k8s.io", "leases"))
            .collect();
        ensure!(!writes.is_empty(), "nobody ever wrote");
        for write in writes {
            let at = write.request_received_timestamp;
            let term = terms.iter().rev().find(|term| term.from <= at);
            let agent = &write.user_agent;
            let by_leader =
                term.is_some_and(|term| !term.holder.is_empty() && agent.contains(&term.holder));
            ensure!(
                by_leader,
                "{agent} wrote {} at {at} while {term:?}",
                write.request_uri
            );
        }
        Ok(())
    }

    /// How many different holders there were.
    pub fn leaders(&self) -> usize {
        let terms = self.terms();
        let holders: BTreeSet<&str> = terms
            .iter()
            .map(|term| term.holder.as_str())
            .filter(|h| !h.is_empty())
            .collect();
        holders.len()
    }

    /// What concerns one namespace.
    #[must_use]
    pub fn of_namespace(mut self, namespace: &str) -> Self {
        let is_there = |event: &Event| {
            let object = event.object_ref.as_ref();
            object.is_some_and(|object| object.namespace == namespace)
        };
        self.events.retain(is_there);
        self
    }

    /// For how long nobody held the lease, each time it was let go. Fails if somebody lost it instead.
    pub fn vacancies(&self) -> Result<Vec<SignedDuration>> {
        let mut vacancies = Vec::new();
        for pair in self.terms().windows(2) {
            let [earlier, later] = pair else { continue };
            ensure!(
                earlier.holder.is_empty() || later.holder.is_empty(),
                "{} lost the lease to {}",
                earlier.holder,
                later.holder
            );
            if earlier.holder.is_empty() {
                vacancies.push(later.from.duration_since(earlier.from));
            }
        }
        Ok(vacancies)
    }

    /// Answers with that status code, as words for an error message.
    pub fn with_code(&self, code: u16) -> Vec<String> {
        let refused = self
            .events
            .iter()
            .filter(|event| event.code() == Some(code));
        refused
            .map(|event| format!("{} {}", event.verb, event.request_uri))
            .collect()
    }

    /// The requests.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

fn is_lease_write(event: &Event) -> bool {
    let accepted = event.code().is_some_and(|code| code < 300);
    accepted && event.is_write() && event.is_about("coordination.k8s.io", "leases")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn history(events: &[Event]) -> History {
        History {
            before: Vec::new(),
            events: events.to_vec(),
        }
    }

    /// A request to replace an object, sent by `who` in second `at`.
    fn write(who: &str, at: u8, group: &str, resource: &str, body: &serde_json::Value) -> Event {
        let time = format!("2026-01-01T00:00:{at:02}Z");
        let event = json!({
            "auditID": format!("{who} {at}"), "stage": "ResponseComplete", "verb": "update",
            "requestURI": "/", "user": {"username": "operator"}, "userAgent": format!("{AGENT}1 ({who})"),
            "objectRef": {"apiGroup": group, "resource": resource}, "requestObject": body,
            "responseStatus": {"code": 200}, "requestReceivedTimestamp": time, "stageTimestamp": time,
        });
        serde_json::from_value(event).unwrap()
    }

    fn lease(who: &str, at: u8, holder: &str) -> Event {
        let body = json!({"spec": {"holderIdentity": holder}});
        write(who, at, "coordination.k8s.io", "leases", &body)
    }

    fn run(who: &str, at: u8) -> Event {
        write(who, at, "orrery.dev", "checksumruns", &json!({}))
    }

    #[test]
    fn a_part_knows_who_led_before_it_and_counts_nothing_twice() {
        let first = history(&[lease("alpha", 1, "alpha"), run("alpha", 2)]);
        let second = history(&[run("alpha", 2), run("alpha", 3)]).after(&first);
        assert_eq!(second.events().len(), 1);
        second.only_leaders_wrote().unwrap();
        let third = history(&[run("beta", 4)]).after(&second);
        let told = third.only_leaders_wrote().unwrap_err().to_string();
        assert!(
            told.contains("(beta) wrote / at 2026-01-01T00:00:04Z"),
            "{told}"
        );
    }

    #[test]
    fn a_lease_is_vacant_from_when_it_is_let_go_until_it_is_held_again() {
        let told = |events: &[Event]| history(events).vacancies();
        let (alpha, let_go) = (lease("alpha", 1, "alpha"), lease("alpha", 5, ""));
        let twice = [
            alpha.clone(),
            let_go.clone(),
            lease("beta", 7, "beta"),
            lease("beta", 8, ""),
            lease("alpha", 9, "alpha"),
        ];
        let seconds = [2, 1].map(SignedDuration::from_secs);
        assert_eq!(told(&twice).unwrap(), seconds);
        assert_eq!(told(&[alpha.clone(), let_go]).unwrap(), []);
        let lost = told(&[alpha, lease("beta", 20, "beta")]);
        assert_eq!(
            lost.unwrap_err().to_string(),
            "alpha lost the lease to beta"
        );
    }

    #[test]
    fn a_release_that_is_logged_after_the_claim_that_followed_it_ends_the_term_before() {
        let first = history(&[
            lease("alpha", 1, "alpha"),
            lease("beta", 3, "beta"),
            run("beta", 4),
        ]);
        let second = history(&[lease("alpha", 2, ""), run("beta", 5)]).after(&first);
        second.only_leaders_wrote().unwrap();
        assert_eq!(second.leaders(), 2);
    }
}
