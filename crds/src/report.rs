//! The documents that the operator and its agents exchange on the control port.
//! In and out: JSON; both sides accept every released version. Pure data.

pub mod checksum;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The newest version of [`ConfigDocument`] and [`StatusReport`] that this code writes.
pub const DOCUMENT_VERSION: u32 = 1;

/// The largest document either side reads, in bytes. A ConfigMap cannot hold more.
pub const DOCUMENT_LIMIT: usize = 1024 * 1024;

/// What an agent is told to do: the body of `PUT /config` and the content of the mounted file.
///
/// A document of a new `uid` always replaces the old one; under the same `uid` the higher
/// `generation` wins and an equal one changes nothing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigDocument {
    /// The shape of this document; agents ignore fields they do not know.
    pub version: u32,
    /// The UID of the custom resource this configuration comes from.
    pub uid: String,
    /// The generation of that resource.
    pub generation: i64,
    /// What the agent's own code reads; its shape belongs to the agent.
    #[serde(default)]
    pub spec: Value,
}

impl ConfigDocument {
    /// Whether this document takes the place of `current`.
    pub fn replaces(&self, current: Option<&Self>) -> bool {
        current.is_none_or(|old| old.uid != self.uid || old.generation < self.generation)
    }
}

/// What an agent is doing, as far as its shell knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum AgentState {
    /// It has started and has no configuration yet.
    WaitingForConfig,
    /// It works by the configuration it acknowledges.
    Running,
    /// It was asked to end and finishes what it began.
    Draining,
    /// A state of a newer agent that this code does not know.
    #[serde(other)]
    Unknown,
}

/// What an agent answers to `GET /status`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    /// The shape of this document; the operator ignores fields it does not know.
    pub version: u32,
    /// Which agent this is, for example `checksum-worker`.
    pub agent: String,
    /// The release the agent was built from.
    pub agent_version: String,
    /// The UID of the pod the agent runs in; an answer with another UID is somebody else's.
    pub pod_uid: String,
    /// What the agent is doing.
    pub state: AgentState,
    /// The UID of the acknowledged configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_uid: Option<String>,
    /// The generation of the acknowledged configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_generation: Option<i64>,
    /// Why the newest configuration was refused, while an older one is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_error: Option<String>,
    /// The agent's wall clock when it answered; the operator reports the offset.
    pub time: Timestamp,
    /// What the agent's own code reports; its shape belongs to the agent.
    #[serde(default)]
    pub detail: Value,
}

/// The answer to a `PUT /config` that was understood: what is in force now.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Acknowledged {
    /// The UID of the resource whose configuration is in force.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
}

/// An error as RFC 9457 describes it (`application/problem+json`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Problem {
    /// A short, constant name of what went wrong.
    pub title: String,
    /// The HTTP status code, repeated.
    pub status: u16,
    /// What exactly was wrong and what to do about it.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(uid: &str, generation: i64) -> ConfigDocument {
        ConfigDocument {
            version: DOCUMENT_VERSION,
            uid: uid.into(),
            generation,
            spec: Value::Null,
        }
    }

    #[test]
    fn the_first_document_is_taken() {
        assert!(document("a", 1).replaces(None));
    }

    #[test]
    fn under_one_uid_the_higher_generation_wins() {
        assert!(document("a", 3).replaces(Some(&document("a", 2))));
        assert!(!document("a", 2).replaces(Some(&document("a", 2))));
        assert!(!document("a", 1).replaces(Some(&document("a", 2))));
    }

    #[test]
    fn a_new_uid_always_replaces() {
        assert!(document("b", 1).replaces(Some(&document("a", 9))));
    }

    #[test]
    fn fields_and_states_of_newer_agents_are_tolerated() {
        let text = r#"{"version":7,"agent":"x","agentVersion":"9.0.0","podUid":"u","state":"Dancing",
            "time":"2026-11-16T12:00:00Z","novelty":true}"#;
        let report: StatusReport = serde_json::from_str(text).unwrap();
        assert_eq!(report.state, AgentState::Unknown);
        assert_eq!(report.config_generation, None);
    }
}
