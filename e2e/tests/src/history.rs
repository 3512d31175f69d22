//! What the audit log says about leaders and their writes. In: audit events. Out: who led when, and
//! every write that was not the leader's. Pure.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use testbed::audit::{Event, Log, Stage};

use crate::operator::AGENT;

/// A holder of the lease, from when on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    holder: String,
    from: Timestamp,
}

/// Everything the operators did.
#[derive(Debug)]
pub struct History {
    events: Vec<Event>,
}

impl History {
    /// Reads what is there so far.
    pub fn read(log: &Log) -> Result<Self> {
        let mut events = log.events_from(AGENT)?;
        events.retain(|event| event.stage == Stage::ResponseComplete);
        events.sort_by_key(|event| event.request_received_timestamp);
        Ok(Self { events })
    }

    /// Every accepted change of the lease that changed its holder, in order.
    fn terms(&self) -> Vec<Term> {
        let mut terms: Vec<Term> = Vec::new();
        for event in self.events.iter().filter(|event| is_lease_write(event)) {
            let object = event.request_object.as_ref();
            let holder = object
                .and_then(|o| o.pointer("/spec/holderIdentity")?.as_str())
                .unwrap_or_default();
            if terms.last().is_none_or(|last| last.holder != holder) {
                terms.push(Term {
                    holder: holder.into(),
                    from: event.request_received_timestamp,
                });
            }
        }
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
