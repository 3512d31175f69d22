//! `ChecksumSchedule`: makes a `ChecksumRun` at each slot of a cron schedule.
//! In and out: the API as users write it. Pure data and schema.
#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats the items inside a function"
)]

pub mod reason;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    checksum_run::ChecksumRunSpec, condition, cron::CronText, duration::Duration, zone::ZoneName,
};

/// The last finished run verified every file it read.
pub const LAST_RUN_VERIFIED: &str = "LastRunVerified";

/// When to run and what.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "orrery.dev",
    version = "v1alpha1",
    kind = "ChecksumSchedule",
    namespaced,
    shortname = "cksched",
    category = "orrery",
    status = "ChecksumScheduleStatus",
    derive = "PartialEq",
    doc = "Makes a ChecksumRun at each slot of a cron schedule."
)]
#[serde(rename_all = "camelCase")]
pub struct ChecksumScheduleSpec {
    /// When: a cron expression of five fields, or a macro such as `@daily`.
    pub schedule: CronText,
    /// The zone of the schedule.
    #[serde(default)]
    pub time_zone: ZoneName,
    /// What happens at a slot while an earlier run is still active.
    #[serde(default)]
    pub concurrency_policy: ConcurrencyPolicy,
    /// A slot that could not be started within this time is given up; absent means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting_deadline: Option<Duration>,
    /// Start no run until this is false again; active runs go on.
    #[serde(default)]
    pub suspend: bool,
    /// How many verified runs are kept.
    #[serde(default = "default_history")]
    #[schemars(range(min = 0, max = 100))]
    pub successful_runs_history_limit: i32,
    /// How many runs that ended otherwise are kept.
    #[serde(default = "default_history")]
    #[schemars(range(min = 0, max = 100))]
    pub failed_runs_history_limit: i32,
    /// What the runs are made from. A change affects later runs only.
    pub template: RunTemplate,
}

fn default_history() -> i32 {
    3
}

/// What happens at a slot while an earlier run is still active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ConcurrencyPolicy {
    /// A second run starts beside it.
    Allow,
    /// The slot waits for the active run to end, until `startingDeadline` or a newer slot.
    #[default]
    Forbid,
    /// The active run is deleted, and with it its work.
    Replace,
}

/// What the runs are made from.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[x_kube(validation = (
    "!has(self.spec.cancel) || !self.spec.cancel",
    "a template with cancel would end every run at once: remove cancel, or set suspend on the schedule"
))]
#[serde(rename_all = "camelCase")]
pub struct RunTemplate {
    /// Labels and annotations of the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The spec of the runs.
    pub spec: ChecksumRunSpec,
}

/// Labels and annotations of the runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels; the operator's own win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: BTreeMap<String, String>,
    /// Annotations; the operator's own win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
}

/// What the schedule did.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChecksumScheduleStatus {
    /// The generation this status speaks of.
    #[serde(default = "not_observed")]
    pub observed_generation: i64,
    /// What is true about the schedule now.
    #[serde(default)]
    #[schemars(schema_with = "condition::schema")]
    pub conditions: Vec<Condition>,
    /// Runs that have not ended, the oldest twenty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub active: Vec<ActiveRun>,
    /// How many runs have not ended.
    #[serde(default)]
    pub active_count: i32,
    /// The newest slot that was started or given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_schedule_time: Option<Timestamp>,
    /// When the newest verified run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_successful_time: Option<Timestamp>,
    /// When the next run starts; absent while suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub next_schedule_time: Option<Timestamp>,
    /// How the newest run that ended did so: the reason of its Complete condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub last_result: Option<String>,
    /// When that run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_result_time: Option<Timestamp>,
    /// The newest value of the annotation `orrery.dev/run-now` for which a run was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub last_handled_run_now: Option<String>,
}

fn not_observed() -> i64 {
    -1
}

impl Default for ChecksumScheduleStatus {
    fn default() -> Self {
        Self {
            observed_generation: not_observed(),
            conditions: Vec::new(),
            active: Vec::new(),
            active_count: 0,
            last_schedule_time: None,
            last_successful_time: None,
            next_schedule_time: None,
            last_result: None,
            last_result_time: None,
            last_handled_run_now: None,
        }
    }
}

/// A run that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRun {
    /// The run's name.
    #[schemars(length(max = 253))]
    pub name: String,
}
