//! In: the name of a topic. Out: the folder with what it is compared with.
//! Touches: runs `e2e/tools/peers.sh`, which builds or installs what is not there yet and says so on standard error.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tokio::{process::Command, time::timeout};

/// A first build takes two minutes on two cores.
const BUILD: Duration = Duration::from_mins(30);

/// Where the peers of a topic are.
pub async fn folder(topic: &str) -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/peers.sh");
    let building = Command::new(&script)
        .arg(topic)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("failed to run {}", script.display()))?;
    let output = timeout(BUILD, building.wait_with_output()).await;
    let output = output.context("building the peers took too long")??;
    ensure!(
        output.status.success(),
        "failed to build the peers; see above"
    );
    let folder = String::from_utf8(output.stdout).context("a folder that is not UTF-8")?;
    Ok(PathBuf::from(folder.trim()))
}
