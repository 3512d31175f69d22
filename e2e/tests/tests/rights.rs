//! The roles that are shipped: enough for everything the operator does, and nothing beyond.

#[path = "rights/runs.rs"]
mod runs;

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use crds::name::CA_SECRET;
use e2e::{
    history::History,
    operator::{self, Replica, Settings, shipped},
    schedules,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use serde_json::{Value, json};
use testbed::{Kubernetes, repository_crds, wait::eventually};

const SOON: Duration = Duration::from_secs(40);

/// Group, resource with subresource, and verb.
type Right = (String, String, String);

#[tokio::test]
async fn the_operator_uses_exactly_the_rights_it_has() -> Result<()> {
    let cluster = Kubernetes::start(repository_crds()?.named("rights")).await?;
    operator::install(&cluster).await?;
    let client = cluster.client().await?;
    // One that cannot be used is replaced; the next leader finds none.
    cluster.apply_yaml(&garbage().to_string()).await?;
    let first = Replica::start(&cluster, "first", &Settings::default()).await?;
    let second = Replica::start(&cluster, "second", &Settings::default()).await?;
    live(&cluster, &client, "default").await?;
    runs::live(&cluster, "default").await?;
    let replicas = [first, second];
    let leader = operator::leader(&client, &replicas, None, SOON).await?;
    let authority = ["-n", operator::NAMESPACE, "delete", "secret", CA_SECRET];
    cluster.kubectl(&authority).await?.ok()?;
    leader.process().stop(SOON).await?;
    schedules::ask(&client, "default", "busy", "after").await?;
    schedules::handled(&client, "default", "busy", "after", SOON).await?;
    runs::begins(&cluster, "default", "after").await?;

    let granted = granted(&[
        "config/rbac/operator.yaml",
        "config/rbac/leader-election.yaml",
    ])?;
    eventually("every right used", SOON, async || {
        let used = used(&History::read(&cluster.audit())?);
        let idle: Vec<_> = granted.difference(&used).collect();
        ensure!(idle.is_empty(), "granted and never used: {idle:?}");
        let more: Vec<_> = used.difference(&granted).collect();
        ensure!(more.is_empty(), "used and not granted: {more:?}");
        Ok(Some(()))
    })
    .await?;
    nothing_forbidden_no_secrets_listed(&cluster)?;
    drop(replicas);
    cluster.shutdown().await
}

#[tokio::test]
async fn with_roles_for_one_namespace_the_operator_works_there_and_looks_nowhere_else() -> Result<()>
{
    let cluster = Kubernetes::start(repository_crds()?.named("rights-namespaced")).await?;
    operator::install_files(&cluster, &[]).await?;
    let role = shipped("config/rbac/namespaced/operator.yaml")?;
    cluster
        .apply_yaml(&role.replace("watched-namespace", "default"))
        .await?;
    let client = cluster.client().await?;
    let settings = Settings {
        args: vec!["--watch-namespaces".into(), "default".into()],
        ..Settings::default()
    };
    let replica = Replica::start(&cluster, "only", &settings).await?;
    live(&cluster, &client, "default").await?;
    runs::live(&cluster, "default").await?;
    nothing_forbidden_no_secrets_listed(&cluster)?;
    let history = History::read(&cluster.audit())?;
    let elsewhere = history.events().iter().filter(|event| {
        let namespace = event
            .object_ref
            .as_ref()
            .map_or("", |object| object.namespace.as_str());
        event.is_about("orrery.dev", "checksumschedules") && namespace != "default"
    });
    ensure!(
        elsewhere.count() == 0,
        "the operator looked at other namespaces"
    );
    drop(replica);
    cluster.shutdown().await
}

/// A life that needs every right: runs made, adopted, ended and pruned, and events that repeat.
async fn live(cluster: &Kubernetes, client: &Client, namespace: &str) -> Result<()> {
    let foreign = json!({"apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumRun",
        "metadata": {"name": "taken-r56ccc4dcf", "namespace": namespace},
        "spec": {"source": {"persistentVolumeClaim": {"claimName": "home"}}}});
    let mut busy = schedules::on_request("busy")?;
    busy.spec.successful_runs_history_limit = 0;
    schedules::create(client, namespace, &busy).await?;
    for token in ["one", "two"] {
        schedules::ask(client, namespace, "busy", token).await?;
        schedules::handled(client, namespace, "busy", token, SOON).await?;
    }
    let runs = cluster
        .kubectl(&["-n", namespace, "get", "cksum", "-o", "name"])
        .await?
        .ok()?;
    for run in runs.lines() {
        end(cluster, namespace, run, "2026-01-01T00:00:00Z").await?;
    }
    eventually("ended runs pruned", SOON, async || {
        let runs = schedules::runs_by_schedule(client, namespace).await?;
        ensure!(runs.is_empty(), "{runs:?}");
        Ok(Some(()))
    })
    .await?;
    unusable_twice(cluster, client, namespace).await?;
    name_taken(cluster, client, namespace, foreign).await
}

/// Ends a run as its controller would.
async fn end(cluster: &Kubernetes, namespace: &str, run: &str, at: &str) -> Result<()> {
    let done = json!({"status": {"completionTime": at, "conditions": [
        {"type": "Complete", "status": "True", "reason": "Verified", "message": "", "lastTransitionTime": at}]}});
    let patch = done.to_string();
    let args = [
        "-n",
        namespace,
        "patch",
        run,
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ];
    cluster.kubectl(&args).await?.ok()?;
    Ok(())
}

/// Makes the operator repeat an event, which changes the one that is there.
async fn unusable_twice(cluster: &Kubernetes, client: &Client, namespace: &str) -> Result<()> {
    schedules::create(client, namespace, &schedules::on_request("again")?).await?;
    let zones = [("Atlantis", "InvalidSpec"), ("Etc/UTC", "Scheduled")];
    for (zone, reason) in [zones, zones].concat() {
        let patch = json!({"spec": {"timeZone": zone}}).to_string();
        let patch = [
            "-n",
            namespace,
            "patch",
            "cksched/again",
            "--type=merge",
            "-p",
            &patch,
        ];
        cluster.kubectl(&patch).await?.ok()?;
        ready_with(cluster, namespace, "again", reason).await?;
    }
    Ok(())
}

async fn ready_with(cluster: &Kubernetes, namespace: &str, name: &str, reason: &str) -> Result<()> {
    let (object, path) = (
        format!("cksched/{name}"),
        "{.status.conditions[?(@.type=='Ready')].reason}",
    );
    eventually(&format!("{name} to be {reason}"), SOON, async || {
        let told = runs::get(cluster, namespace, &object, path).await?;
        ensure!(told == reason, "{told}");
        Ok(Some(()))
    })
    .await
}

/// Makes the operator look at a run that stands in its way.
async fn name_taken(
    cluster: &Kubernetes,
    client: &Client,
    namespace: &str,
    foreign: Value,
) -> Result<()> {
    cluster.apply_yaml(&foreign.to_string()).await?;
    schedules::create(client, namespace, &schedules::on_request("taken")?).await?;
    schedules::ask(client, namespace, "taken", TAKEN_TOKEN).await?;
    ready_with(cluster, namespace, "taken", "NameTaken").await
}

/// Its digest is in the name of the run above.
const TAKEN_TOKEN: &str = "please";

/// An authority that nobody can use.
fn garbage() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": CA_SECRET, "namespace": operator::NAMESPACE},
        "stringData": {"tls.crt": "garbage", "tls.key": "garbage", "ca.crt": "garbage"}})
}

fn nothing_forbidden_no_secrets_listed(cluster: &Kubernetes) -> Result<()> {
    let history = History::read(&cluster.audit())?;
    let forbidden = history.with_code(403);
    ensure!(forbidden.is_empty(), "forbidden: {forbidden:?}");
    let secrets = history
        .events()
        .iter()
        .filter(|event| event.is_about("", "secrets") && ["list", "watch"].contains(&&*event.verb));
    ensure!(secrets.count() == 0, "the operator asked for all Secrets");
    Ok(())
}

fn used(history: &History) -> BTreeSet<Right> {
    let objects = history
        .events()
        .iter()
        .filter_map(|event| Some((event, event.object_ref.as_ref()?)));
    objects
        .flat_map(|(event, object)| {
            let resource = if object.subresource.is_empty() {
                object.resource.clone()
            } else {
                format!("{}/{}", object.resource, object.subresource)
            };
            // To apply what is not there yet takes the right to create as well.
            let created = (event.verb == "patch" && event.code() == Some(201)).then_some("create");
            let verbs = [Some(event.verb.as_str()), created].into_iter().flatten();
            let right = |verb: &str| (object.api_group.clone(), resource.clone(), verb.to_owned());
            verbs.map(right).collect::<Vec<_>>()
        })
        .collect()
}

fn granted(files: &[&str]) -> Result<BTreeSet<Right>> {
    let mut rights = BTreeSet::new();
    for file in files {
        for document in shipped(file)?.split("---\n") {
            for rule in rules(document)? {
                for (group, resource) in rule
                    .api_groups
                    .iter()
                    .flatten()
                    .zip(rule.resources.iter().flatten())
                {
                    rights.extend(
                        rule.verbs
                            .iter()
                            .map(|verb| (group.clone(), resource.clone(), verb.clone())),
                    );
                }
            }
        }
    }
    Ok(rights)
}

/// The rules of a role; a binding has none.
fn rules(document: &str) -> Result<Vec<PolicyRule>> {
    let document: Value = serde_saphyr::from_str(document)?;
    Ok(serde_json::from_value(
        document.get("rules").cloned().unwrap_or_else(|| json!([])),
    )?)
}

#[tokio::test]
async fn a_user_with_view_or_edit_can_see_or_write_our_kinds() -> Result<()> {
    let cluster = Kubernetes::start(repository_crds()?.named("rights-users")).await?;
    cluster
        .apply_yaml(&shipped("config/rbac/users.yaml")?)
        .await?;
    for role in ["view", "edit"] {
        let args = [
            "-n",
            "default",
            "create",
            "rolebinding",
            role,
            "--clusterrole",
            role,
            "--user",
            role,
        ];
        cluster.kubectl(&args).await?.ok()?;
    }
    for (user, verb, expected) in [
        ("view", "list", "yes"),
        ("view", "create", "no"),
        ("edit", "create", "yes"),
        ("edit", "list", "yes"),
    ] {
        eventually(
            &format!("{user} may {verb}: {expected}"),
            SOON,
            async || {
                let args = [
                    "-n",
                    "default",
                    "auth",
                    "can-i",
                    verb,
                    "checksumschedules.orrery.dev",
                    "--as",
                    user,
                ];
                let answer = cluster.kubectl(&args).await?;
                ensure!(
                    answer.stdout.trim() == expected,
                    "{} {}",
                    answer.stdout,
                    answer.stderr
                );
                Ok(Some(()))
            },
        )
        .await?;
    }
    cluster.shutdown().await
}
