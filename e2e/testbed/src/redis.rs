//! In: nothing. Out: a real Redis that keeps what it is told, with a password.
//! Touches: one process, its folder and a port of 127.0.0.1.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::process::Launch;
use crate::server::{self, Knock, Owned, Recipe};
use crate::{ports, tools};

/// A Redis of the test's own.
pub type Redis = Owned<Access>;

/// What a client needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Access {
    address: SocketAddr,
}

const PASSWORD: &str = "testbed";

/// Starts one; every write is in its append-only file within a second.
pub async fn start() -> Result<Redis> {
    let program = tools::installed("redis-server", "redis-server")?;
    server::start("redis", |layout| {
        let [port] = ports::free()?;
        Ok(recipe(&program, layout, port))
    })
    .await
}

pub(crate) fn recipe(program: &Path, layout: &Layout, port: u16) -> (Recipe, Access) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let data = layout.root().join("data");
    let recipe = Recipe {
        launch: Launch::new("redis", program, layout.log("redis")).args(flags(&data, port)),
        setup: vec![Launch::new("mkdir", "mkdir", layout.log("setup")).args([&data])],
        data,
        knock: Knock {
            address,
            say: format!("AUTH {PASSWORD}\r\nPING\r\n").into(),
            is_answer: |heard| heard.starts_with(b"+OK\r\n+PONG\r\n"),
        },
    };
    (recipe, Access { address })
}

fn flags(data: &Path, port: u16) -> Vec<OsString> {
    let mut flags: Vec<OsString> = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]
        .map(OsString::from)
        .into();
    flags.extend(["--requirepass".into(), PASSWORD.into()]);
    flags.extend(["--port".into(), port.to_string().into()]);
    flags.extend(["--dir".into(), data.into()]);
    flags
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
        format!("redis://:{PASSWORD}@{address}/0")
    }
}
