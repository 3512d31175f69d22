//! Who reads the files, and how hard. In and out: API fields. Pure data and schema.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::size;
use crate::quantity::Size;

/// Who reads the files.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workers {
    /// How many worker pods. Changeable; without a queue there is one pod, and this must be 1.
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
    /// The room for what does not fit in memory while metadata is compared. If a run needs more it ends with the reason Failed and says so.
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
    size("10Gi")
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
