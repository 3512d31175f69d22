#![expect(clippy::disallowed_methods, reason = "applies the child")]
//! One pass. In: a key. Out: when to look again. Writes one ConfigMap and one status, each if it is not as it
//! should be.

use std::sync::Arc;

use crds::{
    checksum_schedule::{ChecksumSchedule, ChecksumScheduleStatus},
    condition::{self, Draft, READY, Reason},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use operator::{
    act::WRITE_TIMEOUT,
    checksum_schedule::observe::CachedSchedule,
    class::{ApiError, Class},
    controller::Next,
    leader::{Leadership, Unanswered},
    object::Key,
    received::Received,
    report::{self, Reporter, StatusWrite, Urgency},
    requeue::Stamp,
    watch::Store,
};
use runtime::{clock::Clock, telemetry::chain};
use tracing::warn;

use crate::child::{Child, MANAGER, wanted};

const APPLIED: Reason = Reason {
    name: "Applied",
    meaning: "The config map is as the schedule wants it.",
    remedy: "None needed.",
};

/// What the controller works with.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) parents: Store<CachedSchedule>,
    pub(crate) children: Store<Child>,
    pub(crate) client: Client,
    pub(crate) leadership: Leadership,
    pub(crate) reporter: Reporter,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("failed to apply the config map")]
    Unanswered(#[from] Unanswered),
    #[error("failed to apply the config map")]
    Apply(#[source] ApiError),
    #[error(transparent)]
    Report(#[from] report::Error),
}

impl Error {
    fn class(&self) -> Class {
        match self {
            Self::Unanswered(_) => Class::Transient,
            Self::Apply(source) => source.class(),
            Self::Report(source) => source.class(),
        }
    }
}

/// Both reads are from the stores; what is as it should be is not written.
pub(crate) async fn reconcile(context: Context, key: Key) -> Next {
    let cached = context.parents.get(&key);
    let Some(Ok(parent)) = cached.as_deref().map(|cached| &cached.0) else {
        return Next::Await;
    };
    if parent.metadata.deletion_timestamp.is_some() {
        return Next::Await;
    }
    match context.pass(&key, parent).await {
        Ok(()) => Next::Await,
        Err(error) => {
            warn!(schedule = %key, error = chain(&error), "reconcile failed");
            Next::Failed {
                class: error.class(),
                stamp: Stamp::of(&parent.metadata),
            }
        }
    }
}

impl Context {
    async fn pass(&self, key: &Key, parent: &ChecksumSchedule) -> Result<(), Error> {
        let wanted = wanted(parent);
        if !self
            .children
            .get(key)
            .is_some_and(|child| child.is(&wanted))
        {
            self.apply(&wanted).await?;
        }
        self.report(parent).await
    }

    async fn apply(&self, wanted: &ConfigMap) -> Result<(), Error> {
        let namespace = wanted.namespace().unwrap_or_default();
        let api: Api<Received<ConfigMap>> = Api::namespaced(self.client.clone(), &namespace);
        let (name, params) = (wanted.name_any(), PatchParams::apply(MANAGER).force());
        let patch = Patch::Apply(wanted);
        let request = api.patch(&name, &params, &patch);
        let answer = self.leadership.send(WRITE_TIMEOUT, request).await?;
        let stored = answer.map_err(|error| Error::Apply(error.into()))?;
        self.children.refresh(Child::slim(stored));
        Ok(())
    }

    async fn report(&self, parent: &ChecksumSchedule) -> Result<(), Error> {
        let old = parent.status.clone().unwrap_or_default();
        let new = status(parent, &old, self.clock.wall());
        // Every status here answers a change of the user's.
        let urgency = Urgency::NewGeneration;
        let meta = &parent.metadata;
        let written = self
            .reporter
            .status::<ChecksumSchedule, _>(MANAGER, meta, &old, &new, urgency);
        if let StatusWrite::Written(stored) = written.await? {
            self.parents.refresh(CachedSchedule::slim(*stored));
        }
        Ok(())
    }
}

fn status(
    parent: &ChecksumSchedule,
    old: &ChecksumScheduleStatus,
    now: Timestamp,
) -> ChecksumScheduleStatus {
    let message = format!(
        "The config map holds the schedule {}.",
        parent.spec.schedule
    );
    let drafts = [Draft::new(READY, true, &APPLIED, message)];
    let generation = parent.metadata.generation;
    ChecksumScheduleStatus {
        observed_generation: generation.unwrap_or_default(),
        conditions: condition::merge(&old.conditions, &drafts, generation, now),
        ..old.clone()
    }
}
