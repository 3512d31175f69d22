//! `ChecksumRun`: one pass over the files of a volume.
//! In and out: the API as users write it. Pure data and schema.
#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats the items inside a function"
)]

pub mod reason;
mod rules;
pub mod source;
pub mod status;
pub mod store;
pub mod workers;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    condition::{self, COMPLETE},
    duration::Duration,
    pod::PodOverrides,
    quantity::Size,
};
pub use source::Source;
pub use status::ChecksumRunStatus;
pub use store::{Queue, Store};
pub use workers::{Tuning, Workers};

/// What to read and how.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "orrery.dev",
    version = "v1alpha1",
    kind = "ChecksumRun",
    namespaced,
    shortname = "cksum",
    category = "orrery",
    status = "ChecksumRunStatus",
    derive = "PartialEq",
    doc = "One pass over the files of a volume that proves they still hold what was written.",
    scale(
        spec_replicas_path = ".spec.workers.replicas",
        status_replicas_path = ".status.workers",
        label_selector_path = ".status.selector"
    )
)]
#[x_kube(validation = rules::SAMPLE, validation = rules::SINGLE_POD, validation = rules::SHARED_QUEUE_STORE, validation = rules::OWN_STORE)]
#[serde(rename_all = "camelCase")]
pub struct ChecksumRunSpec {
    /// Which files.
    pub source: Source,
    /// Which of them are read.
    #[serde(default)]
    pub mode: Mode,
    /// For mode Sample: how many of the files are read, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub sample_percent: Option<i32>,
    /// How files are hashed. A change computes both digests once and raises no false alarm.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// The name under which the store keeps these files; absent means the name of the claim, or `<namespace>/<claim>` in a database. Runs that name the same in one database mean the same files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
    )]
    pub file_system: Option<String>,
    /// Where checksums live between runs; absent means embedded with its defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Store>,
    /// How work reaches several workers; absent means one pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// Who reads.
    #[serde(default)]
    pub workers: Workers,
    /// Sizes and concurrency of the machinery.
    #[serde(default)]
    pub tuning: Tuning,
    /// Refuse to forget more files than this share, in percent, in one run.
    #[serde(default = "default_guard")]
    #[schemars(range(min = 0, max = 100))]
    pub deletion_guard_percent: i32,
    /// End the run after this state; absent means run to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_after: Option<StopAfter>,
    /// Stop reading until this is false again. Changeable.
    #[serde(default)]
    pub suspend: bool,
    /// End the run for good. Changeable, from absent to true only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<bool>,
    /// Delete this object so long after it ended; absent means keep it. Changeable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_after_finished: Option<Duration>,
    /// Keep the snapshot when the run fails. Changeable.
    #[serde(default)]
    pub keep_snapshot_on_failure: bool,
    /// What is added to every pod of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodOverrides>,
}

fn default_guard() -> i32 {
    10
}

/// Which files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Mode {
    /// Every file.
    #[default]
    Full,
    /// Files that are new, changed or suspicious.
    Incremental,
    /// A random share, besides new and changed files.
    Sample,
}

/// How files are hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Algorithm {
    /// BLAKE3, 256 bits.
    #[default]
    #[serde(rename = "blake3")]
    Blake3,
    /// SHA-1, for comparison with older catalogues.
    #[serde(rename = "sha1")]
    Sha1,
    /// SHA-256.
    #[serde(rename = "sha256")]
    Sha256,
    /// XXH3, 128 bits: fast, not cryptographic.
    #[serde(rename = "xxh3-128")]
    Xxh3,
    /// CRC-32C: fastest, detects accidents only.
    #[serde(rename = "crc32c")]
    Crc32c,
}

/// End the run after this state; absent means run to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum StopAfter {
    /// The snapshot exists.
    Snapshot,
    /// The store knows which files there are.
    MetadataSync,
    /// Every selected file was read.
    WorkQueue,
}

#[expect(
    clippy::expect_used,
    reason = "called with literals only; a test reads each of them"
)]
fn size(literal: &str) -> Size {
    literal.parse().expect("a literal size")
}

impl ChecksumRun {
    /// The condition that ended the run, once it has ended; its reason is the result.
    pub fn ended(&self) -> Option<&Condition> {
        let conditions = &self.status.as_ref()?.conditions;
        condition::find(conditions, COMPLETE).filter(|c| c.status == "True")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_size_can_be_read() {
        let tuning = Tuning::default();
        let store: store::EmbeddedStore = serde_json::from_str("{}").unwrap();
        for size in [tuning.pack_size, tuning.spill_size, store.size] {
            assert!(size.bytes().is_ok());
        }
    }
}
