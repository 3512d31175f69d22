#![expect(clippy::disallowed_methods, reason = "measures hand-overs")]
//! Pods on real nodes: installed as users do it, killed, evicted, upgraded and removed. Run by `make e2e`.

mod case;
mod checksum;
mod distributed;
mod evidence;
mod install;
mod kill;
mod run;
mod statuses;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use case::{Case, OPERATOR, SCHEDULE, SOON};
use e2e::history::History;
use jiff::SignedDuration;
use serde_json::json;
use testbed::wait::eventually;

#[tokio::test]
async fn a_chart_is_installed_used_and_removed() -> Result<()> {
    Case::play_with_operator("chart", async |case| {
        case.kubectl(&["annotate", SCHEDULE, "orrery.dev/run-now=first"])
            .await?;
        eventually("a run", SOON, async || {
            let runs = case
                .kubectl(&["get", "checksumruns", "--output=name"])
                .await?;
            Ok((runs.lines().count() == 1).then_some(()))
        })
        .await?;
        let columns = case.kubectl(&["get", "orrery"]).await?;
        ensure!(columns.contains("nightly"), "{columns}");

        let metrics = case.metrics().await?;
        ensure!(
            metrics.contains("leader_election_master_status"),
            "{metrics}"
        );
        case.helm(&["test", "orrery", "--timeout", "1m"]).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_cannot_be_carried_out_is_failed_and_mended_by_an_edit() -> Result<()> {
    Case::play_with_operator("stalled", async |case| {
        let sample = e2e::operator::shipped(case::SAMPLE)?;
        let broken = sample.replace("Europe/Berlin", "Europe/Nowhere");
        case.apply_text(&broken).await?;
        case.flux_says("Failed").await?;
        case.apply_text(&sample).await?;
        case.flux_says("Current").await
    })
    .await
}

#[tokio::test]
async fn an_edit_is_in_progress_until_an_operator_has_seen_it() -> Result<()> {
    Case::play_with_operator("progress", async |case| {
        let deployment = format!("deployment/{OPERATOR}");
        case.kubectl(&["scale", &deployment, "--replicas=0"])
            .await?;
        let pods = "--selector=app.kubernetes.io/name=orrery-operator";
        case.kubectl(&["wait", "--for=delete", "pods", pods, "--timeout=50s"])
            .await?;
        let edit = r#"{"spec": {"schedule": "0 4 * * *"}}"#;
        case.kubectl(&["patch", SCHEDULE, "--type=merge", "--patch", edit])
            .await?;
        case.flux_says("InProgress").await?;
        case.kubectl(&["scale", &deployment, "--replicas=2"])
            .await?;
        case.flux_says("Current").await
    })
    .await
}

#[tokio::test]
async fn a_killed_leader_is_replaced_within_twenty_seconds() -> Result<()> {
    Case::play_with_operator("killed", async |case| {
        let first = case.leader_after("").await?;
        let pod = format!("pod/{}", pod_of(&first)?);
        let container = case
            .field(&pod, ".status.containerStatuses[0].containerID")
            .await?;
        let began = Instant::now();
        kill::every_process_of(&container)?;
        let second = eventually("another leader", SOON, async || {
            let holder = case
                .field(&format!("lease/{OPERATOR}"), ".spec.holderIdentity")
                .await?;
            if holder.is_empty() {
                return Ok(Some(Err("the lease was let go: it was no kill")));
            }
            Ok((holder != first).then_some(Ok(holder)))
        })
        .await?;
        let second = second.map_err(anyhow::Error::msg)?;
        let took = began.elapsed();
        ensure!(
            took < Duration::from_secs(20),
            "{second} leads after {took:?}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_evicted_leader_hands_over_and_the_other_is_spared() -> Result<()> {
    Case::play_with_operator("evicted", async |case| {
        let first = case.leader_after("").await?;
        let all = case
            .kubectl(&[
                "get",
                "pods",
                "--selector=app.kubernetes.io/name=orrery-operator",
                "--output=jsonpath={.items[*].metadata.name}",
            ])
            .await?;
        let leader = pod_of(&first)?;
        let other = all.split_whitespace().find(|pod| *pod != leader);
        let other = other.context("only one replica")?;
        evict(case, leader).await?;
        let Err(refused) = evict(case, other).await else {
            bail!("both replicas were evicted at once");
        };
        ensure!(
            refused.to_string().contains("disruption budget"),
            "{refused:#}"
        );
        case.leader_after(&first).await?;
        handed_over(case)
    })
    .await
}

#[tokio::test]
async fn an_upgrade_hands_over_within_three_seconds() -> Result<()> {
    Case::play_with_operator("upgrade", async |case| {
        case.install(&["pod.annotations.upgraded=yes"]).await?;
        eventually("one of the new pods to lead", SOON, async || {
            let leader = case.leader_after("").await?;
            let pod = format!("pod/{}", pod_of(&leader)?);
            let upgraded = case.field(&pod, ".metadata.annotations.upgraded").await?;
            Ok((upgraded == "yes").then_some(()))
        })
        .await?;
        handed_over(case)?;
        case.helm(&["rollback", "orrery", "1", "--wait"]).await?;
        case.flux_says("Current").await
    })
    .await
}

#[tokio::test]
async fn a_drained_node_gives_its_pods_away_and_gets_volumes_back() -> Result<()> {
    Case::play_with_operator("drain", async |case| {
        case.apply_text(include_str!("volume.yaml")).await?;
        case.kubectl(&["rollout", "status", "statefulset/keeper", "--timeout=50s"])
            .await?;
        let node = case.field("pod/keeper-0", ".spec.nodeName").await?;
        let selector = "--pod-selector=app.kubernetes.io/name in (orrery-operator, keeper)";
        let drain = [
            "drain",
            &node,
            "--delete-emptydir-data",
            "--timeout=50s",
            selector,
        ];
        case.kubectl(&drain)
            .await
            .context("a drain that does not end")?;
        let deployment = format!("deployment/{OPERATOR}");
        case.kubectl(&["rollout", "status", &deployment, "--timeout=50s"])
            .await?;
        let places = case
            .kubectl(&[
                "get",
                "pods",
                "--selector=app.kubernetes.io/name=orrery-operator",
                "--output=jsonpath={.items[*].spec.nodeName}",
            ])
            .await?;
        ensure!(!places.contains(&node), "{places}");
        let phase = case.field("pod/keeper-0", ".status.phase").await?;
        ensure!(
            phase == "Pending",
            "its volume is on the drained node, and it is {phase}"
        );

        case.kubectl(&["uncordon", &node]).await?;
        case.kubectl(&["rollout", "status", "statefulset/keeper", "--timeout=50s"])
            .await?;
        let kept = case
            .kubectl(&["exec", "keeper-0", "--", "cat", "/volume/kept"])
            .await?;
        ensure!(kept.lines().count() == 2, "written once per start: {kept}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_tells_why_a_case_failed_is_kept() -> Result<()> {
    let failed = Case::play_with_operator("kept", async |case| {
        bail!("on purpose in {}", case.namespace)
    })
    .await;
    let Err(failed) = failed else {
        bail!("a failed case passed");
    };
    let said = format!("{failed:#}");
    let (_, namespace) = said.split_once("on purpose in ").context(said.clone())?;
    let cluster = testbed::kubernetes().await?;
    let left = ["get", "namespace", namespace, "--ignore-not-found"];
    let left = cluster.kubectl(&left).await?.ok()?;
    ensure!(left.is_empty(), "other cases meet {left}");
    let folder = e2e::operator::repository().join("target/testbed-logs/case-kept");
    for (file, expected) in [
        ("objects.yaml", "kind: ChecksumSchedule"),
        ("events.txt", "Scheduled"),
        ("pods.txt", "orrery-operator"),
        ("logs.txt", "leadership changed"),
    ] {
        let text = std::fs::read_to_string(folder.join(file)).context(file)?;
        ensure!(text.contains(expected), "{file}: {text}");
    }
    Ok(std::fs::remove_dir_all(folder)?)
}

/// The lease names the pod first.
fn pod_of(holder: &str) -> Result<&str> {
    let (pod, _) = holder.split_once('_').context("a holder without a pod")?;
    Ok(pod)
}

/// Whenever somebody else came to lead, nobody had for three seconds at most.
fn handed_over(case: &Case) -> Result<()> {
    let history = History::read(&case.cluster.audit())?.of_namespace(&case.namespace);
    let vacancies = history.vacancies()?;
    let most = SignedDuration::from_secs(3);
    ensure!(!vacancies.is_empty(), "the lease was never let go");
    ensure!(
        vacancies.iter().all(|it| *it < most),
        "nobody led for {vacancies:?}"
    );
    Ok(())
}

/// As a drain asks for it, once.
async fn evict(case: &Case, pod: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", case.namespace);
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": case.namespace.name()},
    })
    .to_string();
    let args = ["create", "--raw", &path, "--filename=-"];
    case.cluster.kubectl_stdin(&args, &eviction).await?.ok()
}
