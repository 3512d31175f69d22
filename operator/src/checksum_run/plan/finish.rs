//! Runs that are over, or given up. In: the run, what was observed, the time. Out: what is removed, and when the run itself
//! goes. Pure.

use crds::{
    checksum_run::{
        ChecksumRunSpec, StopAfter,
        reason::{CANCELLED, STARTING},
    },
    condition::{COMPLETE, find},
};
use jiff::{SignedDuration, Timestamp};

use super::{
    super::{
        config::{self, Validated},
        snapshot::Found,
    },
    Doomed, GOOD, LOOK_AGAIN, Life, Observed, Plan, Pod,
    stage::{Stage, end, told},
    work::work,
};

/// How long an agent that does not answer, or does not take up what it is told, is given to end a run that was cancelled.
const CANCEL_PATIENCE: SignedDuration = SignedDuration::from_mins(1);

/// A run that has ended, or ends now by itself.
pub(super) fn finished(
    spec: &ChecksumRunSpec,
    keep: Option<SignedDuration>,
    seen: &Observed,
    now: Timestamp,
) -> Option<Plan> {
    if seen.is_over() {
        return Some(over(spec, keep, seen, now));
    }
    end(seen).map(|end| Plan::only(Stage::Ended(end)))
}

/// After the end: workers go, the Job stays for its log, the run itself goes when its time is over.
fn over(
    spec: &ChecksumRunSpec,
    keep: Option<SignedDuration>,
    seen: &Observed,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::only(Stage::Over);
    let workers = seen.workers.iter();
    plan.remove = workers
        .map(|made| Doomed::Workers(made.uid.clone()))
        .collect();
    let preparation = seen.preparation.iter().filter(|(_, job)| !job.has_ended());
    plan.remove
        .extend(preparation.map(|(made, _)| Doomed::Preparation(made.uid.clone())));
    if spec.source.csi().is_some() && seen.status.snapshot.is_some() && !keeps(spec, seen) {
        plan.remove.extend(leftover(seen));
        plan = plan.waking(now + LOOK_AGAIN);
    }
    // The schedule deletes its runs itself, and only those of which it has told.
    let keep = keep.filter(|_| !seen.scheduled);
    let end = keep.zip(seen.status.completion_time);
    match end.and_then(|(keep, ended)| ended.checked_add(keep).ok()) {
        Some(end) if end <= now => plan.expired = true,
        Some(end) => return plan.waking(end),
        None => {}
    }
    plan
}

/// What is left of the snapshot, and not going already: first the claim, which needs the snapshot.
fn leftover(seen: &Observed) -> Option<Doomed> {
    match (&seen.restored, &seen.snapshot) {
        (Some(claim), _) if claim.ours && !claim.deleting => {
            Some(Doomed::Restored(claim.uid.clone()))
        }
        (
            None,
            Found::There {
                uid,
                deleting: false,
                ..
            },
        ) => Some(Doomed::Snapshot(uid.clone())),
        (Some(_) | None, _) => None,
    }
}

/// Whether the snapshot stays until the run is deleted: on request, or because that is where the run should stop.
pub(super) fn keeps(spec: &ChecksumRunSpec, seen: &Observed) -> bool {
    let result = find(&seen.status.conditions, COMPLETE).map(|c| c.reason.as_str());
    let good = result.is_some_and(|result| GOOD.iter().any(|good| good.name == result));
    let stops = [StopAfter::Snapshot, StopAfter::WorkQueue];
    let stops = spec.stop_after.is_some_and(|at| stops.contains(&at));
    stops || (spec.keep_snapshot_on_failure && !good)
}

/// A coordinator that can ends the run itself, and removes what it left in the store.
pub(super) fn cancelled(run: &Validated, seen: &Observed, now: Timestamp) -> Plan {
    let newest = seen.coordinators().find(|pod| pod.is_alive());
    if seen.job.is_some() && newest.is_some_and(|pod| will_cancel(pod, now)) {
        return work(run, seen, now);
    }
    given_up(seen)
}

/// Where there is no coordinator, or it cannot end the run, the Job goes; the next run on the store gives this one up.
fn given_up(seen: &Observed) -> Plan {
    let Some((made, _)) = &seen.job else {
        return without_job(seen);
    };
    let mut plan = Plan::only(Stage::Working(told(
        &STARTING,
        "cancelled; the coordinator cannot end the run, so its pod is removed",
    )));
    plan.remove.push(Doomed::Job(made.uid.clone()));
    plan
}

/// A cancelled run whose Job was never made, or is gone.
fn without_job(seen: &Observed) -> Plan {
    let is_alive = seen.coordinators().any(Pod::is_alive);
    Plan::only(if is_alive {
        let message = "cancelled; waiting for the pods to end";
        Stage::Working(told(&STARTING, message))
    } else {
        Stage::Ended(told(&CANCELLED, "cancelled before it was finished"))
    })
}

/// A run with a field that cannot be used has one thing left to ask for: its end. Its coordinator is not told: nobody can
/// make a configuration of such a spec.
pub fn without_spec(spec: &ChecksumRunSpec, seen: &Observed, now: Timestamp) -> Option<Plan> {
    let keep = config::keep(spec).ok().flatten();
    let cancelled = || (spec.cancel == Some(true)).then(|| given_up(seen));
    finished(spec, keep, seen, now).or_else(cancelled)
}

fn will_cancel(pod: &Pod, now: Timestamp) -> bool {
    let long = |since: Option<Timestamp>| {
        since.is_some_and(|since| now.duration_since(since) > CANCEL_PATIENCE)
    };
    // One that answers and does not take it up will no more end the run than one that is silent.
    let deaf = long(pod.silent_since) || (!pod.heeds && long(pod.behind_since));
    let waits = pod
        .heard
        .as_ref()
        .is_some_and(|report| report.waiting.is_some());
    pod.life != Life::NotStarted && !deaf && !(pod.heeds && waits)
}
