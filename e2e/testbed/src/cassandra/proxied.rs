//! In: the nodes of a cluster. Out: a proxy for each, and the addresses by which a driver finds them.
//! Touches: loopback sockets.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, bail};

use crate::ports;
use crate::proxy::Proxy;

const ATTEMPTS: usize = 20;

/// One proxy per node.
#[derive(Debug)]
pub struct Proxied {
    proxies: Vec<Proxy>,
    translation: HashMap<SocketAddr, SocketAddr>,
}

impl Proxied {
    pub(super) async fn start(nodes: &[SocketAddr]) -> Result<Self> {
        for _ in 0..ATTEMPTS {
            let [port] = ports::free()?;
            if let Ok(proxied) = Self::start_at(port, nodes).await {
                return Ok(proxied);
            }
        }
        bail!("no port that is free on {} loopback addresses", nodes.len())
    }

    /// A driver takes the port of its first connection for that of all nodes, so all proxies have the same.
    async fn start_at(port: u16, nodes: &[SocketAddr]) -> Result<Self> {
        let mut proxies = Vec::new();
        let mut translation = HashMap::new();
        for (last, node) in (1..).zip(nodes) {
            let listen = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), port));
            proxies.push(Proxy::start_at(listen, *node).await?);
            translation.insert(SocketAddr::new(node.ip(), port), listen);
        }
        Ok(Self {
            proxies,
            translation,
        })
    }

    /// The proxy in front of node `n`.
    pub fn proxy(&self, n: usize) -> &Proxy {
        &self.proxies[n]
    }

    /// Where a driver has to begin.
    pub fn contact_points(&self) -> Vec<SocketAddr> {
        self.proxies.iter().map(Proxy::address).collect()
    }

    /// From what a driver takes for a node's address to that of its proxy.
    pub fn translation(&self) -> HashMap<SocketAddr, SocketAddr> {
        self.translation.clone()
    }
}
