//! Pods as the operator needs them: a few words each instead of the whole object.
//! In: the API server's JSON. Out: a slim record. Pure.

use crds::name::{AGENT_LABEL, CHECKSUM_CONTAINER, CHECKSUM_RUN_LABEL, OWNER_LABEL};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use super::Cached;
use crate::{
    object::{Key, owner_uid},
    received::Received,
};

/// The containers whose end is told: those of agents that end with a result.
const TELLING: [&str; 1] = [CHECKSUM_CONTAINER];

/// The longest word on why a pod does not start that is kept.
const WORDS_LIMIT: usize = 512;

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
    container_statuses: Vec<WireContainer>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct WireCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default)]
    message: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct WireContainer {
    name: String,
    #[serde(default)]
    state: WireState,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct WireState {
    waiting: Option<WireWaiting>,
    running: Option<WireRunning>,
    terminated: Option<WireTerminated>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct WireWaiting {
    reason: String,
    message: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct WireRunning {}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTerminated {
    exit_code: i32,
    reason: String,
    message: String,
}

/// How far the container of an agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Container {
    /// It has not been running yet.
    NotStarted,
    /// It runs.
    Running,
    /// It has ended.
    Ended(Exit),
}

/// How the container of an agent ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// 0 if all went well.
    pub code: i32,
    /// What the kubelet says about it in a word, such as `OOMKilled`.
    pub reason: Box<str>,
    /// What the process left behind, else the last lines of its log.
    pub message: Box<str>,
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
    /// The agent it carries, by its label.
    pub agent: Option<Box<str>>,
    /// The UID of the resource that its agent works for.
    pub works_for: Option<Box<str>>,
    /// The name of the ChecksumRun that its agent works for.
    pub run: Option<Box<str>>,
    /// When it was made.
    pub created: Timestamp,
    /// How far the agent's container is.
    pub container: Container,
    /// What keeps it from starting.
    pub holdup: Option<Box<str>>,
    version: u64,
}

impl SlimPod {
    /// A pod that cannot be read is there, and nothing more is known.
    pub fn slim(wire: Received<WirePod>) -> Self {
        let unreadable = |metadata| WirePod {
            metadata,
            status: WireStatus::default(),
        };
        wire.0
            .unwrap_or_else(|invalid| unreadable(invalid.metadata))
            .into()
    }
}

impl From<WirePod> for SlimPod {
    fn from(pod: WirePod) -> Self {
        let ready = |c: &WireCondition| c.type_ == "Ready" && c.status == "True";
        let label = |name: &str| pod.labels().get(name).map(|value| value.as_str().into());
        Self {
            agent: label(AGENT_LABEL),
            works_for: label(OWNER_LABEL),
            run: label(CHECKSUM_RUN_LABEL),
            created: created(&pod.metadata),
            container: pod.status.container(),
            holdup: pod.status.holdup(),
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

impl From<&WireTerminated> for Exit {
    fn from(wire: &WireTerminated) -> Self {
        Self {
            code: wire.exit_code,
            reason: wire.reason.as_str().into(),
            message: wire.message.as_str().into(),
        }
    }
}

impl WireStatus {
    fn agent(&self) -> Option<&WireContainer> {
        let mut containers = self.container_statuses.iter();
        containers.find(|container| TELLING.contains(&container.name.as_str()))
    }

    fn container(&self) -> Container {
        let state = self.agent().map(|container| &container.state);
        match state {
            Some(WireState {
                terminated: Some(terminated),
                ..
            }) => Container::Ended(terminated.into()),
            Some(WireState {
                running: Some(_), ..
            }) => Container::Running,
            Some(_) | None => Container::NotStarted,
        }
    }

    /// A container that is being made is no news; one that cannot be is.
    fn holdup(&self) -> Option<Box<str>> {
        let waiting = self.container_statuses.iter();
        let waiting = waiting.filter_map(|container| container.state.waiting.as_ref());
        let mut waiting = waiting.filter(|waiting| {
            !["", "ContainerCreating", "PodInitializing"].contains(&waiting.reason.as_str())
        });
        let words = match waiting.next() {
            Some(WireWaiting { reason, message }) if message.is_empty() => reason.clone(),
            Some(WireWaiting { reason, message }) => format!("{reason}: {message}"),
            None => {
                let mut conditions = self.conditions.iter();
                let unscheduled = conditions.find(|c| {
                    c.type_ == "PodScheduled" && c.status == "False" && !c.message.is_empty()
                });
                format!("not scheduled: {}", unscheduled?.message)
            }
        };
        let cut = words.floor_char_boundary(WORDS_LIMIT.min(words.len()));
        Some(words[..cut].into())
    }
}

fn created(meta: &ObjectMeta) -> Timestamp {
    let Some(Time(at)) = meta.creation_timestamp else {
        return Timestamp::UNIX_EPOCH;
    };
    at
}

impl Cached for SlimPod {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    /// Who a pod works for, which is not always who controls it: a Deployment does not own its pods.
    fn owner(&self) -> Option<&str> {
        self.works_for.as_deref().or(self.owner.as_deref())
    }

    fn version(&self) -> u64 {
        self.version
    }
}

/// The resource version as the number it is; Kubernetes promises that these can be compared.
pub fn version(object: &impl Resource) -> u64 {
    version_of(object.meta())
}

/// The same of the object with that metadata.
pub fn version_of(meta: &ObjectMeta) -> u64 {
    let version = meta.resource_version.as_deref();
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

    fn pod(status: &str) -> SlimPod {
        let wire = format!(r#"{{"metadata":{{"name":"p"}},"status":{status}}}"#);
        let wire: WirePod = serde_json::from_str(&wire).unwrap();
        wire.into()
    }

    #[test]
    fn the_end_of_an_agents_container_is_told_and_no_others() {
        let ended = |name: &str, message: &str| {
            format!(
                r#"{{"containerStatuses":[{{"name":"{name}","state":{{"terminated":{{"exitCode":3,"reason":"Error","message":"{message}"}}}}}}]}}"#
            )
        };
        let exit = |message: &str| {
            Container::Ended(Exit {
                code: 3,
                reason: "Error".into(),
                message: message.into(),
            })
        };
        for message in ["words", ""] {
            let told = pod(&ended("checksum", message)).container;
            assert_eq!(told, exit(message));
        }
        let other = pod(&ended("proxy", "words")).container;
        assert_eq!(other, Container::NotStarted);
    }

    #[test]
    fn what_keeps_a_pod_from_starting_is_told() {
        let cases = [
            (
                r#"{"containerStatuses":[{"name":"checksum","state":{"waiting":{"reason":"ImagePullBackOff","message":"no such image"}}}]}"#,
                Some("ImagePullBackOff: no such image"),
            ),
            (
                r#"{"containerStatuses":[{"name":"checksum","state":{"waiting":{"reason":"ContainerCreating"}}}]}"#,
                None,
            ),
            (
                r#"{"conditions":[{"type":"PodScheduled","status":"False","message":"0/3 nodes"}]}"#,
                Some("not scheduled: 0/3 nodes"),
            ),
            ("{}", None),
        ];
        for (status, words) in cases {
            assert_eq!(pod(status).holdup.as_deref(), words, "{status}");
        }
    }

    #[test]
    fn an_agents_pod_belongs_to_whom_it_works_for() {
        let wire: WirePod = serde_json::from_str(
            r#"{"metadata":{"name":"p","labels":{"orrery.dev/owner-uid":"run","orrery.dev/agent":"checksum-worker","orrery.dev/checksum-run":"home"},
                "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"s","uid":"set","controller":true}]}}"#,
        )
        .unwrap();
        let pod = SlimPod::from(wire);
        assert_eq!(Cached::owner(&pod), Some("run"));
        assert_eq!(pod.owner.as_deref(), Some("set"));
        assert_eq!(
            (pod.agent.as_deref(), pod.run.as_deref()),
            (Some("checksum-worker"), Some("home"))
        );
    }

    #[test]
    fn a_pod_without_status_is_not_ready() {
        let wire: WirePod = serde_json::from_str(r#"{"metadata":{"name":"p"}}"#).unwrap();
        assert!(!SlimPod::from(wire).ready);
    }
}
