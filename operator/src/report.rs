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

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::DeserializeGuard,
    runtime::events::{Event, EventType, Recorder, Reporter as Source},
};
use runtime::{clock::Clock, telemetry::chain};
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::{
    act::{Kind, WRITE_TIMEOUT},
    class::{ApiError, Class},
    leader::{Leadership, NotLeading},
};
use crds::condition::Reason;

/// The shortest time between two status writes of one object.
pub const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// How many objects' last writes are remembered; beyond that the memory starts anew.
const REMEMBERED: usize = 100_000;

/// Why a status was not written, or is not known to be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This process does not lead.
    #[error("failed to write the status")]
    NotLeading(#[from] NotLeading),
    /// The API server refused, or could not be reached.
    #[error("failed to write the status")]
    Request(#[source] ApiError),
    /// No answer came.
    #[error("failed to write the status: no answer within {} s", WRITE_TIMEOUT.as_secs())]
    Timeout,
}

impl Error {
    /// How the failure is to be treated.
    pub fn class(&self) -> Class {
        match self {
            Self::NotLeading(_) | Self::Timeout => Class::Transient,
            Self::Request(source) => source.class(),
        }
    }
}

/// What became of a status.
#[derive(Debug)]
pub enum StatusWrite<K> {
    /// It says already what it should.
    Unchanged,
    /// It was written; this is the object now.
    Written(Box<DeserializeGuard<K>>),
    /// It must wait so long, because the last write was a moment ago.
    TooSoon(Duration),
}

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
    written: Arc<Mutex<HashMap<String, Instant>>>,
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
            written: Arc::default(),
        }
    }

    /// Writes `new` as the status of the object with that metadata if it differs from `old`.
    ///
    /// The object's resource version is the precondition: a write that was decided on an older state,
    /// or by a process that has stopped to lead meanwhile, changes nothing.
    pub async fn status<K: Kind, S: PartialEq + Serialize>(
        &self,
        manager: &str,
        meta: &ObjectMeta,
        old: &S,
        new: &S,
    ) -> Result<StatusWrite<K>, Error> {
        if old == new {
            return Ok(StatusWrite::Unchanged);
        }
        let uid = meta.uid.as_deref().unwrap_or_default();
        if let Some(wait) = self.wait(uid) {
            return Ok(StatusWrite::TooSoon(wait));
        }
        self.leadership.check()?;
        let (name, namespace) = (meta.name.as_deref(), meta.namespace.as_deref());
        let (name, namespace) = (name.unwrap_or_default(), namespace.unwrap_or_default());
        let api = Api::<DeserializeGuard<K>>::namespaced(self.client.clone(), namespace);
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": {"name": name, "resourceVersion": meta.resource_version},
            "status": new,
        });
        let params = PatchParams::apply(manager).force();
        let patch = Patch::Apply(&body);
        match timeout(WRITE_TIMEOUT, api.patch_status(name, &params, &patch)).await {
            Ok(Ok(written)) => {
                self.remember(uid);
                Ok(StatusWrite::Written(Box::new(written)))
            }
            Ok(Err(error)) => Err(Error::Request(error.into())),
            Err(_) => Err(Error::Timeout),
        }
    }

    fn wait(&self, uid: &str) -> Option<Duration> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = self
            .clock
            .monotonic()
            .saturating_duration_since(*written.get(uid)?);
        self.interval
            .checked_sub(passed)
            .filter(|wait| !wait.is_zero())
    }

    fn remember(&self, uid: &str) {
        let now = self.clock.monotonic();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() >= REMEMBERED {
            written.clear();
        }
        written.insert(uid.into(), now);
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
        self.leadership.check().map_err(|error| error.to_string())?;
        let event = Event {
            type_: if draft.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: draft.reason.name.into(),
            note: Some(draft.note.clone()),
            action: "Reconcile".into(),
            secondary: draft.related.clone().map(|related| ObjectReference {
                namespace: about.namespace.clone(),
                ..related
            }),
        };
        match timeout(WRITE_TIMEOUT, self.recorder.publish(&event, about)).await {
            Ok(published) => published.map_err(|error| chain(&error)),
            Err(_) => Err("no answer in time".into()),
        }
    }
}
