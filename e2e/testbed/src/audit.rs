//! In: the API server's audit log. Out: its events, typed.
//! Touches: reads that one file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// What the API server did, in the order in which it finished.
///
/// A request is logged after it was answered: whoever looks for the trace of a request that has just
/// returned does so with [`eventually`](crate::wait::eventually).
#[derive(Clone, Debug)]
pub struct Log {
    path: PathBuf,
    from: u64,
}

impl Log {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, from: 0 }
    }

    /// The part of the log that is not written yet.
    pub fn from_now(&self) -> Result<Self> {
        let text = self.text()?;
        let complete = text.rfind('\n').map_or(0, |end| end + 1);
        Ok(Self {
            path: self.path.clone(),
            from: self.from + u64::try_from(complete)?,
        })
    }

    /// The events so far.
    pub fn events(&self) -> Result<Vec<Event>> {
        parse(&self.text()?)
    }

    /// The events so far whose user agent begins with `agent`.
    pub fn events_from(&self, agent: &str) -> Result<Vec<Event>> {
        let mut events = self.events()?;
        events.retain(|event| event.is_from(agent));
        Ok(events)
    }

    fn text(&self) -> Result<String> {
        let failed = || format!("failed to read the audit log {}", self.path.display());
        let mut file = File::open(&self.path).with_context(failed)?;
        file.seek(SeekFrom::Start(self.from)).with_context(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(failed)?;
        // The last character may be half written; the line it is in is ignored by `parse`.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// One stage of one request.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The same for all stages of a request.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// When in the life of the request this was written.
    pub stage: Stage,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, …
    pub verb: String,
    /// Path and query as sent.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// Who asked.
    pub user: User,
    /// With which program; empty if it did not say.
    #[serde(default)]
    pub user_agent: String,
    /// For what; none for paths such as `/readyz`.
    pub object_ref: Option<Object>,
    /// With which result.
    pub response_status: Option<Response>,
    /// The body: for leases and for writes in our own group, see the policy.
    pub request_object: Option<Value>,
    /// When the request came.
    pub request_received_timestamp: Timestamp,
    /// When this stage was reached.
    pub stage_timestamp: Timestamp,
}

impl Event {
    /// Whether the user agent begins with `agent`.
    pub fn is_from(&self, agent: &str) -> bool {
        self.user_agent.starts_with(agent)
    }

    /// Whether the verb is one that changes something.
    pub fn is_write(&self) -> bool {
        let verbs = ["create", "update", "patch", "delete", "deletecollection"];
        verbs.contains(&self.verb.as_str())
    }

    /// The HTTP status of the answer.
    pub fn code(&self) -> Option<u16> {
        self.response_status.as_ref().map(|status| status.code)
    }

    /// Whether it is about this resource (plural, lowercase) of this group (empty for the core).
    pub fn is_about(&self, group: &str, resource: &str) -> bool {
        let object = self.object_ref.as_ref();
        object.is_some_and(|object| object.api_group == group && object.resource == resource)
    }
}

/// The stages the policy lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Stage {
    /// The headers of a long answer, a watch for example, were sent.
    ResponseStarted,
    /// The answer was sent.
    ResponseComplete,
    /// The server stumbled.
    Panic,
}

/// Who asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// For a service account `system:serviceaccount:NAMESPACE:NAME`; empty for one that is gone.
    #[serde(default)]
    pub username: String,
    /// Groups, `system:masters` for the administrator.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// What was asked for; what does not apply is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Object {
    /// `orrery.dev`; empty for the core.
    pub api_group: String,
    /// `v1`.
    pub api_version: String,
    /// Plural, lowercase.
    pub resource: String,
    /// `status`, `scale`, `token`, …
    pub subresource: String,
    /// Empty for what has none.
    pub namespace: String,
    /// Empty for lists, and for objects whose name the server makes up.
    pub name: String,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Response {
    /// HTTP status.
    pub code: u16,
}

/// One event per line; a last line without its end is still being written and left out.
fn parse(text: &str) -> Result<Vec<Event>> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = complete.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| {
            serde_json::from_str(line).with_context(|| format!("not an audit event: {line}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const PATCH: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","auditID":"a","stage":"ResponseComplete","requestURI":"/apis/orrery.dev/v1/namespaces/n/timers/t/status?fieldManager=x","verb":"patch","user":{"username":"admin","groups":["system:masters"]},"sourceIPs":["127.0.0.1"],"userAgent":"orrery/1","objectRef":{"resource":"timers","namespace":"n","name":"t","apiGroup":"orrery.dev","apiVersion":"v1","subresource":"status"},"responseStatus":{"metadata":{},"code":200},"requestObject":{"spec":1},"requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:01.000000Z"}"#;
    const READY: &str = r#"{"auditID":"b","stage":"ResponseComplete","requestURI":"/readyz","verb":"get","user":{"username":"admin"},"requestReceivedTimestamp":"2026-01-01T00:00:00Z","stageTimestamp":"2026-01-01T00:00:00Z"}"#;

    #[test]
    fn an_event_tells_who_did_what_to_what() {
        let events = parse(&format!("{PATCH}\n{READY}\n")).unwrap();
        let [patch, ready] = &events[..] else {
            panic!("{events:?}")
        };
        assert!(
            patch.is_write() && patch.is_from("orrery/") && patch.is_about("orrery.dev", "timers")
        );
        assert_eq!(patch.code(), Some(200));
        assert_eq!(patch.object_ref.as_ref().unwrap().subresource, "status");
        assert_eq!(patch.request_object.as_ref().unwrap()["spec"], 1);
        assert!(patch.request_received_timestamp < patch.stage_timestamp);
        assert!(!ready.is_write() && !ready.is_from("orrery/"));
        assert_eq!((ready.code(), &ready.object_ref), (None, &None));
    }

    #[test]
    fn a_half_written_last_line_is_left_out() {
        let events = parse(&format!("{READY}\n{}", &PATCH[..100])).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(parse(&PATCH[..100]).unwrap(), []);
    }

    #[test]
    fn a_complete_line_that_is_no_event_is_an_error() {
        assert!(parse("{}\n").is_err());
    }

    #[test]
    fn from_now_begins_with_the_line_that_is_being_written() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "{READY}\n{}", &PATCH[..100]).unwrap();
        let log = Log::new(file.path().to_owned()).from_now().unwrap();
        assert_eq!(log.events().unwrap(), []);
        writeln!(file, "{}", &PATCH[100..]).unwrap();
        assert_eq!(log.events().unwrap()[0].verb, "patch");
        assert_eq!(log.events_from("kubectl").unwrap(), []);
    }
}
