//! Runs as numbers, for alerts and dashboards. In: the cached runs, at each scrape. Out: metrics.
//! Touches memory only.

use std::{collections::BTreeMap, fmt};

use crds::{
    checksum_run::ChecksumRun,
    condition::{self, READY},
};
use jiff::Timestamp;
use kube::ResourceExt;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};

use super::config::{Place, place};
use crate::watch::{Store, custom::Custom};

/// Tells of each store the newest run that ended and those that have not: what came before them is history.
#[derive(Debug)]
pub struct RunMetrics {
    runs: Store<Custom<ChecksumRun>>,
}

impl RunMetrics {
    /// Tells of these runs in `registry`.
    pub fn register(runs: Store<Custom<ChecksumRun>>, registry: &mut Registry) {
        registry.register_collector(Box::new(Self { runs }));
    }
}

/// Not `namespace`: Prometheus gives that name to the namespace of the pod it asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct RunLabels {
    run_namespace: String,
    run: String,
}

#[derive(Debug, EncodeLabelSet)]
struct StoreLabels {
    run_namespace: String,
    store: String,
}

#[derive(Debug, EncodeLabelSet)]
struct StatusLabels {
    run_namespace: String,
    run: String,
    ready: String,
    reason: String,
    finished: String,
}

#[derive(Debug, EncodeLabelSet)]
struct FileLabels {
    run_namespace: String,
    run: String,
    outcome: &'static str,
}

impl Collector for RunMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cached = self.runs.all();
        tell(encoder, cached.iter().filter_map(|run| run.0.as_ref().ok()))
    }
}

fn tell<'a>(
    mut encoder: DescriptorEncoder<'_>,
    runs: impl Iterator<Item = &'a ChecksumRun>,
) -> fmt::Result {
    let stores = by_store(runs);
    let told: Vec<&ChecksumRun> = stores.values().flat_map(|runs| current(runs)).collect();
    encode_runs(&mut encoder, &told)?;
    encode_stores(&mut encoder, &stores)
}

type Stores<'a> = BTreeMap<(String, Place), Vec<&'a ChecksumRun>>;

/// The runs of each store, the oldest first.
fn by_store<'a>(runs: impl Iterator<Item = &'a ChecksumRun>) -> Stores<'a> {
    let mut stores = Stores::new();
    for run in runs {
        let store = (run.namespace().unwrap_or_default(), place(run));
        stores.entry(store).or_default().push(run);
    }
    for runs in stores.values_mut() {
        runs.sort_by_key(|run| (run.creation_timestamp(), run.name_any()));
    }
    stores
}

/// The newest run that has ended, and those that have not.
fn current<'a>(runs: &[&'a ChecksumRun]) -> Vec<&'a ChecksumRun> {
    let mut last = None;
    let mut current = Vec::new();
    for run in runs {
        match run.ended() {
            Some(_) => last = Some(*run),
            None => current.push(*run),
        }
    }
    current.extend(last);
    current
}

fn encode_runs(encoder: &mut DescriptorEncoder<'_>, runs: &[&ChecksumRun]) -> fmt::Result {
    let statuses = runs.iter().map(|run| (status_labels(run), 1));
    gauge(
        encoder,
        "orrery_checksum_run_status",
        "1 for each run that has not ended and the newest one of each store that has, with what its condition Ready says",
        statuses,
    )?;
    gauge(
        encoder,
        "orrery_checksum_run_files",
        "Files of a run by what became of them; remaining ones are still to be read",
        runs.iter().flat_map(|run| files(run)),
    )?;
    let read = |run: &ChecksumRun| run.status.as_ref()?.bytes_read;
    gauge(
        encoder,
        "orrery_checksum_run_read_bytes",
        "Bytes that a run has read",
        told(runs, read),
    )?;
    let began = |run: &ChecksumRun| run.status.as_ref()?.start_time.map(Timestamp::as_second);
    gauge(
        encoder,
        "orrery_checksum_run_start_timestamp_seconds",
        "When a run began, as Unix time",
        told(runs, began),
    )?;
    let ended = |run: &ChecksumRun| {
        run.status
            .as_ref()?
            .completion_time
            .map(Timestamp::as_second)
    };
    gauge(
        encoder,
        "orrery_checksum_run_completion_timestamp_seconds",
        "When a run ended, as Unix time",
        told(runs, ended),
    )
}

/// What runs tell that know it.
fn told(
    runs: &[&ChecksumRun],
    what: impl Fn(&ChecksumRun) -> Option<i64>,
) -> impl Iterator<Item = (RunLabels, i64)> {
    runs.iter()
        .filter_map(move |run| Some((labels(run), what(run)?)))
}

fn encode_stores(encoder: &mut DescriptorEncoder<'_>, stores: &Stores<'_>) -> fmt::Result {
    let newest = |runs: &[&ChecksumRun], what: fn(&ChecksumRun) -> Option<i64>| {
        runs.iter().rev().find_map(|run| what(run))
    };
    let warnings = stores.iter().filter_map(|(store, runs)| {
        let open = newest(runs, |run| run.status.as_ref()?.open_warnings)?;
        Some((store_labels(store), open))
    });
    gauge(
        encoder,
        "orrery_checksum_store_open_warnings",
        "Files of a store that are damaged as far as is known, and of which nobody has taken note, as the newest run found",
        warnings,
    )?;
    let oldest = stores.iter().filter_map(|(store, runs)| {
        let oldest = newest(runs, |run| {
            run.status
                .as_ref()?
                .oldest_verification
                .map(Timestamp::as_second)
        })?;
        Some((store_labels(store), oldest))
    });
    gauge(
        encoder,
        "orrery_checksum_store_oldest_verification_timestamp_seconds",
        "When the run began that read the file of a store that was not read for longest, as Unix time",
        oldest,
    )
}

/// A family with all that is to be told; its name is told also when there is nothing else.
fn gauge<L: EncodeLabelSet>(
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

fn labels(run: &ChecksumRun) -> RunLabels {
    RunLabels {
        run_namespace: run.namespace().unwrap_or_default(),
        run: run.name_any(),
    }
}

fn store_labels((namespace, place): &(String, Place)) -> StoreLabels {
    StoreLabels {
        run_namespace: namespace.clone(),
        store: place.to_string(),
    }
}

fn status_labels(run: &ChecksumRun) -> StatusLabels {
    let RunLabels {
        run_namespace,
        run: name,
    } = labels(run);
    let conditions = run.status.as_ref().map(|status| &status.conditions);
    let ready = conditions.and_then(|all| condition::find(all, READY));
    StatusLabels {
        run_namespace,
        run: name,
        ready: ready.map_or("Unknown", |ready| &ready.status).into(),
        reason: ready.map_or("", |ready| &ready.reason).into(),
        finished: run.ended().is_some().to_string(),
    }
}

fn files(run: &ChecksumRun) -> impl Iterator<Item = (FileLabels, i64)> {
    let RunLabels {
        run_namespace,
        run: name,
    } = labels(run);
    let files = run.status.as_ref().and_then(|status| status.files);
    let counts = files.map(|files| files.by_outcome());
    counts.into_iter().flatten().map(move |(outcome, count)| {
        let labels = FileLabels {
            run_namespace: run_namespace.clone(),
            run: name.clone(),
            outcome,
        };
        (labels, count)
    })
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use serde_json::{Value, json};

    use super::{super::fixture::run_with, *};

    #[derive(Debug)]
    struct Runs(Vec<ChecksumRun>);

    impl Collector for Runs {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            tell(encoder, self.0.iter())
        }
    }

    /// What is told of runs of one store: their names, hours of creation and statuses.
    fn told(runs: &[(&str, u8, Value)]) -> String {
        let runs = runs.iter().map(|(name, hour, status)| {
            let mut run = run_with(json!({"store": {"embedded": {"claimName": "sums"}}}));
            run.metadata.name = Some((*name).into());
            let created = format!("2026-11-16T{hour:02}:00:00Z");
            run.metadata.creation_timestamp = serde_json::from_value(json!(created)).unwrap();
            run.status = serde_json::from_value(status.clone()).unwrap();
            run
        });
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(Runs(runs.collect())));
        encode(&mut text, &registry).unwrap();
        let values = text.lines().filter(|line| !line.starts_with('#'));
        values.collect::<Vec<_>>().join("\n")
    }

    fn ended(ready: &str, reason: &str, mut more: Value) -> Value {
        let condition = |type_, status| json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-11-16T03:00:00Z"});
        more["conditions"] = json!([condition("Ready", ready), condition("Complete", "True")]);
        more
    }

    #[test]
    fn a_store_is_told_by_its_newest_run_and_those_that_go_on() {
        let text = told(&[
            (
                "old",
                1,
                ended("False", "DamageFound", json!({"openWarnings": 7})),
            ),
            (
                "last",
                2,
                ended(
                    "False",
                    "DamageFound",
                    json!({"openWarnings": 2, "oldestVerification": "1970-01-02T00:00:00Z", "completionTime": "1970-01-03T00:00:00Z",
                        "files": {"total": 5, "verified": 3, "corrupt": 2}}),
                ),
            ),
            (
                "now",
                3,
                json!({"startTime": "1970-01-04T00:00:00Z", "bytesRead": 9}),
            ),
        ]);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn runs_of_which_nothing_is_known_are_told_as_such() {
        insta::assert_snapshot!(told(&[("new", 1, Value::Null)]));
    }
}
