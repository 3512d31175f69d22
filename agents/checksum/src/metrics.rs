//! What an agent counts. In: runs and counters. Out: metrics. Touches nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crds::checksum_run::status::FileCounts;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::engine::Shared;
use crate::store::Run;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// What is counted elsewhere, from 0 again with each attempt, as one number that only grows.
#[derive(Clone, Debug, Default)]
struct Counted {
    counter: Counter,
    last: Arc<AtomicU64>,
}

impl Counted {
    fn observe(&self, counted: &AtomicU64) {
        let now = counted.load(Ordering::Relaxed);
        let last = self.last.swap(now, Ordering::Relaxed);
        self.counter.inc_by(now.checked_sub(last).unwrap_or(now));
    }
}

/// What an agent counts; shared by cloning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    files: Family<Outcome, Gauge>,
    selected_bytes: Gauge,
    read: Gauge<i64>,
    bytes_here: Counted,
    files_here: Counted,
    reading: Gauge,
    queued: Gauge,
    warnings: Gauge,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let files = "Files of the run by what became of them; remaining ones are still to be read";
        registry.register("orrery_checksum_files", files, self.files.clone());
        registry.register_with_unit(
            "orrery_checksum_selected",
            "Bytes of the files that the run reads",
            Unit::Bytes,
            self.selected_bytes.clone(),
        );
        registry.register_with_unit(
            "orrery_checksum_stored",
            "Bytes of the files that were read and whose checksums are stored",
            Unit::Bytes,
            self.read.clone(),
        );
        registry.register_with_unit(
            "orrery_checksum_read",
            "Bytes that this process has read since it started",
            Unit::Bytes,
            self.bytes_here.counter.clone(),
        );
        registry.register(
            "orrery_checksum_read_files",
            "Files, and pieces of large ones, that this process has read since it started",
            self.files_here.counter.clone(),
        );
        registry.register(
            "orrery_checksum_reading",
            "Files that this process is reading",
            self.reading.clone(),
        );
        registry.register(
            "orrery_checksum_queued_packs",
            "Packs that wait for a worker",
            self.queued.clone(),
        );
        registry.register(
            "orrery_checksum_open_warnings",
            "Files that are damaged as far as is known, and of which nobody has taken note",
            self.warnings.clone(),
        );
    }

    pub(crate) fn observe(&self, run: &Run, shared: &Shared) {
        let counts = &run.counts;
        for (outcome, count) in FileCounts::from(counts).by_outcome() {
            self.files.get_or_create(&Outcome { outcome }).set(count);
        }
        self.selected_bytes.set(counts.selected_bytes);
        self.read.set(counts.bytes_read);
        self.reads(shared);
        self.queued
            .set(shared.queued.load(Ordering::Relaxed).cast_signed());
    }

    pub(crate) fn reads(&self, shared: &Shared) {
        self.bytes_here.observe(&shared.bytes);
        self.files_here.observe(&shared.files);
        self.reading.set(shared.reading.load(Ordering::Relaxed));
    }

    pub(crate) fn open_warnings(&self, open: u64) {
        self.warnings.set(open.cast_signed());
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_page_names_every_metric() {
        let (metrics, mut registry, mut text) =
            (Metrics::default(), Registry::default(), String::new());
        metrics.register(&mut registry);
        drop(metrics.files.get_or_create(&Outcome { outcome: "new" }));
        encode(&mut text, &registry).unwrap();
        let page = include_str!("../../../docs/checksumrun.md");
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        for (name, kind) in types.filter_map(|line| line.split_once(' ')) {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let row = format!("| `{name}{suffix}` | {kind} |");
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_new_attempt_counts_on() {
        let counted = Counted::default();
        for now in [5, 7, 7, 2, 3] {
            counted.observe(&AtomicU64::new(now));
        }
        assert_eq!(counted.counter.get(), 10);
    }
}
