//! Every right the operator has, and the roles that users aggregate. In: nothing.
//! Out: the objects that are written to `config/rbac`. Pure.
//!
//! A test compares these lists with the requests that the API server saw: nothing may be missing,
//! and nothing may be left over.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::ServiceAccount,
        rbac::v1::{
            ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

/// The name of the operator's account and roles.
pub const NAME: &str = "orrery-operator";
/// The namespace of the operator where nothing else is said.
pub const NAMESPACE: &str = "orrery-system";
/// The name of the role for leader election.
pub const LEADER_NAME: &str = "orrery-operator-leader";

const GROUP: &str = crds::name::GROUP;

/// What is done with workloads of our own.
const OWNED: [&str; 6] = ["create", "delete", "get", "list", "patch", "watch"];

fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.into()]),
        resources: Some(vec![resource.into()]),
        verbs: verbs.iter().map(|verb| (*verb).into()).collect(),
        ..PolicyRule::default()
    }
}

/// What the operator does in the namespaces it watches.
pub fn working_rules() -> Vec<PolicyRule> {
    vec![
        rule(GROUP, "checksumschedules", &["list", "watch"]),
        rule(GROUP, "checksumschedules/status", &["patch"]),
        rule(
            GROUP,
            "checksumruns",
            &["create", "delete", "get", "list", "watch"],
        ),
        rule(GROUP, "checksumruns/status", &["patch"]),
        rule("apps", "deployments", &OWNED),
        rule("batch", "jobs", &OWNED),
        rule(
            "",
            "configmaps",
            &["create", "get", "list", "patch", "watch"],
        ),
        rule(
            "",
            "persistentvolumeclaims",
            &["create", "delete", "list", "watch"],
        ),
        rule("", "pods", &["list", "watch"]),
        // By name only. Who may write our resources can have any Secret of the namespace copied: see docs/operating.md.
        rule("", "secrets", &["create", "get", "patch"]),
        rule(
            "snapshot.storage.k8s.io",
            "volumesnapshots",
            &["create", "delete", "get"],
        ),
        rule("events.k8s.io", "events", &["create", "patch"]),
    ]
}

/// What the operator does in its own namespace to elect a leader, and to keep the authority of its certificates.
pub fn leader_rules() -> Vec<PolicyRule> {
    let leases = |verbs: &[&str]| rule("coordination.k8s.io", "leases", verbs);
    let secrets = |verbs: &[&str]| rule("", "secrets", verbs);
    vec![
        leases(&["create"]),
        PolicyRule {
            resource_names: Some(vec![NAME.into()]),
            ..leases(&["get", "list", "update", "watch"])
        },
        // A name cannot be asked for before there is an object.
        secrets(&["create"]),
        PolicyRule {
            resource_names: Some(vec![crds::name::CA_SECRET.into()]),
            ..secrets(&["get", "patch"])
        },
    ]
}

fn meta(name: &str) -> ObjectMeta {
    let labels = [
        ("app.kubernetes.io/name", NAME),
        ("app.kubernetes.io/part-of", "orrery"),
    ];
    ObjectMeta {
        name: Some(name.into()),
        labels: Some(labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into()),
        ..ObjectMeta::default()
    }
}

fn namespaced(name: &str, namespace: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(namespace.into()),
        ..meta(name)
    }
}

fn account() -> Subject {
    Subject {
        kind: "ServiceAccount".into(),
        name: NAME.into(),
        namespace: Some(NAMESPACE.into()),
        api_group: None,
    }
}

fn reference(kind: &str, name: &str) -> RoleRef {
    RoleRef {
        api_group: "rbac.authorization.k8s.io".into(),
        kind: kind.into(),
        name: name.into(),
    }
}

/// The operator's account.
pub fn service_account() -> ServiceAccount {
    ServiceAccount {
        metadata: namespaced(NAME, NAMESPACE),
        ..ServiceAccount::default()
    }
}

/// The rights for all namespaces.
pub fn cluster_role() -> (ClusterRole, ClusterRoleBinding) {
    let role = ClusterRole {
        metadata: meta(NAME),
        rules: Some(working_rules()),
        ..ClusterRole::default()
    };
    let binding = ClusterRoleBinding {
        metadata: meta(NAME),
        role_ref: reference("ClusterRole", NAME),
        subjects: Some(vec![account()]),
    };
    (role, binding)
}

fn role(name: &str, namespace: &str, rules: Vec<PolicyRule>) -> (Role, RoleBinding) {
    let role = Role {
        metadata: namespaced(name, namespace),
        rules: Some(rules),
    };
    let binding = RoleBinding {
        metadata: namespaced(name, namespace),
        role_ref: reference("Role", name),
        subjects: Some(vec![account()]),
    };
    (role, binding)
}

/// The rights for one watched namespace, instead of [`cluster_role`].
pub fn namespace_role(namespace: &str) -> (Role, RoleBinding) {
    role(NAME, namespace, working_rules())
}

/// The rights in the operator's own namespace.
pub fn leader_role() -> (Role, RoleBinding) {
    role(LEADER_NAME, NAMESPACE, leader_rules())
}

/// Roles that are added to the cluster's own `view` and `edit`.
pub fn user_roles() -> Vec<ClusterRole> {
    let kinds: Vec<String> = crds::definition::all()
        .into_iter()
        .map(|crd| crd.spec.names.plural)
        .collect();
    let status: Vec<String> = kinds.iter().map(|kind| format!("{kind}/status")).collect();
    let scale = vec!["checksumruns/scale".to_owned()];
    let user = |name: &str, into: &[&str], resources: Vec<String>, verbs: &[&str]| {
        let mut metadata = meta(name);
        let labels: &mut BTreeMap<_, _> = metadata.labels.get_or_insert_default();
        for role in into {
            labels.insert(
                format!("rbac.authorization.k8s.io/aggregate-to-{role}"),
                "true".into(),
            );
        }
        ClusterRole {
            metadata,
            rules: Some(vec![PolicyRule {
                resources: Some(resources),
                ..rule(GROUP, "", verbs)
            }]),
            ..ClusterRole::default()
        }
    };
    vec![
        user(
            "orrery-view",
            &["view", "edit", "admin"],
            [kinds.clone(), status, scale.clone()].concat(),
            &["get", "list", "watch"],
        ),
        user(
            "orrery-edit",
            &["edit", "admin"],
            [kinds, scale].concat(),
            &["create", "delete", "deletecollection", "patch", "update"],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_granted_by_wildcard_and_secrets_are_read_by_name_only() {
        for rule in working_rules().into_iter().chain(leader_rules()) {
            let resources = rule.resources.unwrap();
            let lists = [
                rule.api_groups.unwrap(),
                resources.clone(),
                rule.verbs.clone(),
            ];
            let words: Vec<String> = lists.concat();
            assert!(words.iter().all(|word| word != "*"), "{words:?}");
            let reads_all = |verb: &String| ["list", "watch", "delete"].contains(&verb.as_str());
            let secrets = resources.iter().any(|resource| resource == "secrets");
            assert!(!secrets || !rule.verbs.iter().any(reads_all), "{words:?}");
        }
    }
}
