//! Objects that controllers make, and claims: a few words each instead of the whole object.
//! In: the API server's JSON. Out: slim records. Pure.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use crds::name::{
    CHECKSUM_CONTAINER, CHECKSUM_RUN_LABEL, CHECKSUMS, MANAGED_BY, MANAGED_BY_LABEL, STORE_LABEL,
    TEMPLATE_ANNOTATION,
};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        batch::v1::Job,
        core::v1::{ConfigMap, PersistentVolumeClaim},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource, ResourceExt};

use super::{Cached, pod::version_of};
use crate::{
    object::{Key, owner_of},
    received::Received,
};

/// What is kept of an object: its metadata in short, and what its kind has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child<S> {
    /// Its name.
    pub key: Key,
    /// Its UID.
    pub uid: Box<str>,
    /// The UID of its controlling owner.
    pub owner: Option<Box<str>>,
    /// The ChecksumRun it is for, by its label.
    pub run: Option<Box<str>>,
    /// Another number whenever somebody changes what the operator asks for; status does not count.
    pub stamp: u64,
    /// What its kind has to tell.
    pub state: S,
    version: u64,
}

impl<S> Child<S> {
    /// Keeps what is needed. Of an object that cannot be read nothing but the metadata is known.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "what is not kept is dropped here"
    )]
    pub fn slim<K>(wire: Received<K>) -> Self
    where
        K: Resource,
        S: Default + for<'a> From<&'a K>,
    {
        let state = wire.0.as_ref().map_or_else(|_| S::default(), S::from);
        Self::new(wire.meta(), state)
    }

    fn new(meta: &ObjectMeta, state: S) -> Self {
        let labels = meta.labels.as_ref();
        Self {
            key: Key {
                namespace: meta.namespace.clone().unwrap_or_default(),
                name: meta.name.clone().unwrap_or_default(),
            },
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            owner: owner_of(meta).map(Into::into),
            run: labels.and_then(|labels| Some(labels.get(CHECKSUM_RUN_LABEL)?.as_str().into())),
            stamp: stamp(meta),
            version: version_of(meta),
            state,
        }
    }

    /// The run that it is for.
    pub fn run(&self) -> Option<Key> {
        Some(Key {
            namespace: self.key.namespace.clone(),
            name: self.run.as_deref()?.into(),
        })
    }
}

/// A generation counts changes of the spec; kinds without one have no status, so that every revision counts.
fn stamp(meta: &ObjectMeta) -> u64 {
    let mut hasher = DefaultHasher::new();
    match meta.generation {
        Some(generation) => generation.hash(&mut hasher),
        None => meta.resource_version.hash(&mut hasher),
    }
    meta.labels.hash(&mut hasher);
    for owner in meta.owner_references.iter().flatten() {
        (&owner.uid, owner.controller).hash(&mut hasher);
    }
    hasher.finish()
}

impl<S> Cached for Child<S> {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    fn version(&self) -> u64 {
        self.version
    }
}

/// A ConfigMap of ours; its content is known by its stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigState;

impl From<&ConfigMap> for ConfigState {
    fn from(_: &ConfigMap) -> Self {
        Self
    }
}

/// What a Job has to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobState {
    /// The image of its agent.
    pub image: Option<Box<str>>,
    /// The digest of its pods as they were asked for.
    pub template: Option<Box<str>>,
    /// Whether a pod of it succeeded.
    pub complete: bool,
    /// Why it was given up.
    pub failed: Option<Box<str>>,
}

impl JobState {
    /// Whether nothing more will come of it.
    pub fn has_ended(&self) -> bool {
        self.complete || self.failed.is_some()
    }

    /// Whether its pods are what is asked for now: if not, another release asked, and they cannot be changed.
    pub fn is_as_asked(&self, wanted: &Job) -> bool {
        annotation(&wanted.metadata, TEMPLATE_ANNOTATION) == self.template
    }
}

impl From<&Job> for JobState {
    fn from(job: &Job) -> Self {
        let conditions = job.status.as_ref().and_then(|s| s.conditions.as_ref());
        let condition = |type_: &str| {
            let mut all = conditions.into_iter().flatten();
            all.find(|c| c.type_ == type_ && c.status == "True")
        };
        let failed = condition("Failed");
        let words = failed.and_then(|c| c.message.clone().or_else(|| c.reason.clone()));
        let pod = job
            .spec
            .as_ref()
            .and_then(|spec| spec.template.spec.as_ref());
        let mut containers = pod.into_iter().flat_map(|pod| &pod.containers);
        let agent = containers.find(|container| container.name == CHECKSUM_CONTAINER);
        Self {
            image: agent.and_then(|agent| Some(agent.image.as_deref()?.into())),
            template: annotation(&job.metadata, TEMPLATE_ANNOTATION),
            complete: condition("Complete").is_some(),
            failed: failed.map(|_| words.unwrap_or_default().into()),
        }
    }
}

fn annotation(meta: &ObjectMeta, name: &str) -> Option<Box<str>> {
    Some(meta.annotations.as_ref()?.get(name)?.as_str().into())
}

/// A Deployment of ours; how many pods are ready is known from the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkersState;

impl From<&Deployment> for WorkersState {
    fn from(_: &Deployment) -> Self {
        Self
    }
}

/// What a claim has to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimState {
    /// How it may be mounted.
    pub access_modes: Vec<String>,
    /// Its storage class.
    pub storage_class: Option<String>,
    /// Its size: what it has, else what it asks for.
    pub size: Option<String>,
    /// Whether it was made to hold the memory of runs.
    pub is_store: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl From<&PersistentVolumeClaim> for ClaimState {
    fn from(claim: &PersistentVolumeClaim) -> Self {
        let spec = claim.spec.clone().unwrap_or_default();
        let storage = |list: Option<&std::collections::BTreeMap<String, _>>| {
            let quantity: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity> =
                list.and_then(|list| list.get("storage"));
            quantity.map(|quantity| quantity.0.clone())
        };
        let capacity = claim.status.as_ref().and_then(|s| s.capacity.as_ref());
        let request = spec.resources.as_ref().and_then(|r| r.requests.as_ref());
        Self {
            access_modes: spec.access_modes.unwrap_or_default(),
            storage_class: spec.storage_class_name,
            size: storage(capacity).or_else(|| storage(request)),
            is_store: is_store(claim.labels()),
            deleting: claim.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// A claim of somebody else may have one of these by chance.
fn is_store(labels: &BTreeMap<String, String>) -> bool {
    let ours = [(STORE_LABEL, CHECKSUMS), (MANAGED_BY_LABEL, MANAGED_BY)];
    ours.iter()
        .all(|(name, value)| labels.get(*name).map(String::as_str) == Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(change: &Value) -> Child<JobState> {
        let mut job = json!({
            "metadata": {"namespace": "ns", "name": "home-checksum", "uid": "u", "resourceVersion": "5", "generation": 1,
                "labels": {"orrery.dev/checksum-run": "home"}, "annotations": {"orrery.dev/template": "abc"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "run", "controller": true}]},
            "spec": {"template": {"spec": {"containers": [{"name": "proxy", "image": "p"}, {"name": "checksum", "image": "i"}]}}},
        });
        merge(&mut job, change);
        Child::slim::<Job>(Received(Ok(serde_json::from_value(job).unwrap())))
    }

    fn merge(into: &mut Value, change: &Value) {
        match (into, change) {
            (Value::Object(into), Value::Object(change)) => {
                for (key, value) in change {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, change) => *into = change.clone(),
        }
    }

    #[test]
    fn a_job_becomes_a_few_words() {
        let job = job(
            &json!({"status": {"conditions": [{"type": "Failed", "status": "True", "message": "too often"}]}}),
        );
        assert_eq!(job.run().unwrap().to_string(), "ns/home");
        assert_eq!(job.owner(), Some("run"));
        assert_eq!(job.state.image.as_deref(), Some("i"));
        assert_eq!(job.state.template.as_deref(), Some("abc"));
        assert_eq!(job.state.failed.as_deref(), Some("too often"));
        assert!(!job.state.complete);
    }

    #[test]
    fn a_change_of_status_is_no_drift_and_any_other_is() {
        let stamp = |change: Value| job(&change).stamp;
        let before = stamp(json!({}));
        assert_eq!(
            before,
            stamp(json!({"status": {"active": 1}, "metadata": {"resourceVersion": "6"}}))
        );
        assert_ne!(before, stamp(json!({"metadata": {"generation": 2}})));
        assert_ne!(
            before,
            stamp(json!({"metadata": {"labels": {"more": "x"}}}))
        );
        assert_ne!(before, stamp(json!({"metadata": {"ownerReferences": []}})));
    }

    #[test]
    fn a_config_map_has_drifted_with_every_revision() {
        let config = |version: &str| {
            let object = json!({"metadata": {"name": "c", "resourceVersion": version}});
            let object: ConfigMap = serde_json::from_value(object).unwrap();
            Child::<ConfigState>::slim(Received(Ok(object))).stamp
        };
        assert_ne!(config("1"), config("2"));
    }

    #[test]
    fn the_size_of_a_claim_is_what_it_has() {
        let claim = |status: Value| {
            let claim = json!({"metadata": {"name": "c"}, "status": status,
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}});
            let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
            ClaimState::from(&claim)
        };
        assert_eq!(claim(json!({})).size.as_deref(), Some("1Gi"));
        let bound = claim(json!({"capacity": {"storage": "2Gi"}}));
        assert_eq!(bound.size.as_deref(), Some("2Gi"));
        assert_eq!(
            (bound.access_modes, bound.storage_class),
            (vec!["ReadWriteOnce".into()], Some("fast".into()))
        );
    }
}
