//! In: where the nodes are. Out: what clients need, and waits for what the nodes think of each other.
//! Touches: asks the nodes' Jolokia agents.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::TcpStream;

use super::Proxied;
use super::jolokia::{Jolokia, STORAGE_SERVICE};
use super::{PASSWORD, Ports, USER};
use crate::wait::eventually;

/// A cluster, as its clients see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Access {
    pub(super) nodes: Vec<Member>,
    pub(super) ports: Ports,
    pub(super) passwords: bool,
    pub(super) authority: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) address: IpAddr,
    pub(super) datacenter: String,
}

impl Access {
    /// How many nodes there are; they are counted from 0.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// Where node `n` speaks CQL.
    pub fn cql(&self, n: usize) -> SocketAddr {
        SocketAddr::from((self.nodes[n].address, self.ports.cql))
    }

    /// All of these addresses.
    pub fn contact_points(&self) -> Vec<SocketAddr> {
        (0..self.size()).map(|n| self.cql(n)).collect()
    }

    /// The data centre of node `n`: `dc1`, `dc2` or `dc3`.
    pub fn datacenter(&self, n: usize) -> &str {
        &self.nodes[n].datacenter
    }

    /// Name and password for CQL, if clients have to log in.
    pub fn credentials(&self) -> Option<(&'static str, &'static str)> {
        self.passwords.then_some(("cassandra", "cassandra"))
    }

    /// The certificate to trust (PEM), if clients have to speak TLS.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// A client of node `n`'s JMX.
    pub fn jolokia(&self, n: usize) -> Jolokia {
        Jolokia::new(self.jolokia_address(n), USER, PASSWORD)
    }

    /// Where node `n`'s JMX is asked.
    pub fn jolokia_address(&self, n: usize) -> SocketAddr {
        SocketAddr::from((self.nodes[n].address, self.ports.jolokia))
    }

    /// Connections to every node that can be disturbed.
    pub async fn behind_proxies(&self) -> Result<Proxied> {
        Proxied::start(&self.contact_points()).await
    }

    /// Waits until every node is a full member for every node, all know the same tables, and all speak CQL.
    pub async fn all_up(&self, deadline: Duration) -> Result<()> {
        let all: Vec<_> = (0..self.size()).collect();
        eventually("all nodes to agree", deadline, async || {
            let mut schemas = BTreeSet::new();
            for n in 0..self.size() {
                schemas.insert(self.sees(n, &all).await?);
                TcpStream::connect(self.cql(n)).await?;
            }
            ensure!(schemas.len() == 1, "schemas: {schemas:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until node `observer` takes exactly these nodes for alive.
    pub async fn sees_alive(
        &self,
        observer: usize,
        alive: &[usize],
        deadline: Duration,
    ) -> Result<()> {
        let what = format!("node {observer} to see {alive:?} alive");
        eventually(&what, deadline, async || {
            self.sees(observer, alive).await?;
            Ok(Some(()))
        })
        .await
    }

    /// The version of its tables, if it is a full member and takes exactly these nodes for alive.
    async fn sees(&self, observer: usize, alive: &[usize]) -> Result<String> {
        let attributes = [
            "LiveNodes",
            "JoiningNodes",
            "OperationMode",
            "SchemaVersion",
            "TokenToEndpointMap",
        ];
        let ring = self
            .jolokia(observer)
            .read(STORAGE_SERVICE, &attributes)
            .await;
        let ring = ring.with_context(|| format!("node {observer}"))?;
        let expected: BTreeSet<_> = alive
            .iter()
            .map(|n| self.nodes[*n].address.to_string())
            .collect();
        // Who is alive and does not join any more may still have to tell which tokens it has; until then its data centre is
        // unknown to the others.
        let tokens = ring["TokenToEndpointMap"].as_object().into_iter().flatten();
        let owners: BTreeSet<_> = tokens
            .filter_map(|(_, owner)| Some(owner.as_str()?.to_owned()))
            .collect();
        ensure!(
            addresses(&ring["LiveNodes"]) == expected
                && addresses(&ring["JoiningNodes"]).is_empty()
                && ring["OperationMode"] == "NORMAL"
                && expected.is_subset(&owners),
            "node {observer}: {ring}"
        );
        Ok(ring["SchemaVersion"].to_string())
    }
}

fn addresses(list: &Value) -> BTreeSet<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|it| Some(it.as_str()?.to_owned()))
        .collect()
}
