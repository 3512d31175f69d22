//! A store that nobody may write to. In: what was observed. Out: what makes it writable. Pure.
//!
//! New volumes of most storage classes belong to root. Kubernetes gives a volume to the group that a pod names as its
//! `fsGroup`, but it does so with all volumes of the pod, and some drivers then mount them differently for everybody:
//! no pod that mounts the source may name one. So a pod does that mounts the store and nothing else.
//!
//! The Job of that pod is the memory of all this. It is made asleep, before the coordinator is removed, wakes when nobody
//! has the volume mounted any more, and stays: a store that is refused once more is somebody else's to mend.

use crds::{
    checksum_run::reason::{STARTING, STORE_REFUSED},
    report::checksum::Explained,
};
use jiff::Timestamp;

use super::{
    super::{
        build,
        config::{Place, Validated},
    },
    Doomed, LOOK_AGAIN, Observed, Plan, Pod,
    stage::{Stage, suspended, told},
    work::{differing, image},
};

/// What a store needs before the coordinator can go on.
pub(super) fn prepare(run: &Validated, seen: &Observed, now: Timestamp) -> Option<Plan> {
    let Place::Claim(claim) = &run.place else {
        return None;
    };
    let made = match &seen.preparation {
        None if seen.store.is_some_and(|claim| claim.ours) && is_refused(seen) => None,
        Some((made, job)) if !job.has_ended() => Some((made, job)),
        None | Some(_) => return None,
    };
    // A pod that has ended may still have its volumes mounted.
    let is_mounted = seen.job.is_some() || seen.coordinators().next().is_some();
    let is_asleep = is_mounted || run.is_suspended();
    let wanted = build::preparation(run, &image(seen), claim, is_asleep);
    let mut plan = Plan::only(stage(run, seen, claim));
    match made {
        None => plan.preparation = differing(wanted, None),
        Some((made, job)) if job.is_as_asked(&wanted) => {
            plan.preparation = differing(wanted, Some(made));
            let coordinator = seen.job.iter();
            plan.remove
                .extend(coordinator.map(|(made, _)| Doomed::Job(made.uid.clone())));
        }
        // Pods that another release asked for cannot be changed. The next coordinator that is refused asks for others.
        Some((made, _)) => plan.remove.push(Doomed::Preparation(made.uid.clone())),
    }
    Some(plan.waking(now + LOOK_AGAIN))
}

fn stage(run: &Validated, seen: &Observed, claim: &str) -> Stage {
    if run.is_suspended() {
        return suspended(run, seen);
    }
    let message = format!("PersistentVolumeClaim {claim} is made writable");
    Stage::Working(told(&STARTING, message))
}

/// Whether the coordinator that runs says that it may not write.
fn is_refused(seen: &Observed) -> bool {
    let alive = seen.coordinators().next().filter(|pod| pod.exit.is_none());
    let waiting = alive
        .and_then(Pod::report)
        .and_then(|report| report.waiting);
    waiting.is_some_and(|Explained { reason, .. }| reason == STORE_REFUSED.name)
}
