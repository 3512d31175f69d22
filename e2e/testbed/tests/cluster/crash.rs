//! A cluster whose owner is killed leaves control groups and a folder, and the next one removes them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use testbed::process::{Launch, Process};
use testbed::tools;
use testbed::wait::eventually;

use crate::SOON;
use crate::family::Family;
use crate::host::{Host, Names};

const COMMAND: &str = env!("CARGO_BIN_EXE_testbed");

/// Runs in a cluster: has pods, says so, and stays.
const USE: &str = r#"
kubectl=$0
$kubectl apply --filename "$1" >/dev/null
$kubectl wait --for=condition=Ready pod/needed --timeout=50s >/dev/null
echo "KUBECONFIG=$KUBECONFIG"
exec sleep 3600
"#;

#[tokio::test]
async fn a_killed_cluster_is_gone_and_the_next_one_clears_up() -> Result<()> {
    let home = tempfile::tempdir()?;
    let pods = home.path().join("pods.yaml");
    fs::write(&pods, include_str!("evicted.yaml"))?;
    let kubectl = tools::binary("kubectl").await?;
    let (kubectl, pods) = (kubectl.to_string_lossy(), pods.to_string_lossy());
    let before = Host::observe()?;

    let killed = nodes(home.path(), &["bash", "-euc", USE, &kubectl, &pods])?;
    let ours = eventually("pods to run", SOON, async || {
        ensure!(killed.is_running(), "{}", killed.log()?);
        let log = killed.log()?;
        let kubeconfig = log.lines().find_map(|it| it.strip_prefix("KUBECONFIG="));
        let kubeconfig = kubeconfig.with_context(|| log.clone())?;
        Names::of(Path::new(kubeconfig)).map(Some)
    })
    .await?;
    Host::differs(&before, &ours, |changes| ours.are_all_of(changes)).await?;
    let family = Family::of(killed.pid())?;
    killed.kill().await?;

    let gone = async || family.is_gone().map(Some);
    eventually("all processes to be gone", SOON, gone).await?;
    Host::differs(&before, &ours, |changes| ours.are_groups_of(changes)).await?;
    let next = nodes(home.path(), &["true"])?;
    let status = next.wait_exit(SOON).await?;
    ensure!(status.success(), "{status}:\n{}", next.log()?);
    let ready = next.log()?.matches("1 node is ready after ").count();
    ensure!(ready == 2, "each of both says so");
    Host::differs(&before, &ours, <[_]>::is_empty).await?;
    let folders = fs::read_dir(home.path())?.flatten();
    let folders: Vec<_> = folders.filter(|it| it.path().is_dir()).collect();
    ensure!(folders.is_empty(), "{folders:?}");
    Ok(())
}

/// A cluster of one node for a command, with a temporary folder of its own.
fn nodes(home: &Path, command: &[&str]) -> Result<Process> {
    Launch::new("testbed", COMMAND, home.join("log"))
        .args(["nodes", "--"])
        .args(command)
        .envs([("TMPDIR", home)])
        .spawn()
}
