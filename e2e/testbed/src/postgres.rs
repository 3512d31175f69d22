//! In: nothing. Out: a real PostgreSQL, the home of some of the peers we are measured against.
//! Touches: one process, its folder and a port of 127.0.0.1.

use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::ports;
use crate::process::Launch;
use crate::server::{self, Knock, Owned, Recipe};

/// A PostgreSQL of the test's own.
pub type Postgres = Owned<Access>;

/// What a client needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Access {
    address: SocketAddr,
}

const USER: &str = "testbed";
const PASSWORD: &str = "testbed";

/// The account that Debian's package makes: the server refuses to run as root.
const ACCOUNT: &str = "postgres";

/// Where Debian keeps the servers, one folder per version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Starts one.
pub async fn start() -> Result<Postgres> {
    let programs = programs()?;
    server::start("postgres", |layout| {
        let [port] = ports::free()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let data = layout.root().join("server/data");
        let recipe = Recipe {
            launch: as_account("postgres", &programs.join("postgres"), layout)
                .args(["-h", "127.0.0.1", "-p", &port.to_string()])
                .args(["-c", "unix_socket_directories="])
                // Below its folder: what a killed server leaves in /dev/shm nobody would remove.
                .args(["-c", "dynamic_shared_memory_type=mmap", "-D"])
                .args([&data]),
            setup: setup(layout, &programs, &data)?,
            data,
            knock: Knock {
                address,
                say: startup_message(),
                // The request to authenticate; while it recovers it answers with an error instead.
                is_answer: |heard| heard.first() == Some(&b'R'),
            },
        };
        Ok((recipe, Access { address }))
    })
    .await
}

/// The folder of the newest installed version.
fn programs() -> Result<PathBuf> {
    let missing = "PostgreSQL is missing: run `make tools`, or apt-get install postgresql";
    let versions = fs::read_dir(VERSIONS).context(missing)?.flatten();
    let servers = versions.map(|version| version.path().join("bin"));
    let servers = servers.filter(|folder| folder.join("postgres").is_file());
    let newest = servers.max_by_key(|folder| {
        let version = folder.parent().and_then(|it| it.file_name()?.to_str());
        version.and_then(|version| version.parse::<u32>().ok())
    });
    newest.context(missing)
}

/// The folder is the administrator's alone, so the server gets one in it that is its own.
fn setup(layout: &Layout, programs: &Path, data: &Path) -> Result<Vec<Launch>> {
    let password = layout.root().join("password");
    fs::write(&password, PASSWORD).context("failed to write a password")?;
    let mut setup = vec![];
    if geteuid().is_root() {
        fs::set_permissions(layout.root(), Permissions::from_mode(0o711))
            .context("failed to let another user through")?;
        let home = data.with_file_name("");
        setup.push(
            Launch::new("install", "install", layout.log("setup"))
                .args(["-d", "-o", ACCOUNT, "-m", "0700"])
                .args([home]),
        );
    }
    setup.push(
        as_account("initdb", &programs.join("initdb"), layout)
            .args(["--username", USER, "--auth=scram-sha-256", "--no-sync"])
            .args(["--encoding=UTF8", "--locale=C", "--pwfile"])
            .args([password])
            .args(["--pgdata".as_ref(), data.as_os_str()]),
    );
    Ok(setup)
}

/// The signal that ties it to this process is set again, because a change of user clears it.
fn as_account(name: &str, program: &Path, layout: &Layout) -> Launch {
    let launch = Launch::new(name, program, layout.log(name));
    if !geteuid().is_root() {
        return launch;
    }
    launch
        .wrapped(["setpriv", "--reuid", ACCOUNT, "--regid", ACCOUNT])
        .wrapped(["--clear-groups", "--pdeathsig", "KILL", "--"])
}

/// Length, version 3.0, and the user, each text ended by a zero.
fn startup_message() -> Vec<u8> {
    let body = format!("\0\u{3}\0\0user\0{USER}\0\0");
    let length = u32::try_from(body.len() + 4).unwrap_or_default();
    [&length.to_be_bytes(), body.as_bytes()].concat()
}

impl Access {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For clients, password included.
    pub fn url(&self) -> String {
        self.url_via(self.address)
    }

    /// For clients that come through a proxy at another address.
    pub fn url_via(&self, address: SocketAddr) -> String {
        format!("postgres://{USER}:{PASSWORD}@{address}/postgres")
    }
}
