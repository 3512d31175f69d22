#![expect(
    clippy::disallowed_methods,
    reason = "a load generator writes, and looks at what became of it"
)]
//! In: a namespace. Out: parents, changes of them, and whether they were carried out.
//! Touches: objects of that namespace.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, Result, ensure};
use crds::{
    checksum_schedule::ChecksumSchedule,
    condition::{READY, find},
};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use operator::{
    object::{Key, owner_uid},
    watch::{Cached, Store, pod::version},
};
use runtime::tasks::TaskGroup;
use serde_json::json;
use testbed::{Access, wait::eventually};
use tokio::time::timeout;

use super::{PARENTS, watchers::follow};

/// How many requests are under way at once.
const AT_ONCE: usize = 32;

/// Bound for a step of a round, over all parents; ten seconds are usual.
const CARRIED_OUT: Duration = Duration::from_mins(3);

/// The parents, and what is seen of them and their children.
pub(super) struct Load {
    parents: Api<ChecksumSchedule>,
    children: Api<ConfigMap>,
    told: Store<Shown>,
    made: Store<Shown>,
    _watches: TaskGroup,
}

impl Load {
    /// No parents yet, but eyes on the namespace.
    pub(super) async fn new(cluster: &Access, namespace: &str) -> Result<Self> {
        let client = cluster.client().await?;
        let mut watches = TaskGroup::new(2);
        let within = Some(namespace);
        Ok(Self {
            told: follow(&mut watches, &client, within, None, told)?,
            made: follow(&mut watches, &client, within, None, made)?,
            parents: Api::namespaced(client.clone(), namespace),
            children: Api::namespaced(client, namespace),
            _watches: watches,
        })
    }

    /// Creates the parents, and waits for their children.
    pub(super) async fn create(&self) -> Result<()> {
        self.for_every_parent(async |n| {
            let parent = serde_json::from_value(parent(n, 0))?;
            self.parents.create(&PostParams::default(), &parent).await?;
            Ok(())
        })
        .await?;
        self.carried_out(0).await
    }

    /// Changes every parent, and waits until every child and every status tells of it.
    pub(super) async fn change(&self, round: usize) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"schedule": schedule(round)}}));
        self.for_every_parent(async |n| {
            let params = PatchParams::default();
            self.parents.patch(&name(n), &params, &patch).await?;
            Ok(())
        })
        .await?;
        self.carried_out(round).await
    }

    async fn for_every_parent(&self, request: impl AsyncFn(usize) -> Result<()>) -> Result<()> {
        let requests = stream::iter(0..PARENTS).map(|n| request(n));
        let all = requests.buffer_unordered(AT_ONCE).try_collect();
        timeout(CARRIED_OUT, all)
            .await
            .context("requests take too long")?
    }

    async fn carried_out(&self, round: usize) -> Result<()> {
        let wanted = schedule(round);
        let showing = |store: &Store<Shown>| {
            let all = store.all();
            all.iter()
                .filter(|it| it.shows.as_deref() == Some(&wanted))
                .count()
        };
        eventually(
            "every child and status to show the change",
            CARRIED_OUT,
            async || {
                let (made, told) = (showing(&self.made), showing(&self.told));
                ensure!(
                    made == PARENTS && told == PARENTS,
                    "{made} children, {told} statuses"
                );
                Ok(Some(()))
            },
        )
        .await
    }

    /// Asks the server itself whether everything is as it should be after the given round.
    pub(super) async fn verify(&self, round: usize) -> Result<()> {
        let params = ListParams::default();
        let lists =
            async { tokio::try_join!(self.parents.list(&params), self.children.list(&params)) };
        let lists = timeout(CARRIED_OUT, lists).await;
        let (parents, children) = lists.context("lists take too long")??;
        ensure!(
            parents.items.len() == PARENTS,
            "{} parents",
            parents.items.len()
        );
        let children: HashMap<_, _> = children.iter().map(|it| (it.name_any(), it)).collect();
        for parent in parents {
            let name = parent.name_any();
            let child = children.get(&name);
            let child = child.with_context(|| format!("{name} has no child"))?;
            check(&parent, child, &schedule(round)).with_context(|| format!("{name} is wrong"))?;
        }
        Ok(())
    }
}

fn check(parent: &ChecksumSchedule, child: &ConfigMap, schedule: &str) -> Result<()> {
    let owned = owner_uid(child) == parent.meta().uid.as_deref();
    ensure!(owned, "its child belongs to somebody else");
    let wanted = [
        ("claimName", "home"),
        ("schedule", schedule),
        ("timeZone", "UTC"),
    ];
    let held: Vec<_> = child.data.iter().flatten().collect();
    ensure!(
        held.iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .eq(wanted),
        "its child holds {held:?}"
    );
    let told = told(parent.clone());
    ensure!(
        told.shows.as_deref() == Some(schedule),
        "its status is {:?}",
        parent.status
    );
    Ok(())
}

fn name(n: usize) -> String {
    format!("parent-{n:04}")
}

/// What a parent's spec says after a round of changes.
fn schedule(round: usize) -> String {
    format!("{} 3 * * *", round % 60)
}

fn parent(n: usize, round: usize) -> serde_json::Value {
    json!({
        "apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumSchedule", "metadata": {"name": name(n)},
        "spec": {
            "schedule": schedule(round), "timeZone": "UTC",
            "template": {"spec": {"source": {"persistentVolumeClaim": {"claimName": "home"}}}},
        },
    })
}

/// An object and the schedule that it shows to be carried out.
#[derive(Debug)]
struct Shown {
    key: Key,
    uid: String,
    version: u64,
    shows: Option<String>,
}

impl Shown {
    fn new(object: &impl Resource, shows: Option<String>) -> Self {
        Self {
            key: Key::of(object),
            uid: object.meta().uid.clone().unwrap_or_default(),
            version: version(object),
            shows,
        }
    }
}

impl Cached for Shown {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn owner(&self) -> Option<&str> {
        None
    }

    fn version(&self) -> u64 {
        self.version
    }
}

/// A status shows the schedule if it speaks of this generation, and is good.
#[expect(
    clippy::needless_pass_by_value,
    reason = "what is not kept is dropped here"
)]
fn told(parent: ChecksumSchedule) -> Shown {
    let status = parent.status.as_ref();
    let current =
        status.filter(|status| Some(status.observed_generation) == parent.metadata.generation);
    let ready = current.and_then(|status| find(&status.conditions, READY));
    let good = ready.is_some_and(|ready| {
        ready.status == "True" && ready.observed_generation == parent.metadata.generation
    });
    let schedule = parent.spec.schedule.to_string();
    Shown::new(&parent, good.then_some(schedule))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "what is not kept is dropped here"
)]
fn made(child: ConfigMap) -> Shown {
    let shows = child.data.as_ref().and_then(|data| data.get("schedule"));
    Shown::new(&child, shows.cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A parent after the first round, and its child.
    fn family() -> (ChecksumSchedule, ConfigMap) {
        let mut parent = parent(0, 1);
        parent["metadata"] = json!({"name": "p", "uid": "u", "generation": 2});
        parent["status"] = json!({"observedGeneration": 2, "conditions": [{
            "type": "Ready", "status": "True", "reason": "Applied", "message": "", "observedGeneration": 2,
            "lastTransitionTime": "2026-11-16T00:00:00Z"}]});
        let owner =
            json!({"apiVersion": "", "kind": "", "name": "p", "uid": "u", "controller": true});
        let child = json!({"metadata": {"name": "p", "ownerReferences": [owner]},
            "data": {"schedule": schedule(1), "timeZone": "UTC", "claimName": "home"}});
        let read = "readable";
        (
            serde_json::from_value(parent).expect(read),
            serde_json::from_value(child).expect(read),
        )
    }

    #[test]
    fn work_that_was_done_is_found_to_be_done() {
        let (parent, child) = family();
        check(&parent, &child, &schedule(1)).unwrap();
    }

    #[test]
    fn work_that_was_not_done_is_found_out() {
        let (parent, child) = family();
        assert!(check(&parent, &child, &schedule(2)).is_err());
        let mut late = parent.clone();
        late.metadata.generation = Some(3);
        assert!(check(&late, &child, &schedule(1)).is_err());
        let mut strange = child.clone();
        strange.metadata.owner_references = None;
        assert!(check(&parent, &strange, &schedule(1)).is_err());
        let mut more = child;
        more.data
            .get_or_insert_default()
            .insert("x".into(), "y".into());
        assert!(check(&parent, &more, &schedule(1)).is_err());
    }
}
