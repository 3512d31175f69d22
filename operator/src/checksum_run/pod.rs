//! The pods of a run. In: the run with every field read, and what is mounted. Out: a template. Pure.
//!
//! Pod Security *restricted* but for a user 0 that somebody asked for. The source is read-only twice: as a volume and
//! as a mount. No pod that mounts it has a `fsGroup`, which would make Kubernetes rewrite the ownership of all files.

mod volumes;

use std::collections::BTreeMap;

use crds::{
    checksum_run::workers::Workers,
    name::{CHECKSUM_CONTAINER, CHECKSUM_RUN_LABEL, OWNER_LABEL},
    pod::PodOverrides,
};
use k8s_openapi::{
    api::core::v1::{
        Affinity, Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
        LocalObjectReference, ObjectFieldSelector, PodAffinity, PodAffinityTerm,
        PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile,
        SecurityContext, VolumeMount,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use serde::Serialize;

use super::config::Validated;

/// Where agents look for their configuration.
pub const CONFIG_FOLDER: &str = "/etc/orrery/config";
/// Where agents look for their certificate.
pub const TLS_FOLDER: &str = "/etc/orrery/tls";
/// The agents' plain port.
pub const ADMIN_PORT: i32 = 8081;
/// The agents' control port.
pub const CONTROL_PORT: u16 = 8444;

/// The user and the group of who is not told otherwise.
const NOBODY: i64 = 65532;

/// How long an agent may take to end.
const GRACE_SECONDS: i64 = 60;

/// What new pods run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Image {
    /// The image.
    pub name: String,
    /// When it is pulled; absent means as Kubernetes sees fit.
    pub pull_policy: Option<String>,
    /// Secrets to pull it with, which must be in the namespace of the pods.
    pub pull_secrets: Vec<String>,
}

/// What is mounted, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounts {
    /// The claim that is read.
    pub source: String,
    /// The claim with checksums.
    pub store: Option<String>,
    /// Whether there are credentials.
    pub credentials: bool,
    /// Where the pods of the run may be.
    pub together: Together,
}

/// Where the pods of a run may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// Anywhere.
    Anywhere,
    /// All on the node of the first: only one node can mount the source.
    OneNode,
}

/// What makes an agent a coordinator or a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    command: &'static str,
    restart: &'static str,
    has_store: bool,
}

/// Leads, and reads if nobody else does.
pub const COORDINATOR: Role = Role {
    command: "coordinator",
    restart: "Never",
    has_store: true,
};

/// Reads.
pub const WORKER: Role = Role {
    command: "worker",
    restart: "Always",
    has_store: false,
};

/// The pods of that role.
pub fn template(
    run: &Validated,
    image: &Image,
    mounts: &Mounts,
    role: &Role,
    labels: BTreeMap<String, String>,
) -> PodTemplateSpec {
    let said = run.spec.pod.clone().unwrap_or_default();
    let (volumes, mounts_of): (Vec<_>, Vec<_>) =
        volumes::all(run, mounts, role).into_iter().unzip();
    let has_store = role.has_store && mounts.store.is_some();
    let pod = PodSpec {
        containers: vec![container(run, image, role, mounts_of)],
        volumes: Some(volumes),
        restart_policy: Some(role.restart.into()),
        security_context: Some(pod_security(&run.spec.workers, has_store)),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        affinity: affinity(run, said.affinity.clone(), mounts.together),
        ..placed(image, &said)
    };
    labelled(said, labels, pod)
}

/// A pod that mounts the store, and so makes Kubernetes give it to our group, and ends.
pub fn preparation(
    run: &Validated,
    image: &Image,
    store: &str,
    labels: BTreeMap<String, String>,
) -> PodTemplateSpec {
    let said = run.spec.pod.clone().unwrap_or_default();
    let (volume, mount) = volumes::store(store);
    let pod = PodSpec {
        containers: vec![Container {
            args: Some(vec!["--version".into()]),
            resources: Some(small()),
            volume_mounts: Some(vec![mount]),
            ..program(image)
        }],
        volumes: Some(vec![volume]),
        restart_policy: Some("Never".into()),
        security_context: Some(PodSecurityContext {
            fs_group: Some(NOBODY),
            ..pod_security(&Workers::default(), true)
        }),
        affinity: said.affinity.clone(),
        ..placed(image, &said)
    };
    labelled(said, labels, pod)
}

/// Labels of users come first: ours win.
fn labelled(said: PodOverrides, labels: BTreeMap<String, String>, pod: PodSpec) -> PodTemplateSpec {
    let mut all = said.labels;
    all.extend(labels);
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(all),
            annotations: Some(said.annotations).filter(|a| !a.is_empty()),
            ..ObjectMeta::default()
        }),
        spec: Some(pod),
    }
}

/// A pod without rights in Kubernetes, and what users say about its place.
fn placed(image: &Image, said: &PodOverrides) -> PodSpec {
    let spread = said.topology_spread.clone();
    PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        image_pull_secrets: pull_secrets(image, said),
        node_selector: Some(said.node_selector.clone()).filter(|nodes| !nodes.is_empty()),
        tolerations: Some(said.tolerations.clone()).filter(|list| !list.is_empty()),
        topology_spread_constraints: Some(spread).filter(|list| !list.is_empty()),
        priority_class_name: said.priority_class_name.clone(),
        ..PodSpec::default()
    }
}

fn pull_secrets(image: &Image, said: &PodOverrides) -> Option<Vec<LocalObjectReference>> {
    let own = image.pull_secrets.iter().cloned();
    let theirs = said.image_pull_secrets.iter().map(|r| r.name.clone());
    let mut names: Vec<String> = own.chain(theirs).collect();
    names.sort();
    names.dedup();
    let secrets = names.into_iter().map(|name| LocalObjectReference { name });
    Some(secrets.collect::<Vec<_>>()).filter(|list| !list.is_empty())
}

fn affinity(run: &Validated, said: Option<Affinity>, together: Together) -> Option<Affinity> {
    if together == Together::Anywhere {
        return said;
    }
    let labels = [
        (CHECKSUM_RUN_LABEL.to_owned(), run.key.name.clone()),
        (OWNER_LABEL.to_owned(), run.uid.clone()),
    ];
    let here = PodAffinityTerm {
        topology_key: "kubernetes.io/hostname".into(),
        label_selector: Some(LabelSelector {
            match_labels: Some(labels.into()),
            match_expressions: None,
        }),
        ..PodAffinityTerm::default()
    };
    let mut affinity = said.unwrap_or_default();
    let pods: &mut PodAffinity = affinity.pod_affinity.get_or_insert_default();
    pods.required_during_scheduling_ignored_during_execution
        .get_or_insert_default()
        .push(here);
    Some(affinity)
}

/// Whoever writes to a store is in the group that it belongs to.
fn pod_security(workers: &Workers, has_store: bool) -> PodSecurityContext {
    let group = workers.run_as_group.unwrap_or(NOBODY);
    let mut groups = workers.supplemental_groups.clone();
    if has_store && group != NOBODY && !groups.contains(&NOBODY) {
        groups.push(NOBODY);
    }
    PodSecurityContext {
        run_as_user: Some(workers.run_as_user.unwrap_or(NOBODY)),
        run_as_group: Some(group),
        run_as_non_root: Some(workers.run_as_user != Some(0)),
        supplemental_groups: Some(groups).filter(|groups| !groups.is_empty()),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".into(),
            localhost_profile: None,
        }),
        ..PodSecurityContext::default()
    }
}

fn container(run: &Validated, image: &Image, role: &Role, mounts: Vec<VolumeMount>) -> Container {
    let said = run.spec.pod.as_ref().and_then(|pod| pod.resources.clone());
    Container {
        args: Some(vec![role.command.into()]),
        env: Some(vec![pod_uid()]),
        ports: Some(vec![
            port("admin", ADMIN_PORT),
            port("control", CONTROL_PORT.into()),
        ]),
        liveness_probe: Some(alive()),
        resources: Some(said.unwrap_or_else(small)),
        volume_mounts: Some(mounts),
        ..program(image)
    }
}

fn program(image: &Image) -> Container {
    Container {
        name: CHECKSUM_CONTAINER.into(),
        image: Some(image.name.clone()),
        image_pull_policy: image.pull_policy.clone(),
        command: Some(vec!["/usr/bin/orrery-checksum".into()]),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".into()]),
                add: None,
            }),
            ..SecurityContext::default()
        }),
        // Of one that left no words, the last lines of its log are told.
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..Container::default()
    }
}

fn pod_uid() -> EnvVar {
    EnvVar {
        name: "ORRERY_POD_UID".into(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: "metadata.uid".into(),
                api_version: None,
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.into()),
        container_port: number,
        protocol: Some("TCP".into()),
        ..ContainerPort::default()
    }
}

fn alive() -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some("/livez".into()),
            port: IntOrString::String("admin".into()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(10),
        timeout_seconds: Some(5),
        ..Probe::default()
    }
}

fn small() -> ResourceRequirements {
    let quantity = |name: &str, amount: &str| (name.to_owned(), Quantity(amount.to_owned()));
    ResourceRequirements {
        requests: Some([quantity("cpu", "100m"), quantity("memory", "128Mi")].into()),
        limits: Some([quantity("memory", "512Mi")].into()),
        claims: None,
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};
    use runtime::shell::ShellArgs;
    use serde_json::json;

    use super::{
        super::fixture::{image, mounts, validated},
        *,
    };

    fn made(fields: serde_json::Value) -> PodSpec {
        let run = validated(fields);
        let template = template(&run, &image(), &mounts(), &COORDINATOR, BTreeMap::new());
        template.spec.unwrap()
    }

    #[test]
    fn agents_find_what_is_mounted_without_being_told() {
        let command = ShellArgs::augment_args(Command::new("agent"));
        let matches = command.get_matches_from(["agent", "--pod-uid=u"]);
        let args = ShellArgs::from_arg_matches(&matches).unwrap();
        assert_eq!(args.config_folder.to_str(), Some(CONFIG_FOLDER));
        assert_eq!(args.tls_folder.to_str(), Some(TLS_FOLDER));
        assert_eq!(args.control_address.port(), CONTROL_PORT);
        assert_eq!(i32::from(args.admin.admin_address.port()), ADMIN_PORT);
        let grace = std::time::Duration::from_secs(GRACE_SECONDS.unsigned_abs());
        assert!(args.drain_timeout < grace);
    }

    #[test]
    fn whoever_reads_owns_nothing_by_it() {
        for fields in [
            json!({}),
            json!({"workers": {"runAsUser": 0, "runAsGroup": 5, "supplementalGroups": [7]}}),
        ] {
            let pod = made(fields);
            assert_eq!(pod.security_context.unwrap().fs_group, None);
            let source = pod
                .volumes
                .unwrap()
                .into_iter()
                .find(|v| v.name == "source");
            let claim = source.unwrap().persistent_volume_claim.unwrap();
            assert_eq!(claim.read_only, Some(true));
            let mounts = pod.containers[0].volume_mounts.clone().unwrap();
            let source = mounts.into_iter().find(|m| m.name == "source").unwrap();
            assert_eq!(source.read_only, Some(true));
        }
    }

    #[test]
    fn agents_may_spill_less_than_their_volume_takes() {
        let fields = json!({"tuning": {"spillSize": "1Gi"}});
        let told = validated(fields.clone()).config.tuning.spill_bytes;
        assert_eq!(told, Some(1 << 30));
        let mut volumes = made(fields).volumes.unwrap().into_iter();
        let spill = volumes.find(|volume| volume.name == "spill").unwrap();
        let limit = spill.empty_dir.unwrap().size_limit.unwrap();
        assert_eq!(limit.0, (1_u64 << 30 | 64 << 20).to_string());
    }

    #[test]
    fn root_is_who_asks_to_be() {
        let security = |fields| made(fields).security_context.unwrap();
        assert_eq!(security(json!({})).run_as_non_root, Some(true));
        let root = security(json!({"workers": {"runAsUser": 0, "supplementalGroups": [7]}}));
        assert_eq!(root.run_as_non_root, Some(false));
        assert_eq!(
            (root.run_as_user, root.run_as_group),
            (Some(0), Some(NOBODY))
        );
        assert_eq!(root.supplemental_groups, Some(vec![7]));
    }

    #[test]
    fn whoever_writes_to_a_store_is_in_its_group() {
        let groups = |fields| made(fields).security_context.unwrap().supplemental_groups;
        assert_eq!(groups(json!({"workers": {"runAsGroup": 65532}})), None);
        let other = groups(json!({"workers": {"runAsGroup": 5}}));
        assert_eq!(other, Some(vec![NOBODY]));
    }

    #[test]
    fn everything_users_say_about_pods_is_heard_and_our_labels_win() {
        let pod = json!({
            "resources": {"requests": {"cpu": "2"}}, "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            "topologySpread": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
            "priorityClassName": "low", "imagePullSecrets": [{"name": "theirs"}],
            "labels": {"team": "storage", "orrery.dev/agent": "forged"}, "annotations": {"note": "x"},
        });
        let run = validated(json!({"pod": pod}));
        let labels = [("orrery.dev/agent".to_owned(), "checksum-worker".to_owned())];
        let image = Image {
            pull_secrets: vec!["ours".into()],
            ..image()
        };
        let mounts = Mounts {
            together: Together::OneNode,
            ..mounts()
        };
        insta::assert_yaml_snapshot!(template(&run, &image, &mounts, &WORKER, labels.into()));
    }
}
