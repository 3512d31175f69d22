//! In: what an agent finds mounted. Out: a real agent process, and ways to talk to it.
//! Starts processes, and kills them when it is dropped; touches only its own temporary folder and local ports.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crds::report::StatusReport;
use http::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runtime::http::{Client, Limits, Response};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::pki::{Authority, Leaf, SERVER_NAME};

/// The longest any single thing may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Waits until `probe` finds something.
pub(crate) async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let search = async {
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let found = timeout(LIMIT, search).await;
    found.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"))
}

pub(crate) fn document(generation: i64) -> Value {
    json!({"version": 1, "uid": "a", "generation": generation, "spec": {}})
}

/// The folders an agent finds mounted.
pub(crate) struct Mounts {
    root: TempDir,
}

impl Mounts {
    pub(crate) fn new() -> Self {
        let root = TempDir::new().unwrap();
        fs::create_dir(root.path().join("config")).unwrap();
        fs::create_dir(root.path().join("tls")).unwrap();
        Self { root }
    }

    pub(crate) fn tls(&self) -> PathBuf {
        self.root.path().join("tls")
    }

    fn config(&self) -> PathBuf {
        self.root.path().join("config")
    }

    fn log(&self) -> PathBuf {
        self.root.path().join("log")
    }

    /// Changes the configuration as the kubelet does: a new folder, then one renamed link.
    pub(crate) fn mount_config(&self, generation: i64, content: &str) {
        let root = self.config();
        let version = format!("..2026_11_16_12_00_00.{generation}");
        fs::create_dir(root.join(&version)).unwrap();
        fs::write(root.join(&version).join("config.json"), content).unwrap();
        symlink(&version, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
        if !root.join("config.json").is_symlink() {
            symlink("..data/config.json", root.join("config.json")).unwrap();
        }
    }

    pub(crate) fn mount_document(&self, generation: i64) {
        self.mount_config(generation, &document(generation).to_string());
    }

    /// Starts an agent that may fail to start.
    pub(crate) fn launch(&self, flags: &[&str]) -> Running {
        let log = fs::File::create(self.log()).unwrap();
        let child = Command::new(bare_agent())
            .env_clear()
            .env("ORRERY_POD_UID", "pod-1")
            .env("ORRERY_CONFIG_POLL", "20ms")
            .env("ORRERY_TLS_POLL", "20ms")
            .arg(flag("--config-folder", &self.config()))
            .arg(flag("--tls-folder", &self.tls()))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Running {
            child,
            log: self.log(),
        }
    }

    /// Starts an agent on free ports, and waits until it has told them.
    pub(crate) async fn start(&self, flags: &[&str]) -> Agent {
        let free = [
            "--admin-address=127.0.0.1:0",
            "--control-address=127.0.0.1:0",
        ];
        let running = self.launch(&[&free, flags].concat());
        Agent {
            admin: running.address("admin").await,
            control: running.address("control").await,
            running,
        }
    }
}

fn flag(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

/// Cargo builds examples beside the tests' own folder.
fn bare_agent() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    profile.join("examples/bare_agent")
}

/// A process that is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The address in the line that says the port is open.
    async fn address(&self, port: &str) -> SocketAddr {
        let what = format!("{port} port is open");
        eventually(&what, async || {
            let log = self.log();
            let mut lines = log
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            let line = lines
                .find(|line: &Value| line["message"] == "listening" && line["port"] == port)?;
            line["address"].as_str()?.parse().ok()
        })
        .await
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).unwrap();
        kill(Pid::from_raw(id), signal).unwrap();
    }

    pub(crate) async fn exit(&mut self) -> ExitStatus {
        let child = &mut self.child;
        eventually("process ends", async || child.try_wait().unwrap()).await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A running agent whose ports are known.
pub(crate) struct Agent {
    pub(crate) running: Running,
    pub(crate) admin: SocketAddr,
    pub(crate) control: SocketAddr,
}

impl Agent {
    /// The answer of the plain port.
    pub(crate) async fn admin(&self, path: &str) -> (StatusCode, String) {
        let uri = format!("http://{}{path}", self.admin).parse().unwrap();
        let answer = Client::plain(Limits::default()).get(&uri).await.unwrap();
        let body = String::from_utf8(answer.body.to_vec()).unwrap();
        (answer.status, body)
    }
}

/// Somebody who calls an agent's control port.
pub(crate) struct Caller {
    control: SocketAddr,
    config: Arc<ClientConfig>,
    client: Client,
}

impl Caller {
    /// Each request opens a new connection, so that each shows what the agent accepts now.
    pub(crate) fn new(agent: &Agent, leaf: &Leaf, authorities: &str) -> Self {
        let limits = Limits {
            idle_per_address: 0,
            ..Limits::default()
        };
        let identity = Arc::new(leaf.identity(authorities));
        let config = identity.client();
        let (_, receiver) = watch::channel(Some(identity));
        Self {
            control: agent.control,
            config,
            client: Client::mutual_tls(limits, receiver, SERVER_NAME).unwrap(),
        }
    }

    /// The operator, of the same authority as the agent.
    pub(crate) fn operator(agent: &Agent, authority: &Authority) -> Self {
        Self::new(agent, &authority.client(), &authority.pem())
    }

    fn uri(&self, path: &str) -> http::Uri {
        let uri = format!("https://{}{path}", self.control);
        uri.parse().unwrap()
    }

    pub(crate) async fn try_status(&self) -> Result<StatusReport, runtime::http::Error> {
        let answer = self.client.get(&self.uri("/status")).await?;
        assert_eq!(answer.status, StatusCode::OK);
        Ok(serde_json::from_slice(&answer.body).unwrap())
    }

    pub(crate) async fn status(&self) -> StatusReport {
        self.try_status().await.unwrap()
    }

    /// The report, as soon as `accept` likes it.
    pub(crate) async fn status_with(
        &self,
        what: &str,
        accept: impl Fn(&StatusReport) -> bool,
    ) -> StatusReport {
        eventually(what, async || {
            self.try_status().await.ok().filter(|report| accept(report))
        })
        .await
    }

    pub(crate) async fn push(&self, generation: i64) -> Response {
        let uri = self.uri("/config");
        self.client.put(&uri, &document(generation)).await.unwrap()
    }

    /// The status line of the answer to a `PUT /config` of any bytes.
    pub(crate) async fn push_bytes(&self, body: &[u8]) -> io::Result<String> {
        let exchange = push_bytes(self.control, self.config.clone(), body);
        timeout(LIMIT, exchange).await.unwrap()
    }
}

/// As [`Caller::push_bytes`], with any TLS configuration.
pub(crate) async fn push_bytes(
    control: SocketAddr,
    config: Arc<ClientConfig>,
    body: &[u8],
) -> io::Result<String> {
    let stream = TcpStream::connect(control).await?;
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    let mut stream = TlsConnector::from(config).connect(name, stream).await?;
    let head = format!(
        "PUT /config HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let line = answer.lines().next().map(ToOwned::to_owned);
    line.ok_or_else(|| io::Error::other("no answer"))
}
