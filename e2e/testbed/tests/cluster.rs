//! The nodes of the testbed are real ones: what a user of a cluster relies on works, and a node can be lost and cut off.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use testbed::wait::eventually;
use testbed::{Cluster, Options, process};

const SOON: Duration = Duration::from_mins(2);

#[tokio::test]
async fn pods_run_find_each_other_and_keep_their_volumes() -> Result<()> {
    let mut cluster = Cluster::start(Options::default(), 2).await?;
    let folder = cluster.folder().to_owned();
    cluster
        .apply_yaml(include_str!("cluster/pods.yaml"))
        .await?;
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

    cluster.network().isolate(1).await?;
    second_node_is(&cluster, "Unknown").await?;
    cluster.network().heal().await?;
    second_node_is(&cluster, "True").await?;
    drop(cluster.lose_node(1));
    second_node_is(&cluster, "Unknown").await?;

    cluster.shutdown().await?;
    nothing_is_left(&folder.to_string_lossy())
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

/// Neither a process nor a control group nor a mount nor a folder.
fn nothing_is_left(folder: &str) -> Result<()> {
    let running = process::mentioning(folder)?;
    ensure!(running.is_empty(), "still running: {running:?}");
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    ensure!(!mounts.contains(folder), "still mounted: {mounts}");
    ensure!(!fs::exists(folder)?, "{folder} is still there");
    let name = folder.rsplit('/').next().unwrap_or_default();
    for hierarchy in fs::read_dir("/sys/fs/cgroup")?.flatten() {
        for group in fs::read_dir(hierarchy.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            let group = group.path();
            ensure!(
                !group.to_string_lossy().contains(name),
                "{} is left",
                group.display()
            );
        }
    }
    Ok(())
}
