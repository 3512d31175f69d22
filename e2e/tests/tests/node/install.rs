//! The ways to install, and to apply again: Helm, kustomize, `make run` in a cluster that is there already.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use e2e::{operator::repository, render::Said};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    case::{Case, OPERATOR, SAMPLE},
    evidence,
};

/// Where an operator for all namespaces lives.
const SYSTEM: &str = "orrery-system";

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
    case.flux_says("Current").await?;
    let before = versions(case).await?;
    let said = apply().await?;
    let after = versions(case).await?;
    ensure!(before == after, "{before} became {after}: {said}");
    Ok(())
}

/// Of an object without a controller nobody has written the status yet: the next server-side apply stores its default.
async fn versions(case: &Case) -> Result<String> {
    let path = |version| {
        format!("--output=jsonpath={{range .items[*]}}{{.metadata.name}} {{{version}}} {{end}}")
    };
    let (written, edited) = (
        path(".metadata.resourceVersion"),
        path(".metadata.generation"),
    );
    let schedules = case
        .kubectl(&["get", "checksumschedules", &written])
        .await?;
    let runs = case.kubectl(&["get", "checksumruns", &edited]).await?;
    Ok(schedules + &runs)
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
        evidence::nothing_forbidden_nothing_secret(&case.cluster, SYSTEM)?;

        let taken = make_run(case, "localhost/orrery:dev").await?;
        ensure!(
            !taken.well && taken.stderr.contains("not installed by Helm"),
            "{taken:?}"
        );

        for part in ["config/manager", "config/rbac"] {
            let part = repository().join(part);
            system(case, &["delete", "-k", &part.to_string_lossy()]).await?;
        }
        Ok(())
    })
    .await
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

#[tokio::test]
async fn make_run_installs_into_the_current_cluster_or_leaves_it_as_it_was() -> Result<()> {
    Case::play("current", async |case| {
        let absent = make_run(case, "localhost/absent:1").await?;
        let why = "no node finds the image localhost/absent:1";
        ensure!(!absent.well && absent.stderr.contains(why), "{absent:?}");
        let left = system(case, &["get", "deployments,pods", "--output=name"]).await?;
        ensure!(left.is_empty(), "{left}");

        let run = make_run(case, "localhost/orrery:dev").await?.ok()?;
        ensure!(
            run.contains("checksumschedule.orrery.dev/nightly   True"),
            "{run}"
        );
        let again = make_run(case, "localhost/orrery:dev").await?.ok()?;
        ensure!(
            again.contains("checksumschedule.orrery.dev/nightly   True"),
            "{again}"
        );

        let sample = repository().join(SAMPLE);
        let kubectl = ["delete", "--filename", &sample.to_string_lossy()];
        case.cluster.kubectl(&kubectl).await?.ok()?;
        case.helm(&["uninstall", "orrery", "--wait", "--namespace", SYSTEM])
            .await?;
        Ok(())
    })
    .await
}

async fn system(case: &Case, args: &[&str]) -> Result<String> {
    let args = [&["--namespace", SYSTEM], args].concat();
    case.cluster.kubectl(&args).await?.ok()
}

/// `make run CLUSTER=current` with the kubeconfig of the nodes.
async fn make_run(case: &Case, image: &str) -> Result<Said> {
    let output = Command::new("make")
        .args(["run", "CLUSTER=current", &format!("IMAGE={image}")])
        .current_dir(Path::new(&repository()))
        .env("KUBECONFIG", case.cluster.kubeconfig())
        .kill_on_drop(true)
        .output()
        .await?;
    Ok(Said {
        well: output.status.success(),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}
