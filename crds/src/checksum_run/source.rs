//! Which files a run reads. In and out: API fields. Pure data and schema.
#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats the items inside a function"
)]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;

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

impl Source {
    /// How the snapshot is made, if one is.
    pub fn csi(&self) -> Option<&CsiSnapshot> {
        self.snapshot.as_ref()?.csi.as_ref()
    }
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
