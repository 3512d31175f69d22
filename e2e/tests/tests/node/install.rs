//! The ways to install, and to apply again: Helm, kustomize.

use std::fs;

use anyhow::{Context, Result, ensure};
use e2e::operator::repository;
use tempfile::TempDir;
use testbed::wait::eventually;

use crate::{
    case::{Case, OPERATOR, SAMPLE, SOON},
    evidence, run,
};

/// Where an operator for all namespaces lives.
pub(crate) const SYSTEM: &str = "orrery-system";

#[tokio::test]
async fn applying_again_changes_nothing() -> Result<()> {
    Case::play_with_operator("again", async |case| {
        let deployment = format!("deployment/{OPERATOR}");
        let deployed = case.field(&deployment, ".metadata.generation").await?;
        case.install(&[]).await?;
        ensure!(deployed == case.field(&deployment, ".metadata.generation").await?);

        let samples = repository().join("config/samples");
        let samples = samples.to_str().context("a path that is not UTF-8")?;
        let apply = ["apply", "--kustomize", samples];
        again(case, async || case.kubectl(&apply).await).await?;
        let server_side = [&apply[..], &["--server-side"]].concat();
        again(case, async || case.kubectl(&server_side).await).await?;
        let chart = chart_of_samples(samples)?;
        let folder = chart.path().to_string_lossy();
        let upgrade = ["upgrade", "--install", "samples", &folder];
        again(case, async || case.helm(&upgrade).await).await
    })
    .await
}

/// Applies every sample twice.
async fn again(case: &Case, apply: impl AsyncFn() -> Result<String>) -> Result<()> {
    let samples = repository().join("config/samples");
    let delete = ["delete", "--ignore-not-found", "--kustomize"];
    let samples = samples.to_str().context("a path that is not UTF-8")?;
    case.kubectl(&[&delete[..], &[samples]].concat()).await?;
    apply().await?;
    // When its pods are gone, too, nobody but a user has anything to say about a run that has ended.
    let ended = ["wait", "--for=condition=Complete", "checksumruns", "--all"];
    case.kubectl(&[&ended[..], &["--timeout=100s"]].concat())
        .await?;
    let of_pods = ".items[*].status.conditions[?(@.type==\"AgentsReachable\")].status";
    let of_pods = format!("--output=jsonpath={{{of_pods}}}");
    eventually("the last word about the runs", SOON, async || {
        let told = case.kubectl(&["get", "checksumruns", &of_pods]).await?;
        Ok(told.is_empty().then_some(()))
    })
    .await?;
    case.flux_says("Current").await?;
    let before = versions(case).await?;
    let said = apply().await?;
    let after = versions(case).await?;
    ensure!(before == after, "{before} became {after}: {said}");
    Ok(())
}

async fn versions(case: &Case) -> Result<String> {
    let version = "{range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}\n{end}";
    let output = format!("--output=jsonpath={version}");
    let both = ["get", "checksumschedules,checksumruns", &output];
    case.kubectl(&both).await
}

fn chart_of_samples(samples: &str) -> Result<TempDir> {
    let chart = tempfile::tempdir()?;
    let templates = chart.path().join("templates");
    fs::create_dir(&templates)?;
    fs::write(
        chart.path().join("Chart.yaml"),
        "apiVersion: v2\nname: samples\nversion: 1.0.0\n",
    )?;
    for file in fs::read_dir(samples)? {
        let file = file?;
        if file.file_name() != "kustomization.yaml" {
            fs::copy(file.path(), templates.join(file.file_name()))?;
        }
    }
    Ok(chart)
}

#[tokio::test]
async fn kustomize_installs_an_operator_for_all_namespaces() -> Result<()> {
    Case::play("kustomize", async |case| {
        let overlay = overlay()?;
        let folder = overlay.path().to_string_lossy();
        // The definitions are there already, by Helm.
        let apply = ["apply", "--server-side", "--force-conflicts", "-k", &folder];
        system(case, &apply).await?;
        let deployment = format!("deployment/{OPERATOR}");
        system(case, &["rollout", "status", &deployment, "--timeout=50s"]).await?;
        case.apply(SAMPLE).await?;
        case.flux_says("Current").await?;
        let asked = evidence::nothing_forbidden_nothing_secret(&case.cluster, SYSTEM)?;
        ensure!(asked > 0, "the audit log knows nothing of the operator");

        let expected = "not installed by Helm";
        run::refused(run::current(case, "localhost/orrery:dev"), expected).await?;

        remove(case).await
    })
    .await
}

/// Removes an operator that kustomize installed, if there is one.
pub(crate) async fn remove(case: &Case) -> Result<()> {
    let delete = async |part: &str| {
        let part = repository().join(part);
        let part = part.to_string_lossy();
        system(case, &["delete", "--ignore-not-found", "-k", &part]).await
    };
    delete("config/manager").await?;
    // An operator that ends lets its lease go, for which it needs its rights.
    let pods = "--selector=app.kubernetes.io/name=orrery-operator";
    let gone = ["wait", "--for=delete", "pods", pods, "--timeout=50s"];
    system(case, &gone).await?;
    delete("config/rbac").await.map(drop)
}

/// As docs/installing.md says it: the agents have the operator's image.
const OVERLAY: &str = "\
resources: [../../config/default]
images: [{name: orrery, newName: localhost/orrery, newTag: dev}]
replacements:
- source: {kind: Deployment, name: orrery-operator, fieldPath: 'spec.template.spec.containers.[name=operator].image'}
  targets:
  - select: {kind: Deployment, name: orrery-operator}
    fieldPaths: ['spec.template.spec.containers.[name=operator].env.[name=ORRERY_AGENT_IMAGE].value']
";

fn overlay() -> Result<TempDir> {
    let overlay = tempfile::Builder::new().tempdir_in(repository().join("target"))?;
    fs::write(overlay.path().join("kustomization.yaml"), OVERLAY)?;
    Ok(overlay)
}

pub(crate) async fn system(case: &Case, args: &[&str]) -> Result<String> {
    let args = [&["--namespace", SYSTEM], args].concat();
    case.cluster.kubectl(&args).await?.ok()
}
