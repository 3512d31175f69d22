//! What a ChecksumSchedule owes its users now. In: the spec, what was observed, the time.
//! Out: runs to start, runs to delete, what waits and why, and when to look again. Pure.

mod history;

use std::time::Duration;

use crds::{
    checksum_run::reason::VERIFIED,
    checksum_schedule::{ChecksumScheduleSpec, ChecksumScheduleStatus, ConcurrencyPolicy},
    cron::Cron,
    name, pattern,
};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use serde::Serialize;

use super::due::{Due, is_sane, told_slot};

/// How far missed slots are counted.
pub const MISSED_LIMIT: usize = 100;

/// The longest value of the run-now annotation that is taken up.
const TOKEN_LIMIT: usize = 253;

/// What must be known to plan.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The schedule's name.
    pub name: String,
    /// When the schedule was created: earlier slots are not owed.
    pub created: Timestamp,
    /// The generation of the spec.
    pub generation: i64,
    /// The value of the run-now annotation.
    pub token: Option<String>,
    /// The status as it is stored.
    pub status: ChecksumScheduleStatus,
    /// The runs this schedule controls.
    pub runs: Vec<Run>,
}

/// What must be known of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When it was created.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The slot it was made for.
    pub slot: Option<Timestamp>,
    /// The run-now token it was made for.
    pub token: Option<String>,
    /// How and when it ended.
    pub ended: Option<Ended>,
    /// How long it is kept after its end.
    pub keep: Option<SignedDuration>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The reason of its Complete condition.
    pub result: String,
    /// When.
    pub at: Timestamp,
}

impl Observed {
    /// Runs that are active and are not to be replaced, the oldest first.
    pub(super) fn active(&self, replaced: &[Doomed]) -> Vec<&Run> {
        let stays = |run: &&Run| replaced.iter().all(|doomed| doomed.uid != run.uid);
        let active = self.runs.iter().filter(|run| run.is_active());
        let mut active: Vec<&Run> = active.filter(stays).collect();
        active.sort_by_key(|run| run.created);
        active
    }

    /// Runs that have ended and how, of which the status has not told.
    pub(super) fn untold(&self, now: Timestamp) -> impl Iterator<Item = (&Run, Ended)> {
        let untold = self.runs.iter().filter(|run| !self.has_told(run));
        untold.filter_map(move |run| run.end(now).map(|end| (run, end)))
    }

    /// Whether the status has told how this run ended, so that deleting it loses nothing. When it ended is not asked:
    /// an end by a clock that was wrong could be believed, and told again, when that time has come.
    fn has_told(&self, run: &Run) -> bool {
        let status = &self.status;
        let listed = status.active.iter().any(|active| active.name == run.name);
        let slot_told = run
            .slot
            .is_none_or(|slot| status.last_schedule_time.is_some_and(|last| slot <= last));
        let token_told = run.token.is_none()
            || run.token != self.token
            || run.token == status.last_handled_run_now;
        let told = status.last_result_time;
        !listed && slot_told && token_told && told.is_some_and(|told| run.created <= told)
    }
}

impl Run {
    /// How it ended, and when: no earlier than it was made, which is the server's word; by a clock that was wrong, just then.
    fn end(&self, now: Timestamp) -> Option<Ended> {
        let Ended { result, at } = self.ended.as_ref()?;
        let at = Some(*at).filter(|at| is_sane(*at, now.max(self.created)));
        Some(Ended {
            result: result.clone(),
            at: at.map_or(self.created, |at| at.max(self.created)),
        })
    }

    fn is_active(&self) -> bool {
        self.ended.is_none() && !self.deleting
    }

    fn is_verified(&self) -> bool {
        self.ended
            .as_ref()
            .is_some_and(|ended| ended.result == VERIFIED.name)
    }
}

/// The spec with every field read.
#[derive(Clone, Debug)]
pub struct Validated {
    pub(super) cron: Cron,
    pub(super) zone: TimeZone,
    policy: ConcurrencyPolicy,
    pub(super) deadline: Option<Duration>,
    pub(super) suspended: bool,
    keep_verified: usize,
    keep_others: usize,
}

/// A field of the spec that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.{field}: {why}")]
pub struct Invalid {
    field: &'static str,
    why: String,
}

/// Reads every field of the spec once.
pub fn validate(spec: &ChecksumScheduleSpec) -> Result<Validated, Invalid> {
    let invalid = |field| move |why: String| Invalid { field, why };
    let deadline = spec
        .starting_deadline
        .as_ref()
        .map(crds::duration::Duration::parse)
        .transpose();
    for pattern in &spec.template.spec.source.exclude {
        pattern::read(pattern)
            .map_err(|e| invalid("template.spec.source.exclude")(e.to_string()))?;
    }
    let limit = |number: i32| usize::try_from(number).unwrap_or(0);
    Ok(Validated {
        cron: spec
            .schedule
            .parse()
            .map_err(|e| invalid("schedule")(e.to_string()))?,
        zone: spec
            .time_zone
            .parse()
            .map_err(|e| invalid("timeZone")(e.to_string()))?,
        deadline: deadline.map_err(|e| invalid("startingDeadline")(e.to_string()))?,
        policy: spec.concurrency_policy,
        suspended: spec.suspend,
        keep_verified: limit(spec.successful_runs_history_limit),
        keep_others: limit(spec.failed_runs_history_limit),
    })
}

/// What to do, complete enough that nothing is left to decide.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Active runs to delete before anything starts.
    pub replace: Vec<Doomed>,
    /// Runs to make.
    pub start: Vec<Start>,
    /// Ended runs beyond the limits of the history, or of their own time.
    pub prune: Vec<Doomed>,
    /// What is due and not started, and why.
    pub waiting: Option<Waiting>,
    /// Slots that passed without a run.
    pub missed: Option<Missed>,
    /// Names of the runs that will be active, the oldest first.
    pub active: Vec<String>,
    /// The newest slot that was started or given up.
    pub last_slot: Option<Timestamp>,
    /// The newest run-now token that was taken up.
    pub handled_token: Option<String>,
    /// The slot users may expect next; one in the past is due and waits.
    pub next_slot: Option<Timestamp>,
    /// When to look again.
    pub wake: Option<Timestamp>,
}

/// A run to delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Doomed {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// A run to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Start {
    /// Its name.
    pub name: String,
    /// The slot it is for.
    pub slot: Option<Timestamp>,
    /// The run-now token it is for.
    pub token: Option<String>,
}

/// What is due and not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Waiting {
    /// An earlier run is active.
    ForActiveRun,
    /// Nothing starts while the schedule is suspended.
    Suspended,
}

/// Slots that passed without a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Missed {
    /// How many; beyond [`MISSED_LIMIT`] just that.
    pub count: usize,
    /// The newest of them.
    pub last: Timestamp,
}

/// Decides.
pub fn plan(spec: &Validated, seen: &Observed, now: Timestamp) -> Plan {
    let due = spec.due(seen, now);
    let token = pending_token(seen);
    let active = seen.active(&[]);
    let waiting = spec.waiting(&due, token, &active);
    let mut plan = Plan {
        replace: Vec::new(),
        start: Vec::new(),
        prune: spec.prunable(seen, now),
        waiting,
        missed: due.missed.filter(|_| waiting.is_none()),
        active: Vec::new(),
        last_slot: due.handled.or_else(|| told_slot(seen, now)),
        handled_token: handled_token(seen),
        next_slot: None,
        wake: None,
    };
    if waiting.is_none() {
        spec.start(&mut plan, seen, &due, token, &active);
    }
    let kept = seen.active(&plan.replace).into_iter().map(|run| &run.name);
    let started = plan.start.iter().map(|start| &start.name);
    plan.active = kept.chain(started).cloned().collect();
    spec.schedule_next(&mut plan, &due, now);
    plan.wake = plan.wake.into_iter().chain(seen.next_expiry(now)).min();
    plan
}

impl Validated {
    fn waiting(&self, due: &Due, token: Option<&str>, active: &[&Run]) -> Option<Waiting> {
        if self.suspended {
            return token.map(|_| Waiting::Suspended);
        }
        let wanted = due.slot.is_some() || token.is_some();
        let held = self.policy == ConcurrencyPolicy::Forbid && !active.is_empty();
        (wanted && held).then_some(Waiting::ForActiveRun)
    }

    /// One run serves a slot and a token that are due together, unless runs may be concurrent.
    fn start(
        &self,
        plan: &mut Plan,
        seen: &Observed,
        due: &Due,
        token: Option<&str>,
        active: &[&Run],
    ) {
        let slot = due.slot.map(|at| Start {
            name: name::slot_run(&seen.name, at),
            slot: Some(at),
            token: None,
        });
        let token = token.map(|token| Start {
            name: name::token_run(&seen.name, &digest(token)),
            slot: None,
            token: Some(token.into()),
        });
        plan.last_slot = due.slot.or(plan.last_slot);
        if let Some(token) = &token {
            plan.handled_token.clone_from(&token.token);
        }
        plan.start = match (slot, token) {
            (Some(slot), Some(token)) if self.policy != ConcurrencyPolicy::Allow => vec![Start {
                token: token.token,
                ..slot
            }],
            (slot, token) => slot.into_iter().chain(token).collect(),
        };
        // What an earlier attempt made is there already.
        plan.start
            .retain(|start| seen.runs.iter().all(|run| run.name != start.name));
        if self.policy == ConcurrencyPolicy::Replace && !plan.start.is_empty() {
            plan.replace = active.iter().map(|run| Doomed::from(*run)).collect();
        }
    }

    fn schedule_next(&self, plan: &mut Plan, due: &Due, now: Timestamp) {
        if self.suspended {
            return;
        }
        // A clock that went back must not make a handled slot due again.
        let from = plan.last_slot.map_or(now, |last| last.max(now));
        let next = self.cron.next_after(from, &self.zone);
        let waits = plan.waiting.is_some();
        let late = due.slot.filter(|_| waits);
        plan.next_slot = late.or(next);
        plan.wake = late
            .and_then(|slot| self.given_up_at(slot))
            .into_iter()
            .chain(next)
            .min();
    }
}

impl From<&Run> for Doomed {
    fn from(run: &Run) -> Self {
        Self {
            name: run.name.clone(),
            uid: run.uid.clone(),
        }
    }
}

/// The newest token that was taken up: the one asked for now if a run for it exists, whatever the status says.
fn handled_token(seen: &Observed) -> Option<String> {
    let taken_up = seen.token.as_ref().filter(|token| {
        seen.runs
            .iter()
            .any(|run| run.token.as_ref() == Some(token))
    });
    taken_up
        .or(seen.status.last_handled_run_now.as_ref())
        .cloned()
}

fn pending_token(seen: &Observed) -> Option<&str> {
    let token = seen.token.as_deref()?;
    let fresh = handled_token(seen).as_deref() != Some(token);
    (fresh && !token.is_empty() && token.len() <= TOKEN_LIMIT).then_some(token)
}

fn digest(token: &str) -> String {
    name::digest(token.as_bytes(), 8)
}

#[cfg(test)]
mod tests;
