//! Objects that a run needs. In: the run with every field read. Out: objects as they are asked for. Pure.

use std::collections::BTreeMap;

use crds::{
    checksum_run::{ChecksumRun, source::AccessMode},
    name::{
        self, AGENT_LABEL, CHECKSUM_COORDINATOR, CHECKSUM_RUN_LABEL, CHECKSUM_WORKER, CHECKSUMS,
        MANAGED_BY, MANAGED_BY_LABEL, OWNER_LABEL, STORE_LABEL, TEMPLATE_ANNOTATION,
    },
    quantity::Size,
};
use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        batch::v1::{
            Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnPodConditionsPattern,
            PodFailurePolicyRule,
        },
        core::v1::{
            ConfigMap, PersistentVolumeClaim, PersistentVolumeClaimSpec, PodTemplateSpec, Secret,
            TypedLocalObjectReference, VolumeResourceRequirements,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
    },
};
use kube::Resource;
use runtime::config::CONFIG_FILE;

use super::{
    config::Validated,
    credentials::Files,
    pod::{self, Image, Mounts, Together},
    snapshot::{self, VolumeSnapshot},
};
use crate::{object::digest, watch::child::ClaimState};

/// How often a coordinator may crash before the run is given up. What is evicted does not count.
const CRASHES: i32 = 6;

/// How long a store may take to be mounted and made writable.
const PREPARATION_SECONDS: i64 = 600;

/// The claim for checksums. It belongs to nobody: it outlives the run and everything else.
pub fn store_claim(run: &Validated, name: &str) -> PersistentVolumeClaim {
    let store = run.embedded().unwrap_or_default();
    let labels = [(MANAGED_BY_LABEL, MANAGED_BY), (STORE_LABEL, CHECKSUMS)];
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some(run.key.namespace.clone()),
            labels: Some(owned(labels)),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            storage_class_name: store.storage_class_name.clone(),
            resources: Some(storage(&store.size)),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

fn storage(size: &Size) -> VolumeResourceRequirements {
    VolumeResourceRequirements {
        requests: Some([("storage".to_owned(), Quantity(size.to_string()))].into()),
        limits: None,
    }
}

/// The snapshot that is read.
pub fn snapshot(run: &Validated) -> VolumeSnapshot {
    snapshot::snapshot(run, metadata(run, name::checksum_snapshot(&run.key.name)))
}

/// The claim that is made from the snapshot, at least as large as the snapshot asks for.
pub fn restored_claim(
    run: &Validated,
    source: Option<&ClaimState>,
    least: Option<&str>,
) -> PersistentVolumeClaim {
    let restore = run.csi().map(|csi| csi.restore.clone()).unwrap_or_default();
    let name = name::checksum_snapshot(&run.key.name);
    let own = source.and_then(|claim| claim.size.as_deref());
    let size = largest(own, least).unwrap_or("1Gi");
    let class = source.and_then(|claim| claim.storage_class.clone());
    PersistentVolumeClaim {
        metadata: metadata(run, name.clone()),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![access_mode(run).into()]),
            storage_class_name: restore.storage_class_name.or(class),
            data_source: Some(TypedLocalObjectReference {
                api_group: Some(VolumeSnapshot::group(&()).into()),
                kind: VolumeSnapshot::kind(&()).into(),
                name,
            }),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), Quantity(size.into()))].into()),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// How the claim that is made from the snapshot is mounted.
pub fn access_mode(run: &Validated) -> &'static str {
    match run.csi().map(|csi| csi.restore.access_mode) {
        Some(AccessMode::ReadWriteOnce) => "ReadWriteOnce",
        Some(AccessMode::ReadOnlyMany) | None => "ReadOnlyMany",
    }
}

fn largest<'a>(one: Option<&'a str>, other: Option<&'a str>) -> Option<&'a str> {
    let bytes = |text: &&str| text.parse::<Size>().and_then(|size| size.bytes()).ok();
    one.into_iter().chain(other).max_by_key(bytes)
}

/// What the agents read when they start.
pub fn config_map(run: &Validated) -> ConfigMap {
    let document = serde_json::to_string(&run.document()).unwrap_or_default();
    ConfigMap {
        metadata: metadata(run, name::checksum(&run.key.name)),
        data: Some([(CONFIG_FILE.to_owned(), document)].into()),
        ..ConfigMap::default()
    }
}

/// What the agents log in with.
pub fn secret(run: &Validated, files: &Files) -> Secret {
    let data = files.0.iter();
    let data = data.map(|(name, value)| (name.clone(), ByteString(value.clone())));
    Secret {
        metadata: metadata(run, name::checksum(&run.key.name)),
        data: Some(data.collect()),
        ..Secret::default()
    }
}

/// The coordinator. At no time two of its pods are alive: a pod that crashed is not started again but replaced, and
/// only after it is known to have ended.
pub fn job(run: &Validated, image: &Image, mounts: &Mounts) -> Job {
    let template = pod::template(
        run,
        image,
        mounts,
        &pod::COORDINATOR,
        labels(run, CHECKSUM_COORDINATOR),
    );
    Job {
        metadata: of_template(metadata(run, name::checksum(&run.key.name)), &template),
        spec: Some(JobSpec {
            parallelism: Some(1),
            completions: Some(1),
            backoff_limit: Some(CRASHES),
            pod_replacement_policy: Some("Failed".into()),
            pod_failure_policy: Some(evictions_do_not_count()),
            template,
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// Makes the claim with checksums writable for our pods, by mounting it and nothing else; asleep, it waits.
pub fn preparation(run: &Validated, image: &Image, claim: &str, asleep: bool) -> Job {
    let labels = [
        (MANAGED_BY_LABEL, MANAGED_BY),
        (CHECKSUM_RUN_LABEL, &run.key.name),
    ];
    let template = pod::preparation(run, image, claim, owned(labels));
    let name = name::checksum_preparation(&run.key.name);
    Job {
        metadata: of_template(metadata(run, name), &template),
        spec: Some(JobSpec {
            suspend: Some(asleep),
            backoff_limit: Some(CRASHES),
            active_deadline_seconds: Some(PREPARATION_SECONDS),
            template,
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// The same, and what the pods were asked to be.
fn of_template(metadata: ObjectMeta, template: &PodTemplateSpec) -> ObjectMeta {
    ObjectMeta {
        annotations: Some(owned([(TEMPLATE_ANNOTATION, digest(template).as_str())])),
        ..metadata
    }
}

fn evictions_do_not_count() -> PodFailurePolicy {
    let disrupted = PodFailurePolicyOnPodConditionsPattern {
        type_: "DisruptionTarget".into(),
        status: "True".into(),
    };
    PodFailurePolicy {
        rules: vec![PodFailurePolicyRule {
            action: "Ignore".into(),
            on_pod_conditions: Some(vec![disrupted]),
            on_exit_codes: None,
        }],
    }
}

/// The workers.
pub fn workers(run: &Validated, image: &Image, mounts: &Mounts, replicas: i32) -> Deployment {
    let template = pod::template(
        run,
        image,
        mounts,
        &pod::WORKER,
        labels(run, CHECKSUM_WORKER),
    );
    Deployment {
        metadata: metadata(run, name::checksum_workers(&run.key.name)),
        spec: Some(DeploymentSpec {
            replicas: Some(replicas),
            selector: LabelSelector {
                match_labels: Some(worker_labels(run)),
                match_expressions: None,
            },
            template,
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// What selects the workers of a run.
pub fn worker_labels(run: &Validated) -> BTreeMap<String, String> {
    owned([
        (CHECKSUM_RUN_LABEL, run.key.name.as_str()),
        (AGENT_LABEL, CHECKSUM_WORKER),
    ])
}

/// Whether all pods must be on the node where the first one is.
pub fn together(access_modes: &[String]) -> Together {
    let many = |mode: &String| mode == "ReadWriteMany" || mode == "ReadOnlyMany";
    if access_modes.iter().any(many) {
        Together::Anywhere
    } else {
        Together::OneNode
    }
}

fn labels(run: &Validated, agent: &str) -> BTreeMap<String, String> {
    owned([
        (MANAGED_BY_LABEL, MANAGED_BY),
        (CHECKSUM_RUN_LABEL, &run.key.name),
        (OWNER_LABEL, &run.uid),
        (AGENT_LABEL, agent),
    ])
}

/// Of everything that goes with the run.
fn metadata(run: &Validated, name: String) -> ObjectMeta {
    let labels = [
        (MANAGED_BY_LABEL, MANAGED_BY),
        (CHECKSUM_RUN_LABEL, &run.key.name),
    ];
    ObjectMeta {
        name: Some(name),
        namespace: Some(run.key.namespace.clone()),
        labels: Some(owned(labels)),
        owner_references: Some(vec![owner(run)]),
        ..ObjectMeta::default()
    }
}

fn owner(run: &Validated) -> OwnerReference {
    OwnerReference {
        api_version: ChecksumRun::api_version(&()).into(),
        kind: ChecksumRun::kind(&()).into(),
        name: run.key.name.clone(),
        uid: run.uid.clone(),
        controller: Some(true),
        // Who sets it needs a right on our finalizers, of which there are none.
        block_owner_deletion: None,
    }
}

fn owned<const N: usize>(words: [(&str, &str); N]) -> BTreeMap<String, String> {
    words.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::fixture::{distributed, image, mounts, validated},
        *,
    };

    #[test]
    fn the_claim_for_checksums_belongs_to_nobody() {
        let run =
            validated(json!({"store": {"embedded": {"size": "20Gi", "storageClassName": "fast"}}}));
        insta::assert_yaml_snapshot!(store_claim(&run, "home-store"));
    }

    #[test]
    fn the_snapshot_and_the_claim_that_is_made_from_it() {
        let csi = json!({"className": "fast", "restore": {"accessMode": "ReadWriteOnce"}});
        let run = validated(
            json!({"source": {"persistentVolumeClaim": {"claimName": "home"}, "snapshot": {"csi": csi}}}),
        );
        let source = ClaimState {
            storage_class: Some("slow".into()),
            size: Some("1Gi".into()),
            ..ClaimState::default()
        };
        insta::assert_yaml_snapshot!(snapshot(&run));
        insta::assert_yaml_snapshot!(restored_claim(&run, Some(&source), Some("2Gi")));
    }

    #[test]
    fn a_volume_from_a_snapshot_is_never_too_small() {
        assert_eq!(largest(Some("1Gi"), Some("1500Mi")), Some("1500Mi"));
        assert_eq!(largest(Some("1Gi"), Some("5")), Some("1Gi"));
        assert_eq!(largest(None, Some("5")), Some("5"));
        assert_eq!(largest(Some("1Gi"), None), Some("1Gi"));
    }

    #[test]
    fn the_configuration_is_one_file() {
        insta::assert_yaml_snapshot!(config_map(&validated(json!({}))));
    }

    #[test]
    fn the_credentials_are_files_of_one_secret() {
        let files = Files([("store-password".to_owned(), b"x".to_vec())].into());
        insta::assert_yaml_snapshot!(secret(&validated(distributed()), &files));
    }

    #[test]
    fn the_job_of_a_run_with_an_embedded_store() {
        insta::assert_yaml_snapshot!(job(&validated(json!({})), &image(), &mounts()));
    }

    #[test]
    fn the_job_that_makes_a_store_writable_mounts_nothing_else() {
        let run = validated(json!({"pod": {"nodeSelector": {"disk": "fast"}}}));
        insta::assert_yaml_snapshot!(preparation(&run, &image(), "home-full-store", true));
    }

    #[test]
    fn the_job_of_a_run_with_workers() {
        let mounts = Mounts {
            store: None,
            credentials: true,
            together: Together::OneNode,
            ..mounts()
        };
        insta::assert_yaml_snapshot!(job(&validated(distributed()), &image(), &mounts));
    }

    #[test]
    fn the_workers_of_a_run() {
        let mounts = Mounts {
            store: None,
            credentials: true,
            together: Together::Anywhere,
            ..mounts()
        };
        let run = validated(distributed());
        insta::assert_yaml_snapshot!(workers(&run, &image(), &mounts, 3));
    }

    #[test]
    fn a_volume_that_only_one_node_can_mount_keeps_the_pods_together() {
        let modes = |modes: &[&str]| {
            let modes: Vec<_> = modes.iter().map(|mode| (*mode).to_owned()).collect();
            together(&modes)
        };
        assert_eq!(modes(&["ReadWriteOnce"]), Together::OneNode);
        assert_eq!(modes(&["ReadWriteOncePod"]), Together::OneNode);
        assert_eq!(
            modes(&["ReadWriteOnce", "ReadWriteMany"]),
            Together::Anywhere
        );
        assert_eq!(modes(&["ReadOnlyMany"]), Together::Anywhere);
    }
}
