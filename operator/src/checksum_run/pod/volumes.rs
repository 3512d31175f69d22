//! What the pods of a run mount. In: the run with every field read, and what there is. Out: volumes and where they are. Pure.

use crds::{
    name::{AGENT_TLS_SECRET, checksum},
    report::checksum::{CREDENTIALS_FOLDER, SOURCE_FOLDER, SPILL_FOLDER, STORE_FOLDER},
};
use k8s_openapi::{
    api::core::v1::{
        ConfigMapVolumeSource, EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource,
        SecretVolumeSource, Volume, VolumeMount,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use super::{super::config::Validated, CONFIG_FOLDER, Mounts, Role, TLS_FOLDER};

/// How much more the volume for what does not fit in memory takes than agents may put there.
const SPILL_MARGIN: u64 = 64 << 20;

/// What the pods of a role mount, and where.
pub(super) fn all(run: &Validated, mounts: &Mounts, role: &Role) -> Vec<(Volume, VolumeMount)> {
    let claim_of_store = mounts.store.as_ref().filter(|_| role.has_store);
    let children = checksum(&run.key.name);
    let secret = |name: &str, optional| SecretVolumeSource {
        secret_name: Some(name.into()),
        optional,
        ..SecretVolumeSource::default()
    };
    let mut volumes = vec![
        mounted("source", SOURCE_FOLDER, Some(true), |volume| {
            volume.persistent_volume_claim = Some(claim(&mounts.source, Some(true)));
        }),
        mounted("spill", SPILL_FOLDER, None, |volume| {
            volume.empty_dir = Some(EmptyDirVolumeSource {
                size_limit: run.config.tuning.spill_bytes.map(spill_limit),
                medium: None,
            });
        }),
        mounted("config", CONFIG_FOLDER, Some(true), |volume| {
            volume.config_map = Some(ConfigMapVolumeSource {
                name: children.clone(),
                ..ConfigMapVolumeSource::default()
            });
        }),
        mounted("tls", TLS_FOLDER, Some(true), |volume| {
            volume.secret = Some(secret(AGENT_TLS_SECRET, None));
        }),
    ];
    volumes.extend(claim_of_store.map(|name| store(name)));
    if mounts.credentials {
        // Optional: an agent that cannot log in says so, a pod that cannot start does not.
        volumes.push(mounted(
            "credentials",
            CREDENTIALS_FOLDER,
            Some(true),
            |volume| {
                volume.secret = Some(secret(&children, Some(true)));
            },
        ));
    }
    volumes
}

/// Who needs too much should be able to say so: a pod that goes beyond the limit of its volume is evicted without a word.
fn spill_limit(bytes: u64) -> Quantity {
    Quantity(bytes.saturating_add(SPILL_MARGIN).to_string())
}

/// The claim with checksums.
pub(super) fn store(name: &str) -> (Volume, VolumeMount) {
    mounted("store", STORE_FOLDER, None, |volume| {
        volume.persistent_volume_claim = Some(claim(name, None));
    })
}

fn claim(name: &str, read_only: Option<bool>) -> PersistentVolumeClaimVolumeSource {
    PersistentVolumeClaimVolumeSource {
        claim_name: name.into(),
        read_only,
    }
}

fn mounted(
    name: &str,
    folder: &str,
    read_only: Option<bool>,
    from: impl FnOnce(&mut Volume),
) -> (Volume, VolumeMount) {
    let mut volume = Volume {
        name: name.into(),
        ..Volume::default()
    };
    from(&mut volume);
    let mount = VolumeMount {
        name: name.into(),
        mount_path: folder.into(),
        read_only,
        ..VolumeMount::default()
    };
    (volume, mount)
}
