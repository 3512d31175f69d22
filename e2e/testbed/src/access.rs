#![expect(clippy::disallowed_methods, reason = "reads from the server")]
//! In: the state folder of a running cluster. Out: everything one can do with the cluster short of breaking it.
//! Touches: the cluster's API, kubectl, and kubeconfig files in the state folder.

mod apply;
mod kubectl;
mod namespace;

use std::fs;
use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::header::{HeaderValue, USER_AGENT};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::time::timeout;

use crate::audit;
use crate::certificates::ADMIN;
use crate::kubeconfig::{self, Credential};
use crate::layout::Layout;
use crate::wait::eventually;

pub use kubectl::Output;
pub use namespace::Namespace;

/// The user agent and field manager of the testbed itself.
pub const AGENT: &str = "testbed";

/// Bound for one request of the testbed's own.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);

const TOKEN_LIFE: Duration = Duration::from_hours(24);

/// How to reach a running cluster as its administrator.
#[derive(Clone, Debug)]
pub struct Access {
    layout: Layout,
    url: String,
    kubectl: PathBuf,
    tenancy: Tenancy,
}

/// Whether others use the cluster too, and go on after this process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tenancy {
    Sole,
    Guest,
}

impl Access {
    /// For a cluster of one's own.
    pub(crate) fn sole(layout: Layout, url: String, kubectl: PathBuf) -> Self {
        Self {
            layout,
            url,
            kubectl,
            tenancy: Tenancy::Sole,
        }
    }

    /// For the cluster another process runs in this folder.
    pub(crate) fn guest(folder: &Path, kubectl: PathBuf) -> Result<Self> {
        let layout = Layout::new(folder);
        let config = Kubeconfig::read_from(layout.kubeconfig(ADMIN));
        let config = config.with_context(|| format!("no testbed in {}", folder.display()))?;
        let cluster = config.clusters.into_iter().next();
        let url = cluster.and_then(|named| named.cluster?.server);
        Ok(Self {
            layout,
            url: url.context("a kubeconfig without a server")?,
            kubectl,
            tenancy: Tenancy::Guest,
        })
    }

    /// Where the API server listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The same as [`url`](Self::url), for a [`Proxy`](crate::proxy::Proxy) in front of it.
    pub fn address(&self) -> Result<SocketAddr> {
        let address = self.url.strip_prefix("https://");
        let address = address.with_context(|| format!("{} is not HTTPS", self.url))?;
        Ok(address.parse()?)
    }

    /// The state folder; it appears in the command line of every part.
    pub fn folder(&self) -> &Path {
        self.layout.root()
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig(ADMIN)
    }

    /// Writes a kubeconfig for the administrator by way of another address of 127.0.0.1, a proxy's.
    pub fn kubeconfig_via(&self, url: &str) -> Result<PathBuf> {
        let admin = Credential::certificate(&self.layout, ADMIN);
        self.write_kubeconfig(url, "default", &admin)
    }

    /// Writes a kubeconfig for a service account, valid for a day; `url` is another address, a proxy's.
    pub async fn service_account_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
        url: Option<&str>,
    ) -> Result<PathBuf> {
        let token = self.token(namespace, name).await;
        let token =
            token.with_context(|| format!("failed to get a token for {namespace}/{name}"))?;
        let credential = Credential::Token(token);
        self.write_kubeconfig(url.unwrap_or(&self.url), namespace, &credential)
    }

    /// A new client as administrator. Not shared: a client dies with the runtime it was made in.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// How to reach the API server as administrator, for a client of the caller's own making.
    pub async fn config(&self) -> Result<Config> {
        let file = self.kubeconfig();
        let kubeconfig = Kubeconfig::read_from(&file)
            .with_context(|| format!("failed to read {}; is the cluster gone?", file.display()))?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        let agent = (USER_AGENT, HeaderValue::from_static(AGENT));
        config.headers.push(agent);
        Ok(config)
    }

    /// The audit log from the start of the cluster.
    pub fn audit(&self) -> audit::Log {
        audit::Log::new(self.layout.audit_log())
    }

    /// Waits until the API server says it is ready.
    pub async fn ready(&self, deadline: Duration) -> Result<()> {
        let client = self.client().await?;
        eventually("the API server to be ready", deadline, async || {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let answer = bounded(client.request_text(request)).await?;
            ensure!(answer == "ok", "/readyz says {answer}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits for the default service account of a namespace: the sign that controllers work, and what
    /// pods there need.
    pub(crate) async fn default_service_account(
        &self,
        namespace: &str,
        deadline: Duration,
    ) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let what = format!("the default service account of {namespace}");
        eventually(&what, deadline, async || {
            bounded(accounts.get("default")).await.map(|_| Some(()))
        })
        .await
    }

    async fn token(&self, namespace: &str, name: &str) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(i64::try_from(TOKEN_LIFE.as_secs())?),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let parameters = PostParams::default();
        let answer = bounded(accounts.create_token_request(name, &parameters, &request)).await?;
        Ok(answer.status.context("an answer without a token")?.token)
    }

    fn write_kubeconfig(&self, url: &str, namespace: &str, as_who: &Credential) -> Result<PathBuf> {
        let text = kubeconfig::text(&self.layout, url, namespace, as_who)?;
        let mut file = tempfile::Builder::new()
            .suffix(".kubeconfig")
            .tempfile_in(self.folder())
            .context("failed to make a kubeconfig")?;
        file.write_all(text.as_bytes())?;
        Ok(file.into_temp_path().keep()?)
    }
}

/// Writes the kubeconfigs of the administrator and of the parts that are clients.
pub(crate) fn write_kubeconfigs(layout: &Layout, url: &str, users: &[&str]) -> Result<()> {
    for user in users {
        let credential = Credential::certificate(layout, user);
        let text = kubeconfig::text(layout, url, "default", &credential)?;
        fs::write(layout.kubeconfig(user), text)
            .with_context(|| format!("failed to write the kubeconfig of {user}"))?;
    }
    Ok(())
}

/// A request that answers in time or is an error.
async fn bounded<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T> {
    let answer = timeout(REQUEST_DEADLINE, request).await;
    Ok(answer.with_context(|| format!("no answer in {REQUEST_DEADLINE:?}"))??)
}
