//! What the chart and the kustomize tree render, without a cluster.

use std::fs;

use anyhow::{Context, Result, ensure};
use e2e::{
    operator::{repository, shipped},
    render::{Objects, chart, kustomize, objects, run, template},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use testbed::tools;

use crate::{EVERYTHING, MONITORED_PODS};

/// What only one of the two has, on purpose: a chart brings neither its namespace nor definitions.
const KUSTOMIZE_ONLY: [&str; 2] = ["Namespace ", "CustomResourceDefinition "];

/// Labels that Helm's conventions ask for, and nobody selects by.
const HELM_LABELS: [&str; 4] = [
    "helm.sh/chart",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
];

#[tokio::test]
async fn the_chart_and_kustomize_render_the_same() -> Result<()> {
    let folders = [
        "config/default",
        "config/network-policy",
        "config/prometheus",
        "config/prometheus/pods",
    ];
    let mut all = chart(&MONITORED_PODS).await?;
    all.extend(chart(&EVERYTHING).await?);
    same(all, built(&folders).await?)
}

#[tokio::test]
async fn both_render_the_same_without_extras() -> Result<()> {
    same(chart(&[]).await?, built(&["config/default"]).await?)
}

#[tokio::test]
async fn both_render_the_same_for_one_namespace_and_nothing_cluster_wide() -> Result<()> {
    let one = chart(&["--set", "watchNamespaces={watched-namespace}"]).await?;
    let cluster_wide: Vec<_> = one.keys().filter(|key| key.contains(" /")).collect();
    ensure!(cluster_wide.is_empty(), "{cluster_wide:?}");
    same(one, built(&["config/namespaced"]).await?)
}

#[tokio::test]
async fn agents_in_a_watched_namespace_take_orders_from_the_operator_only() -> Result<()> {
    let one = ["--set", "watchNamespaces={watched-namespace}"];
    let mut chart = chart(&[&EVERYTHING[..], &one].concat()).await?;
    chart.retain(|key, _| key.ends_with("/orrery-agents"));
    same(chart, built(&["config/network-policy/agents"]).await?)
}

#[tokio::test]
async fn agents_run_the_image_of_the_operator() -> Result<()> {
    let secrets = "imagePullSecrets=[{\"name\": \"a\"}, {\"name\": \"b\"}]";
    let objects = chart(&["--set", "image.tag=x", "--set-json", secrets]).await?;
    let told = |name: &str| {
        let all = env(&objects)?.into_iter();
        let mut told = all.filter(|(told, _)| told == name);
        told.next()
            .map(|(_, value)| value)
            .with_context(|| name.to_owned())
    };
    ensure!(told("ORRERY_AGENT_IMAGE")? == "orrery:x");
    ensure!(told("ORRERY_AGENT_PULL_POLICY")? == "IfNotPresent");
    ensure!(told("ORRERY_AGENT_PULL_SECRETS")? == "a,b");
    Ok(())
}

#[tokio::test]
async fn the_overlay_in_the_page_gives_agents_the_image_of_the_operator() -> Result<()> {
    let page = shipped("docs/installing.md")?;
    let block = page.split_once("An overlay names the image:");
    let block = block.and_then(|(_, rest)| rest.split_once("```yaml\n"));
    let (block, _) = block
        .and_then(|(_, rest)| rest.split_once("```"))
        .context("an overlay")?;
    let folder = tempfile::tempdir()?;
    let root = "../".repeat(folder.path().components().count());
    let here = format!("{root}{}/config/", repository().canonicalize()?.display());
    let block = block.replace("https://github.com/orrery-dev/orrery//config/", &here);
    let file = folder.path().join("kustomization.yaml");
    fs::write(file, block.replace("?ref=v0.1.0", ""))?;
    let overlay = folder.path().to_str().context("a path that is not UTF-8")?;
    let told = env(&built(&[overlay]).await?)?;
    let image = (
        "ORRERY_AGENT_IMAGE".into(),
        "registry.example.com/orrery:0.1.0".into(),
    );
    ensure!(told.contains(&image), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn each_watched_namespace_gets_a_role_and_the_operator_is_told() -> Result<()> {
    let two = chart(&["--set", "watchNamespaces={a,b}"]).await?;
    ensure!(two.keys().all(|key| !key.starts_with("Cluster")), "{two:?}");
    for namespace in ["a", "b"] {
        for kind in ["Role", "RoleBinding"] {
            let key = format!("{kind} {namespace}/orrery-operator");
            ensure!(two.contains_key(&key), "{key} is missing");
        }
    }
    let told = env(&two)?
        .into_iter()
        .find(|(name, _)| name == "ORRERY_WATCH_NAMESPACES");
    ensure!(told.is_some_and(|(_, value)| value == "a,b"));
    Ok(())
}

#[tokio::test]
async fn the_overlay_in_the_page_is_what_the_chart_renders_for_two_namespaces() -> Result<()> {
    let page = shipped("docs/installing.md")?;
    let folder = tempfile::tempdir()?;
    let root = "../".repeat(folder.path().components().count());
    for file in [
        "team-a/kustomization.yaml",
        "team-b/kustomization.yaml",
        "kustomization.yaml",
    ] {
        let block = page.split_once(&format!("```yaml\n# {file}\n"));
        let (block, _) = block
            .and_then(|(_, rest)| rest.split_once("```"))
            .context(file)?;
        let here = format!("{root}{}/config/", repository().canonicalize()?.display());
        let block = block.replace("https://github.com/orrery-dev/orrery//config/", &here);
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        fs::write(path, block.replace("?ref=v0.1.0", ""))?;
    }
    let overlay = folder.path().to_str().context("a path that is not UTF-8")?;
    let two = chart(&["--set", "watchNamespaces={team-a,team-b}"]).await?;
    same(two, built(&[overlay]).await?)
}

#[tokio::test]
async fn what_the_page_gives_argo_cd_and_flux_can_be_rendered() -> Result<()> {
    let page = shipped("docs/installing.md")?;
    let blocks = page.split("```yaml\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split_once("```"));
    let mut charts = Vec::new();
    for (block, _) in blocks {
        let documents: Vec<Value> = serde_saphyr::from_multiple(block)?;
        for document in documents {
            let spec = &document["spec"];
            let (chart, values) = match document["kind"].as_str() {
                Some("Application") => (
                    &spec["source"]["path"],
                    &spec["source"]["helm"]["valuesObject"],
                ),
                Some("HelmRelease") => (&spec["chart"]["spec"]["chart"], &spec["values"]),
                _ => continue,
            };
            let chart = chart.as_str().context("no chart")?;
            let file = tempfile::NamedTempFile::new()?;
            fs::write(&file, values.to_string())?;
            let file = file.path().to_str().context("a path that is not UTF-8")?;
            let args = ["template", "it", chart, "--values", file];
            run(&tools::helm().await?, &args).await?.ok()?;
            charts.push(chart.to_owned());
        }
    }
    let both = ["charts/orrery-crds", "charts/orrery"];
    ensure!(charts == [both, both].concat(), "{charts:?}");
    Ok(())
}

#[tokio::test]
async fn rendering_twice_gives_the_same_text() -> Result<()> {
    let args = [&["--set", "image.repository=orrery"], &EVERYTHING[..]].concat();
    let first = template(&args).await?.ok()?;
    ensure!(first == template(&args).await?.ok()?);
    ensure!(kustomize("config/default").await? == kustomize("config/default").await?);
    Ok(())
}

#[tokio::test]
async fn the_single_file_is_what_kustomize_renders() -> Result<()> {
    ensure!(
        shipped("config/install.yaml")? == kustomize("config/default").await?,
        "config/install.yaml is old: run kubectl kustomize config/default > config/install.yaml"
    );
    Ok(())
}

#[tokio::test]
async fn the_charts_definitions_are_those_of_kustomize_and_are_kept() -> Result<()> {
    let helm = tools::helm().await?;
    let chart = run(&helm, &["template", "orrery-crds", "charts/orrery-crds"]).await?;
    let mut chart = definitions(&chart.ok()?)?;
    for crd in &mut chart {
        let kept = crd.metadata.annotations.take().unwrap_or_default();
        ensure!(
            kept.into_iter()
                .eq([("helm.sh/resource-policy".to_owned(), "keep".to_owned())])
        );
    }
    ensure!(chart == definitions(&kustomize("config/crd").await?)?);
    Ok(())
}

/// Typed, because kustomize writes 1.0 as 1.
fn definitions(text: &str) -> Result<Vec<CustomResourceDefinition>> {
    let objects = objects(text)?.into_values();
    objects
        .map(|object| Ok(serde_json::from_value(object)?))
        .collect()
}

#[tokio::test]
async fn every_variable_of_the_container_is_one_the_operator_knows() -> Result<()> {
    let known = [
        "operator/src/args.rs",
        "agents/runtime/src/admin.rs",
        "agents/runtime/src/telemetry.rs",
    ];
    let known = known.map(shipped).into_iter().collect::<Result<String>>()?;
    for (name, _) in env(&chart(&["--set", "watchNamespaces={a}"]).await?)? {
        ensure!(known.contains(&format!("env = \"{name}\"")), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn every_container_is_restricted() -> Result<()> {
    for (key, object) in chart(&EVERYTHING).await? {
        let bare = key.starts_with("Pod ").then(|| &object["spec"]);
        let Some(pod) = object.pointer("/spec/template/spec").or(bare) else {
            continue;
        };
        let context = &pod["securityContext"];
        ensure!(
            context["runAsNonRoot"] == true && context["runAsUser"] == 65532,
            "{key}"
        );
        ensure!(
            context["seccompProfile"]["type"] == "RuntimeDefault",
            "{key}"
        );
        ensure!(pod.get("initContainers").is_none(), "{key}");
        for container in pod["containers"].as_array().context("containers")? {
            let expected = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]}});
            ensure!(
                container["securityContext"] == expected,
                "{key}: {container}"
            );
        }
    }
    Ok(())
}

async fn built(folders: &[&str]) -> Result<Objects> {
    let mut all = Objects::new();
    for folder in folders {
        all.extend(objects(&kustomize(folder).await?)?);
    }
    all.retain(|key, _| !KUSTOMIZE_ONLY.iter().any(|kind| key.starts_with(kind)));
    Ok(all)
}

/// Only Helm knows tests.
fn same(mut chart: Objects, kustomize: Objects) -> Result<()> {
    chart.retain(|_, object| object["metadata"]["annotations"]["helm.sh/hook"].is_null());
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    let (left, right) = (names(&chart), names(&kustomize));
    ensure!(
        left == right,
        "the chart has {left:#?}, kustomize has {right:#?}"
    );
    for ((key, left), right) in chart.into_iter().zip(kustomize.into_values()) {
        let (left, right) = (plain(left), plain(right));
        ensure!(
            left == right,
            "{key}: the chart has {left:#}, kustomize has {right:#}"
        );
    }
    Ok(())
}

/// Without the labels of Helm.
fn plain(mut object: Value) -> Value {
    if let Some(labels) = object
        .pointer_mut("/metadata/labels")
        .and_then(Value::as_object_mut)
    {
        labels.retain(|label, _| !HELM_LABELS.contains(&label.as_str()));
    }
    object
}

fn env(objects: &Objects) -> Result<Vec<(String, String)>> {
    let deployment = objects.get("Deployment orrery-system/orrery-operator");
    let env = deployment
        .context("no Deployment")?
        .pointer("/spec/template/spec/containers/0/env");
    let entries = env.and_then(Value::as_array).context("no environment")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(entries
        .iter()
        .map(|entry| (text(&entry["name"]), text(&entry["value"])))
        .collect())
}
