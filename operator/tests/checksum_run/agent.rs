//! Agents on loopback addresses: the real shell with the certificate that the operator made, and no work.
//! Opens local ports and temporary folders, all of which end with the test.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU16, Ordering},
    },
};

use anyhow::Result;
use clap::Parser;
use crds::report::ConfigDocument;
use k8s_openapi::api::core::v1::Secret;
use runtime::shell::{Shell, ShellArgs};
use serde_json::Value;
use tempfile::TempDir;

/// Keeps a port from being chosen by anybody else, for all addresses of this process.
static HELD: LazyLock<Option<TcpListener>> =
    LazyLock::new(|| TcpListener::bind("127.1.0.0:0").ok());

static GIVEN: AtomicU16 = AtomicU16::new(0);

/// The control port of all agents.
pub(crate) fn port() -> u16 {
    let held = HELD.as_ref().and_then(|held| held.local_addr().ok());
    held.map_or(0, |address| address.port())
}

/// An address that no other agent has.
pub(crate) fn address() -> SocketAddr {
    let [high, low] = (GIVEN.fetch_add(1, Ordering::SeqCst) + 1).to_be_bytes();
    (Ipv4Addr::new(127, 1, high, low), port()).into()
}

/// An agent in this process; its ports close when it is dropped.
pub(crate) struct Agent {
    shell: Shell,
    _mounts: TempDir,
}

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    shell: ShellArgs,
}

impl Agent {
    pub(crate) async fn start(address: SocketAddr, uid: &str, tls: &Secret) -> Result<Self> {
        let mounts = TempDir::new()?;
        for (name, content) in tls.data.iter().flatten() {
            fs::write(mounts.path().join(name), &content.0)?;
        }
        let folder = mounts.path().display();
        let flags = Flags::parse_from([
            "agent".to_owned(),
            "--admin-address=127.0.0.1:0".to_owned(),
            format!("--control-address={address}"),
            format!("--tls-folder={folder}"),
            format!("--config-folder={folder}/none"),
            format!("--pod-uid={uid}"),
        ]);
        let shell = Shell::start("checksum-coordinator", &flags.shell, |_| Ok(())).await?;
        Ok(Self {
            shell,
            _mounts: mounts,
        })
    }

    pub(crate) fn report(&self, detail: Value) {
        self.shell.detail().set(detail);
    }

    pub(crate) fn config(&self) -> Option<Arc<ConfigDocument>> {
        let config = self.shell.config();
        let config = config.borrow();
        config.clone()
    }
}
