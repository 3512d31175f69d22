//! The nodes of the testbed are real ones: what a user of a cluster relies on works, and a node can be lost and cut off.

mod crash;
mod family;
mod guards;
mod host;

use std::time::Duration;

use anyhow::{Result, ensure};
use testbed::wait::eventually;
use testbed::{Cluster, Options};

use family::Family;
use host::{Host, Names};

const SOON: Duration = Duration::from_mins(2);

#[tokio::test]
async fn pods_run_find_each_other_and_keep_their_volumes() -> Result<()> {
    let before = Host::observe()?;
    let mut cluster = Cluster::start(Options::default(), 2).await?;
    let folder = cluster.folder().to_owned();
    let ours = Names::of(&cluster.kubeconfig())?;
    pods_serve_each_other(&cluster).await?;
    let family = Family::of(std::process::id())?;
    Host::differs(&before, &ours, |changes| ours.are_all_of(changes)).await?;

    cluster.network().isolate(1).await?;
    second_node_is(&cluster, "Unknown").await?;
    cluster.network().heal().await?;
    second_node_is(&cluster, "True").await?;
    drop(cluster.lose_node(1));
    second_node_is(&cluster, "Unknown").await?;

    cluster.shutdown().await?;
    family.is_gone()?;
    ensure!(!folder.exists(), "{} is still there", folder.display());
    Host::differs(&before, &ours, <[_]>::is_empty).await
}

async fn pods_serve_each_other(cluster: &Cluster) -> Result<()> {
    cluster.apply_yaml(include_str!("pods.yaml")).await?;
    let kubectl = async |args: &[&str]| cluster.kubectl(args).await?.ok();
    kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/server",
        "pod/client",
        "--timeout=2m",
    ])
    .await?;
    let places = kubectl(&["get", "pods", "--output=jsonpath={.items[*].spec.nodeName}"]).await?;
    ensure!(
        places.contains("node-1") && places.contains("node-2"),
        "{places}"
    );

    eventually(
        "an answer by the name of a service, from the other node",
        SOON,
        async || {
            let page = kubectl(&[
                "exec",
                "client",
                "--",
                "wget",
                "-q",
                "-O",
                "-",
                "http://web:8080/page",
            ])
            .await?;
            ensure!(page.contains("hello"), "{page}");
            Ok(Some(()))
        },
    )
    .await?;
    ensure!(kubectl(&["exec", "server", "--", "id", "-u"]).await?.trim() == "65532");
    ensure!(kubectl(&["logs", "server"]).await?.contains("serving"));
    a_pod_that_fails_its_probe_begins_again(cluster).await
}

async fn a_pod_that_fails_its_probe_begins_again(cluster: &Cluster) -> Result<()> {
    let kubectl = async |args: &[&str]| cluster.kubectl(args).await?.ok();
    kubectl(&["exec", "server", "--", "rm", "/pages/page"]).await?;
    let path = "--output=jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}";
    eventually("the server to be restarted", SOON, async || {
        let seen = kubectl(&["get", "pod", "server", path]).await?;
        ensure!(seen == "1 true", "{seen}");
        Ok(Some(()))
    })
    .await
}

async fn second_node_is(cluster: &Cluster, ready: &str) -> Result<()> {
    let path = "--output=jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    eventually("the second node to be seen so", SOON, async || {
        let seen = cluster.kubectl(&["get", "node", "node-2", path]).await?;
        let seen = seen.ok()?;
        ensure!(seen == ready, "{seen}");
        Ok(Some(()))
    })
    .await
}
