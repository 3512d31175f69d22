//! Schedules as numbers, for alerts and dashboards. In: the cached schedules, at each scrape. Out: metrics.
//! Touches memory only.
//!
//! A schedule that starts no runs makes no other noise: runs that do not exist can be told of by nobody else.

use std::fmt;

use crds::{
    checksum_schedule::reason::INVALID_SPEC,
    condition::{self, READY},
};
use jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    registry::Registry,
};

use super::observe::CachedSchedule;
use crate::{
    metrics::gauge,
    watch::{Cached, Store},
};

/// Tells of every schedule whether it starts its runs, and since when it has verified nothing.
#[derive(Debug)]
pub struct ScheduleMetrics {
    schedules: Store<CachedSchedule>,
}

impl ScheduleMetrics {
    /// Tells of these schedules in `registry`.
    pub fn register(schedules: Store<CachedSchedule>, registry: &mut Registry) {
        registry.register_collector(Box::new(Self { schedules }));
    }
}

/// Not `namespace`: Prometheus gives that name to the namespace of the pod it asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct Labels {
    schedule_namespace: String,
    schedule: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct StatusLabels {
    schedule_namespace: String,
    schedule: String,
    ready: String,
    reason: String,
}

impl Collector for ScheduleMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cached = self.schedules.all();
        tell(encoder, cached.iter().map(AsRef::as_ref))
    }
}

fn tell<'a>(
    mut encoder: DescriptorEncoder<'_>,
    schedules: impl Iterator<Item = &'a CachedSchedule>,
) -> fmt::Result {
    let mut all: Vec<_> = schedules.map(|it| (labels(it), it)).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    gauge(
        &mut encoder,
        "orrery_checksum_schedule_status",
        "1 for each schedule, with what its condition Ready says",
        all.iter().map(|(labels, it)| (status(labels, it), 1)),
    )?;
    let verified = |(labels, it): &(Labels, &CachedSchedule)| {
        let status = it.0.as_ref().ok()?.status.as_ref()?;
        let time = status.last_successful_time.map(Timestamp::as_second)?;
        Some((labels.clone(), time))
    };
    gauge(
        &mut encoder,
        "orrery_checksum_schedule_last_success_timestamp_seconds",
        "When the newest verified run of a schedule ended, as Unix time",
        all.iter().filter_map(verified),
    )
}

fn labels(schedule: &CachedSchedule) -> Labels {
    let key = schedule.key();
    Labels {
        schedule_namespace: key.namespace,
        schedule: key.name,
    }
}

/// Of one that this release cannot read, what its status says is not known, and what is told in it is.
fn status(labels: &Labels, cached: &CachedSchedule) -> StatusLabels {
    let conditions = cached.0.as_ref().map(|it| it.status.as_ref());
    let (ready, reason) = match conditions {
        Err(_) => ("False", INVALID_SPEC.name),
        Ok(status) => {
            let ready = status.and_then(|status| condition::find(&status.conditions, READY));
            ready.map_or(("Unknown", ""), |it| (&*it.status, &*it.reason))
        }
    };
    let Labels {
        schedule_namespace,
        schedule,
    } = labels.clone();
    StatusLabels {
        schedule_namespace,
        schedule,
        ready: ready.into(),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::error_boundary::InvalidObject;
    use prometheus_client::encoding::text::encode;
    use serde_json::{Value, json};

    use super::{super::fixture::schedule, *};
    use crate::watch::custom::Custom;

    #[derive(Debug)]
    struct Schedules(Vec<CachedSchedule>);

    impl Collector for Schedules {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            tell(encoder, self.0.iter())
        }
    }

    fn named(name: &str, status: Value) -> CachedSchedule {
        let mut schedule = schedule();
        schedule.metadata.name = Some(name.into());
        schedule.status = serde_json::from_value(status).unwrap();
        Custom(Ok(schedule))
    }

    #[test]
    fn every_schedule_is_told_also_one_that_starts_nothing_or_cannot_be_read() {
        let ready = |status, reason| json!([{"type": "Ready", "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-11-16T03:00:00Z"}]);
        let unreadable = Custom(Err(InvalidObject {
            error: "unknown variant".into(),
            metadata: named("strange", Value::Null).meta().clone(),
        }));
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(Schedules(vec![
            unreadable,
            named("new", Value::Null),
            named("stuck", json!({"conditions": ready("False", "RunRefused"), "lastSuccessfulTime": "1970-01-02T00:00:00Z"})),
            named("good", json!({"conditions": ready("True", "Scheduled"), "lastSuccessfulTime": "1970-01-03T00:00:00Z"})),
        ])));
        encode(&mut text, &registry).unwrap();
        let told: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let status = "orrery_checksum_schedule_status{schedule_namespace=\"ns\",schedule=";
        let success = "orrery_checksum_schedule_last_success_timestamp_seconds{schedule_namespace=\"ns\",schedule=";
        let expected = [
            format!("{status}\"good\",ready=\"True\",reason=\"Scheduled\"}} 1"),
            format!("{status}\"new\",ready=\"Unknown\",reason=\"\"}} 1"),
            format!("{status}\"strange\",ready=\"False\",reason=\"InvalidSpec\"}} 1"),
            format!("{status}\"stuck\",ready=\"False\",reason=\"RunRefused\"}} 1"),
            format!("{success}\"good\"}} 172800"),
            format!("{success}\"stuck\"}} 86400"),
        ];
        assert_eq!(told, expected);
    }
}
