//! `ChecksumRun`: one pass over the files of a volume.
//! In and out: the API as users write it. Pure data and schema.
#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats the items inside a function"
)]

pub mod reason;
mod rules;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    condition::{self, COMPLETE},
    duration::Duration,
    pod::PodOverrides,
    quantity::Size,
    reference::{LocalRef, Tls},
};

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
#[x_kube(validation = rules::SAMPLE, validation = rules::SINGLE_POD, validation = rules::SHARED_QUEUE_STORE)]
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
    /// The name under which the store keeps these files; absent means the name of the claim.
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

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rules::SUB_PATH)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The volume, mounted read-only.
    pub persistent_volume_claim: ClaimSource,
    /// Only this folder of the volume, relative to its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub sub_path: Option<String>,
    /// Globs of paths that are left out, relative to the source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 512)))]
    pub exclude: Vec<String>,
    /// The consistent view to read; absent means the live volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
}

/// A claim of the same namespace.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSource {
    /// The claim's name.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    )]
    pub claim_name: String,
}

/// The consistent view of the files: exactly one of the members.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rules::SNAPSHOT)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// A CSI snapshot made for this run and deleted after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csi: Option<CsiSnapshot>,
    /// A snapshot that is visible in the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<ExistingSnapshot>,
}

/// How the CSI snapshot is made and mounted.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CsiSnapshot {
    /// The VolumeSnapshotClass; absent means the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class_name: Option<String>,
    /// How the snapshot becomes a volume again.
    #[serde(default)]
    pub restore: Restore,
}

/// The claim that is made from the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restore {
    /// Its storage class; absent means that of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
    /// Its access mode. ReadOnlyMany is made in constant time where others are full copies.
    #[serde(default)]
    pub access_mode: AccessMode,
}

/// How a restored claim is mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AccessMode {
    /// Read by many nodes.
    #[default]
    ReadOnlyMany,
    /// For drivers that cannot restore read-only.
    ReadWriteOnce,
}

/// A snapshot that is a folder of the volume.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rules::SNAPSHOT_PATH)]
#[serde(rename_all = "camelCase")]
pub struct ExistingSnapshot {
    /// The folder, relative to the volume's root, for example `.snapshots/daily`.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
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

/// Where checksums live between runs: exactly one of the members.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rules::STORE)]
#[serde(rename_all = "camelCase")]
pub struct Store {
    /// A SQLite file on a claim of its own, which outlives the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedded: Option<EmbeddedStore>,
    /// A MySQL or MariaDB server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mysql: Option<MysqlStore>,
}

/// The claim with the SQLite file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddedStore {
    /// The claim's name; absent means `<schedule, else run>-store`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    )]
    pub claim_name: Option<String>,
    /// The claim's size when the operator makes it.
    #[serde(default = "default_store_size")]
    pub size: Size,
    /// The claim's storage class when the operator makes it; absent means the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
}

fn default_store_size() -> Size {
    size("10Gi")
}

#[expect(
    clippy::expect_used,
    reason = "called with literals only; a test reads each of them"
)]
fn size(literal: &str) -> Size {
    literal.parse().expect("a literal size")
}

/// A MySQL or MariaDB server.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rules::HOST)]
#[serde(rename_all = "camelCase")]
pub struct MysqlStore {
    /// Host name or address.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// Port.
    #[serde(default = "default_mysql_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// The database in it.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_]+$"))]
    pub database: String,
    /// A Secret with `username` and `password`.
    pub credentials_ref: LocalRef,
    /// TLS; absent means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

fn default_mysql_port() -> i32 {
    3306
}

/// How work reaches several workers: exactly one of the members.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rules::QUEUE)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// A Redis server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<RedisQueue>,
}

/// A Redis server.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = rules::HOST)]
#[serde(rename_all = "camelCase")]
pub struct RedisQueue {
    /// Host name or address.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// Port.
    #[serde(default = "default_redis_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// A Secret with `username` (may be empty) and `password`; absent means no authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<LocalRef>,
    /// TLS; absent means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// The first part of every key, so that several systems can share a server.
    #[serde(default = "default_prefix")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9._:-]+$"))]
    pub prefix: String,
}

fn default_redis_port() -> i32 {
    6379
}

fn default_prefix() -> String {
    "orrery".into()
}

/// Who reads the files.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workers {
    /// How many worker pods. Changeable; more than one needs a queue.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
    /// Files read at once by each worker; absent means adapted to the storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub concurrency: Option<i32>,
    /// Bytes per second of all workers together; absent means no limit. Changeable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_throughput: Option<Size>,
    /// Bytes per second of each worker; absent means no limit. Changeable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_throughput_per_worker: Option<Size>,
    /// The user that reads; absent means 65532.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4_294_967_294_i64))]
    pub run_as_user: Option<i64>,
    /// The group that reads; absent means 65532.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4_294_967_294_i64))]
    pub run_as_group: Option<i64>,
    /// More groups of the reading process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(range(min = 0, max = 4_294_967_294_i64)))]
    pub supplemental_groups: Vec<i64>,
}

fn default_replicas() -> i32 {
    1
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            replicas: default_replicas(),
            concurrency: None,
            max_throughput: None,
            max_throughput_per_worker: None,
            run_as_user: None,
            run_as_group: None,
            supplemental_groups: Vec::new(),
        }
    }
}

/// Sizes and concurrency of the machinery.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tuning {
    /// A pack of work is complete at this many bytes of files.
    #[serde(default = "default_pack_size")]
    pub pack_size: Size,
    /// A pack of work is complete at this many files.
    #[serde(default = "default_pack_files")]
    #[schemars(range(min = 1, max = 100_000))]
    pub pack_files: i32,
    /// Partitions of the metadata that are compared at once.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = 1, max = 64))]
    pub sync_concurrency: i32,
    /// Rows per statement while metadata is compared.
    #[serde(default = "default_sync_chunk")]
    #[schemars(range(min = 100, max = 1_000_000))]
    pub sync_chunk_rows: i32,
    /// Transactions that write results at once.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = 1, max = 64))]
    pub write_back_concurrency: i32,
    /// Results per transaction.
    #[serde(default = "default_write_back_batch")]
    #[schemars(range(min = 1, max = 65_535))]
    pub write_back_batch: i32,
    /// Read from the medium, not from the page cache.
    #[serde(default = "default_bypass")]
    pub bypass_cache: bool,
    /// The volume for what does not fit in memory while metadata is compared.
    #[serde(default = "default_spill")]
    pub spill_size: Size,
}

fn default_pack_size() -> Size {
    size("5Mi")
}

fn default_pack_files() -> i32 {
    1000
}

fn default_concurrency() -> i32 {
    2
}

fn default_sync_chunk() -> i32 {
    10_000
}

fn default_write_back_batch() -> i32 {
    500
}

fn default_bypass() -> bool {
    true
}

fn default_spill() -> Size {
    size("1Gi")
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            pack_size: default_pack_size(),
            pack_files: default_pack_files(),
            sync_concurrency: default_concurrency(),
            sync_chunk_rows: default_sync_chunk(),
            write_back_concurrency: default_concurrency(),
            write_back_batch: default_write_back_batch(),
            bypass_cache: default_bypass(),
            spill_size: default_spill(),
        }
    }
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

/// How far the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum RunState {
    /// Nothing was begun.
    Initialised,
    /// The snapshot is being made.
    Snapshot,
    /// The files are listed and compared with the store.
    MetadataSync,
    /// Files are read.
    WorkQueue,
    /// What the run left behind is removed.
    CleanUp,
    /// Done.
    Finished,
    /// The run is being ended before its time.
    CancellingMetadataSync,
    /// Ended before its time.
    Aborted,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChecksumRunStatus {
    /// The generation this status speaks of.
    #[serde(default = "not_observed")]
    pub observed_generation: i64,
    /// What is true about the run now.
    #[serde(default)]
    #[schemars(schema_with = "condition::schema")]
    pub conditions: Vec<Condition>,
    /// How far the run is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RunState>,
    /// When the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub start_time: Option<Timestamp>,
    /// When the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub completion_time: Option<Timestamp>,
    /// The files by what became of them; the others always add up to `total`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FileCounts>,
    /// Bytes read so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_read: Option<i64>,
    /// The rate of reading, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub throughput: Option<String>,
    /// How much of the selected bytes was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub progress_percent: Option<i32>,
    /// The same for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub progress: Option<String>,
    /// Damaged files, the first twenty; `files.corrupt` is their number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub corrupt: Vec<CorruptFile>,
    /// The snapshot that is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub snapshot: Option<String>,
    /// Worker pods that are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<i32>,
    /// Selects the worker pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub selector: Option<String>,
}

fn not_observed() -> i64 {
    -1
}

impl Default for ChecksumRunStatus {
    fn default() -> Self {
        Self {
            observed_generation: not_observed(),
            conditions: Vec::new(),
            state: None,
            start_time: None,
            completion_time: None,
            files: None,
            bytes_read: None,
            throughput: None,
            progress_percent: None,
            progress: None,
            corrupt: Vec::new(),
            snapshot: None,
            workers: None,
            selector: None,
        }
    }
}

/// The files by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FileCounts {
    /// All of them.
    pub total: i64,
    /// Read, and as they were.
    pub verified: i64,
    /// Read for the first time.
    pub new: i64,
    /// Changed by somebody since the last run.
    pub changed: i64,
    /// Not what was written.
    pub corrupt: i64,
    /// Could not be read.
    pub unreadable: i64,
    /// Changed while being read.
    pub skipped: i64,
    /// Not read in this mode.
    pub not_selected: i64,
    /// Still to be read.
    pub remaining: i64,
    /// Gone since the last run; not part of `total`.
    pub deleted: i64,
}

/// A damaged file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CorruptFile {
    /// Its path, relative to the source; bytes that are not UTF-8 are escaped.
    #[schemars(length(max = 4096))]
    pub path: String,
    /// The digest on record, in hex.
    #[schemars(length(max = 128))]
    pub expected: String,
    /// The digest that was read, in hex.
    #[schemars(length(max = 128))]
    pub actual: String,
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
        for size in [tuning.pack_size, tuning.spill_size, default_store_size()] {
            assert!(size.bytes().is_ok());
        }
    }
}
