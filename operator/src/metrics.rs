//! Every metric of the operator, named as controller-runtime and client-go name theirs where they have one.
//! In: what happened. Out: numbers in a registry. Touches memory only.

use std::{fmt, time::Duration};

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        MetricType,
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::{class::Class, controller::Next};

/// The metrics of the whole process. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: Family<ReconcileLabels, Counter>,
    reconcile_errors: Family<ControllerLabels, Counter>,
    reconcile_panics: Family<ControllerLabels, Counter>,
    reconcile_time: Family<ControllerLabels, Histogram>,
    active_workers: Family<ControllerLabels, Gauge>,
    max_workers: Family<ControllerLabels, Gauge>,
    classes: Family<ClassLabels, Counter>,
    depth: Family<QueueLabels, Gauge>,
    adds: Family<QueueLabels, Counter>,
    queue_duration: Family<QueueLabels, Histogram>,
    requests: Family<RequestLabels, Counter>,
    leader: Family<QueueLabels, Gauge>,
    watch_activity: Family<WatchLabels, Gauge>,
    watch_restarts: Family<WatchLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    controller: &'static str,
    class: Class,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    name: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    kind: String,
    /// Not `namespace`: Prometheus gives that name to the namespace of the pod it asked.
    watched_namespace: String,
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 4.0, 9))
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            reconciles: Family::default(),
            reconcile_errors: Family::default(),
            reconcile_panics: Family::default(),
            reconcile_time: Family::new_with_constructor(seconds),
            active_workers: Family::default(),
            max_workers: Family::default(),
            classes: Family::default(),
            depth: Family::default(),
            adds: Family::default(),
            queue_duration: Family::new_with_constructor(seconds),
            requests: Family::default(),
            leader: Family::default(),
            watch_activity: Family::default(),
            watch_restarts: Family::default(),
        }
    }
}

impl Metrics {
    /// Makes every metric visible in `registry`. Counters get their `_total` when they are written.
    pub fn register(&self, registry: &mut Registry) {
        self.register_reconciles(registry.sub_registry_with_prefix("controller_runtime"));
        self.register_queue(registry.sub_registry_with_prefix("workqueue"));
        self.register_own(registry.sub_registry_with_prefix("orrery"));
        registry.register(
            "rest_client_requests",
            "Requests to the API server by method and status code",
            self.requests.clone(),
        );
        registry.register(
            "leader_election_master_status",
            "1 in the process that leads",
            self.leader.clone(),
        );
    }

    fn register_reconciles(&self, registry: &mut Registry) {
        registry.register("reconcile", "Reconciles by result", self.reconciles.clone());
        registry.register(
            "reconcile_errors",
            "Reconciles that failed",
            self.reconcile_errors.clone(),
        );
        registry.register(
            "reconcile_panics",
            "Reconciles that panicked",
            self.reconcile_panics.clone(),
        );
        registry.register(
            "reconcile_time_seconds",
            "How long reconciles took",
            self.reconcile_time.clone(),
        );
        registry.register(
            "active_workers",
            "Reconciles that are running",
            self.active_workers.clone(),
        );
        registry.register(
            "max_concurrent_reconciles",
            "Reconciles that may run at once",
            self.max_workers.clone(),
        );
    }

    fn register_queue(&self, registry: &mut Registry) {
        registry.register(
            "depth",
            "Objects that are due and wait for a worker",
            self.depth.clone(),
        );
        registry.register(
            "adds",
            "Changes that asked for a reconcile",
            self.adds.clone(),
        );
        registry.register(
            "queue_duration_seconds",
            "How long due objects waited for a worker",
            self.queue_duration.clone(),
        );
    }

    fn register_own(&self, registry: &mut Registry) {
        registry.register(
            "reconcile_failures",
            "Failed reconciles by class: Transient, Conflict, Invalid or Blocked",
            self.classes.clone(),
        );
        registry.register(
            "watch_last_activity_timestamp_seconds",
            "When a watch last received an event or connected, as Unix time",
            self.watch_activity.clone(),
        );
        registry.register(
            "watch_errors",
            "Failures of a watch; each is followed by a new attempt",
            self.watch_restarts.clone(),
        );
    }

    /// The metrics of one controller.
    pub fn controller(&self, name: &'static str) -> ControllerMetrics {
        let labels = ControllerLabels { controller: name };
        let queue = QueueLabels { name };
        self.max_workers
            .get_or_create(&labels)
            .set(i64::try_from(crate::controller::CONCURRENCY).unwrap_or(i64::MAX));
        ControllerMetrics {
            name,
            adds: self.adds.get_or_create(&queue).clone(),
            depth: self.depth.get_or_create(&queue).clone(),
            queue_duration: self.queue_duration.get_or_create(&queue).clone(),
            active_workers: self.active_workers.get_or_create(&labels).clone(),
            panics: self.reconcile_panics.get_or_create(&labels).clone(),
            errors: self.reconcile_errors.get_or_create(&labels).clone(),
            time: self.reconcile_time.get_or_create(&labels).clone(),
            reconciles: self.reconciles.clone(),
            classes: self.classes.clone(),
        }
    }

    /// Whether this process leads.
    pub fn set_leading(&self, leads: bool) {
        let labels = QueueLabels {
            name: "orrery-operator",
        };
        self.leader.get_or_create(&labels).set(leads.into());
    }

    /// Counts a request to the API server; `code` is `error` when no answer came.
    pub fn request(&self, method: &str, code: &str) {
        let labels = RequestLabels {
            method: method.into(),
            code: code.into(),
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// The metrics of one watch: when it was last active, and how often it failed.
    pub fn watch(&self, kind: &str, namespace: &str) -> (Gauge, Counter) {
        let labels = WatchLabels {
            kind: kind.into(),
            watched_namespace: namespace.into(),
        };
        (
            self.watch_activity.get_or_create(&labels).clone(),
            self.watch_restarts.get_or_create(&labels).clone(),
        )
    }
}

/// The metrics of one controller. Clones share their values.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    name: &'static str,
    pub(crate) adds: Counter,
    pub(crate) depth: Gauge,
    pub(crate) queue_duration: Histogram,
    pub(crate) active_workers: Gauge,
    pub(crate) panics: Counter,
    errors: Counter,
    time: Histogram,
    reconciles: Family<ReconcileLabels, Counter>,
    classes: Family<ClassLabels, Counter>,
}

impl ControllerMetrics {
    /// A pass is over.
    pub fn reconciled(&self, next: &Next, took: Duration) {
        let labels = ReconcileLabels {
            controller: self.name,
            result: result(next),
        };
        self.reconciles.get_or_create(&labels).inc();
        self.time.observe(took.as_secs_f64());
    }

    /// A pass failed.
    pub fn failed(&self, class: Class) {
        let labels = ClassLabels {
            controller: self.name,
            class,
        };
        self.classes.get_or_create(&labels).inc();
        self.errors.inc();
    }
}

/// The words of controller-runtime.
fn result(next: &Next) -> &'static str {
    match next {
        Next::Await => "success",
        Next::At(_) | Next::After(_) => "requeue_after",
        Next::Failed { .. } => "error",
    }
}

/// A family with all that is to be told; its name is told also when there is nothing else.
pub(crate) fn gauge<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (L, i64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
