//! Everything that a run needs which goes on. In: the run, and what was observed. Out: objects that are not what they
//! should be. Pure.

use crds::{checksum_run::status::RunState, name};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde::Serialize;

use super::{
    super::{
        build,
        config::{Place, Validated},
        credentials::{Credentials, Files},
        pod::{Image, Mounts, Together},
        snapshot::Found,
    },
    Apply, Made, Observed, Plan,
    stage::stage,
};
use crate::{
    object::digest,
    secrets::{self, Content},
};

/// Everything that a run needs which goes on.
pub(super) fn work(run: &Validated, seen: &Observed, now: Timestamp) -> Plan {
    let mut plan = Plan::only(stage(run, seen));
    if let Place::Claim(name) = &run.place
        && seen.store.is_none()
    {
        plan.store = Some(build::store_claim(run, name));
    }
    if run.csi().is_some() && seen.restored.is_none() {
        let least = match &seen.snapshot {
            Found::There { status, .. } => status.restore_size.as_deref(),
            Found::Unknown | Found::NoKind | Found::Absent | Found::Foreign => None,
        };
        plan.restored = Some(build::restored_claim(run, seen.source.as_ref(), least));
    }
    let mounts = mounts(run, seen);
    plan.config = differing(build::config_map(run), seen.config.as_ref());
    plan.job = job(run, seen, &mounts);
    if let Credentials::Known(files) = &seen.credentials {
        plan.credentials = credentials(run, files, seen.copy.as_deref());
        plan = plan.waking(now + secrets::FRESH);
    }
    if run.redis().is_some() {
        let image = image(seen);
        let deployment = build::workers(run, &image, &mounts, replicas(run, seen));
        plan.workers = differing(deployment, seen.workers.as_ref());
    }
    plan
}

fn mounts(run: &Validated, seen: &Observed) -> Mounts {
    let snapshot = run.csi().map(|_| name::checksum_snapshot(&run.key.name));
    let live = seen.source.as_ref().map(|claim| claim.access_modes.clone());
    let restored = snapshot
        .as_ref()
        .map(|_| vec![build::access_mode(run).into()]);
    let together = match (run.redis(), restored.or(live)) {
        (Some(_), Some(modes)) => build::together(&modes),
        (Some(_) | None, _) => Together::Anywhere,
    };
    let claim = &run.spec.source.persistent_volume_claim.claim_name;
    Mounts {
        source: snapshot.unwrap_or_else(|| claim.clone()),
        store: match &run.place {
            Place::Claim(name) => Some(name.clone()),
            Place::Database { .. } => None,
        },
        credentials: seen.credentials != Credentials::None,
        together,
    }
}

/// A run keeps the image it began with.
pub(super) fn image(seen: &Observed) -> Image {
    let began = seen.job.as_ref().or(seen.preparation.as_ref());
    let began = began.and_then(|(_, job)| job.image.as_deref());
    Image {
        name: began.unwrap_or(&seen.image.name).into(),
        ..seen.image.clone()
    }
}

/// A Job that another release asked for is left as it is: its pods cannot be changed.
fn job(run: &Validated, seen: &Observed, mounts: &Mounts) -> Option<Apply<Job>> {
    let wanted = build::job(run, &image(seen), mounts);
    let Some((made, job)) = &seen.job else {
        return differing(wanted, None);
    };
    let same = job.is_as_asked(&wanted);
    differing(wanted, Some(made)).filter(|_| same)
}

pub(super) fn differing<K: Serialize>(object: K, made: Option<&Made>) -> Option<Apply<K>> {
    let applied = made.and_then(|made| made.applied.as_deref());
    if applied == Some(digest(&object).as_str()) {
        return None;
    }
    Some(Apply {
        object,
        known: made.map(|made| made.uid.clone()),
    })
}

fn credentials(run: &Validated, files: &Files, copy: Option<&Content>) -> Option<Apply<Files>> {
    let ours = copy.filter(|copy| copy.owner.as_deref() == Some(&*run.uid));
    if ours.is_some_and(|copy| copy.data == files.0) {
        return None;
    }
    Some(Apply {
        object: files.clone(),
        known: ours.map(|copy| copy.uid.clone()),
    })
}

/// Workers are there while there is something to read.
fn replicas(run: &Validated, seen: &Observed) -> i32 {
    let reading = seen.state() == Some(RunState::WorkQueue) && !run.is_suspended();
    if reading {
        run.spec.workers.replicas
    } else {
        0
    }
}
