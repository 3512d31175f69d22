//! How requests to agents end, as numbers. In: what happened. Out: numbers in a registry.
//! Touches memory only.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::known::{Cause, Offered};

const RESULTS: [&str; 5] = ["ok", "unreachable", "wrong_pod", "unreadable", "refused"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    result: &'static str,
}

/// Counts requests by result. Clones share their values.
#[derive(Clone, Debug)]
pub struct FleetMetrics {
    polls: Family<Labels, Counter>,
}

impl Default for FleetMetrics {
    /// Every result is there from the start, so that the first failure is already an increase.
    fn default() -> Self {
        let polls = Family::default();
        for result in RESULTS {
            drop(polls.get_or_create(&Labels { result }));
        }
        Self { polls }
    }
}

impl FleetMetrics {
    /// Makes the metrics visible in `registry`. Counters get their `_total` when they are written.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "orrery_fleet_polls",
            "Requests to agents by result: ok, unreachable, wrong_pod, unreadable, or refused by the agent",
            self.polls.clone(),
        );
    }

    /// A poll is over.
    pub(super) fn polled(&self, failure: Option<Cause>) {
        self.count(failure.map_or("ok", label));
    }

    /// A configuration was sent.
    pub(super) fn pushed(&self, outcome: &Offered) {
        self.count(match outcome {
            Offered::Taken => "ok",
            Offered::Refused { .. } => "refused",
            Offered::Failed(failure) => label(failure.cause),
        });
    }

    fn count(&self, result: &'static str) {
        self.polls.get_or_create(&Labels { result }).inc();
    }
}

fn label(cause: Cause) -> &'static str {
    match cause {
        Cause::Unreachable => "unreachable",
        Cause::WrongPod => "wrong_pod",
        Cause::Unreadable => "unreadable",
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn every_result_is_counted_under_its_own_label() {
        let (metrics, mut registry) = (FleetMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        metrics.polled(None);
        for cause in [Cause::Unreachable, Cause::WrongPod, Cause::Unreadable] {
            metrics.polled(Some(cause));
        }
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for result in RESULTS {
            let count = usize::from(result != "refused");
            let line = format!("orrery_fleet_polls_total{{result=\"{result}\"}} {count}\n");
            assert!(text.contains(&line), "{text}");
        }
    }
}
