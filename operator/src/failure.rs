//! What becomes of a pass that failed, for every kind alike: a line in the log, conditions, and another attempt.

use std::error::Error;

use crds::condition::{self, Draft, READY, RECONCILING, Reason, STALLED};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use runtime::telemetry::chain;
use tracing::{debug, warn};

use crate::{
    act::Kind,
    class::Class,
    controller::Next,
    object::Key,
    report::{EventDraft, Reporter, StatusWrite},
    requeue::Stamp,
};

/// A line in the log, unless a race was lost, which is part of normal life.
pub fn log<K: Kind>(key: &Key, class: Class, error: &(dyn Error + 'static)) {
    let (kind, error) = (K::kind(&()), chain(error));
    match class {
        Class::Conflict => debug!(%kind, object = %key, error, "somebody else was faster"),
        Class::Transient | Class::Invalid | Class::Blocked => {
            warn!(%kind, object = %key, error, "reconcile failed");
        }
    }
}

/// Another attempt, when the class of the failure says.
pub fn again(class: Class, meta: &ObjectMeta) -> Next {
    Next::Failed {
        class,
        stamp: Stamp::of(meta),
    }
}

/// The conditions of an object whose pass failed.
pub fn drafts(class: Class, reason: &'static Reason, message: String) -> Vec<Draft> {
    let ready = Draft::new(READY, false, reason, message.clone());
    let other = match class {
        Class::Invalid => Draft::new(STALLED, true, reason, message),
        Class::Transient | Class::Conflict | Class::Blocked => Draft::new(
            RECONCILING,
            true,
            reason,
            "trying again with growing pauses",
        ),
    };
    vec![ready, other]
}

/// The event of a pass that failed: once, when Ready begins to say so. A failure that is likely to pass is worth none.
pub fn event(
    class: Class,
    reason: &'static Reason,
    old: &[Condition],
    new: &[Condition],
) -> Option<EventDraft> {
    let ready = |conditions| condition::find(conditions, READY);
    let (before, now) = (ready(old), ready(new)?);
    let is_new = before.is_none_or(|before| before.reason != now.reason);
    let is_told = now.reason == reason.name && is_new && class != Class::Transient;
    is_told.then(|| EventDraft {
        warning: true,
        reason,
        note: now.message.clone(),
        related: None,
    })
}

/// Tells of an object that this release cannot read, whose status stays as it is otherwise.
pub async fn report_undecodable<K: Kind>(
    reporter: &Reporter,
    meta: &ObjectMeta,
    drafts: &[Draft],
    now: Timestamp,
) -> Next {
    let conditions = condition::merge(&[], drafts, meta.generation, now);
    match reporter.conditions::<K>(meta, &conditions).await {
        Ok(StatusWrite::TooSoon(wait)) => Next::After(wait),
        Ok(StatusWrite::Unchanged | StatusWrite::Written(_)) => Next::Await,
        Err(error) => again(error.class(), meta),
    }
}
