//! In: a place. Out: how the parts of a control plane are started there, and how they are reached.
//! Pure: touches nothing.

use std::net::Ipv4Addr;

/// Where a control plane runs.
#[derive(Clone, Debug)]
pub(crate) enum Seat {
    /// On ports of 127.0.0.1, without nodes.
    Loopback {
        /// Where the database listens.
        etcd: u16,
        /// Where the API server listens.
        api_server: u16,
    },
    /// On a host of a network of its own, with nodes.
    Host {
        /// The host's address.
        address: Ipv4Addr,
        /// The command that runs another one on the host.
        enter: Vec<String>,
        /// Names and addresses of the nodes.
        nodes: Vec<(String, Ipv4Addr)>,
    },
}

impl Seat {
    pub(super) fn enter(&self) -> &[String] {
        match self {
            Self::Loopback { .. } => &[],
            Self::Host { enter, .. } => enter,
        }
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        match self {
            Self::Loopback { .. } => Ipv4Addr::LOCALHOST,
            Self::Host { address, .. } => *address,
        }
    }

    pub(super) fn nodes(&self) -> &[(String, Ipv4Addr)] {
        match self {
            Self::Loopback { .. } => &[],
            Self::Host { nodes, .. } => nodes,
        }
    }

    pub(super) fn etcd_url(&self) -> String {
        let port = match self {
            Self::Loopback { etcd, .. } => *etcd,
            Self::Host { .. } => 2379,
        };
        format!("http://127.0.0.1:{port}")
    }

    pub(super) fn port(&self) -> u16 {
        match self {
            Self::Loopback { api_server, .. } => *api_server,
            Self::Host { .. } => 6443,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}:{}", self.address(), self.port())
    }
}
