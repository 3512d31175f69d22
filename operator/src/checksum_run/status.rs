//! What a ChecksumRun tells its users. In: what was observed, planned and done.
//! Out: its status and events. Pure.

#[cfg(test)]
mod tests;

use crds::{
    checksum_run::{
        ChecksumRunStatus,
        reason::{
            CANCELLED, DAMAGE_FOUND, FAILING, INVALID_SPEC, NAME_TAKEN, REFUSED, SNAPSHOTTING,
            STARTING, SUSPENDED,
        },
        status::{CorruptFile, RunState},
    },
    condition::{self, COMPLETE, Draft, READY, RECONCILING, Reason, STALLED, Status},
    name,
    report::checksum::CoordinatorReport,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use runtime::telemetry::chain;

use super::{
    Failure, build,
    config::Validated,
    plan::{GOOD, Observed, Plan, Stage, Told},
    snapshot::Found,
};
use crate::{act, class::Class, failure, fleet::Summary, report::EventDraft};

/// Lists in a status hold at most this many.
const LIST_LIMIT: usize = 20;

/// The longest path that a status holds.
const PATH_LIMIT: usize = 4096;

/// The status after a pass that ended with `outcome`. `agents` is what is known of the pods, while there are some.
pub fn status(
    run: Option<&Validated>,
    generation: i64,
    seen: &Observed,
    agents: Option<&Summary>,
    outcome: Result<&Plan, &Failure>,
    now: Timestamp,
) -> ChecksumRunStatus {
    let mut status = seen.status.clone();
    status.observed_generation = generation;
    if let Some(run) = run.filter(|run| run.redis().is_some()) {
        status.workers = Some(seen.ready_workers());
        status.selector = Some(selector(run));
    }
    if seen.is_over() {
        if matches!(seen.snapshot, Found::Absent | Found::NoKind) {
            status.snapshot = None;
        }
        return over(status, generation);
    }
    if let Some(run) = run
        && (has_snapshot(run, seen) || makes_snapshot(outcome))
    {
        status.snapshot = Some(name::checksum_snapshot(&run.key.name));
    }
    if let Some(report) = seen.report() {
        tell_report(&mut status, &report);
    }
    let mut drafts = match outcome {
        Ok(plan) => {
            tell_plan(&mut status, plan, now);
            drafts(&seen.status, &plan.stage)
        }
        Err(failure) => failed(failure),
    };
    if let Some(agents) = agents {
        drafts.extend([agents.agents_reachable(), agents.clocks_agree()]);
    }
    status.conditions = condition::merge(&seen.status.conditions, &drafts, Some(generation), now);
    status
}

/// Where there is something that was made from the snapshot, nobody looks at it any more; writing down then that there was
/// one may have failed.
fn has_snapshot(run: &Validated, seen: &Observed) -> bool {
    let restored = seen.restored.as_ref().is_some_and(|claim| claim.ours);
    let came_from_it = run.csi().is_some() && (seen.job.is_some() || restored);
    came_from_it || matches!(seen.snapshot, Found::There { .. })
}

fn makes_snapshot(outcome: Result<&Plan, &Failure>) -> bool {
    outcome.is_ok_and(|plan| plan.snapshot.is_some())
}

fn selector(run: &Validated) -> String {
    let labels = build::worker_labels(run);
    let words = labels.iter().map(|(name, value)| format!("{name}={value}"));
    words.collect::<Vec<_>>().join(",")
}

/// What was told at the end stays; there are no agents any more. A release that could not read the run may have told
/// something else meanwhile: the result is in Complete, which is nobody else's.
fn over(mut status: ChecksumRunStatus, generation: i64) -> ChecksumRunStatus {
    let Some(complete) = condition::find(&status.conditions, COMPLETE).cloned() else {
        return status;
    };
    let good = GOOD.iter().any(|good| good.name == complete.reason);
    let told = |type_: &str, holds: bool| {
        let holds = Status::from(holds);
        let before = condition::find(&status.conditions, type_);
        let since = before.filter(|before| before.status == holds.as_str());
        let since = since.map_or(&complete.last_transition_time, |c| &c.last_transition_time);
        Condition {
            type_: type_.into(),
            status: holds.as_str().into(),
            last_transition_time: since.clone(),
            observed_generation: Some(generation),
            ..complete.clone()
        }
    };
    let mut all = vec![told(READY, good), told(COMPLETE, true)];
    all.extend((!good).then(|| told(STALLED, true)));
    let is_told = |type_: &str| all.iter().any(|told| told.type_ == type_);
    status.conditions.retain(|old| is_told(&old.type_));
    for told in all {
        let mut old = status.conditions.iter_mut();
        match old.find(|old| old.type_ == told.type_) {
            Some(old) => *old = told,
            None => status.conditions.push(told),
        }
    }
    status
}

/// Takes over what the coordinator knows. One that has not opened its store knows less than the status.
fn tell_report(status: &mut ChecksumRunStatus, report: &CoordinatorReport) {
    let Some(state) = report.state else {
        return;
    };
    status.state = Some(state);
    status.files = report.files.or(status.files);
    status.unlisted = Some(i64::try_from(report.unlisted).unwrap_or(i64::MAX));
    status.bytes_read = Some(i64::try_from(report.bytes_read).unwrap_or(i64::MAX));
    status.throughput = Some(rate(report.bytes_per_second));
    if let Some(percent) = percent(state, report) {
        status.progress_percent = Some(percent);
        status.progress = Some(format!("{percent}%"));
    }
    let number = |files: u64| i64::try_from(files).unwrap_or(i64::MAX);
    status.damaged = report.damaged.map(number).or(status.damaged);
    status.open_warnings = report.open_warnings.map(number).or(status.open_warnings);
    status.oldest_verification = report.oldest_verification.map(condition::whole_seconds);
    let corrupt = report.corrupt.iter().take(LIST_LIMIT);
    let corrupt: Vec<_> = corrupt.map(shortened).collect();
    if !is_cut(&corrupt, &status.corrupt, report.damaged) {
        status.corrupt = corrupt;
    }
}

/// Whether it is the beginning of a list that is known already: the last words of a pod have little room.
fn is_cut(list: &[CorruptFile], known: &[CorruptFile], damaged: Option<u64>) -> bool {
    let all = damaged.map_or(0, |all| usize::try_from(all).unwrap_or(usize::MAX));
    list.len() < all.min(LIST_LIMIT) && known.len() > list.len() && known.starts_with(list)
}

fn shortened(file: &CorruptFile) -> CorruptFile {
    let cut = file
        .path
        .floor_char_boundary(PATH_LIMIT.min(file.path.len()));
    CorruptFile {
        path: file.path[..cut].into(),
        ..file.clone()
    }
}

/// How much of the selected bytes was read; 100 only when no file is left.
fn percent(state: RunState, report: &CoordinatorReport) -> Option<i32> {
    let files = report.files?;
    match state {
        RunState::Initialised | RunState::Snapshot | RunState::MetadataSync => Some(0),
        RunState::AbortingMetadataSync | RunState::AbortingSnapshot | RunState::Aborted => None,
        RunState::WorkQueue | RunState::CleanUp | RunState::Finished if files.remaining == 0 => {
            Some(100)
        }
        RunState::WorkQueue | RunState::CleanUp | RunState::Finished => {
            let hundredths = u128::from(report.bytes_read) * 100;
            let share = hundredths.checked_div(report.selected_bytes.into());
            Some(i32::try_from(share.unwrap_or(0).min(99)).unwrap_or(99))
        }
    }
}

/// Bytes per second for people: `412Mi/s`.
fn rate(bytes: u64) -> String {
    let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let mut size = bytes;
    let mut unit = 0;
    while size >= 10_000 && unit + 1 < units.len() {
        size /= 1024;
        unit += 1;
    }
    format!("{size}{}/s", units[unit])
}

fn tell_plan(status: &mut ChecksumRunStatus, plan: &Plan, now: Timestamp) {
    let now = condition::whole_seconds(now);
    match &plan.stage {
        Stage::Ended(told) => {
            status.completion_time.get_or_insert(now);
            status.state = ended_state(status.state, told);
            average(status);
        }
        Stage::Working(told) if *told.reason == SNAPSHOTTING => {
            status.start_time.get_or_insert(now);
            status.state = Some(RunState::Snapshot);
        }
        Stage::Working(_) if plan.remove.is_empty() => {
            status.start_time.get_or_insert(now);
            status.state.get_or_insert(RunState::Initialised);
        }
        Stage::Working(_) | Stage::Waiting(_) | Stage::Suspended | Stage::Over => {
            status.state.get_or_insert(RunState::Initialised);
        }
    }
}

/// A run that somebody gave up was aborted; one that failed stays where it was.
fn ended_state(state: Option<RunState>, told: &Told) -> Option<RunState> {
    if *told.reason == CANCELLED {
        return Some(RunState::Aborted);
    }
    let done = GOOD.contains(&told.reason) || *told.reason == DAMAGE_FOUND;
    if done {
        Some(RunState::Finished)
    } else {
        state
    }
}

/// The rate over the whole run: what the last seconds were like tells nobody anything afterwards.
fn average(status: &mut ChecksumRunStatus) {
    let times = status.start_time.zip(status.completion_time);
    let (Some((began, ended)), Some(bytes)) = (times, status.bytes_read) else {
        status.throughput = None;
        return;
    };
    let seconds = ended.duration_since(began).as_secs().max(1);
    status.throughput = Some(rate(u64::try_from(bytes / seconds).unwrap_or_default()));
}

fn drafts(old: &ChecksumRunStatus, stage: &Stage) -> Vec<Draft> {
    match stage {
        // The status tells it already.
        Stage::Over => Vec::new(),
        Stage::Ended(Told { reason, message }) => {
            let good = GOOD.contains(reason);
            let draft = |type_, holds: bool| Draft::new(type_, holds, reason, message.clone());
            let mut drafts = vec![draft(READY, good), draft(COMPLETE, true)];
            drafts.extend((!good).then(|| draft(STALLED, true)));
            drafts
        }
        Stage::Working(Told { reason, message }) => vec![
            Draft::new(READY, Status::Unknown, reason, message.clone()),
            Draft::new(RECONCILING, true, reason, message.clone()),
        ],
        Stage::Waiting(Told { reason, message }) => vec![
            Draft::new(READY, false, reason, message.clone()),
            Draft::new(
                RECONCILING,
                true,
                reason,
                "goes on by itself as soon as it can",
            ),
        ],
        Stage::Suspended => {
            let message = "suspended; nothing is read until spec.suspend is false";
            vec![Draft::new(READY, ready_before(old), &SUSPENDED, message)]
        }
    }
}

/// A suspended run is as ready as it was.
fn ready_before(old: &ChecksumRunStatus) -> Status {
    match condition::find(&old.conditions, READY).map(|c| c.status.as_str()) {
        Some("True") => Status::True,
        Some("False") => Status::False,
        Some(_) | None => Status::Unknown,
    }
}

/// The conditions of an object whose pass failed.
pub fn failed(failure: &Failure) -> Vec<Draft> {
    failure::drafts(failure.class(), reason_of(failure), chain(failure))
}

fn reason_of(failure: &Failure) -> &'static Reason {
    match failure {
        Failure::Undecodable(_) | Failure::Invalid(_) => &INVALID_SPEC,
        Failure::Act(act::Error::NameTaken { .. }) => &NAME_TAKEN,
        Failure::Act(_)
        | Failure::Secrets(_)
        | Failure::Snapshot(_)
        | Failure::Certificates(_)
        | Failure::Overtaken => {
            if failure.class() == Class::Blocked {
                &REFUSED
            } else {
                &FAILING
            }
        }
    }
}

/// The event of a pass that failed.
pub fn event_of_failure(
    old: &ChecksumRunStatus,
    new: &ChecksumRunStatus,
    failure: &Failure,
) -> Option<EventDraft> {
    let (class, reason) = (failure.class(), reason_of(failure));
    failure::event(class, reason, &old.conditions, &new.conditions)
}

/// Events of what changed between two statuses: the beginning, the first damage, what it waits for, and the end.
pub fn events(old: &ChecksumRunStatus, new: &ChecksumRunStatus, stage: &Stage) -> Vec<EventDraft> {
    let event = |warning, reason, note: &str| EventDraft {
        warning,
        reason,
        note: note.into(),
        related: None,
    };
    let mut events = Vec::new();
    if old.start_time.is_none() && new.start_time.is_some() && new.completion_time.is_none() {
        events.push(event(
            false,
            &STARTING,
            "the pods of the run are being started",
        ));
    }
    let damaged = |status: &ChecksumRunStatus| status.files.map_or(0, |files| files.corrupt);
    let is_new = damaged(old) == 0 && damaged(new) > 0;
    let before = condition::find(&old.conditions, READY).map(|c| c.reason.as_str());
    match stage {
        Stage::Ended(Told { reason, message }) => {
            let good = GOOD.contains(reason) || **reason == CANCELLED;
            events.push(event(!good, reason, message));
        }
        Stage::Waiting(Told { reason, message }) if before != Some(reason.name) => {
            events.push(event(true, reason, message));
        }
        Stage::Suspended if before != Some(SUSPENDED.name) => {
            events.push(event(false, &SUSPENDED, "nothing is read"));
        }
        Stage::Working(_) | Stage::Waiting(_) | Stage::Suspended if is_new => {
            let note = format!("{} damaged files so far", damaged(new));
            events.push(event(true, &DAMAGE_FOUND, &note));
        }
        Stage::Working(_) | Stage::Waiting(_) | Stage::Suspended | Stage::Over => {}
    }
    events
}
