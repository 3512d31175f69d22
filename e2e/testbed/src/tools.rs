//! In: the name of a binary. Out: the path of the real one.
//! Touches: reads the environment; runs `e2e/tools/kubernetes.sh`, which builds what is not built yet.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// A first build takes ten minutes on two cores; slow machines get six times that.
const BUILD_DEADLINE: Duration = Duration::from_hours(1);

static BUILT: OnceCell<PathBuf> = OnceCell::const_new();

/// Where `name` (`etcd`, `kube-apiserver`, `kubectl`, …) is.
///
/// From the folder named by `KUBEBUILDER_ASSETS` if that holds it, else from what `kubernetes.sh` builds;
/// `ORRERY_TOOLS` names another folder with that script.
pub async fn binary(name: &str) -> Result<PathBuf> {
    if let Some(found) = preinstalled(env::var_os("KUBEBUILDER_ASSETS").as_deref(), name) {
        return Ok(found);
    }
    let path = BUILT.get_or_try_init(build).await?.join(name);
    ensure!(
        path.is_file(),
        "{} is missing; remove its folder to have it built again",
        path.display()
    );
    Ok(path)
}

/// The root of the repository this crate was compiled in.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn preinstalled(assets: Option<&OsStr>, name: &str) -> Option<PathBuf> {
    let path = Path::new(assets?).join(name);
    path.is_file().then_some(path)
}

/// Not tied to this process: a build that was half done would have to start again.
async fn build() -> Result<PathBuf> {
    let scripts = env::var_os("ORRERY_TOOLS");
    let scripts = scripts.map_or_else(|| repository().join("e2e/tools"), PathBuf::from);
    let script = scripts.join("kubernetes.sh");
    let running = Command::new(&script)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| {
            let script = script.display();
            format!("failed to run {script}; ORRERY_TOOLS can name another folder")
        })?;
    let output = timeout(BUILD_DEADLINE, running.wait_with_output()).await;
    let output = output.with_context(|| format!("{} took too long", script.display()))??;
    ensure!(
        output.status.success(),
        "{} failed ({}); its messages are above",
        script.display(),
        output.status
    );
    let folder = String::from_utf8(output.stdout).context("a folder that is not UTF-8")?;
    Ok(PathBuf::from(folder.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_assets_win_binary_by_binary() {
        let assets = tempfile::tempdir().unwrap();
        let etcd = assets.path().join("etcd");
        std::fs::write(&etcd, "").unwrap();
        let assets = Some(assets.path().as_os_str());
        assert_eq!(preinstalled(assets, "etcd"), Some(etcd));
        assert_eq!(preinstalled(assets, "kube-controller-manager"), None);
        assert_eq!(preinstalled(None, "etcd"), None);
    }

    #[tokio::test]
    async fn every_part_has_a_binary() {
        for name in [
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubectl",
        ] {
            assert!(binary(name).await.unwrap().is_file(), "{name}");
        }
    }
}
