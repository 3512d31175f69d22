//! Pods as the operator needs them: a few words each instead of the whole object.
//! In: the API server's JSON. Out: a slim record. Pure.

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::Cached;
use crate::object::{Key, owner_uid};

/// What is read of a pod; everything else is skipped while parsing.
#[derive(Clone, Debug, Deserialize, Serialize, Resource)]
#[resource(inherit = "Pod")]
pub struct WirePod {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Address and readiness.
    #[serde(default)]
    pub status: WireStatus,
}

/// What is read of a pod's status.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WireStatus {
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    phase: String,
    conditions: Vec<WireCondition>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct WireCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

/// What is kept of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlimPod {
    /// Its name.
    pub key: Key,
    /// Its UID.
    pub uid: Box<str>,
    /// The UID of its controlling owner.
    pub owner: Option<Box<str>>,
    /// Its address, once it has one.
    pub ip: Option<Box<str>>,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether all its containers have ended for good; its address may be another pod's by now.
    pub ended: bool,
    version: u64,
}

impl From<WirePod> for SlimPod {
    fn from(pod: WirePod) -> Self {
        let ready = |c: &WireCondition| c.type_ == "Ready" && c.status == "True";
        Self {
            key: Key::of(&pod),
            uid: pod.uid().unwrap_or_default().into(),
            owner: owner_uid(&pod).map(Into::into),
            ready: pod.status.conditions.iter().any(ready),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            ended: matches!(pod.status.phase.as_str(), "Succeeded" | "Failed"),
            version: version(&pod),
            ip: pod.status.pod_ip.map(Into::into),
        }
    }
}

impl Cached for SlimPod {
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

/// The resource version as the number it is; Kubernetes promises that these can be compared.
pub fn version(object: &impl Resource) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version.and_then(|v| v.parse().ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_pod_becomes_a_few_words() {
        let wire: WirePod = serde_json::from_str(
            r#"{"apiVersion":"v1","kind":"Pod",
                "metadata":{"namespace":"ns","name":"p","uid":"u","resourceVersion":"17","managedFields":[{"manager":"m"}],
                    "ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"s","uid":"o","controller":true}]},
                "spec":{"containers":[{"name":"c","image":"i"}]},
                "status":{"podIP":"10.0.0.1","phase":"Running","conditions":[
                    {"type":"Initialized","status":"True"},{"type":"Ready","status":"True"}]}}"#,
        )
        .unwrap();
        let pod = SlimPod::from(wire);
        assert_eq!(pod.key.to_string(), "ns/p");
        assert_eq!(
            (pod.uid(), pod.owner(), pod.version()),
            ("u", Some("o"), 17)
        );
        assert_eq!(pod.ip.as_deref(), Some("10.0.0.1"));
        assert!(pod.ready && !pod.deleting && !pod.ended);
    }

    #[test]
    fn a_pod_whose_containers_have_ended_for_good_is_told() {
        for (phase, ended) in [("Running", false), ("Succeeded", true), ("Failed", true)] {
            let wire = format!(r#"{{"metadata":{{"name":"p"}},"status":{{"phase":"{phase}"}}}}"#);
            let wire: WirePod = serde_json::from_str(&wire).unwrap();
            assert_eq!(SlimPod::from(wire).ended, ended, "{phase}");
        }
    }

    #[test]
    fn a_pod_without_status_is_not_ready() {
        let wire: WirePod = serde_json::from_str(r#"{"metadata":{"name":"p"}}"#).unwrap();
        assert!(!SlimPod::from(wire).ready);
    }
}
