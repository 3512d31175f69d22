//! What an agent counts. In: runs and counters. Out: metrics. Touches nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::engine::Shared;
use crate::store::Run;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// What an agent counts; shared by cloning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    files: Family<Outcome, Gauge>,
    selected_bytes: Gauge,
    read: Gauge<i64>,
    here: Gauge<u64, AtomicU64>,
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
            self.here.clone(),
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
            "Files that are damaged as far as is known",
            self.warnings.clone(),
        );
    }

    pub(crate) fn observe(&self, run: &Run, shared: &Shared) {
        let counts = &run.counts;
        for (outcome, count) in [
            ("verified", counts.verified),
            ("new", counts.new),
            ("changed", counts.changed),
            ("corrupt", counts.corrupt),
            ("unreadable", counts.unreadable),
            ("skipped", counts.skipped),
            ("not_selected", counts.not_selected()),
            ("remaining", counts.remaining()),
        ] {
            self.files.get_or_create(&Outcome { outcome }).set(count);
        }
        self.selected_bytes.set(counts.selected_bytes);
        self.read.set(counts.bytes_read);
        self.reads(shared);
        self.queued
            .set(shared.queued.load(Ordering::Relaxed).cast_signed());
    }

    pub(crate) fn reads(&self, shared: &Shared) {
        self.here.set(shared.bytes.load(Ordering::Relaxed));
        self.reading.set(shared.reading.load(Ordering::Relaxed));
    }

    pub(crate) fn open_warnings(&self, open: u64) {
        self.warnings.set(open.cast_signed());
    }
}
