//! What a ChecksumSchedule tells its users. In: what was observed, planned and done.
//! Out: its status and events. Pure.

use std::iter;

use crds::{
    checksum_run::{ChecksumRun, reason::VERIFIED},
    checksum_schedule::{
        ActiveRun, ChecksumScheduleStatus, LAST_RUN_VERIFIED,
        reason::{
            FAILING, INVALID_SPEC, LAST_NOT_VERIFIED, LAST_VERIFIED, NAME_TAKEN, NO_RUN_YET,
            RUN_ENDED, RUN_REFUSED, RUN_REPLACED, RUN_STARTED, RUNNING, SCHEDULED, SLOTS_MISSED,
            SUSPENDED, WAITING,
        },
    },
    condition::{self, Draft, READY, Reason, Status},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use runtime::telemetry::chain;

use super::{
    Failure,
    due::is_sane,
    plan::{Doomed, Ended, MISSED_LIMIT, Missed, Observed, Plan, Start, Waiting},
};
use crate::{act, class::Class, failure, report::EventDraft};

/// Lists in a status hold at most this many.
const LIST_LIMIT: usize = 20;

/// The status after a pass that ended with `outcome`.
pub fn status(
    seen: &Observed,
    suspended: bool,
    outcome: Result<&Plan, &Failure>,
    now: Timestamp,
) -> ChecksumScheduleStatus {
    let mut status = seen.status.clone();
    status.observed_generation = seen.generation;
    tell_results(&mut status, seen, now);
    let mut drafts = match outcome {
        Ok(plan) => {
            tell_plan(&mut status, plan);
            vec![ready(plan, suspended)]
        }
        Err(failure) => {
            tell_failure(&mut status, seen, failure);
            failed(failure)
        }
    };
    drafts.push(last_run(&status));
    status.conditions =
        condition::merge(&seen.status.conditions, &drafts, Some(seen.generation), now);
    status
}

fn tell_plan(status: &mut ChecksumScheduleStatus, plan: &Plan) {
    tell_active(status, plan.active.iter());
    status.last_schedule_time = plan.last_slot;
    status.next_schedule_time = plan.next_slot;
    status.last_handled_run_now.clone_from(&plan.handled_token);
}

fn tell_active<'a>(
    status: &mut ChecksumScheduleStatus,
    names: impl ExactSizeIterator<Item = &'a String>,
) {
    status.active_count = i32::try_from(names.len()).unwrap_or(i32::MAX);
    let names = names.take(LIST_LIMIT).cloned();
    status.active = names.map(|name| ActiveRun { name }).collect();
}

/// A pass that failed half-way gives up what it gave up and owes what it owes; a spec that cannot be
/// read promises nothing. Runs that have ended are not active, whatever failed; of those that were to be replaced
/// nobody knows whether they are.
fn tell_failure(status: &mut ChecksumScheduleStatus, seen: &Observed, failure: &Failure) {
    let plan = failure.plan();
    let active = seen.active(&[]).into_iter().map(|run| &run.name);
    tell_active(status, active);
    let Some(plan) = plan else {
        status.next_schedule_time = None;
        return;
    };
    let owed = plan.start.iter().find_map(|start| start.slot);
    status.next_schedule_time = owed.or(plan.next_slot);
    if owed.is_none() {
        status.last_schedule_time = plan.last_slot;
    }
}

/// Results outlive the runs they come from: only newer ones replace them.
fn tell_results(status: &mut ChecksumScheduleStatus, seen: &Observed, now: Timestamp) {
    for (run, ended) in seen.untold(now) {
        let verified = ended.result == VERIFIED.name;
        let success = status.last_successful_time.filter(|at| is_sane(*at, now));
        if verified && success.is_none_or(|last| last < ended.at) && !run.deleting {
            status.last_successful_time = Some(ended.at);
        }
        let last = status.last_result_time.filter(|at| is_sane(*at, now));
        if last.is_none_or(|last| is_newer_or_worse(&ended, last)) {
            status.last_result_time = Some(ended.at);
            status.last_result = Some(ended.result);
        }
    }
}

/// Times are whole seconds: of two runs that ended together, the one to worry about is told.
fn is_newer_or_worse(ended: &Ended, last: Timestamp) -> bool {
    last < ended.at || (last == ended.at && ended.result != VERIFIED.name)
}

fn ready(plan: &Plan, suspended: bool) -> Draft {
    let next = |prefix: &str| match plan.next_slot {
        Some(at) => format!("{prefix}next run at {at}"),
        None => format!("{prefix}no further slot"),
    };
    if suspended {
        let message = match plan.waiting {
            Some(Waiting::Suspended) => {
                "suspended; the run asked for by the annotation starts when spec.suspend is false"
            }
            Some(Waiting::ForActiveRun) | None => {
                "suspended; no run is started until spec.suspend is false"
            }
        };
        return Draft::new(READY, true, &SUSPENDED, message);
    }
    match (plan.waiting, plan.active.as_slice()) {
        (Some(_), active) => {
            let message = format!("a run is due and waits for {} to end", active.join(", "));
            Draft::new(READY, true, &WAITING, message)
        }
        (None, []) => Draft::new(READY, true, &SCHEDULED, next("")),
        (None, [only]) => Draft::new(READY, true, &RUNNING, next(&format!("{only} is active, "))),
        (None, many) => Draft::new(
            READY,
            true,
            &RUNNING,
            next(&format!("{} runs are active, ", many.len())),
        ),
    }
}

/// The conditions of an object whose pass failed.
pub fn failed(failure: &Failure) -> Vec<Draft> {
    failure::drafts(failure.class(), reason_of(failure), chain(failure))
}

fn reason_of(failure: &Failure) -> &'static Reason {
    match failure {
        Failure::Undecodable(_) | Failure::Invalid(_) => &INVALID_SPEC,
        Failure::Act {
            error: act::Error::NameTaken { .. },
            ..
        } => &NAME_TAKEN,
        Failure::Act { .. } if failure.class() == Class::Blocked => &RUN_REFUSED,
        Failure::Act { .. } => &FAILING,
    }
}

fn last_run(status: &ChecksumScheduleStatus) -> Draft {
    match status.last_result.as_deref() {
        None => Draft::new(
            LAST_RUN_VERIFIED,
            Status::Unknown,
            &NO_RUN_YET,
            "no run has ended yet",
        ),
        Some(result) if result == VERIFIED.name => Draft::new(
            LAST_RUN_VERIFIED,
            true,
            &LAST_VERIFIED,
            "the last run verified every file it read",
        ),
        Some(result) => {
            let message = format!("the last run ended with {result}");
            Draft::new(LAST_RUN_VERIFIED, false, &LAST_NOT_VERIFIED, message)
        }
    }
}

/// Events of what a new status is the first to tell.
pub fn events(
    seen: &Observed,
    new: &ChecksumScheduleStatus,
    outcome: Result<&Plan, &Failure>,
    now: Timestamp,
) -> Vec<EventDraft> {
    let plan = outcome.map_or_else(Failure::plan, Some);
    // Where a run is made for a slot, these go with it.
    let given_up = plan.filter(|plan| plan.start.iter().all(|start| start.slot.is_none()));
    let missed = given_up.and_then(|plan| plan.missed.as_ref()).map(missed);
    let failed = outcome
        .err()
        .and_then(|failure| event_of_failure(&seen.status, new, failure));
    let ended = events_of_results(seen, now);
    ended.into_iter().chain(missed).chain(failed).collect()
}

/// The event of a pass that failed.
fn event_of_failure(
    old: &ChecksumScheduleStatus,
    new: &ChecksumScheduleStatus,
    failure: &Failure,
) -> Option<EventDraft> {
    let (class, reason) = (failure.class(), reason_of(failure));
    failure::event(class, reason, &old.conditions, &new.conditions)
}

/// The event of a run that was deleted for another one.
pub fn event_of_replacement(run: &Doomed) -> EventDraft {
    let note = format!("deleted the active run {}", run.name);
    about_run(false, &RUN_REPLACED, &run.name, note)
}

/// Events of a run that was made; for a slot, also of those that it is made instead of: they are dealt with by it.
pub fn events_of_start(plan: &Plan, start: &Start) -> Vec<EventDraft> {
    let note = format!("started {}", start.name);
    let started = about_run(false, &RUN_STARTED, &start.name, note);
    let missed = start.slot.and(plan.missed.as_ref()).map(missed);
    iter::once(started).chain(missed).collect()
}

fn missed(missed: &Missed) -> EventDraft {
    let Missed { count, last } = missed;
    let (some, count) = if *count > MISSED_LIMIT {
        ("more than ", MISSED_LIMIT)
    } else {
        ("", *count)
    };
    EventDraft {
        warning: true,
        reason: &SLOTS_MISSED,
        note: format!("{some}{count} slots passed without a run, the last at {last}"),
        related: None,
    }
}

/// Events of runs that ended since the status told of results last.
fn events_of_results(seen: &Observed, now: Timestamp) -> Vec<EventDraft> {
    seen.untold(now)
        .map(|(run, ended)| {
            let warning = ended.result != VERIFIED.name;
            let note = format!("{} ended with {}", run.name, ended.result);
            about_run(warning, &RUN_ENDED, &run.name, note)
        })
        .collect()
}

/// Naming the run keeps events of different runs apart: those about the same things are counted together.
fn about_run(warning: bool, reason: &'static Reason, run: &str, note: String) -> EventDraft {
    let related = ObjectReference {
        api_version: Some(ChecksumRun::api_version(&()).into()),
        kind: Some(ChecksumRun::kind(&()).into()),
        name: Some(run.into()),
        ..ObjectReference::default()
    };
    EventDraft {
        warning,
        reason,
        note,
        related: Some(related),
    }
}

#[cfg(test)]
mod tests {
    use crds::condition::{RECONCILING, find};

    use super::{
        super::{fixture::schedule, plan, plan::Run},
        *,
    };
    use crate::{class::ApiError, object::Key};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn seen() -> Observed {
        Observed {
            name: "nightly".into(),
            created: at("2026-11-01T00:00:00Z"),
            generation: 1,
            token: None,
            status: ChecksumScheduleStatus::default(),
            runs: Vec::new(),
        }
    }

    fn ended(name: &str, result: &str, when: &str) -> Run {
        Run {
            name: name.into(),
            uid: name.into(),
            created: at("2026-11-16T03:00:00Z"),
            deleting: false,
            slot: None,
            token: None,
            ended: Some(Ended {
                result: result.into(),
                at: at(when),
            }),
            keep: None,
        }
    }

    fn planned(seen: &Observed, now: &str) -> Plan {
        plan::plan(&plan::validate(&schedule().spec).unwrap(), seen, at(now))
    }

    #[test]
    fn a_start_that_failed_is_still_promised() {
        let (seen, now) = (seen(), "2026-11-16T03:00:05Z");
        let key = Key {
            namespace: "ns".into(),
            name: "nightly-2611160300".into(),
        };
        let failure = Failure::Act {
            error: act::Error::NameTaken {
                kind: "ChecksumRun".into(),
                key,
            },
            plan: Box::new(planned(&seen, now)),
        };
        let told = status(&seen, false, Err(&failure), at(now));
        assert_eq!(told.next_schedule_time, Some(at("2026-11-16T03:00:00Z")));
        assert_eq!(told.last_schedule_time, None);
        let ready = find(&told.conditions, READY).unwrap();
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_str()),
            ("False", "NameTaken")
        );
        let after = Observed {
            status: told,
            ..seen
        };
        assert_eq!(planned(&after, "2026-11-16T03:05:00Z").start.len(), 1);
    }

    fn refused(plan: Plan) -> Failure {
        let status = kube::core::Status {
            code: 403,
            message: "exceeded quota: runs".into(),
            ..kube::core::Status::default()
        };
        let error = act::Error::Request {
            what: "create ChecksumRun ns/x".into(),
            source: ApiError::from(kube::Error::Api(Box::new(status))),
        };
        Failure::Act {
            error,
            plan: Box::new(plan),
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words() {
        let failure = refused(planned(&seen(), "2026-11-16T03:00:05Z"));
        let [ready, reconciling] = &failed(&failure)[..] else {
            panic!("two conditions");
        };
        assert_eq!(
            ready.message,
            "failed to create ChecksumRun ns/x: exceeded quota: runs"
        );
        assert_eq!(
            (ready.reason, reconciling.type_),
            (&RUN_REFUSED, RECONCILING)
        );
        let now = at("2026-11-16T03:00:05Z");
        let mut seen = seen();
        for reasons in [&["RunRefused"][..], &[]] {
            let told = status(&seen, false, Err(&failure), now);
            let event = event_of_failure(&seen.status, &told, &failure);
            let reason = event.iter().map(|event| event.reason.name);
            assert_eq!(reason.collect::<Vec<_>>(), reasons, "once");
            seen.status = told;
        }
    }

    #[test]
    fn of_two_runs_that_ended_together_the_worse_is_told() {
        let mut seen = seen();
        for (name, result) in [("a", "Verified"), ("b", "DamageFound"), ("c", "Verified")] {
            seen.runs.push(ended(name, result, "2026-11-16T04:00:00Z"));
        }
        let plan = planned(&seen, "2026-11-16T05:00:00Z");
        let told = status(&seen, false, Ok(&plan), at("2026-11-16T05:00:00Z"));
        assert_eq!(told.last_result.as_deref(), Some("DamageFound"));
        let verified = find(&told.conditions, LAST_RUN_VERIFIED).unwrap();
        assert_eq!(verified.status, "False");
    }

    #[test]
    fn the_end_of_a_run_is_told_even_when_a_later_one_was_told_before() {
        let mut seen = seen();
        seen.status.last_result_time = Some(at("2026-11-16T04:00:02Z"));
        seen.status.active = vec![ActiveRun { name: "a".into() }];
        seen.runs = vec![
            ended("a", "DamageFound", "2026-11-16T04:00:00Z"),
            ended("b", "Verified", "2026-11-16T04:00:02Z"),
        ];
        let events = events_of_results(&seen, at("2026-11-16T05:00:00Z"));
        assert_eq!(events.len(), 1);
        assert!(events[0].warning && events[0].note == "a ended with DamageFound");
    }

    /// What a pass tells, with its events, and what the next one sees.
    fn told(seen: &mut Observed, outcome: Result<&Plan, &Failure>, now: &str) -> Vec<String> {
        let new = status(seen, false, outcome, at(now));
        let notes = events(seen, &new, outcome, at(now));
        seen.status = new;
        notes.into_iter().map(|event| event.note).collect()
    }

    #[test]
    fn a_run_that_has_ended_is_told_once_and_is_not_active_while_passes_fail() {
        let now = "2026-11-16T05:00:00Z";
        let mut seen = seen();
        seen.status.active = vec![ActiveRun { name: "a".into() }];
        seen.status.active_count = 1;
        let mut going_on = ended("b", "", now);
        going_on.ended = None;
        seen.runs = vec![ended("a", "Verified", "2026-11-16T04:00:00Z"), going_on];
        let unusable = plan::validate(&{
            let mut spec = schedule().spec;
            spec.time_zone.0 = "Atlantis".into();
            spec
        });
        let failures = [
            Failure::Invalid(unusable.unwrap_err()),
            refused(planned(&seen, now)),
        ];
        for failure in &failures {
            let mut seen = seen.clone();
            assert_eq!(
                told(&mut seen, Err(failure), now)[0],
                "a ended with Verified"
            );
            assert_eq!(
                (&*seen.status.active[0].name, seen.status.active_count),
                ("b", 1)
            );
            assert_eq!(told(&mut seen, Err(failure), now), [] as [&str; 0]);
        }
    }

    #[test]
    fn slots_that_were_missed_are_told_once_whatever_fails() {
        let now = "2026-11-16T05:00:00Z";
        let missed_two = Missed {
            count: 2,
            last: at("2026-11-15T03:00:00Z"),
        };
        let mut plan = planned(&seen(), "2026-11-16T03:00:05Z");
        plan.missed = Some(missed_two);
        let with_run = events_of_start(&plan, &plan.start[0]);
        assert_eq!(
            with_run.len(),
            2,
            "the run, and what it was made instead of"
        );
        let told = |plan: &Plan| events(&seen(), &seen().status, Ok(plan), at(now)).len();
        assert_eq!(told(&plan), 0, "they were told with the run");
        let mut nothing = plan.clone();
        nothing.start.clear();
        assert_eq!(told(&nothing), 1);
        let by_hand = Start {
            slot: None,
            ..plan.start[0].clone()
        };
        assert_eq!(events_of_start(&plan, &by_hand).len(), 1);
        plan.start = vec![by_hand];
        assert_eq!(told(&plan), 1);

        let reasons = |plan: &Plan| {
            let failure = refused(plan.clone());
            let new = status(&seen(), false, Err(&failure), at(now));
            let events = events(&seen(), &new, Err(&failure), at(now));
            let reasons = events.iter().map(|event| event.reason.name);
            reasons.collect::<Vec<_>>()
        };
        assert_eq!(reasons(&plan), ["SlotsMissed", "RunRefused"]);
        plan.start[0].slot = Some(at("2026-11-16T03:00:00Z"));
        assert_eq!(reasons(&plan), ["RunRefused"], "they go with its run");
    }

    #[test]
    fn an_end_far_in_the_future_hides_no_later_one() {
        let now = "2026-11-16T05:00:00Z";
        let mut seen = seen();
        seen.status.last_result_time = Some(at("2036-01-01T00:00:00Z"));
        seen.status.last_successful_time = seen.status.last_result_time;
        seen.status.last_result = Some("Verified".into());
        seen.runs = vec![ended("a", "DamageFound", "2026-11-16T04:00:00Z")];
        seen.status.active = vec![ActiveRun { name: "a".into() }];
        let plan = planned(&seen, now);
        assert_eq!(
            told(&mut seen, Ok(&plan), now),
            ["a ended with DamageFound"]
        );
        assert_eq!(seen.status.last_result.as_deref(), Some("DamageFound"));
        assert_eq!(
            seen.status.last_result_time,
            Some(at("2026-11-16T04:00:00Z"))
        );

        // A run that ended by such a clock: when it was made is the server's word.
        seen.runs = vec![ended("b", "Verified", "2036-01-01T00:00:00Z")];
        seen.runs[0].created = at("2026-11-16T04:30:00Z");
        let plan = planned(&seen, now);
        assert_eq!(told(&mut seen, Ok(&plan), now), ["b ended with Verified"]);
        assert_eq!(
            seen.status.last_successful_time,
            Some(at("2026-11-16T04:30:00Z"))
        );
        assert_eq!(told(&mut seen, Ok(&plan), now), [] as [&str; 0]);
    }

    #[test]
    fn an_end_by_a_clock_that_was_wrong_is_not_told_again_when_its_time_has_come() {
        let mut seen = seen();
        let (early, late) = ("2026-11-16T04:30:00Z", "2026-11-16T09:00:00Z");
        let run = |name: &str, result: &str, created: &str, when: &str| Run {
            created: at(created),
            ..ended(name, result, when)
        };
        // One clock was ahead, and the next one behind.
        let ahead = run("a", "Verified", "2026-11-16T03:00:00Z", late);
        let behind = run("b", "DamageFound", early, "2026-11-16T01:00:00Z");
        seen.runs.push(ahead);
        let now = "2026-11-16T04:00:00Z";
        let plan = planned(&seen, now);
        assert_eq!(told(&mut seen, Ok(&plan), now), ["a ended with Verified"]);
        seen.runs.push(behind);
        for (now, notes) in [(early, &["b ended with DamageFound"][..]), (late, &[])] {
            let plan = planned(&seen, now);
            assert_eq!(told(&mut seen, Ok(&plan), now), notes);
            assert_eq!(seen.status.last_result.as_deref(), Some("DamageFound"));
        }
    }

    #[test]
    fn a_run_that_could_not_be_replaced_is_still_active() {
        let now = "2026-11-16T03:00:05Z";
        let mut going_on = ended("a", "", now);
        going_on.ended = None;
        let mut seen = seen();
        seen.runs = vec![going_on];
        let mut plan = planned(&seen, now);
        plan.replace = vec![Doomed::from(&seen.runs[0])];
        let told = status(&seen, false, Err(&refused(plan)), at(now));
        assert_eq!((told.active.len(), told.active_count), (1, 1));
    }

    #[test]
    fn many_missed_slots_are_not_counted_to_the_end() {
        let event = missed(&Missed {
            count: MISSED_LIMIT + 1,
            last: at("2026-11-16T03:00:00Z"),
        });
        assert!(
            event.note.starts_with("more than 100 slots"),
            "{}",
            event.note
        );
    }
}
