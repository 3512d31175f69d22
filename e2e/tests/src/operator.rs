#![expect(clippy::disallowed_methods, reason = "tests set the stage directly")]
//! Operator processes with the account and the roles that are shipped. In: a cluster. Out: replicas
//! that can be killed, paused and asked. Starts processes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use testbed::{
    Access,
    process::{Launch, Process},
    wait::eventually,
};

/// The namespace of the operator in the files that are shipped.
pub const NAMESPACE: &str = "orrery-system";
/// The name of the operator's account and lease in the files that are shipped.
pub const NAME: &str = "orrery-operator";
/// The start of the operator's user agent.
pub const AGENT: &str = "orrery-operator/";

/// How soon somebody leads again, at the latest.
pub const LEAD_AGAIN: Duration = Duration::from_secs(20);

const START: Duration = Duration::from_secs(30);

/// The repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of the repository.
pub fn shipped(path: &str) -> Result<String> {
    let path = repository().join(path);
    std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
}

/// Installs the account and the roles for all namespaces, as shipped.
pub async fn install(cluster: &Access) -> Result<()> {
    install_files(cluster, &["config/rbac/operator.yaml"]).await
}

/// Installs the account, its leader role and the given role files.
pub async fn install_files(cluster: &Access, files: &[&str]) -> Result<()> {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let api: Api<Namespace> = Api::all(cluster.client().await?);
    api.patch(
        NAMESPACE,
        &PatchParams::apply("e2e"),
        &Patch::Apply(&namespace),
    )
    .await?;
    let common = [
        "config/rbac/service-account.yaml",
        "config/rbac/leader-election.yaml",
    ];
    for file in common.iter().chain(files) {
        cluster.apply_yaml(&shipped(file)?).await?;
    }
    Ok(())
}

/// How a replica is started.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Another way to the API server, a proxy's.
    pub url: Option<String>,
    /// More arguments.
    pub args: Vec<String>,
    /// More environment.
    pub envs: Vec<(String, String)>,
}

/// One replica of the operator.
#[derive(Debug)]
pub struct Replica {
    /// The name of its pod, so to say.
    pub name: String,
    process: Process,
}

impl Replica {
    /// Starts a replica with the operator's own account.
    pub async fn start(cluster: &Access, name: &str, settings: &Settings) -> Result<Self> {
        let kubeconfig = cluster
            .service_account_kubeconfig(NAMESPACE, NAME, settings.url.as_deref())
            .await?;
        let log = cluster.folder().join(format!("logs/{name}.log"));
        let process = Launch::new(name, binary()?, log)
            .args([
                "--admin-address",
                "127.0.0.1:0",
                "--pod-name",
                name,
                "--lease-namespace",
                NAMESPACE,
                "--agent-image",
                "orrery:test",
            ])
            .args(settings.args.iter().cloned())
            .envs([("KUBECONFIG", kubeconfig)])
            .envs(settings.envs.iter().cloned())
            .spawn()?;
        Ok(Self {
            name: name.into(),
            process,
        })
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// What it answers on the admin port: status code and body.
    pub async fn ask(&self, path: &str) -> Result<(u16, String)> {
        let address = eventually("the admin port in the log", START, async || {
            self.admin_address()
        })
        .await?;
        let response = plain_get(&address, path).await?;
        let (head, body) = response.split_once("\r\n\r\n").context("an HTTP answer")?;
        let code = head.split(' ').nth(1).context("a status code")?.parse()?;
        Ok((code, body.into()))
    }

    fn admin_address(&self) -> Result<Option<String>> {
        let log = self.process.log()?;
        for line in log.lines().filter(|line| line.contains("listening")) {
            let line: serde_json::Value = serde_json::from_str(line)?;
            if let Some(address) = line["address"].as_str() {
                return Ok(Some(address.into()));
            }
        }
        ensure!(self.process.is_running(), "the operator ended: {log}");
        Ok(None)
    }

    /// Waits until `/readyz` says so.
    pub async fn ready(&self) -> Result<()> {
        eventually("a ready replica", START, async || {
            let (code, body) = self.ask("/readyz").await?;
            ensure!(code == 200, "{body}");
            Ok(Some(()))
        })
        .await
    }
}

/// The operator that was built with these tests.
fn binary() -> Result<PathBuf> {
    if let Ok(path) = std::env::var("ORRERY_OPERATOR") {
        return Ok(path.into());
    }
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(2).context("the target folder")?;
    let binary = target.join(NAME);
    if !binary.exists() {
        bail!(
            "{} is missing: run `cargo build -p operator`",
            binary.display()
        );
    }
    Ok(binary)
}

async fn plain_get(address: &str, path: &str) -> Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Who holds the lease.
pub async fn holder(client: &Client) -> Result<Option<String>> {
    let api: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let lease = api.get_opt(NAME).await?;
    let holder = lease.and_then(|lease| lease.spec?.holder_identity);
    Ok(holder.filter(|holder| !holder.is_empty()))
}

/// Waits until a replica leads that `except` does not name, and says which.
pub async fn leader<'a>(
    client: &Client,
    replicas: &'a [Replica],
    except: Option<&str>,
    within: Duration,
) -> Result<&'a Replica> {
    eventually("a leader", within, async || {
        let holder = holder(client).await?.context("nobody holds the lease")?;
        let leader = replicas
            .iter()
            .find(|replica| holder.starts_with(&format!("{}_", replica.name)));
        Ok(leader.filter(|leader| Some(leader.name.as_str()) != except))
    })
    .await
}
