//! The shortest valid things, for the tests of this module's neighbours.

use std::{net::IpAddr, sync::LazyLock, time::Duration};

use crds::report::{AgentState, ConfigDocument, DOCUMENT_VERSION, StatusReport};
use jiff::{SignedDuration, Timestamp};
use runtime::clock::{Clock, SystemClock};
use serde_json::Value;
use tokio::time::Instant;

use super::{Pod, Roster};
use crate::{
    fleet::known::{Call, Cause, Failure, Known, Now},
    object::Key,
};

static START: LazyLock<Instant> = LazyLock::new(|| SystemClock.monotonic());

pub(crate) const PORT: u16 = 8444;

/// So many milliseconds after the start of all tests.
pub(crate) fn moment(ms: u64) -> Now {
    let since = SignedDuration::from_millis(i64::try_from(ms).unwrap());
    Now {
        monotonic: *START + Duration::from_millis(ms),
        wall: Timestamp::UNIX_EPOCH + since,
    }
}

pub(crate) fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

/// A request to the address of [`pod`].
pub(crate) fn call(sent_ms: u64, ended_ms: u64) -> Call {
    Call {
        address: ip(1),
        sent: moment(sent_ms),
        ended: moment(ended_ms),
    }
}

pub(crate) fn config(uid: &str, generation: i64) -> ConfigDocument {
    ConfigDocument {
        version: DOCUMENT_VERSION,
        uid: uid.into(),
        generation,
        spec: Value::Null,
    }
}

/// A report that acknowledges a generation of the resource `a`, or nothing.
pub(crate) fn report(pod_uid: &str, generation: Option<i64>) -> StatusReport {
    StatusReport {
        version: DOCUMENT_VERSION,
        agent: "agent".into(),
        agent_version: "1.0.0".into(),
        pod_uid: pod_uid.into(),
        state: generation.map_or(AgentState::WaitingForConfig, |_| AgentState::Running),
        config_uid: generation.map(|_| "a".into()),
        config_generation: generation,
        config_error: None,
        time: Timestamp::UNIX_EPOCH,
        detail: Value::Null,
    }
}

pub(crate) fn failure(words: &str) -> Failure {
    Failure {
        cause: Cause::Unreachable,
        words: words.into(),
    }
}

pub(crate) fn pod(uid: &str) -> Pod {
    Pod {
        key: Key {
            namespace: "ns".into(),
            name: format!("pod-{uid}"),
        },
        uid: uid.into(),
        ip: Some(ip(1)),
        deleting: false,
    }
}

/// Pods that should work by a generation of the resource `a`.
pub(crate) fn roster(generation: i64, pods: impl IntoIterator<Item = Pod>) -> Roster {
    Roster::new(config("a", generation).into(), PORT, pods)
}

/// An agent that answered at that time, and acknowledged that generation.
pub(crate) fn reached(at_ms: u64, generation: Option<i64>) -> Known {
    let mut known = Known::default();
    let mut report = report("u", generation);
    report.time = moment(at_ms).wall;
    known.heard(report, &call(at_ms, at_ms));
    known
}

/// An agent that failed so many times, at last at that time, and was reached never.
pub(crate) fn lost(at_ms: u64, attempts: u32) -> Known {
    let mut known = Known::default();
    for _ in 0..attempts {
        known.failed(failure("no answer"), &call(at_ms, at_ms));
    }
    known
}
