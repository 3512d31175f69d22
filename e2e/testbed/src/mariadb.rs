//! In: nothing. Out: a real MariaDB with an empty database and a user for it.
//! Touches: one process, its folder and a port of 127.0.0.1.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::process::Launch;
use crate::server::{self, Knock, Owned, Recipe};
use crate::{ports, tools};

/// A MariaDB of the test's own.
pub type MariaDb = Owned<Access>;

/// What a client needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Access {
    address: SocketAddr,
}

const USER: &str = "testbed";
const PASSWORD: &str = "testbed";
const DATABASE: &str = "testbed";

const PACKAGE: &str = "mariadb-server";

/// Read at every start. The rights are on every database, so that tests on a shared server can have one each.
const FIRST_STATEMENTS: &str = "\
CREATE DATABASE IF NOT EXISTS testbed;
CREATE USER IF NOT EXISTS 'testbed'@'127.0.0.1' IDENTIFIED BY 'testbed';
GRANT ALL ON *.* TO 'testbed'@'127.0.0.1';
";

/// Starts one. A commit is on disk when it is acknowledged, as in production.
pub async fn start() -> Result<MariaDb> {
    let server = tools::installed("mariadbd", PACKAGE)?;
    let installer = tools::installed("mariadb-install-db", PACKAGE)?;
    server::start("mariadb", |layout| {
        let [port] = ports::free()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let options = layout.root().join("my.cnf");
        fs::write(&options, configuration(layout, port)?)
            .with_context(|| format!("failed to write {}", options.display()))?;
        let defaults = format!("--defaults-file={}", options.display());
        let recipe = Recipe {
            launch: Launch::new("mariadb", &server, layout.log("mariadb")).args([&defaults]),
            data: layout.root().join("data"),
            setup: vec![
                Launch::new("mariadb-install-db", &installer, layout.log("setup")).args([
                    defaults.as_str(),
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                ]),
            ],
            knock: Knock {
                address,
                say: Vec::new(),
                // The greeting: a header of four bytes, then the version of the protocol.
                is_answer: |heard| heard.get(4) == Some(&10),
            },
        };
        Ok((recipe, Access { address }))
    })
    .await
}

fn configuration(layout: &Layout, port: u16) -> Result<String> {
    let root = layout.root();
    let first = root.join("first.sql");
    fs::write(&first, FIRST_STATEMENTS).context("failed to write the first statements")?;
    // Names of temporary tables are unique in one process namespace, and a folder that all share is in none.
    fs::create_dir_all(root.join("tmp")).context("failed to make a folder for temporary tables")?;
    let root = root.display();
    // It refuses to run as root unless told to by name.
    let user = if geteuid().is_root() { "user=root" } else { "" };
    Ok(format!(
        "[mariadbd]
{user}
datadir={root}/data
tmpdir={root}/tmp
socket={root}/socket
pid-file={root}/pid
init-file={}
bind-address=127.0.0.1
port={port}
skip-name-resolve
innodb_buffer_pool_size=32M
innodb_log_file_size=16M
innodb_buffer_pool_dump_at_shutdown=OFF
performance_schema=OFF
innodb_print_all_deadlocks=ON
character-set-server=utf8mb4
collation-server=utf8mb4_unicode_ci
",
        first.display()
    ))
}

impl Access {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For clients, password included; names the database that is there from the start.
    pub fn url(&self) -> String {
        self.url_via(self.address)
    }

    /// For clients that come through a proxy at another address.
    pub fn url_via(&self, address: SocketAddr) -> String {
        format!("mysql://{USER}:{PASSWORD}@{address}/{DATABASE}")
    }
}
