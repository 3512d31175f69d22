//! Reads what planning needs. In: caches, Secrets by name, what agents said. Out: [`Observed`].
//! Reads Secrets from the API server where a run refers to some; everything else is in memory.

use std::{collections::BTreeMap, sync::Arc};

use crds::{
    checksum_run::{ChecksumRun, ChecksumRunSpec, reason::SUSPENDED},
    condition::{READY, find},
    name::{self, CHECKSUM_COORDINATOR, CHECKSUM_WORKER},
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde::de::DeserializeOwned;

use super::{
    Context,
    config::{Place, Validated, place, validate},
    credentials::{self, Credentials},
    plan::{Life, Made, Observed, Pod, Restored, Rival, Role, StoreClaim},
    snapshot::{self, Found},
};
use crate::{
    checksum_schedule::observe::schedule_of,
    fleet::{
        Summary,
        summary::{Agent, Config, Contact},
    },
    object::Key,
    secrets,
    watch::{
        Store,
        child::{Child, JobState},
        pod::{Container, SlimPod},
    },
};

/// What the caches know, and nothing that agents said or of credentials.
pub fn cached(context: &Context, run: &ChecksumRun, checked: Option<&Validated>) -> Observed {
    let key = Key::of(run);
    let uid = run.uid().unwrap_or_default();
    let here = |name: String| Key {
        namespace: key.namespace.clone(),
        name,
    };
    let children = here(name::checksum(&key.name));
    let job = ours(&context.jobs, &children, &uid);
    let source = &run.spec.source.persistent_volume_claim.claim_name;
    let store = checked.and_then(|run| match &run.place {
        Place::Claim(claim) => context.claims.get(&here(claim.clone())),
        Place::Database { .. } => None,
    });
    let preparation = here(name::checksum_preparation(&key.name));
    let preparation = ours(&context.jobs, &preparation, &uid);
    Observed {
        status: run.status.clone().unwrap_or_default(),
        image: context.image.clone(),
        source: context
            .claims
            .get(&here(source.clone()))
            .map(|claim| claim.state.clone()),
        store: store.map(|claim| StoreClaim {
            ours: claim.state.is_store,
        }),
        preparation: made_job(context, preparation.as_deref()),
        begun: has_begun(context, run),
        created: created(run),
        // One whose schedule is gone is deleted by Kubernetes.
        scheduled: schedule_of(&run.metadata).is_some(),
        // Whoever has a Job, or is over, waits for nobody.
        rivals: if job.is_some() || run.ended().is_some() {
            Vec::new()
        } else {
            rivals(context, run)
        },
        config: made(context, ours(&context.configs, &children, &uid).as_deref()),
        credentials: Credentials::None,
        copy: None,
        job: made_job(context, job.as_deref()),
        workers: made(
            context,
            ours(
                &context.workers,
                &here(name::checksum_workers(&key.name)),
                &uid,
            )
            .as_deref(),
        ),
        snapshot: Found::Unknown,
        restored: restored(context, &here(name::checksum_snapshot(&key.name)), &uid),
        pods: agents(&pods(context, &key.namespace, &uid), None),
    }
}

fn restored(context: &Context, key: &Key, uid: &str) -> Option<Restored> {
    let claim = context.claims.get(key)?;
    Some(Restored {
        uid: claim.uid.to_string(),
        ours: claim.owner.as_deref() == Some(uid),
        deleting: claim.state.deleting,
    })
}

/// The snapshot of the run, if somebody should look at it.
pub async fn snapshot(
    context: &Context,
    run: &Key,
    uid: &str,
    spec: &ChecksumRunSpec,
    seen: &mut Observed,
) -> Result<(), snapshot::Error> {
    if !seen.wants_snapshot(spec) {
        return Ok(());
    }
    let key = Key {
        namespace: run.namespace.clone(),
        name: name::checksum_snapshot(&run.name),
    };
    seen.snapshot = snapshot::read(&context.client, &key, uid).await?;
    Ok(())
}

/// The child of that name, if the run controls it.
fn ours<S>(store: &Store<Child<S>>, key: &Key, uid: &str) -> Option<Arc<Child<S>>> {
    let child = store.get(key)?;
    (child.owner.as_deref() == Some(uid)).then_some(child)
}

fn made<S>(context: &Context, child: Option<&Child<S>>) -> Option<Made> {
    let child = child?;
    Some(Made {
        uid: child.uid.to_string(),
        applied: context.applied.unchanged(&child.uid, child.stamp),
    })
}

fn made_job(context: &Context, job: Option<&Child<JobState>>) -> Option<(Made, JobState)> {
    Some((made(context, job)?, job?.state.clone()))
}

fn created(run: &ChecksumRun) -> Timestamp {
    let created = run.metadata.creation_timestamp.as_ref();
    created.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// A run with a Job has begun, whether its status tells so yet or not; so has one whose Job is being made.
fn has_begun(context: &Context, run: &ChecksumRun) -> bool {
    let uid = run.uid().unwrap_or_default();
    let key = Key {
        namespace: run.namespace().unwrap_or_default(),
        name: name::checksum(&run.name_any()),
    };
    let told = run.status.as_ref().is_some_and(|s| s.start_time.is_some());
    told || ours(&context.jobs, &key, &uid).is_some()
        || context.turns.has(&key.namespace, &place(run), &uid)
}

/// Other runs of the namespace that have not ended and keep their checksums in the same place. One that cannot be used and
/// has not begun never will.
fn rivals(context: &Context, run: &ChecksumRun) -> Vec<Rival> {
    let (own, namespace) = (place(run), run.namespace());
    let is_rival = |other: &&ChecksumRun| {
        other.namespace() == namespace
            && other.uid() != run.uid()
            && other.metadata.deletion_timestamp.is_none()
            && other.ended().is_none()
            && place(other) == own
    };
    let all = context.runs.all();
    let others = all.iter().filter_map(|cached| cached.0.as_ref().ok());
    others
        .filter(is_rival)
        .map(|other| (other, has_begun(context, other)))
        .filter(|(other, begun)| *begun || validate(other).is_ok())
        .map(|(other, begun)| Rival {
            name: other.name_any(),
            begun,
            created: created(other),
            reason: reason(other),
        })
        .collect()
}

/// Why a run does not go on. That it is suspended is true before its status tells.
fn reason(run: &ChecksumRun) -> Option<String> {
    if run.spec.suspend {
        return Some(SUSPENDED.name.into());
    }
    let ready = find(&run.status.as_ref()?.conditions, READY)?;
    Some(ready.reason.clone())
}

/// The credentials that the run refers to, and those that are mounted.
pub async fn credentials(
    context: &Context,
    run: &Validated,
    seen: &mut Observed,
) -> Result<(), secrets::Error> {
    let names = credentials::secrets(run);
    if names.is_empty() || seen.is_over() {
        return Ok(());
    }
    let here = |name: String| Key {
        namespace: run.key.namespace.clone(),
        name,
    };
    let mut found = BTreeMap::new();
    for name in names {
        let secret = context.secrets.get(&here(name.clone())).await?;
        found.insert(name, secret);
    }
    seen.credentials = credentials::gather(run, &found);
    seen.copy = context
        .secrets
        .get(&here(name::checksum(&run.key.name)))
        .await?;
    Ok(())
}

/// The pods of the run with that UID, the newest first.
pub fn pods(context: &Context, namespace: &str, uid: &str) -> Vec<Arc<SlimPod>> {
    let mut pods = context.pods.owned_by(namespace, uid);
    pods.sort_by(|a, b| (b.created, &b.key.name).cmp(&(a.created, &a.key.name)));
    pods
}

/// What planning needs of the pods and their agents.
pub fn agents(pods: &[Arc<SlimPod>], summary: Option<&Summary>) -> Vec<Pod> {
    let agent_of = |pod: &SlimPod| {
        let mut agents = summary.into_iter().flat_map(|summary| &summary.agents);
        agents.find(|agent| agent.uid == pod.uid)
    };
    pods.iter()
        .filter_map(|pod| Some(observed(pod, role(pod)?, agent_of(pod))))
        .collect()
}

fn role(pod: &SlimPod) -> Option<Role> {
    match pod.agent.as_deref() {
        Some(CHECKSUM_COORDINATOR) => Some(Role::Coordinator),
        Some(CHECKSUM_WORKER) => Some(Role::Worker),
        Some(_) | None => None,
    }
}

fn observed(pod: &SlimPod, role: Role, agent: Option<&Agent>) -> Pod {
    let (heard, works) = match role {
        Role::Coordinator => (said(agent), None),
        Role::Worker => (None, said(agent)),
    };
    let silent_since = agent.and_then(|agent| match &agent.contact {
        Contact::Failing(failing) => Some(failing.since),
        Contact::Reachable | Contact::NotAsked | Contact::NoAddress => None,
    });
    Pod {
        name: pod.key.name.clone(),
        role,
        life: life(pod),
        exit: match &pod.container {
            Container::Ended(exit) => Some(exit.clone()),
            Container::NotStarted | Container::Running => None,
        },
        holdup: pod.holdup.as_deref().map(Into::into),
        heard,
        works,
        heeds: agent.is_some_and(|agent| agent.config == Config::Acknowledged),
        refusal: agent.and_then(|agent| agent.config_problem.clone()),
        behind_since: agent.and_then(|agent| agent.behind_since),
        silent_since,
    }
}

fn life(pod: &SlimPod) -> Life {
    match pod.container {
        _ if pod.ended => Life::Over,
        Container::NotStarted => Life::NotStarted,
        Container::Running | Container::Ended(_) if pod.ready => Life::Ready,
        Container::Running | Container::Ended(_) => Life::Started,
    }
}

/// The agent's part of the last that it said.
fn said<T: DeserializeOwned>(agent: Option<&Agent>) -> Option<T> {
    let heard = agent?.heard.as_ref()?;
    T::deserialize(&heard.report.detail).ok()
}
