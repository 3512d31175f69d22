//! In: a node's place in a cluster. Out: that node, to be started, broken, wiped and mended.
//! Touches: its folder and its process.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::options::Options;
use super::{PASSWORD, Ports, USER, topology};
use crate::component::Component;
use crate::java::{Archive, Jvm};
use crate::layout::Layout;

const SETTINGS: &str = include_str!("cassandra.yaml");
const LOGGING: &str = include_str!("logback.xml");
const JVM_OPTIONS: &str = include_str!("jvm.options");

const MAIN: &str = "org.apache.cassandra.service.CassandraDaemon";

/// What a node knows of its place.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) n: usize,
    pub(super) address: IpAddr,
    pub(super) datacenter: &'a str,
    pub(super) everybody: &'a [IpAddr],
    pub(super) ports: Ports,
    pub(super) wrapper: Vec<String>,
    pub(super) archive: Archive,
}

/// One node. What works for [`Component`] works for it; started again it is itself again.
#[derive(Debug)]
pub struct Node {
    component: Component,
    folder: PathBuf,
    address: IpAddr,
}

impl Node {
    pub(super) fn prepare(
        jvm: &Jvm,
        layout: &Layout,
        options: &Options,
        place: &Place,
    ) -> Result<Self> {
        let name = format!("cassandra-{}", place.n + 1);
        let folder = layout.root().join(&name);
        write_files(&folder, jvm, options, place)
            .with_context(|| format!("failed to write the files of {name}"))?;
        let line = ["@jvm.options", "@first-boot.options"]
            .map(|file| file.replace('@', &format!("@{}/", folder.display())).into());
        let launch = jvm.launch(&name, layout, place.archive, line.into(), MAIN);
        Ok(Self {
            component: Component::new(launch.wrapped(&place.wrapper)),
            folder,
            address: place.address,
        })
    }

    /// Starts it; to wait until the others see it, see [`Access::all_up`](super::Access::all_up).
    pub fn start(&self) -> Result<()> {
        self.component.start()
    }

    /// Kills it (SIGKILL) and waits until it is gone; its data stay. The others notice after about ten seconds.
    pub async fn kill(&self) -> Result<()> {
        self.component.kill().await
    }

    /// Asks it to end (SIGTERM) and waits; its data stay. The others are told.
    pub async fn stop(&self) -> Result<()> {
        self.component.stop().await
    }

    /// Makes it stand still (SIGSTOP).
    pub async fn pause(&self) -> Result<()> {
        self.component.pause().await
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.component.resume()
    }

    /// Throws its data away, as a lost disk does; it must not be running. When it is started again it takes
    /// its own place anew, without any data until it is repaired.
    pub fn wipe(&self) -> Result<()> {
        ensure!(
            !self.component.is_running(),
            "{} uses its data",
            self.component.name()
        );
        fs::remove_dir_all(self.data()).context("failed to remove the data of a node")?;
        let replace = format!(
            "-Dcassandra.replace_address_first_boot={}\n-Dcassandra.allow_unsafe_replace=true\n",
            self.address
        );
        fs::write(self.folder.join("first-boot.options"), replace)
            .context("failed to write options")
    }

    /// Where its tables, logs and caches are.
    pub fn data(&self) -> PathBuf {
        data(&self.folder)
    }

    /// Key and certificate, for a cluster with TLS.
    pub(super) fn certificate(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    /// Its process, for its pid and its log.
    pub fn component(&self) -> &Component {
        &self.component
    }
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn write_files(folder: &Path, jvm: &Jvm, options: &Options, place: &Place) -> Result<()> {
    fs::create_dir_all(folder.join("tmp"))?;
    let write = |name: &str, text: &str| fs::write(folder.join(name), text);
    let own = settings(folder, options, place);
    write("cassandra.yaml", &format!("{SETTINGS}\n{own}"))?;
    let Place {
        n,
        address,
        datacenter,
        ..
    } = place;
    write(
        "rackdc.properties",
        &format!("dc={datacenter}\nrack=rack{}\n", n + 1),
    )?;
    write("logback.xml", LOGGING)?;
    write(
        "jvm.options",
        &jvm_options(folder, &agent(jvm.home())?, place.archive),
    )?;
    write("first-boot.options", "")?;
    let jolokia = format!(
        "host={address}\nport={}\nuser={USER}\npassword={PASSWORD}\n\
         discoveryEnabled=false\nexecutor=fixed\nthreadNr=4\n",
        place.ports.jolokia
    );
    write("jolokia.properties", &jolokia)?;
    Ok(())
}

fn settings(folder: &Path, options: &Options, place: &Place) -> String {
    let Place {
        n,
        address,
        everybody,
        ..
    } = place;
    let Ports { storage, cql, .. } = place.ports;
    let tokens = topology::tokens(*n, everybody.len());
    let seeds: Vec<_> = everybody
        .iter()
        .map(|it| format!("{it}:{storage}"))
        .collect();
    let (authenticator, authorizer) = if options.passwords {
        ("PasswordAuthenticator", "CassandraAuthorizer")
    } else {
        ("AllowAllAuthenticator", "AllowAllAuthorizer")
    };
    let commits = if options.synced {
        "commitlog_sync: batch"
    } else {
        "commitlog_sync: periodic\ncommitlog_sync_period: 1000ms"
    };
    let data = data(folder);
    let data = data.display();
    format!(
        "cluster_name: testbed
listen_address: {address}
rpc_address: {address}
storage_port: {storage}
native_transport_port: {cql}
num_tokens: {}
initial_token: '{}'
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: '{}'}}]
authenticator: {authenticator}
authorizer: {authorizer}
hinted_handoff_enabled: {}
data_file_directories: [{data}/tables]
commitlog_directory: {data}/commitlog
{commits}
hints_directory: {data}/hints
saved_caches_directory: {data}/saved_caches
{}{}",
        tokens.len(),
        tokens.join(","),
        seeds.join(","),
        options.hints,
        options.stream_limit.map_or_else(String::new, streaming),
        encryption(folder, options.tls),
    )
}

/// Whole tables are streamed by a limit of their own.
fn streaming(limit: u32) -> String {
    format!(
        "stream_throughput_outbound: {limit}MiB/s
entire_sstable_stream_throughput_outbound: {limit}MiB/s
"
    )
}

fn encryption(folder: &Path, tls: bool) -> String {
    format!(
        "client_encryption_options:
  enabled: {tls}
  optional: false
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
  keystore: {}/server.pem
",
        folder.display()
    )
}

fn jvm_options(folder: &Path, agent: &Path, archive: Archive) -> String {
    let own = folder.display();
    // An archive holds the classes of one class path, without those of an agent.
    let agent = match archive {
        Archive::Use => format!(
            "-javaagent:{}=config={own}/jolokia.properties\n",
            agent.display()
        ),
        Archive::Make => String::new(),
    };
    format!(
        "{JVM_OPTIONS}-Djava.io.tmpdir={own}/tmp
-Djna.tmpdir={own}/tmp
-XX:ErrorFile={own}/crash.log
-Dlogback.configurationFile=file:{own}/logback.xml
-Dcassandra.config=file:{own}/cassandra.yaml
-Dcassandra-rackdc.properties=file:{own}/rackdc.properties
-Dcassandra.storagedir={own}/data
-Dcassandra.logdir={own}
{agent}"
    )
}

fn agent(home: &Path) -> Result<PathBuf> {
    let mut files = fs::read_dir(home.join("agent"))?;
    let jar = files.next().context("no Jolokia agent")??;
    Ok(jar.path())
}
