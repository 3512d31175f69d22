#![expect(clippy::disallowed_methods, reason = "measures hand-overs")]
//! Pods on a real node: installed by Helm as a user does it, killed, evicted, upgraded and removed. Run by `make e2e`.

mod case;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use case::{Case, OPERATOR, SOON};
use e2e::{history::History, operator::repository};
use testbed::wait::eventually;

const SAMPLE: &str = "config/samples/checksumschedule.yaml";

#[tokio::test]
async fn a_chart_is_installed_used_and_removed() -> Result<()> {
    let case = Case::with_operator("chart").await?;
    case.apply(SAMPLE).await?;
    case.flux_says("checksumschedule/nightly", "Current")
        .await?;

    case.kubectl(&[
        "annotate",
        "checksumschedule/nightly",
        "orrery.dev/run-now=first",
    ])
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

    let service = format!(
        "/api/v1/namespaces/{}/services/{OPERATOR}:admin/proxy/metrics",
        case.namespace
    );
    let metrics = case.kubectl(&["get", "--raw", &service]).await?;
    ensure!(
        metrics.contains("leader_election_master_status"),
        "{metrics}"
    );
    case.helm(&["test", "orrery", "--timeout", "1m"]).await?;
    nothing_forbidden_nothing_secret(&case)?;
    case.end().await
}

#[tokio::test]
async fn what_cannot_be_carried_out_is_failed_and_mended_by_an_edit() -> Result<()> {
    let case = Case::with_operator("stalled").await?;
    let sample = e2e::operator::shipped(SAMPLE)?;
    let broken = sample.replace("Europe/Berlin", "Europe/Nowhere");
    case.apply_text(&broken).await?;
    case.flux_says("checksumschedule/nightly", "Failed").await?;
    case.apply_text(&sample).await?;
    case.flux_says("checksumschedule/nightly", "Current")
        .await?;
    case.end().await
}

#[tokio::test]
async fn applying_again_changes_nothing() -> Result<()> {
    let case = Case::with_operator("again").await?;
    case.apply(SAMPLE).await?;
    case.flux_says("checksumschedule/nightly", "Current")
        .await?;
    let version = async || {
        case.field("checksumschedule/nightly", ".metadata.resourceVersion")
            .await
    };
    let before = version().await?;
    let said = case.apply(SAMPLE).await?;
    ensure!(said.contains("unchanged"), "{said}");
    let deployed = case
        .field(&format!("deployment/{OPERATOR}"), ".metadata.generation")
        .await?;
    case.install(&[]).await?;
    ensure!(before == version().await?);
    ensure!(
        deployed
            == case
                .field(&format!("deployment/{OPERATOR}"), ".metadata.generation")
                .await?
    );
    case.end().await
}

#[tokio::test]
async fn a_killed_leader_is_replaced_within_twenty_seconds() -> Result<()> {
    let case = Case::with_operator("killed").await?;
    let first = case.leader_after("").await?;
    let began = Instant::now();
    let (pod, _) = first.split_once('_').context("a holder without a pod")?;
    case.kubectl(&["delete", "pod", pod, "--grace-period=0", "--force"])
        .await?;
    let second = case.leader_after(&first).await?;
    let took = began.elapsed();
    ensure!(
        took < Duration::from_secs(20),
        "{second} leads after {took:?}"
    );
    case.end().await
}

#[tokio::test]
async fn an_upgrade_hands_over_within_three_seconds() -> Result<()> {
    let case = Case::with_operator("upgrade").await?;
    case.apply(SAMPLE).await?;
    let first = case.leader_after("").await?;
    let watching = async {
        // From the moment the old leader lets go to the moment a new one has it.
        let released = eventually("the lease to be let go", SOON, async || {
            let holder = case
                .field(&format!("lease/{OPERATOR}"), ".spec.holderIdentity")
                .await?;
            Ok((holder != first).then(Instant::now))
        })
        .await?;
        case.leader_after(&first).await?;
        anyhow::Ok(released.elapsed())
    };
    let upgrade = ["pod.annotations.upgraded=yes"];
    let (took, upgraded) = tokio::join!(watching, case.install(&upgrade));
    upgraded?;
    let took = took?;
    ensure!(took < Duration::from_secs(3), "nobody led for {took:?}");
    case.helm(&["rollback", "orrery", "1", "--wait"]).await?;
    case.flux_says("checksumschedule/nightly", "Current")
        .await?;
    case.end().await
}

#[tokio::test]
async fn a_drained_node_gives_its_pods_away_and_gets_volumes_back() -> Result<()> {
    let case = Case::with_operator("drain").await?;
    case.apply_text(include_str!("volume.yaml")).await?;
    case.kubectl(&["rollout", "status", "statefulset/keeper", "--timeout=2m"])
        .await?;
    let node = case.field("pod/keeper-0", ".spec.nodeName").await?;
    let selector = "--pod-selector=app.kubernetes.io/name in (orrery-operator, keeper)";
    let drain = [
        "drain",
        &node,
        "--delete-emptydir-data",
        "--timeout=2m",
        selector,
    ];
    case.kubectl(&drain)
        .await
        .context("a drain that does not end")?;
    case.kubectl(&[
        "rollout",
        "status",
        &format!("deployment/{OPERATOR}"),
        "--timeout=2m",
    ])
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
    case.kubectl(&["rollout", "status", "statefulset/keeper", "--timeout=2m"])
        .await?;
    let kept = case
        .kubectl(&["exec", "keeper-0", "--", "cat", "/volume/kept"])
        .await?;
    ensure!(kept.lines().count() == 2, "written once per start: {kept}");
    case.end().await
}

#[tokio::test]
async fn kustomize_installs_an_operator_for_all_namespaces() -> Result<()> {
    let case = Case::begin("kustomize").await?;
    let overlay = tempfile::Builder::new().tempdir_in(repository().join("target"))?;
    let text = "resources: [../../config/default]\n\
                images: [{name: orrery, newName: localhost/orrery, newTag: dev}]\n";
    std::fs::write(overlay.path().join("kustomization.yaml"), text)?;
    let folder = overlay.path().to_string_lossy();
    // The definitions are there already, by Helm.
    case.cluster
        .kubectl(&["apply", "--server-side", "--force-conflicts", "-k", &folder])
        .await?
        .ok()?;
    let rollout = ["--namespace", "orrery-system", "rollout", "status"];
    let deployment = format!("deployment/{OPERATOR}");
    case.cluster
        .kubectl(&[&rollout[..], &[&deployment, "--timeout=2m"]].concat())
        .await?
        .ok()?;
    case.apply(SAMPLE).await?;
    case.flux_says("checksumschedule/nightly", "Current")
        .await?;
    for part in ["config/manager", "config/rbac"] {
        let part = repository().join(part);
        case.cluster
            .kubectl(&["delete", "-k", &part.to_string_lossy()])
            .await?
            .ok()?;
    }
    for namespace in ["orrery-system", &case.namespace] {
        case.cluster
            .kubectl(&["delete", "namespace", namespace, "--timeout=2m"])
            .await?
            .ok()?;
    }
    Ok(())
}

/// What every case can say of the operator's own account.
fn nothing_forbidden_nothing_secret(case: &Case) -> Result<()> {
    let history = History::read(&case.cluster.audit())?;
    let account = format!("system:serviceaccount:{}:", case.namespace);
    let ours = history
        .events()
        .iter()
        .filter(|event| event.user.username.starts_with(&account));
    let mut seen = 0;
    for event in ours {
        seen += 1;
        ensure!(event.code() != Some(403), "forbidden: {event:?}");
        ensure!(!event.is_about("", "secrets"), "a secret: {event:?}");
    }
    ensure!(seen > 0, "the audit log knows nothing of {account}");
    Ok(())
}
