//! Snapshots that are made for runs. In: a name. Out: how far the snapshot is.
//! Reads from the API server, only for runs that want one: a cluster need not know the kind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, CustomResource, ResourceExt};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::config::Validated;
use crate::{
    act::WRITE_TIMEOUT,
    class::{ApiError, Class},
    object::{Key, owner_uid},
};

/// What a snapshot is made of.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[kube(
    group = "snapshot.storage.k8s.io",
    version = "v1",
    kind = "VolumeSnapshot",
    namespaced,
    status = "VolumeSnapshotStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSpec {
    /// How it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
    /// Of what.
    pub source: SnapshotSource,
}

/// What a snapshot is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotSource {
    /// A claim; absent in snapshots that others have brought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
}

/// How far a snapshot is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotStatus {
    /// Whether a volume can be made from it.
    pub ready_to_use: Option<bool>,
    /// The least size of such a volume.
    pub restore_size: Option<String>,
    /// What went wrong last.
    pub error: Option<SnapshotError>,
}

/// What went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct SnapshotError {
    /// In words.
    pub message: Option<String>,
}

/// What is known of the snapshot of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nobody looked.
    Unknown,
    /// The cluster does not know the kind.
    NoKind,
    /// There is none.
    Absent,
    /// One of that name belongs to somebody else.
    Foreign,
    /// It is there.
    There {
        /// Its UID.
        uid: String,
        /// How far it is.
        status: VolumeSnapshotStatus,
        /// Whether it is being deleted.
        deleting: bool,
    },
}

/// Why nobody knows.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused, or could not be reached.
    #[error("failed to read VolumeSnapshot {key}")]
    Request {
        /// Its name.
        key: Key,
        /// Why.
        source: ApiError,
    },
    /// Nobody answered.
    #[error("failed to read VolumeSnapshot {key}: no answer within {} s", WRITE_TIMEOUT.as_secs())]
    Late {
        /// Its name.
        key: Key,
    },
}

impl Error {
    /// How the failure is to be treated.
    pub fn class(&self) -> Class {
        match self {
            Self::Request { source, .. } => source.class(),
            Self::Late { .. } => Class::Transient,
        }
    }
}

/// Reads the snapshot of that name, which should belong to the run with that UID.
pub async fn read(client: &Client, key: &Key, run: &str) -> Result<Found, Error> {
    let api = Api::<VolumeSnapshot>::namespaced(client.clone(), &key.namespace);
    let read = timeout(WRITE_TIMEOUT, api.get_opt(&key.name)).await;
    match read.map_err(|_| Error::Late { key: key.clone() })? {
        Ok(Some(snapshot)) => Ok(found(snapshot, run)),
        Ok(None) => Ok(Found::Absent),
        Err(error) => match ApiError::from(error) {
            // An answer without a word on the object: the path itself is not there.
            error if error.code == Some(404) => Ok(Found::NoKind),
            source => Err(Error::Request {
                key: key.clone(),
                source,
            }),
        },
    }
}

fn found(snapshot: VolumeSnapshot, run: &str) -> Found {
    if owner_uid(&snapshot) != Some(run) {
        return Found::Foreign;
    }
    Found::There {
        uid: snapshot.uid().unwrap_or_default(),
        deleting: snapshot.metadata.deletion_timestamp.is_some(),
        status: snapshot.status.unwrap_or_default(),
    }
}

/// The snapshot of a run, with that metadata.
pub fn snapshot(run: &Validated, metadata: ObjectMeta) -> VolumeSnapshot {
    let csi = run.csi();
    let source = run.spec.source.persistent_volume_claim.claim_name.clone();
    VolumeSnapshot {
        metadata,
        spec: VolumeSnapshotSpec {
            volume_snapshot_class_name: csi.and_then(|csi| csi.class_name.clone()),
            source: SnapshotSource {
                persistent_volume_claim_name: Some(source),
            },
        },
        status: None,
    }
}
