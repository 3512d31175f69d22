#![expect(
    clippy::disallowed_methods,
    reason = "the one file that writes status and events"
)]
//! Tells users what happened. In: a status and events. Out: nothing but what was written.
//! Writes the status subresource and events, but only while this process leads.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
    runtime::events::{Event, EventType, Recorder, Reporter as Source},
};
use runtime::{clock::Clock, telemetry::chain};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;
use tracing::warn;

use crate::{
    act::{Kind, WRITE_TIMEOUT},
    class::{ApiError, Class},
    leader::{Leadership, Unanswered},
    received::{Received, is_told_unreadable},
};
use crds::{condition::Reason, name::UNREADABLE_MANAGER};

/// The shortest time between two status writes of one object.
pub const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// How many objects' last writes are remembered; beyond that the memory starts anew.
const REMEMBERED: usize = 100_000;

/// Why a status was not written, or is not known to be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It was not sent, or nobody answered.
    #[error("failed to write the status")]
    Unanswered(#[from] Unanswered),
    /// The API server refused, or could not be reached.
    #[error("failed to write the status")]
    Request(#[source] ApiError),
}

impl Error {
    /// How the failure is to be treated.
    pub fn class(&self) -> Class {
        match self {
            Self::Unanswered(_) => Class::Transient,
            Self::Request(source) => source.class(),
        }
    }
}

/// Whether a status may wait for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// It waits until the last write is long enough ago.
    Usual,
    /// It answers a change by the user, which may come at any time.
    NewGeneration,
}

/// What became of a status.
#[derive(Debug)]
pub enum StatusWrite<K> {
    /// It says already what it should.
    Unchanged,
    /// It was written; this is the object now.
    Written(Box<Received<K>>),
    /// It must wait so long, because the last write was a moment ago.
    TooSoon(Duration),
}

/// The longest note of an event that the API server takes, in bytes.
const NOTE_LIMIT: usize = 1024;

/// Something that happened, for `kubectl describe`.
#[derive(Clone, Debug, PartialEq)]
pub struct EventDraft {
    /// Whether somebody should look.
    pub warning: bool,
    /// What happened, in a word.
    pub reason: &'static Reason,
    /// What happened, in a sentence.
    pub note: String,
    /// Another object of the namespace that it is about.
    pub related: Option<ObjectReference>,
}

/// Writes status and events.
#[derive(Clone)]
pub struct Reporter {
    client: Client,
    leadership: Leadership,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    interval: Duration,
    memory: Arc<Mutex<Memory>>,
}

/// What was written, by the UID of the object.
#[derive(Debug, Default)]
struct Memory {
    /// When a status was written last.
    written: HashMap<String, Instant>,
    /// The generation for which it was told that the object cannot be read.
    told: HashMap<String, i64>,
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter")
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

impl Reporter {
    /// A reporter for the time in which this process leads.
    pub fn new(
        client: Client,
        leadership: Leadership,
        clock: Arc<dyn Clock>,
        identity: &str,
        interval: Duration,
    ) -> Self {
        let source = Source {
            controller: "orrery.dev/operator".into(),
            instance: Some(identity.into()),
        };
        Self {
            recorder: Recorder::new(client.clone(), source),
            client,
            leadership,
            clock,
            interval,
            memory: Arc::default(),
        }
    }

    /// Writes `new` as the status of the object with that metadata if it differs from `old`.
    ///
    /// The object's resource version is the precondition: a write that was decided on an older state,
    /// or by a process that has stopped to lead meanwhile, changes nothing.
    ///
    /// Where it was told before that the object cannot be read, that is taken back, after all of `new` was written: a field
    /// that two managers have stays with the other one, and half a condition is none that the server takes.
    pub async fn status<K: Kind, S: PartialEq + Serialize>(
        &self,
        manager: &str,
        meta: &ObjectMeta,
        old: &S,
        new: &S,
        urgency: Urgency,
    ) -> Result<StatusWrite<K>, Error> {
        let is_told_unreadable = is_told_unreadable(meta);
        if old == new && !is_told_unreadable {
            return Ok(StatusWrite::Unchanged);
        }
        let written = self.apply(manager, meta, Some(new), urgency).await?;
        let meta = match &written {
            StatusWrite::TooSoon(_) => return Ok(written),
            StatusWrite::Unchanged => meta,
            StatusWrite::Written(now) => now.meta(),
        };
        if !is_told_unreadable {
            return Ok(written);
        }
        match self.take_back(meta).await? {
            StatusWrite::Written(now) => Ok(StatusWrite::Written(now)),
            StatusWrite::Unchanged | StatusWrite::TooSoon(_) => Ok(written),
        }
    }

    /// The object can be read: what was told of one that cannot goes.
    async fn take_back<K: Kind>(&self, meta: &ObjectMeta) -> Result<StatusWrite<K>, Error> {
        let uid = meta.uid.as_deref().unwrap_or_default();
        self.memory(|memory| memory.told.remove(uid));
        let (nothing, urgency) = (None::<&()>, Urgency::NewGeneration);
        self.apply(UNREADABLE_MANAGER, meta, nothing, urgency).await
    }

    /// Writes conditions and nothing else, once per generation: for an object that cannot be read, whose status must survive
    /// until somebody can. They have a manager of their own: conditions of other types stay, whatever they are.
    pub async fn conditions<K: Kind>(
        &self,
        meta: &ObjectMeta,
        conditions: &[Condition],
    ) -> Result<StatusWrite<K>, Error> {
        let uid = meta.uid.as_deref().unwrap_or_default();
        let told = self.memory(|memory| memory.told.get(uid).copied());
        if told == meta.generation {
            return Ok(StatusWrite::Unchanged);
        }
        let status = json!({"observedGeneration": meta.generation, "conditions": conditions});
        let written = self
            .apply(UNREADABLE_MANAGER, meta, Some(&status), Urgency::Usual)
            .await?;
        if let (StatusWrite::Written(_) | StatusWrite::Unchanged, Some(generation)) =
            (&written, meta.generation)
        {
            self.memory(|memory| memory.told.insert(uid.into(), generation));
        }
        Ok(written)
    }

    async fn apply<K: Kind, S: Serialize>(
        &self,
        manager: &str,
        meta: &ObjectMeta,
        status: Option<&S>,
        urgency: Urgency,
    ) -> Result<StatusWrite<K>, Error> {
        let uid = meta.uid.as_deref().unwrap_or_default();
        if let Some(wait) = self.wait(uid).filter(|_| urgency == Urgency::Usual) {
            return Ok(StatusWrite::TooSoon(wait));
        }
        let (name, namespace) = (meta.name.as_deref(), meta.namespace.as_deref());
        let (name, namespace) = (name.unwrap_or_default(), namespace.unwrap_or_default());
        let api = Api::<Received<K>>::namespaced(self.client.clone(), namespace);
        let mut body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": {"name": name, "resourceVersion": meta.resource_version},
        });
        if let Some(status) = status {
            body["status"] = json!(status);
        }
        let (params, patch) = (PatchParams::apply(manager).force(), Patch::Apply(body));
        let request = api.patch_status(name, &params, &patch);
        let answer = self.leadership.send(WRITE_TIMEOUT, request).await?;
        let written = answer.map_err(|error| Error::Request(error.into()))?;
        let now = self.clock.monotonic();
        self.memory(|memory| memory.written.insert(uid.into(), now));
        if written.meta().resource_version == meta.resource_version {
            // What differs belongs to another field manager, and stays.
            return Ok(StatusWrite::Unchanged);
        }
        Ok(StatusWrite::Written(Box::new(written)))
    }

    fn wait(&self, uid: &str) -> Option<Duration> {
        let last = self.memory(|memory| memory.written.get(uid).copied())?;
        let passed = self.clock.monotonic().saturating_duration_since(last);
        self.interval
            .checked_sub(passed)
            .filter(|wait| !wait.is_zero())
    }

    fn memory<R>(&self, use_it: impl FnOnce(&mut Memory) -> R) -> R {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.written.len() >= REMEMBERED || memory.told.len() >= REMEMBERED {
            *memory = Memory::default();
        }
        use_it(&mut memory)
    }

    /// Publishes events. Failing to do so is not worth failing for.
    pub async fn events(&self, about: &ObjectReference, events: &[EventDraft]) {
        for draft in events {
            if let Err(why) = self.publish(about, draft).await {
                warn!(
                    event.reason = draft.reason.name,
                    error = why,
                    "failed to publish an event"
                );
            }
        }
    }

    async fn publish(&self, about: &ObjectReference, draft: &EventDraft) -> Result<(), String> {
        let event = Event {
            type_: if draft.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: draft.reason.name.into(),
            note: Some(shortened(&draft.note)),
            action: "Reconcile".into(),
            secondary: draft.related.clone().map(|related| ObjectReference {
                namespace: about.namespace.clone(),
                ..related
            }),
        };
        let request = self.recorder.publish(&event, about);
        match self.leadership.send(WRITE_TIMEOUT, request).await {
            Ok(published) => published.map_err(|error| chain(&error)),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn shortened(note: &str) -> String {
    if note.len() <= NOTE_LIMIT {
        return note.into();
    }
    let cut = note.floor_char_boundary(NOTE_LIMIT - '…'.len_utf8());
    format!("{}…", &note[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_no_more_bytes_than_the_server_takes_and_whole_characters() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"x".repeat(NOTE_LIMIT)).len(), NOTE_LIMIT);
        for long in ["x".repeat(NOTE_LIMIT + 1), "ä".repeat(NOTE_LIMIT)] {
            let note = shortened(&long);
            assert!(note.len() <= NOTE_LIMIT && note.len() > NOTE_LIMIT - 4);
            assert!(note.ends_with('…') && long.starts_with(note.trim_end_matches('…')));
        }
    }
}
