//! What protects a node and its pods: limits of space, budgets of disruption, pod security, webhooks in pods.

use anyhow::{Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use testbed::wait::eventually;
use testbed::{Cluster, Options, certificates, tools};

use crate::SOON;

const PRIVILEGED: &str = include_str!("privileged.yaml");

#[tokio::test]
async fn a_node_keeps_its_pods_within_bounds() -> Result<()> {
    let cluster = Cluster::start(Options::default(), 1).await?;
    cluster.apply_yaml(include_str!("evicted.yaml")).await?;
    tokio::try_join!(
        a_volume_over_its_limit_costs_the_pod_its_place(&cluster),
        a_budget_holds_an_eviction_back(&cluster),
        a_privileged_pod_is_refused_where_pods_are_restricted(&cluster),
        a_webhook_in_a_pod_is_asked_and_missed(&cluster),
    )?;
    let memory = cluster.memory()? / 1_000_000;
    ensure!((300..5000).contains(&memory), "{memory} MB");
    cluster.shutdown().await
}

async fn a_volume_over_its_limit_costs_the_pod_its_place(cluster: &Cluster) -> Result<()> {
    let state = "--output=jsonpath={.status.phase} {.status.reason}: {.status.message}";
    eventually("the kubelet to evict a pod", SOON, async || {
        let state = cluster.kubectl(&["get", "pod", "greedy", state]).await?;
        let state = state.ok()?;
        ensure!(state.starts_with("Failed Evicted: "), "{state}");
        ensure!(state.contains("exceeds the limit"), "{state}");
        Ok(Some(()))
    })
    .await
}

async fn a_budget_holds_an_eviction_back(cluster: &Cluster) -> Result<()> {
    is_ready(cluster, "needed").await?;
    // Until the controller has looked at it, a budget allows nothing, but for another reason.
    let known = [
        "wait",
        "--for=jsonpath={.status.currentHealthy}=1",
        "pdb/needed",
        "--timeout=50s",
    ];
    cluster.kubectl(&known).await?.ok()?;
    let refused = evict(cluster, "needed").await?.stderr;
    let reason =
        "(TooManyRequests): Cannot evict pod as it would violate the pod's disruption budget";
    ensure!(refused.contains(reason), "{refused}");
    cluster.kubectl(&["delete", "pdb", "needed"]).await?.ok()?;
    evict(cluster, "needed").await?.ok()?;
    let gone = ["wait", "--for=delete", "pod/needed", "--timeout=50s"];
    cluster.kubectl(&gone).await?.ok()?;
    Ok(())
}

async fn evict(cluster: &Cluster, pod: &str) -> Result<testbed::Output> {
    let path = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
    let eviction = format!(
        r#"{{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {{"name": "{pod}", "namespace": "default"}}}}"#
    );
    let create = ["create", "--raw", &path, "--filename=-"];
    cluster.kubectl_stdin(&create, &eviction).await
}

async fn a_privileged_pod_is_refused_where_pods_are_restricted(cluster: &Cluster) -> Result<()> {
    for (level, allowed) in [("restricted", false), ("privileged", true)] {
        let label = format!("pod-security.kubernetes.io/enforce={level}");
        cluster
            .kubectl(&["create", "namespace", level])
            .await?
            .ok()?;
        let label = ["label", "namespace", level, &label];
        cluster.kubectl(&label).await?.ok()?;
        let create = [
            "create",
            "--dry-run=server",
            "--namespace",
            level,
            "--filename=-",
        ];
        let created = eventually("an answer", SOON, async || {
            let created = cluster.kubectl_stdin(&create, PRIVILEGED).await?;
            let early = created
                .stderr
                .contains("serviceaccount \"default\" not found");
            Ok((!early).then_some(created))
        })
        .await?;
        ensure!(created.status.success() == allowed, "{created:?}");
        let reason = r#"violates PodSecurity "restricted:latest": privileged"#;
        ensure!(created.stderr.contains(reason) != allowed, "{created:?}");
    }
    Ok(())
}

async fn a_webhook_in_a_pod_is_asked_and_missed(cluster: &Cluster) -> Result<()> {
    let webhook = tools::webhook().await?;
    cluster
        .load_program("localhost/webhook:1", &webhook)
        .await?;
    let (authority, server) = certificates::server(vec!["webhook.default.svc".into()])?;
    let objects = include_str!("webhook.yaml")
        .replace("{authority}", &STANDARD.encode(authority))
        .replace("{server}", &STANDARD.encode(server));
    cluster.apply_yaml(&objects).await?;
    is_ready(cluster, "webhook").await?;
    a_quota_is_answered(
        cluster,
        r#""refuse.testbed.example" denied the request: the webhook does not want unwanted"#,
    )
    .await?;
    let delete = ["delete", "pod", "webhook"];
    cluster.kubectl(&delete).await?.ok()?;
    a_quota_is_answered(
        cluster,
        r#"failed calling webhook "refuse.testbed.example""#,
    )
    .await
}

async fn a_quota_is_answered(cluster: &Cluster, answer: &str) -> Result<()> {
    eventually("the answer to a quota", SOON, async || {
        let create = ["create", "quota", "unwanted", "--dry-run=server"];
        let said = cluster.kubectl(&create).await?.stderr;
        ensure!(said.contains(answer), "{said}");
        Ok(Some(()))
    })
    .await
}

async fn is_ready(cluster: &Cluster, pod: &str) -> Result<()> {
    let pod = format!("pod/{pod}");
    let wait = ["wait", "--for=condition=Ready", &pod, "--timeout=50s"];
    cluster.kubectl(&wait).await?.ok()?;
    Ok(())
}
