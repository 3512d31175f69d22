//! What keeps workers from reading. In: the run, and its worker pods. Out: words to add to how far the run is. Pure.
//!
//! It has no reason of its own: workers come and go while files are read, and Ready should not change with them.

use crds::{
    name::CHECKSUM_RUN_LABEL,
    report::checksum::{Explained, WorkerReport},
};

use super::{
    super::config::Validated,
    Observed, Pod,
    stage::{being_started, held_up},
};

/// Why nobody reads, while nobody does.
pub(super) fn idle(run: &Validated, seen: &Observed) -> String {
    if run.redis().is_none() {
        return String::new();
    }
    if run.spec.workers.replicas == 0 {
        return "; there are no workers (spec.workers.replicas is 0)".into();
    }
    let mut ready = seen.workers().filter(|pod| pod.is_ready());
    if ready.any(|pod| waiting(pod).is_none()) {
        return String::new();
    }
    let trouble = seen.workers().find_map(trouble);
    let mut beginning = seen.workers().filter(|pod| pod.exit.is_none());
    let why = trouble.or_else(|| beginning.next().map(being_started));
    let why = why.unwrap_or_else(|| {
        let run = &run.key.name;
        format!("if none comes, events say why: kubectl describe replicaset --selector={CHECKSUM_RUN_LABEL}={run}")
    });
    format!("; no worker is ready; {why}")
}

fn trouble(pod: &Pod) -> Option<String> {
    held_up(pod).or_else(|| {
        let Explained { reason, message } = waiting(pod)?;
        Some(format!("pod {} waits: {reason}: {message}", pod.name))
    })
}

fn waiting(pod: &Pod) -> Option<&Explained> {
    let WorkerReport { waiting, .. } = pod.works.as_ref()?;
    waiting.as_ref()
}
