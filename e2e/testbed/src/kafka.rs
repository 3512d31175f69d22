//! In: nothing. Out: a real Kafka, one node that is broker and controller.
//! Touches: one process, its folder and ports of 127.0.0.1.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::ground::Ground;
use crate::java::{Archive, Jvm};
use crate::layout::Layout;
use crate::ports;
use crate::process::Launch;
use crate::proxy::Proxy;
use crate::server::{self, Knock, Owned, Recipe};

/// A Kafka of the test's own.
pub type Kafka = Owned<Access>;

/// What a client needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Access {
    address: SocketAddr,
}

/// Any will do; it must be the same in every format of the same data.
const CLUSTER_ID: &str = "b3JyZXJ5LXRlc3RiZWQtMQ";

/// Waits are short, so that a consumer that dies is noticed within seconds.
const SETTINGS: &str = include_str!("kafka/server.properties");
const LOGGING: &str = include_str!("kafka/log4j2.properties");

const SCRIPT: &str = "kafka.sh";
const STARTED: &str = "Kafka Server started";

impl Access {
    /// Where clients begin; topics are made by clients too.
    pub fn bootstrap(&self) -> SocketAddr {
        self.address
    }
}

/// Starts one.
pub async fn start() -> Result<Kafka> {
    let jvm = Jvm::find(SCRIPT).await?;
    server::start("kafka", |layout| {
        let ports = Ports::choose()?;
        recipe(&jvm, layout, ports, ports.broker)
    })
    .await
}

/// Starts one that sends its clients, who begin at [`Access::bootstrap`], through a proxy.
pub async fn start_behind_proxy() -> Result<(Kafka, Proxy)> {
    let jvm = Jvm::find(SCRIPT).await?;
    let ports = Ports::choose()?;
    let proxy = Proxy::start(loopback(ports.broker)).await?;
    let port = proxy.address().port();
    let kafka = server::start("kafka", |layout| recipe(&jvm, layout, ports, port)).await?;
    Ok((kafka, proxy))
}

/// Runs one for the class archive that lets later ones start faster; does nothing if there is one.
pub(crate) async fn make_archive() -> Result<()> {
    let jvm = Jvm::find(SCRIPT).await?;
    if jvm.has_archive() {
        return Ok(());
    }
    eprintln!("testbed: making the class archive of Kafka, once: half a minute");
    let mut ground = Ground::create("kafka-archive".into())?;
    let layout = ground.layout();
    let ports = Ports::choose()?;
    configure(&layout, ports, ports.broker)?;
    let formatted = format(&jvm, &layout).spawn()?;
    let status = formatted.wait_exit(server::START_DEADLINE).await?;
    ensure!(status.success(), "{}", formatted.log()?);
    let broker = broker(&jvm, &layout, Archive::Make).spawn()?;
    jvm.keep_archive(&layout, &broker, STARTED).await?;
    ground.ends_well();
    Ok(())
}

#[derive(Clone, Copy)]
struct Ports {
    broker: u16,
    controller: u16,
}

impl Ports {
    fn choose() -> Result<Self> {
        let [broker, controller] = ports::free()?;
        Ok(Self { broker, controller })
    }
}

fn recipe(jvm: &Jvm, layout: &Layout, ports: Ports, advertised: u16) -> Result<(Recipe, Access)> {
    configure(layout, ports, advertised)?;
    let recipe = Recipe {
        launch: broker(jvm, layout, Archive::Use),
        data: data(layout.root()),
        setup: vec![format(jvm, layout)],
        knock: Knock {
            address: loopback(ports.broker),
            say: api_versions_request(),
            // Length, then the correlation id that was asked with.
            is_answer: |heard| heard.get(4..8) == Some(b"orry"),
        },
    };
    let address = loopback(advertised);
    Ok((recipe, Access { address }))
}

fn configure(layout: &Layout, ports: Ports, advertised: u16) -> Result<()> {
    let Ports { broker, controller } = ports;
    let own = format!(
        "listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{advertised}
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={}
",
        data(layout.root()).display()
    );
    let write = |name: &str, text: String| {
        let path = layout.root().join(name);
        fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))
    };
    write("log4j2.properties", LOGGING.to_owned())?;
    write("server.properties", format!("{SETTINGS}{own}"))
}

fn broker(jvm: &Jvm, layout: &Layout, archive: Archive) -> Launch {
    let options = jvm_options(layout.root());
    jvm.launch("kafka", layout, archive, options, "kafka.Kafka")
        .args([layout.root().join("server.properties")])
}

fn format(jvm: &Jvm, layout: &Layout) -> Launch {
    let (options, tool) = (jvm_options(layout.root()), "kafka.tools.StorageTool");
    jvm.launch("kafka-format", layout, Archive::Use, options, tool)
        .args(["format", "--cluster-id", CLUSTER_ID, "--config"])
        .args([layout.root().join("server.properties")])
}

fn jvm_options(root: &Path) -> Vec<OsString> {
    let logging = format!(
        "-Dlog4j2.configurationFile=file:{}/log4j2.properties",
        root.display()
    );
    let memory = ["-Xms64m", "-Xmx320m", "-XX:MaxDirectMemorySize=128m"];
    let options = memory.into_iter().map(OsString::from);
    options.chain([logging.into()]).collect()
}

fn data(root: &Path) -> std::path::PathBuf {
    root.join("data")
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Length, API 18 (versions), its version 0, a correlation id, and no name of the client.
fn api_versions_request() -> Vec<u8> {
    let body = [&[0, 18, 0, 0][..], b"orry", &[0xff, 0xff]].concat();
    let length = u32::try_from(body.len()).unwrap_or_default();
    [&length.to_be_bytes()[..], &body].concat()
}
