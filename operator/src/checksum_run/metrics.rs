//! Runs as numbers, for alerts and dashboards. In: the cached runs, at each scrape. Out: metrics.
//! Touches memory only.
//!
//! Runs are told by the files that they are about: a store may keep several file systems, of which none says anything of
//! another.

use std::{collections::BTreeMap, fmt};

use crds::{
    checksum_run::ChecksumRun,
    condition::{self, READY},
};
use jiff::Timestamp;
use kube::ResourceExt;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    registry::Registry,
};

use super::config::{file_system, store_name};
use crate::{
    metrics::gauge,
    watch::{Store, custom::Custom},
};

/// Tells of the files in each store the newest run that ended and those that have not: what came before them is history.
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
    file_system: String,
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
    let files = by_files(runs);
    let told: Vec<&ChecksumRun> = files.values().flat_map(|runs| current(runs)).collect();
    encode_runs(&mut encoder, &told)?;
    encode_stores(&mut encoder, &files)
}

/// Files that runs are about: those of one name in one store of one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Files {
    namespace: String,
    store: String,
    file_system: String,
}

type ByFiles<'a> = BTreeMap<Files, Vec<&'a ChecksumRun>>;

/// The runs over the same files, the oldest first.
fn by_files<'a>(runs: impl Iterator<Item = &'a ChecksumRun>) -> ByFiles<'a> {
    let mut all = ByFiles::new();
    for run in runs {
        let files = Files {
            namespace: run.namespace().unwrap_or_default(),
            store: store_name(run),
            file_system: file_system(run),
        };
        all.entry(files).or_default().push(run);
    }
    for runs in all.values_mut() {
        runs.sort_by_key(|run| (run.creation_timestamp(), run.name_any()));
    }
    all
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
        "1 for each run that has not ended and the newest one over the same files that has, with what its condition Ready says",
        statuses,
    )?;
    gauge(
        encoder,
        "orrery_checksum_run_files",
        "Files of a run by what became of them; remaining ones are still to be read",
        runs.iter().flat_map(|run| files(run)),
    )?;
    gauge(
        encoder,
        "orrery_checksum_run_unlisted",
        "Folders and files that a run could not list: nobody knows of the files in them",
        told(runs, |run| run.status.as_ref()?.unlisted),
    )?;
    encode_progress(encoder, runs)
}

fn encode_progress(encoder: &mut DescriptorEncoder<'_>, runs: &[&ChecksumRun]) -> fmt::Result {
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

fn encode_stores(encoder: &mut DescriptorEncoder<'_>, all: &ByFiles<'_>) -> fmt::Result {
    let newest = |runs: &[&ChecksumRun], what: fn(&ChecksumRun) -> Option<i64>| {
        runs.iter().rev().find_map(|run| what(run))
    };
    let warnings = all.iter().filter_map(|(files, runs)| {
        let open = newest(runs, |run| run.status.as_ref()?.open_warnings)?;
        Some((store_labels(files), open))
    });
    gauge(
        encoder,
        "orrery_checksum_store_open_warnings",
        "Files in a store that are damaged as far as is known, and of which nobody has taken note, as the newest run over them found",
        warnings,
    )?;
    let oldest = all.iter().filter_map(|(files, runs)| {
        let oldest = newest(runs, |run| {
            run.status
                .as_ref()?
                .oldest_verification
                .map(Timestamp::as_second)
        })?;
        Some((store_labels(files), oldest))
    });
    gauge(
        encoder,
        "orrery_checksum_store_oldest_verification_timestamp_seconds",
        "When the run began that read the file in a store that was not read for longest, as Unix time",
        oldest,
    )
}

fn labels(run: &ChecksumRun) -> RunLabels {
    RunLabels {
        run_namespace: run.namespace().unwrap_or_default(),
        run: run.name_any(),
    }
}

fn store_labels(files: &Files) -> StoreLabels {
    StoreLabels {
        run_namespace: files.namespace.clone(),
        store: files.store.clone(),
        file_system: files.file_system.clone(),
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

    /// What is told of runs over the same files: their names, hours of creation and statuses.
    fn told(runs: &[(&str, u8, Value)]) -> String {
        let store = json!({"store": {"embedded": {"claimName": "sums"}}});
        let runs = runs.iter();
        let runs = runs.map(|(name, hour, status)| run(name, *hour, status, store.clone()));
        told_of(runs.collect())
    }

    fn run(name: &str, hour: u8, status: &Value, fields: Value) -> ChecksumRun {
        let mut run = run_with(fields);
        run.metadata.name = Some(name.into());
        let created = format!("2026-11-16T{hour:02}:00:00Z");
        run.metadata.creation_timestamp = serde_json::from_value(json!(created)).unwrap();
        run.status = serde_json::from_value(status.clone()).unwrap();
        run
    }

    fn told_of(runs: Vec<ChecksumRun>) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(Runs(runs)));
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
                        "files": {"total": 5, "verified": 3, "corrupt": 2}, "unlisted": 4}),
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

    #[test]
    fn a_clean_run_over_other_files_in_a_store_hides_no_damage() {
        let damaged = ended("False", "DamageFound", json!({"openWarnings": 2}));
        let clean = ended("True", "Verified", json!({"openWarnings": 0}));
        let claim = json!({"embedded": {"claimName": "sums"}});
        let database =
            json!({"mysql": {"host": "db", "database": "sums", "credentialsRef": {"name": "db"}}});
        let fields = |store: &Value, files: &str| json!({"store": store, "fileSystem": files});
        let text = told_of(vec![
            run("a", 1, &damaged, fields(&claim, "photos")),
            run("b", 2, &clean, fields(&claim, "music")),
            run("c", 1, &damaged, fields(&database, "photos")),
            run("d", 2, &clean, fields(&database, "music")),
        ]);
        let open = text.lines().filter(|line| line.contains("open_warnings"));
        insta::assert_snapshot!(open.collect::<Vec<_>>().join("\n"));
        let failed = |line: &&str| line.contains("run_status{") && line.contains("DamageFound");
        assert_eq!(text.lines().filter(failed).count(), 2, "{text}");
    }
}
