//! What the operator and the agents of a ChecksumRun tell each other: the agent's part of the documents.
//! In and out: JSON; fields that are absent have the meaning they had before they existed. Pure data.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::checksum_run::{
    Algorithm, Mode,
    status::{CorruptFile, FileCounts, RunState},
};

/// Where the source is mounted in every pod of a run.
pub const SOURCE_FOLDER: &str = "/source";
/// Where the claim of an embedded store is mounted.
pub const STORE_FOLDER: &str = "/store";
/// Where there is room for what does not fit in memory.
pub const SPILL_FOLDER: &str = "/spill";
/// Where credentials are mounted: files named as [`credential`] says.
pub const CREDENTIALS_FOLDER: &str = "/etc/orrery/credentials";

/// Names of the files in [`CREDENTIALS_FOLDER`], which are the keys of the Secret that is mounted there.
pub mod credential {
    /// The user of the store.
    pub const STORE_USERNAME: &str = "store-username";
    /// Their password.
    pub const STORE_PASSWORD: &str = "store-password";
    /// The authorities that the store's certificate is checked against.
    pub const STORE_CA: &str = "store-ca.crt";
    /// The certificate that is shown to the store, if any.
    pub const STORE_CERTIFICATE: &str = "store-tls.crt";
    /// Its key.
    pub const STORE_KEY: &str = "store-tls.key";
    /// The user of the queue; may be absent or empty.
    pub const QUEUE_USERNAME: &str = "queue-username";
    /// Their password.
    pub const QUEUE_PASSWORD: &str = "queue-password";
    /// The authorities that the queue's certificate is checked against.
    pub const QUEUE_CA: &str = "queue-ca.crt";
    /// The certificate that is shown to the queue, if any.
    pub const QUEUE_CERTIFICATE: &str = "queue-tls.crt";
    /// Its key.
    pub const QUEUE_KEY: &str = "queue-tls.key";
}

/// `spec` of the configuration of a coordinator or a worker: the same document for both.
#[expect(
    clippy::struct_excessive_bools,
    reason = "a field for each thing that agents are told"
)]
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChecksumConfig {
    /// `namespace/name` of the ChecksumRun, for people.
    pub run: String,
    /// Under which the store keeps these files.
    pub file_system: String,
    /// The folder whose files are read, as the pods see it.
    pub root: String,
    /// Globs of what is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// The snapshot that is read, if there is one; no two runs have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Whether nobody changes what is read: a snapshot of any kind.
    #[serde(default)]
    pub consistent: bool,
    /// Which files are read.
    pub mode: Mode,
    /// How many of them, in percent, in mode Sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_percent: Option<i32>,
    /// How they are hashed.
    pub algorithm: Algorithm,
    /// Where checksums live.
    pub store: StoreConfig,
    /// How work reaches workers; absent means that the coordinator reads the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueConfig>,
    /// The most that may be forgotten at once, in percent.
    pub deletion_guard_percent: i32,
    /// Whether the run ends when the files are listed.
    #[serde(default)]
    pub stop_after_sync: bool,
    /// Nothing is read while this is true.
    #[serde(default)]
    pub suspend: bool,
    /// The run is given up.
    #[serde(default)]
    pub cancel: bool,
    /// Files read at once by each worker; absent means adapted to the storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<i32>,
    /// Bytes per second of all workers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_throughput: Option<u64>,
    /// Bytes per second of each worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_throughput_per_worker: Option<u64>,
    /// Sizes and concurrency of the machinery.
    pub tuning: TuningConfig,
}

/// Where checksums live: exactly one of the members.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum StoreConfig {
    /// A SQLite file below [`STORE_FOLDER`], named after the file system.
    Embedded {},
    /// A MySQL or MariaDB server.
    Mysql(Server),
}

/// How work reaches workers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueConfig {
    /// A Redis server.
    pub redis: Server,
}

/// A server; what it takes to log in is in [`CREDENTIALS_FOLDER`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// The database of a store, the prefix of all keys of a queue.
    pub space: String,
    /// Whether to use TLS.
    #[serde(default)]
    pub tls: bool,
}

/// Sizes and concurrency of the machinery, as `spec.tuning` has them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TuningConfig {
    /// A pack is complete at this many bytes.
    pub pack_bytes: u64,
    /// A pack is complete at this many files.
    pub pack_files: u32,
    /// Partitions that are compared at once.
    pub sync_concurrency: u16,
    /// Rows per statement while metadata is compared.
    pub sync_chunk_rows: u32,
    /// Transactions that write results at once.
    pub write_back_concurrency: u16,
    /// Results per transaction.
    pub write_back_batch: u32,
    /// Read from the medium.
    pub bypass_cache: bool,
    /// The most bytes that are kept in [`SPILL_FOLDER`]; absent means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill_bytes: Option<u64>,
}

/// `detail` of the report of a coordinator. It is also, shortened to what fits, the message with which its container ends:
/// who comes too late to ask finds it in the pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CoordinatorReport {
    /// How far the run is; absent until the store was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<RunState>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// The files by what became of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<FileCounts>,
    /// Files that were found so far, while they are listed.
    pub listed: u64,
    /// Bytes of the files that are to be read.
    pub selected_bytes: u64,
    /// Bytes read so far and stored.
    pub bytes_read: u64,
    /// Bytes read per second, lately.
    pub bytes_per_second: u64,
    /// Damaged files, the first twenty by path: all that are damaged as far as is known, found by this run or before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub corrupt: Vec<CorruptFile>,
    /// How many these are in all; absent until the store was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged: Option<u64>,
    /// How many files are damaged as far as is known, and nobody has taken note of it; absent until the store was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_warnings: Option<u64>,
    /// When the run began that read the file which was not read for longest; known at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_verification: Option<Timestamp>,
    /// Folders and files that could not be listed.
    pub unlisted: u64,
    /// What the first of them said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlisted_example: Option<String>,
    /// Packs that wait for a worker.
    pub queued: u64,
    /// What keeps the run from going on, while it does: the name of a reason of the API, and words for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Explained>,
    /// How the run ended, once it has: the name of a reason of the API, and words for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Explained>,
}

/// A reason and words.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Explained {
    /// The name of a reason of the API.
    pub reason: String,
    /// What exactly, and what happens next.
    pub message: String,
}

/// `detail` of the report of a worker.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerReport {
    /// Bytes read since it started.
    pub bytes_read: u64,
    /// Bytes read per second, lately.
    pub bytes_per_second: u64,
    /// Files that are being read.
    pub reading: u32,
    /// What keeps it from going on, while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Explained>,
}
