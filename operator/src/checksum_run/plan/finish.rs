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
    super::{config::Validated, snapshot::Found},
    Doomed, GOOD, LOOK_AGAIN, Observed, Plan, Pod,
    stage::{Stage, told},
    work::work,
};

/// How long an agent that does not answer is given to end a run that was cancelled.
const CANCEL_PATIENCE: SignedDuration = SignedDuration::from_mins(1);

/// After the end: workers go, the Job stays for its log, the run itself goes when its time is over.
pub(super) fn over(run: &Validated, seen: &Observed, now: Timestamp) -> Plan {
    let mut plan = Plan::only(Stage::Over);
    let workers = seen.workers.iter();
    plan.remove = workers
        .map(|made| Doomed::Workers(made.uid.clone()))
        .collect();
    let preparation = seen.preparation.iter().filter(|(_, job)| !job.has_ended());
    plan.remove
        .extend(preparation.map(|(made, _)| Doomed::Preparation(made.uid.clone())));
    if run.csi().is_some() && seen.status.snapshot.is_some() && !keeps(run, seen) {
        plan.remove.extend(leftover(seen));
        plan = plan.waking(now + LOOK_AGAIN);
    }
    let end = run.keep.zip(seen.status.completion_time);
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
pub(super) fn keeps(run: &Validated, seen: &Observed) -> bool {
    let result = find(&seen.status.conditions, COMPLETE).map(|c| c.reason.as_str());
    let good = result.is_some_and(|result| GOOD.iter().any(|good| good.name == result));
    let stops = [StopAfter::Snapshot, StopAfter::WorkQueue];
    let stops = run.spec.stop_after.is_some_and(|at| stops.contains(&at));
    stops || (run.spec.keep_snapshot_on_failure && !good)
}

/// A coordinator that can ends the run itself, and removes what it left in the store. Where there is none, or it
/// cannot, the Job goes; the next run on the store gives this one up.
pub(super) fn cancelled(run: &Validated, seen: &Observed, now: Timestamp) -> Plan {
    let Some((made, _)) = &seen.job else {
        return without_job(seen);
    };
    let newest = seen.coordinators().find(|pod| pod.exit.is_none());
    if newest.is_some_and(|pod| will_cancel(pod, now)) {
        return work(run, seen, now);
    }
    let mut plan = Plan::only(Stage::Working(told(
        &STARTING,
        "cancelled; the coordinator cannot end the run, so its pod is removed",
    )));
    plan.remove.push(Doomed::Job(made.uid.clone()));
    plan
}

/// A cancelled run whose Job was never made, or is gone.
fn without_job(seen: &Observed) -> Plan {
    let is_alive = seen.coordinators().any(|pod| pod.exit.is_none());
    Plan::only(if is_alive {
        let message = "cancelled; waiting for the pods to end";
        Stage::Working(told(&STARTING, message))
    } else {
        Stage::Ended(told(&CANCELLED, "cancelled before it was finished"))
    })
}

/// A run with a field that cannot be used has one thing left to ask for: its end.
pub fn without_spec(spec: &ChecksumRunSpec, seen: &Observed) -> Option<Plan> {
    if spec.cancel != Some(true) || seen.job.is_some() {
        return None;
    }
    Some(if seen.is_over() {
        Plan::only(Stage::Over)
    } else {
        without_job(seen)
    })
}

fn will_cancel(pod: &Pod, now: Timestamp) -> bool {
    let silent = pod
        .silent_since
        .is_some_and(|since| now.duration_since(since) > CANCEL_PATIENCE);
    let waits = pod
        .heard
        .as_ref()
        .is_some_and(|report| report.waiting.is_some());
    pod.started && !silent && !(pod.heeds && waits)
}
