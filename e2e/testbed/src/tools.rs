//! In: the name of a tool. Out: the path of the real one.
//! Touches: reads the environment; runs the scripts in `e2e/tools`, which build or fetch what is not there yet.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// A first build takes ten minutes on two cores; slow machines get six times that.
const BUILD_DEADLINE: Duration = Duration::from_hours(1);

/// The folders that scripts have printed, by script.
static PRINTED: Mutex<BTreeMap<&str, Arc<OnceCell<PathBuf>>>> = Mutex::new(BTreeMap::new());

/// Where `name` (`etcd`, `kube-apiserver`, `kubectl`, …) is.
///
/// From the folder named by `KUBEBUILDER_ASSETS` if that holds it, else from what `kubernetes.sh` builds;
/// `ORRERY_TOOLS` names another folder with that script.
pub async fn binary(name: &str) -> Result<PathBuf> {
    if let Some(found) = preinstalled(env::var_os("KUBEBUILDER_ASSETS").as_deref(), name) {
        return Ok(found);
    }
    built("kubernetes.sh", name).await
}

/// The package manager whose charts we ship.
pub async fn helm() -> Result<PathBuf> {
    built("helm.sh", "helm").await
}

/// Checks and unit-tests alert rules.
pub async fn promtool() -> Result<PathBuf> {
    built("promtool.sh", "promtool").await
}

/// The folder with the definitions of what a Prometheus operator is told.
pub async fn monitoring() -> Result<PathBuf> {
    printed("monitoring.sh").await
}

/// Reads objects as JSON, prints a line for each: what Flux makes of its status, a tab, and why.
pub async fn kstatus() -> Result<PathBuf> {
    built("kstatus.sh", "kstatus").await
}

/// Refuses, over TLS, whatever an API server asks it about; needs no libraries.
pub async fn webhook() -> Result<PathBuf> {
    built("webhook.sh", "webhook").await
}

/// Runs Lua as Argo CD does.
pub async fn glua() -> Result<PathBuf> {
    built("glua.sh", "glua").await
}

/// A producer, a pool and a client of the work queue gocraft/work.
pub async fn gocraft() -> Result<PathBuf> {
    built("gocraft.sh", "gocraft").await
}

/// What a script below `e2e/tools` prints: the path of what it has built, fetched or found.
pub(crate) async fn printed(script: &'static str) -> Result<PathBuf> {
    let cell = {
        let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(printed.entry(script).or_default())
    };
    let path = cell.get_or_try_init(|| run(script)).await?;
    Ok(path.clone())
}

/// A program that a Debian package brings: from `PATH`, or from where Debian hides it.
pub(crate) fn installed(name: &str, package: &str) -> Result<PathBuf> {
    let in_path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = env::split_paths(&in_path).collect();
    folders.extend(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let mut files = folders.into_iter().map(|folder| folder.join(name));
    let found = files.find(|file| file.is_file());
    found.with_context(|| {
        format!("{name} is missing: run `make tools`, or apt-get install {package}")
    })
}

async fn built(script: &'static str, name: &str) -> Result<PathBuf> {
    let path = printed(script).await?.join(name);
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
async fn run(script: &str) -> Result<PathBuf> {
    let scripts = env::var_os("ORRERY_TOOLS");
    let scripts = scripts.map_or_else(|| repository().join("e2e/tools"), PathBuf::from);
    let script = scripts.join(script);
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
    let path = String::from_utf8(output.stdout).context("a path that is not UTF-8")?;
    Ok(PathBuf::from(path.trim()))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

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

    #[tokio::test]
    async fn every_go_tool_does_its_work() {
        let helm = shell(&helm().await.unwrap(), &["version", "--short"], "").await;
        assert!(helm.starts_with("v4."), "{helm}");
        let rules = "groups: [{name: g, rules: [{alert: A, expr: up == 0}]}]";
        let checked = shell(&promtool().await.unwrap(), &["check", "rules"], rules).await;
        assert!(checked.contains("1 rules found"), "{checked}");
        let job = r#"{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "generation": 1}}"#;
        let status = shell(&kstatus().await.unwrap(), &[], job).await;
        assert!(status.starts_with("InProgress\t"), "{status}");
        let sum = shell(&glua().await.unwrap(), &["-e", "print(1 + 2)"], "").await;
        assert_eq!(sum, "3\n");
    }

    async fn shell(program: &Path, args: &[&str], input: &str) -> String {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_missing_package_is_named() {
        let error = installed("no-such-server", "some-package").unwrap_err();
        assert!(error.to_string().contains("apt-get install some-package"));
    }
}
