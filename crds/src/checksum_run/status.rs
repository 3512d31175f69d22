//! What a run found. In and out: API fields. Pure data and schema.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition;

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
    /// What an aborted listing left behind is removed.
    AbortingMetadataSync,
    /// What an aborted run left behind is removed.
    AbortingSnapshot,
    /// Given up, by somebody's decision.
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
    /// Folders and files that could not be listed: nobody knows of the files in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<i64>,
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
    /// Damaged files, the first twenty by path: all that are damaged as far as is known, found by this run or before, acknowledged or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub corrupt: Vec<CorruptFile>,
    /// How many these are in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<i64>,
    /// Files that are damaged as far as is known, found by this run or before; without those that somebody has acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_warnings: Option<i64>,
    /// When the run began that read the file which was not read for longest; told when the run ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub oldest_verification: Option<Timestamp>,
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
            unlisted: None,
            bytes_read: None,
            throughput: None,
            progress_percent: None,
            progress: None,
            corrupt: Vec::new(),
            damaged: None,
            open_warnings: None,
            oldest_verification: None,
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
    /// Read by this run, and not what was written.
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

impl FileCounts {
    /// What became of the files, by the names that metrics have for it; all of `total`.
    pub fn by_outcome(&self) -> [(&'static str, i64); 8] {
        [
            ("verified", self.verified),
            ("new", self.new),
            ("changed", self.changed),
            ("corrupt", self.corrupt),
            ("unreadable", self.unreadable),
            ("skipped", self.skipped),
            ("not_selected", self.not_selected),
            ("remaining", self.remaining),
        ]
    }
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
