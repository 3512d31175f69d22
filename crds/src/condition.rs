//! Status conditions as kstatus reads them, and the rules for merging them.
//! In: what is true now and what stood in status. Out: the conditions to write. Pure.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::{Schema, SchemaGenerator, json_schema};

/// Whether the object does what it is for. Always present.
pub const READY: &str = "Ready";
/// The operator is still working towards the spec. Present only while true.
pub const RECONCILING: &str = "Reconciling";
/// Nothing will change until somebody intervenes. Present only while true.
pub const STALLED: &str = "Stalled";
/// On runs: the run has ended, for the reason given.
pub const COMPLETE: &str = "Complete";

/// The longest message that is stored; the API's own limit is 32 KiB.
const MESSAGE_LIMIT: usize = 1024;

/// A machine-readable reason: part of the API, with its documentation attached, so that
/// no condition can carry a reason that the reference does not explain.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    /// The CamelCase word in the condition.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What the reader should do about it.
    pub remedy: &'static str,
}

/// The value of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl Status {
    /// The word in the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A condition without its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Which condition.
    pub type_: &'static str,
    /// Its value.
    pub status: Status,
    /// Why.
    pub reason: &'static Reason,
    /// The same for people, with names and numbers.
    pub message: Cow<'static, str>,
}

impl Draft {
    /// A condition of the given type and value.
    pub fn new(
        type_: &'static str,
        status: impl Into<Status>,
        reason: &'static Reason,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            type_,
            status: status.into(),
            reason,
            message: message.into(),
        }
    }
}

/// The conditions to write: exactly the drafts, each with the time of its last change of status.
pub fn merge(
    old: &[Condition],
    drafts: &[Draft],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    drafts
        .iter()
        .map(|draft| {
            let since = find(old, draft.type_)
                .filter(|old| old.status == draft.status.as_str())
                .map_or_else(|| whole_seconds(now), |old| old.last_transition_time.0);
            Condition {
                type_: draft.type_.into(),
                status: draft.status.as_str().into(),
                reason: draft.reason.name.into(),
                message: shortened(&draft.message),
                observed_generation: generation,
                last_transition_time: Time(since),
            }
        })
        .collect()
}

/// The condition of the given type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Whether the condition of the given type is there and true.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == "True")
}

/// The API stores times to the second; rounding here keeps what is written equal to what is read.
pub fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn shortened(message: &str) -> String {
    if message.len() <= MESSAGE_LIMIT {
        return message.into();
    }
    let cut = message.floor_char_boundary(MESSAGE_LIMIT - '…'.len_utf8());
    format!("{}…", &message[..cut])
}

/// The schema of `status.conditions`: a map by type, bounded as `metav1.Condition` documents it.
pub fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "What is true about this object now; see the reference for every type and reason.",
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Reason = Reason {
        name: "Good",
        meaning: "",
        remedy: "",
    };
    const BAD: Reason = Reason {
        name: "Bad",
        meaning: "",
        remedy: "",
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ready(status: bool, reason: &'static Reason) -> [Draft; 1] {
        [Draft::new(READY, status, reason, "")]
    }

    #[test]
    fn the_transition_time_moves_only_when_the_status_changes() {
        let first = merge(&[], &ready(true, &GOOD), Some(1), at(10));
        let same = merge(&first, &ready(true, &BAD), Some(2), at(20));
        assert_eq!(same[0].last_transition_time.0, at(10));
        assert_eq!(same[0].reason, "Bad");
        assert_eq!(same[0].observed_generation, Some(2));
        let changed = merge(&same, &ready(false, &BAD), Some(2), at(30));
        assert_eq!(changed[0].last_transition_time.0, at(30));
    }

    #[test]
    fn a_condition_that_is_no_longer_drafted_goes() {
        let stalled = merge(&[], &[Draft::new(STALLED, true, &BAD, "")], Some(1), at(10));
        let conditions = merge(&stalled, &ready(true, &GOOD), Some(1), at(20));
        assert_eq!(conditions.len(), 1);
        assert!(!is_true(&conditions, STALLED));
    }

    #[test]
    fn times_are_stored_as_the_server_returns_them() {
        let now = "2026-11-16T03:00:00.123456Z".parse().unwrap();
        let conditions = merge(&[], &ready(true, &GOOD), Some(1), now);
        assert_eq!(
            conditions[0].last_transition_time.0.to_string(),
            "2026-11-16T03:00:00Z"
        );
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let draft = Draft::new(READY, false, &BAD, "ä".repeat(2000));
        let message = &merge(&[], &[draft], None, at(0))[0].message;
        assert!(message.len() <= MESSAGE_LIMIT && message.ends_with('…'));
    }
}
