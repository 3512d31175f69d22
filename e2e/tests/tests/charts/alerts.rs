//! Alerts and dashboard: rules that promtool accepts and has tried, over metrics that exist, with a runbook.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::{
    operator::shipped,
    render::{chart, run},
};
use serde_json::Value;
use testbed::tools;

use crate::EVERYTHING;

const RULES: &str = "config/prometheus/alerts.yaml";
const TESTS: &str = "config/prometheus/alerts-test.yaml";

#[tokio::test]
async fn the_rules_are_good_and_fire_when_they_should() -> Result<()> {
    let promtool = tools::promtool().await?;
    run(&promtool, &["check", "rules", RULES]).await?.ok()?;
    run(&promtool, &["test", "rules", TESTS]).await?.ok()?;
    Ok(())
}

#[tokio::test]
async fn the_rendered_rules_are_the_tested_ones() -> Result<()> {
    let objects = chart(&EVERYTHING).await?;
    let rendered = objects.get("PrometheusRule orrery-system/orrery-operator");
    let tested: Value = serde_saphyr::from_str(&shipped(RULES)?)?;
    ensure!(rendered.context("no PrometheusRule")?["spec"] == tested);
    Ok(())
}

#[test]
fn every_alert_has_been_seen_to_fire_and_to_be_silent() -> Result<()> {
    let tests: Value = serde_saphyr::from_str(&shipped(TESTS)?)?;
    let cases = list(&tests["tests"]).iter();
    let cases: Vec<_> = cases
        .flat_map(|test| list(&test["alert_rule_test"]))
        .collect();
    for alert in alerts()? {
        let of = |case: &&Value| case["alertname"] == alert["alert"];
        let (fires, silent): (Vec<&Value>, Vec<&Value>) = cases
            .iter()
            .copied()
            .filter(of)
            .partition(|case| !list(&case["exp_alerts"]).is_empty());
        ensure!(
            !fires.is_empty() && !silent.is_empty(),
            "{} lacks a case",
            alert["alert"]
        );
    }
    Ok(())
}

#[test]
fn every_alert_has_a_runbook() -> Result<()> {
    let page = shipped("docs/installing.md")?;
    for alert in alerts()? {
        let name = alert["alert"].as_str().context("a name")?;
        let link = alert["annotations"]["runbook_url"]
            .as_str()
            .unwrap_or_default();
        let anchor = format!("/docs/installing.md#{}", name.to_lowercase());
        ensure!(link.ends_with(&anchor), "{name} links to {link}");
        ensure!(
            page.contains(&format!("\n### {name}\n")),
            "no heading for {name}"
        );
    }
    Ok(())
}

#[test]
fn alerts_and_dashboard_use_metrics_that_exist() -> Result<()> {
    let reference = shipped("docs/reference/metrics.md")?;
    let rows = reference
        .lines()
        .filter_map(|line| line.strip_prefix("| `"));
    let known: BTreeSet<_> = rows.filter_map(|row| row.split('`').next()).collect();
    let dashboard: Value = serde_json::from_str(&shipped("config/prometheus/dashboard.json")?)?;
    let panels = list(&dashboard["panels"]).iter();
    let targets = panels.flat_map(|panel| list(&panel["targets"]));
    let shown: Vec<_> = targets.map(|target| target["expr"].clone()).collect();
    ensure!(!shown.is_empty(), "an empty dashboard");
    let alerts = alerts()?.into_iter().map(|alert| alert["expr"].clone());
    for expression in alerts.chain(shown) {
        let expression = expression.as_str().context("an expression")?;
        let used = metrics(expression);
        ensure!(!used.is_empty(), "no metric in {expression}");
        for metric in used {
            let family = metric.trim_end_matches("_bucket");
            ensure!(known.contains(family), "{metric} in {expression}");
        }
    }
    Ok(())
}

/// The names in an expression that can only be metrics: most functions and labels have fewer words.
fn metrics(expression: &str) -> Vec<&str> {
    let bare = expression.split('"').step_by(2);
    let words = bare.flat_map(|part| part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    words
        .filter(|word| word.contains('_') && !WORDS.contains(word))
        .collect()
}

const WORDS: [&str; 6] = [
    "histogram_quantile",
    "__rate_interval",
    "group_left",
    "run_namespace",
    "schedule_namespace",
    "file_system",
];

fn alerts() -> Result<Vec<Value>> {
    let rules: Value = serde_saphyr::from_str(&shipped(RULES)?)?;
    let alerts = list(&rules["groups"]).iter();
    Ok(alerts
        .flat_map(|group| list(&group["rules"]).to_vec())
        .collect())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
