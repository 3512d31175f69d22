//! Who leads: client-go's rules as a state machine that trusts no clock but the local monotonic one.
//! In: the Lease as it was seen, answers to writes, the time. Out: what to do next. Pure.
//!
//! A standby takes over only after the record stood still for the lease's duration on its own clock.
//! A leader stops at the renew deadline, counted from before its last successful renewal was sent, so
//! it has stopped for `duration - deadline` before anybody can take over.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// The three times of client-go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long a record must stand still before it may be taken over.
    pub duration: Duration,
    /// How long a leader goes on without a successful renewal.
    pub deadline: Duration,
    /// The pause between two attempts.
    pub retry: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// What matters of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; `None` when it was released.
    pub holder: Option<String>,
    /// How often the holder changed.
    pub transitions: i32,
    /// Differs after each change of the object.
    pub version: String,
    /// How long the holder asks others to wait.
    pub duration: Option<Duration>,
    /// When the holder began, by its own clock: for people only.
    pub acquired: Option<Timestamp>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the Lease.
    Look,
    /// Create the Lease, held by us.
    Create,
    /// Replace the given revision by one that we hold.
    Claim(Record),
    /// Nothing before this time.
    Wait(Instant),
    /// The lease was lost: stop everything and end.
    Lost,
}

/// One candidate.
#[derive(Debug)]
pub struct Elector {
    identity: String,
    times: Times,
    seen: Option<Seen>,
    /// When the last successful renewal was sent, while we lead.
    renewed: Option<Instant>,
    /// Somebody else held the Lease once: if it is deleted, they may not know yet.
    rival: bool,
    next_look: Option<Instant>,
    /// When the Lease was last read.
    looked: Option<Instant>,
}

#[derive(Debug)]
struct Seen {
    record: Option<Record>,
    since: Instant,
}

impl Elector {
    /// A candidate that knows nothing yet.
    pub fn new(identity: String, times: Times) -> Self {
        Self {
            identity,
            times,
            seen: None,
            renewed: None,
            rival: false,
            next_look: None,
            looked: None,
        }
    }

    /// The name under which this candidate holds the lease.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Until when this candidate may act as the leader; `None` when it does not lead.
    pub fn leads_until(&self) -> Option<Instant> {
        self.renewed.map(|at| at + self.times.deadline)
    }

    /// The record to release, while we lead.
    pub fn held(&self) -> Option<&Record> {
        self.renewed?;
        self.seen.as_ref()?.record.as_ref()
    }

    /// What to do at `now`.
    pub fn step(&self, now: Instant) -> Step {
        if self.leads_until().is_some_and(|until| now >= until) {
            return Step::Lost;
        }
        if let Some(at) = self.next_look.filter(|at| *at > now) {
            return Step::Wait(at);
        }
        let Some(Seen { record, since }) = &self.seen else {
            return Step::Look;
        };
        match record {
            Some(record) => self.judge(record, *since, now),
            None if self.may_create(*since, now) => Step::Create,
            None => Step::Look,
        }
    }

    fn looked_away(&self, now: Instant) -> bool {
        self.looked
            .is_none_or(|looked| now > looked + self.times.retry * 2)
    }

    /// A Lease that was deleted binds others as long as one that stands still.
    fn may_create(&self, since: Instant, now: Instant) -> bool {
        let waited = now >= since + self.times.duration && !self.looked_away(now);
        self.renewed.is_some() || !self.rival || waited
    }

    fn judge(&self, record: &Record, since: Instant, now: Instant) -> Step {
        match &record.holder {
            None => Step::Claim(record.clone()),
            Some(holder) if *holder == self.identity => Step::Claim(record.clone()),
            // Somebody else holds what we thought was ours.
            Some(_) if self.renewed.is_some() => Step::Lost,
            Some(_) => {
                let theirs = record.duration.unwrap_or_default().max(self.times.duration);
                if now >= since + theirs {
                    Step::Claim(record.clone())
                } else {
                    Step::Look
                }
            }
        }
    }

    /// The Lease was read, at or before `now`.
    pub fn saw(&mut self, record: Option<Record>, now: Instant) {
        let holder = record.as_ref().and_then(|record| record.holder.as_ref());
        self.rival |= holder.is_some_and(|holder| *holder != self.identity);
        let same = self.seen.as_ref().is_some_and(|seen| seen.record == record);
        // A record has a version; absence does not, so it must have been watched without a break.
        let known = same && (record.is_some() || !self.looked_away(now));
        self.looked = Some(now);
        if !known {
            self.seen = Some(Seen { record, since: now });
        }
        let ours = self.renewed.is_some();
        let free = self
            .seen
            .as_ref()
            .is_some_and(|seen| self.is_free(seen, now));
        // What can be claimed is claimed at once; what is held by another is looked at again later.
        self.next_look = (!free && !ours).then(|| now + self.times.retry);
    }

    fn is_free(&self, seen: &Seen, now: Instant) -> bool {
        match &seen.record {
            None => self.may_create(seen.since, now),
            Some(record) => matches!(self.judge(record, seen.since, now), Step::Claim(_)),
        }
    }

    /// A claim sent at `sent` succeeded and made `record`.
    pub fn claimed(&mut self, record: Record, sent: Instant, now: Instant) {
        self.seen = Some(Seen {
            record: Some(record),
            since: now,
        });
        self.renewed = Some(sent);
        self.next_look = Some(now + self.times.retry);
    }

    /// A claim was refused because the Lease had changed: look again at once.
    pub fn refused(&mut self) {
        self.seen = None;
        self.next_look = None;
    }

    /// A request failed without telling whether it was carried out: look again after a pause.
    pub fn failed(&mut self, now: Instant) {
        // What was seen stays: forgetting it would make a standby wait anew for each failed request.
        // A claim that was carried out unseen is refused when it is sent again, and then looked at.
        self.next_look = Some(now + self.times.retry);
    }

    /// The Lease may have changed: look again before the pause is over.
    pub fn nudged(&mut self) {
        if self.renewed.is_none() {
            self.next_look = None;
        }
    }
}

#[cfg(test)]
mod tests;
