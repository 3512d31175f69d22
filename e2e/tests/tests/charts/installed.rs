//! What is rendered, on a real API server with controllers: everything is accepted, and pods are made.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{
    operator::{NAMESPACE, repository},
    render::{Said, run},
};
use testbed::{Kubernetes, Options, tools, wait::eventually};

const SOON: Duration = Duration::from_secs(40);

#[tokio::test]
async fn kustomize_installs_and_the_pods_are_admitted_as_restricted() -> Result<()> {
    let cluster = Kubernetes::start(Options::default().named("install-kustomize")).await?;
    let folder = repository().join("config/default");
    let folder = format!("--kustomize={}", folder.display());
    let said = cluster.kubectl(&["apply", &folder]).await?;
    ensure!(said.stderr.is_empty(), "{}", said.stderr);
    said.ok()?;
    pods(&cluster, 2).await?;
    prometheus_operator_knows_what_it_is_told(&cluster).await?;
    cluster
        .kubectl(&["delete", &folder, "--wait=false"])
        .await?
        .ok()?;
    removed(&cluster).await?;
    let ours = "--selector=app.kubernetes.io/part-of=orrery";
    let kinds =
        "clusterroles,clusterrolebindings,deployments,services,roles,rolebindings,serviceaccounts";
    let left = ["get", kinds, "--all-namespaces", ours, "--output=name"];
    let left = cluster.kubectl(&left).await?.ok()?;
    ensure!(left.is_empty(), "left behind: {left}");
    cluster.shutdown().await
}

/// Waits until namespace and definitions are gone. Where two controllers of Kubernetes write the status of a definition at once
/// while it is being deleted, the one that deletes it gives way, and looks again when it changes, or minutes later.
async fn removed(cluster: &Kubernetes) -> Result<()> {
    for change in ["touched=once", "touched=twice"] {
        if gone(cluster).await.is_ok() {
            return Ok(());
        }
        let touch = ["annotate", "crd", "--all", "--overwrite", change];
        cluster.kubectl(&touch).await?; // some may be gone by now
    }
    gone(cluster).await
}

async fn gone(cluster: &Kubernetes) -> Result<()> {
    eventually("namespace and definitions to go", SOON, async || {
        let left = ["get", "crd,namespaces", "--output=name"];
        let left = cluster.kubectl(&left).await?.ok()?;
        ensure!(!left.contains("orrery"), "{left}");
        Ok(Some(()))
    })
    .await
}

/// What the chart renders is the same.
async fn prometheus_operator_knows_what_it_is_told(cluster: &Kubernetes) -> Result<()> {
    let definitions = tools::monitoring().await?.display().to_string();
    let create = ["create", "--filename", &definitions];
    let created = cluster.kubectl(&create).await?.ok()?;
    ensure!(created.lines().count() == 3, "{created}");
    let established = ["wait", "--for=condition=Established", "crd", "--all"];
    cluster.kubectl(&established).await?.ok()?;
    for folder in ["config/prometheus", "config/prometheus/pods"] {
        let folder = repository().join(folder).display().to_string();
        let apply = ["apply", "--validate=strict", "--kustomize", &folder];
        let said = cluster.kubectl(&apply).await?;
        ensure!(said.stderr.is_empty(), "{}", said.stderr);
        said.ok()?;
    }
    let kinds = "servicemonitors,podmonitors,prometheusrules";
    let kept = [
        "get",
        kinds,
        "--namespace",
        NAMESPACE,
        "--output=jsonpath={.items[*].kind}",
    ];
    let kept = cluster.kubectl(&kept).await?.ok()?;
    for kind in ["ServiceMonitor", "PodMonitor", "PrometheusRule"] {
        ensure!(kept.contains(kind), "{kept}");
    }
    Ok(())
}

#[tokio::test]
async fn helm_installs_upgrades_rolls_back_and_keeps_the_definitions() -> Result<()> {
    let cluster = Kubernetes::start(Options::default().named("install-helm")).await?;
    let restricted = [
        "label",
        "--overwrite",
        "namespace",
        NAMESPACE,
        "pod-security.kubernetes.io/enforce=restricted",
    ];
    cluster
        .kubectl(&["create", "namespace", NAMESPACE])
        .await?
        .ok()?;
    cluster.kubectl(&restricted).await?.ok()?;
    helm(&cluster, &["install", "orrery-crds", "charts/orrery-crds"])
        .await?
        .ok()?;
    let set = |values| ["charts/orrery", "--set", values];
    helm(
        &cluster,
        &[&["install", "orrery"][..], &set("image.repository=orrery")].concat(),
    )
    .await?
    .ok()?;
    pods(&cluster, 2).await?;
    let more = set("image.repository=orrery,replicas=3,networkPolicy.enabled=true");
    helm(&cluster, &[&["upgrade", "orrery"][..], &more].concat())
        .await?
        .ok()?;
    pods(&cluster, 3).await?;
    helm(&cluster, &["rollback", "orrery", "1"]).await?.ok()?;
    pods(&cluster, 2).await?;
    for release in ["orrery", "orrery-crds"] {
        helm(&cluster, &["uninstall", release]).await?.ok()?;
    }
    pods(&cluster, 0).await?;
    // One that is being deleted is still there for a moment, with a time.
    let kept = "--output=jsonpath={range .items[*]}{.metadata.name}{.metadata.deletionTimestamp}{'\\n'}{end}";
    let kept = cluster.kubectl(&["get", "crd", kept]).await?.ok()?;
    let ours = ["checksumruns.orrery.dev", "checksumschedules.orrery.dev"];
    ensure!(kept.lines().eq(ours), "{kept}");
    let left = [
        "get",
        "clusterrole,clusterrolebinding",
        "--output=name",
        "--selector=app.kubernetes.io/part-of=orrery",
    ];
    let left = cluster.kubectl(&left).await?.ok()?;
    ensure!(left.is_empty(), "left behind: {left}");
    cluster.shutdown().await
}

async fn helm(cluster: &Kubernetes, args: &[&str]) -> Result<Said> {
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let common = ["--kubeconfig", &kubeconfig, "--namespace", NAMESPACE];
    run(&tools::helm().await?, &[args, &common].concat()).await
}

/// The operator's Deployment has made so many pods; without a node they do not run.
async fn pods(cluster: &Kubernetes, count: usize) -> Result<()> {
    eventually(&format!("{count} pods"), SOON, async || {
        let args = [
            "--namespace",
            NAMESPACE,
            "get",
            "pods",
            "--output=name",
            "--selector=app.kubernetes.io/name=orrery-operator",
        ];
        let pods = cluster.kubectl(&args).await?.ok()?;
        ensure!(pods.lines().count() == count, "{pods}");
        Ok(Some(()))
    })
    .await
}
