//! The values of the chart: each does something, a wrong one is refused by name, and every one is documented.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::{
    operator::shipped,
    render::{run, template},
};
use serde_json::Value;
use testbed::tools;

use crate::{EVERYTHING, MONITORED_PODS};

/// Arguments for Helm, and words that its refusal must contain.
const REFUSED: [(&str, &[&str]); 18] = [
    ("replicas=2", &["image.repository is missing", "registry"]),
    ("image.repository=a/b:tag", &["/image/repository"]),
    ("image.repository=a,image.digest=abc", &["/image/digest"]),
    (
        "image.repository=a,image.pullPolicy=Sometimes",
        &["/image/pullPolicy", "IfNotPresent"],
    ),
    ("image.repository=a,replicas=-1", &["/replicas", "-1"]),
    ("image.repository=a,replicas=two", &["/replicas", "integer"]),
    ("image.repository=a,replicaCount=2", &["replicaCount"]),
    ("image.repository=a,log.levl=debug", &["/log", "levl"]),
    (
        "image.repository=a,watchNamespaces=a",
        &["/watchNamespaces", "array"],
    ),
    (
        "image.repository=a,watchNamespaces={A_B}",
        &["/watchNamespaces/0"],
    ),
    (
        "image.repository=a,networkPolicy.apiServerPorts={70000}",
        &["/networkPolicy/apiServerPorts/0"],
    ),
    (
        "image.repository=a,metrics.podMonitor.interval=soon",
        &["/metrics/podMonitor/interval"],
    ),
    (
        "image.repository=a,metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true",
        &[
            "metrics.serviceMonitor and metrics.podMonitor",
            "choose one",
        ],
    ),
    (
        "image.repository=a,pod.terminationGracePeriodSeconds=5",
        &["/pod/terminationGracePeriodSeconds"],
    ),
    (
        "image.repository=a,resources.limits.memory=lots",
        &["/resources/limits/memory"],
    ),
    ("image.repository=a,log.level=loud", &["/log/level"]),
    (
        r"image.repository=a,pod.labels.app\.kubernetes\.io/name=x",
        &["/pod/labels"],
    ),
    (
        "image.repository=a,serviceAccount.create=false",
        &["serviceAccount.name"],
    ),
];

#[tokio::test]
async fn a_wrong_value_is_refused_by_name() -> Result<()> {
    for (values, words) in REFUSED {
        let said = template(&["--set", values]).await?;
        ensure!(!said.well, "{values} was accepted");
        for word in words {
            ensure!(
                said.stderr.contains(word),
                "{values}: no {word} in {}",
                said.stderr
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_is_too_old_is_refused() -> Result<()> {
    let set = ["--set", "image.repository=a", "--kube-version"];
    template(&[&set[..], &["1.33.0"]].concat()).await?.ok()?;
    let said = template(&[&set[..], &["1.32.9"]].concat()).await?;
    ensure!(!said.well && said.stderr.contains("1.33"), "{said:?}");
    Ok(())
}

/// For each value one that is not its default, as JSON.
const OTHER: &[(&str, &str)] = &[
    ("image.repository", r#""other""#),
    ("image.tag", r#""1.2.3""#),
    (
        "image.digest",
        r#""sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef""#,
    ),
    ("image.pullPolicy", r#""Always""#),
    ("imagePullSecrets", r#"[{"name": "s"}]"#),
    ("replicas", "3"),
    ("watchNamespaces", r#"["a"]"#),
    ("log.level", r#""info,operator=debug""#),
    ("log.format", r#""text""#),
    ("resources.requests.cpu", r#""1""#),
    ("resources.requests.memory", r#""64Mi""#),
    ("resources.limits.memory", r#""64Mi""#),
    ("serviceAccount.create", "false"),
    ("serviceAccount.name", r#""other""#),
    ("serviceAccount.annotations", r#"{"a": "b"}"#),
    ("rbac.create", "false"),
    ("rbac.userRoles", "false"),
    ("pod.labels", r#"{"a": "b"}"#),
    ("pod.annotations", r#"{"a": "b"}"#),
    ("pod.nodeSelector", r#"{"a": "b"}"#),
    ("pod.tolerations", r#"[{"operator": "Exists"}]"#),
    ("pod.affinity", r#"{"nodeAffinity": {}}"#),
    ("pod.topologySpreadConstraints", r#"[{"maxSkew": 2}]"#),
    ("pod.priorityClassName", r#""system-cluster-critical""#),
    ("pod.terminationGracePeriodSeconds", "60"),
    ("podDisruptionBudget.enabled", "false"),
    ("networkPolicy.enabled", "false"),
    ("networkPolicy.metricsFrom", r#"[{"podSelector": {}}]"#),
    ("networkPolicy.apiServerPorts", "[8443]"),
    ("metrics.serviceMonitor.enabled", "false"),
    ("metrics.serviceMonitor.interval", r#""1m""#),
    ("metrics.serviceMonitor.labels", r#"{"a": "b"}"#),
    ("metrics.podMonitor.enabled", "false"),
    ("metrics.podMonitor.interval", r#""1m""#),
    ("metrics.podMonitor.labels", r#"{"a": "b"}"#),
    ("metrics.rules.enabled", "false"),
    ("metrics.rules.labels", r#"{"a": "b"}"#),
    ("metrics.dashboards.enabled", "false"),
    ("metrics.dashboards.labels.grafana_dashboard", r#""2""#),
    ("metrics.dashboards.annotations", r#"{"a": "b"}"#),
];

#[tokio::test]
async fn every_value_changes_what_is_rendered() -> Result<()> {
    let image = ["--set-json", r#"image.repository="orrery""#];
    let rendered = async |base: [&str; 2], more: &[&str]| {
        template(&[&image[..], &base, more].concat()).await?.ok()
    };
    let everything = rendered(EVERYTHING, &[]).await?;
    let pods = rendered(MONITORED_PODS, &[]).await?;
    for (value, other) in OTHER {
        let (base, usual) = if value.starts_with("metrics.podMonitor.") {
            (MONITORED_PODS, &pods)
        } else {
            (EVERYTHING, &everything)
        };
        let set = format!("{value}={other}");
        let set = match *value {
            // An account that is not made must be named.
            "serviceAccount.create" => {
                r#"serviceAccount={"create": false, "name": "other"}"#.into()
            }
            _ => set,
        };
        let other = rendered(base, &["--set-json", &set]).await?;
        ensure!(other != *usual, "{value} does nothing");
    }
    Ok(())
}

#[tokio::test]
async fn every_value_is_tried_and_documented() -> Result<()> {
    let helm = tools::helm().await?;
    let values = run(&helm, &["show", "values", "charts/orrery"])
        .await?
        .ok()?;
    let mut present = BTreeSet::new();
    leaves("", &serde_saphyr::from_str(&values)?, &mut present);
    let tried: BTreeSet<_> = OTHER.iter().map(|(value, _)| (*value).to_owned()).collect();
    ensure!(
        present == tried,
        "{:?}",
        present.symmetric_difference(&tried)
    );
    let page = shipped("docs/installing.md")?;
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let described: BTreeSet<_> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    for value in present {
        let parents = value.match_indices('.').map(|(at, _)| &value[..at]);
        let mut names = parents.chain([value.as_str()]);
        ensure!(
            names.any(|name| described.contains(name)),
            "docs/installing.md has no row for {value}"
        );
    }
    Ok(())
}

fn leaves(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value.as_object().filter(|map| !map.is_empty()) {
        Some(map) => {
            for (name, value) in map {
                let dot = if path.is_empty() { "" } else { "." };
                leaves(&format!("{path}{dot}{name}"), value, found);
            }
        }
        None => {
            found.insert(path.to_owned());
        }
    }
}

#[tokio::test]
async fn the_notes_say_what_comes_next() -> Result<()> {
    let args = [
        "install",
        "orrery",
        "charts/orrery",
        "--dry-run=client",
        "--namespace",
        "ns",
    ];
    let set = [
        "--set",
        "image.repository=a,watchNamespaces={team-a,team-b}",
    ];
    let said = run(&tools::helm().await?, &[&args[..], &set].concat())
        .await?
        .ok()?;
    let (_, notes) = said.split_once("NOTES:").context("no notes")?;
    for words in [
        "watches team-a, team-b from ns",
        "orrery-crds",
        "kubectl --namespace ns rollout status deployment/orrery-operator",
        "kubectl get orrery --namespace team-a",
        "Nothing collects its metrics",
    ] {
        ensure!(notes.contains(words), "no {words} in {notes}");
    }
    Ok(())
}
