//! In: how many nodes, where, and how guarded. Out: a real Cassandra cluster, to be used and to be broken.
//! Touches: one process per node, their folders, and loopback addresses or network namespaces.

mod access;
mod jolokia;
mod node;
mod options;
mod proxied;
mod topology;

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::component::Component;
use crate::ground::{self, Ground};
use crate::java::{Archive, Jvm};
use crate::layout::Layout;
use crate::network::Network;
use crate::{certificates, ports};
use access::Member;
use node::Place;

pub use access::Access;
pub use jolokia::{Jolokia, STORAGE_SERVICE};
pub use node::Node;
pub use options::Options;
pub use proxied::Proxied;
pub use topology::Topology;

/// For Jolokia.
const USER: &str = "testbed";
const PASSWORD: &str = "testbed";

const SCRIPT: &str = "cassandra.sh";
const STARTED: &str = "Startup complete";
const FIRST_ROLE: &str = "Created default superuser role";

/// Twenty seconds are usual for three nodes; tests may share two cores with many others.
const START_DEADLINE: Duration = Duration::from_mins(4);

/// Subnets and ports are chosen before they are used, so somebody else may be faster; not many times in a row.
const ATTEMPTS: usize = 5;

/// Last octet and port of the address by which a subnet of loopback addresses is claimed.
const CLAIM: (u8, u16) = (254, 19_999);

/// A cluster of the test's own, and all of [`Access`] to it.
///
/// It ends with this value or with this process. To end well call [`shutdown`](Self::shutdown): a drop
/// without it is taken for a failure, and the logs are kept.
#[derive(Debug)]
pub struct Cassandra {
    access: Access,
    nodes: Vec<Node>,
    home: Home,
    ground: Ground,
}

/// Where every node listens.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Ports {
    storage: u16,
    cql: u16,
    jolokia: u16,
}

impl Ports {
    fn choose() -> Result<Self> {
        let [storage, cql, jolokia] = ports::free()?;
        Ok(Self {
            storage,
            cql,
            jolokia,
        })
    }
}

/// What the nodes' addresses belong to.
#[derive(Debug)]
enum Home {
    Loopback(Subnet),
    Namespaces(Network),
}

impl Cassandra {
    /// Starts all nodes at once and waits until each is a full member for each.
    pub async fn start(options: Options) -> Result<Self> {
        for _ in 0..ATTEMPTS {
            let cassandra = Self::prepare(&options, Archive::Use).await?;
            match cassandra.boot(&options).await {
                Err(_) if cassandra.found_a_port_taken() => drop(cassandra.ends_by_drop()),
                Err(error) => return Err(error.context("failed to start Cassandra")),
                Ok(()) => return Ok(cassandra),
            }
        }
        bail!("failed to start Cassandra: each of {ATTEMPTS} times a port was taken meanwhile")
    }

    /// A node, counted from 0, to break and mend it.
    pub fn node(&self, n: usize) -> &Node {
        &self.nodes[n]
    }

    /// The network, if the nodes are in namespaces; host `n` of it is node `n`.
    pub fn network(&self) -> Result<&Network> {
        match &self.home {
            Home::Namespaces(network) => Ok(network),
            Home::Loopback(_) => {
                bail!("the nodes share this machine's network: ask for `in_namespaces`")
            }
        }
    }

    /// Ends all nodes and removes their folders.
    pub async fn shutdown(mut self) -> Result<()> {
        self.ground.ends_well();
        // Nobody will ask for the data again: no need to be polite.
        for node in &self.nodes {
            node.component().send_kill();
        }
        for node in &self.nodes {
            node.kill().await?;
        }
        Ok(())
    }

    /// Copies the logs to where they stay; an earlier copy of that name is replaced.
    pub fn keep_logs(&self) -> Result<PathBuf> {
        self.ground.keep_logs()
    }

    pub(crate) fn ends_by_drop(mut self) -> Self {
        self.ground.ends_well();
        self
    }

    async fn prepare(options: &Options, archive: Archive) -> Result<Self> {
        options.topology.check()?;
        let jvm = Jvm::find(SCRIPT).await?;
        let ground = Ground::create(format!("{}-cassandra", ground::test_name()))?;
        let layout = ground.layout();
        let datacenters = options.topology.datacenters();
        let home = Home::make(options, datacenters.len(), &layout).await?;
        let addresses: Vec<_> = (0..datacenters.len()).map(|n| home.address(n)).collect();
        let ports = Ports::choose()?;
        let mut nodes = Vec::new();
        for (n, datacenter) in datacenters.iter().enumerate() {
            let place = Place {
                n,
                address: addresses[n],
                datacenter,
                everybody: &addresses,
                ports,
                wrapper: home.wrapper(n)?,
                archive,
            };
            nodes.push(Node::prepare(&jvm, &layout, options, &place)?);
        }
        let member = |(address, datacenter)| Member {
            address,
            datacenter,
        };
        let access = Access {
            authority: options
                .tls
                .then(|| tls(&layout, &nodes, &addresses))
                .transpose()?,
            nodes: addresses.into_iter().zip(datacenters).map(member).collect(),
            ports,
            passwords: options.passwords,
        };
        Ok(Self {
            access,
            nodes,
            home,
            ground,
        })
    }

    async fn boot(&self, options: &Options) -> Result<()> {
        for node in &self.nodes {
            node.start()?;
        }
        let up = async {
            self.access.all_up(START_DEADLINE).await?;
            if options.passwords {
                self.first_role().await?;
            }
            Ok(())
        };
        tokio::select! {
            up = up => up,
            error = self.a_node_ends() => Err(error),
        }
    }

    fn found_a_port_taken(&self) -> bool {
        let mut components = self.nodes.iter().map(Node::component);
        components.any(Component::found_its_port_taken)
    }

    /// The first role is made by whichever node is first to notice that there is none.
    async fn first_role(&self) -> Result<()> {
        crate::wait::eventually("the first role", START_DEADLINE, async || {
            let made = self.nodes.iter().any(|node| {
                let log = node.component().process().and_then(|it| it.log());
                log.is_ok_and(|log| log.contains(FIRST_ROLE))
            });
            Ok(made.then_some(()))
        })
        .await
    }

    async fn a_node_ends(&self) -> anyhow::Error {
        let endings = self
            .nodes
            .iter()
            .map(|node| Box::pin(node.component().ended()));
        futures::future::select_all(endings).await.0
    }
}

impl Deref for Cassandra {
    type Target = Access;

    fn deref(&self) -> &Access {
        &self.access
    }
}

impl Drop for Cassandra {
    /// All get the signal before any is waited for. The ground goes after this, with its field.
    fn drop(&mut self) {
        for node in &self.nodes {
            node.component().send_kill();
        }
        for node in &self.nodes {
            node.component().reap();
        }
    }
}

/// Runs one node for the class archive that lets later ones start faster; does nothing if there is one.
pub(crate) async fn make_archive() -> Result<()> {
    let jvm = Jvm::find(SCRIPT).await?;
    if jvm.has_archive() {
        return Ok(());
    }
    eprintln!("testbed: making the class archive of Cassandra, once: half a minute");
    let cassandra = Cassandra::prepare(&Options::new(1), Archive::Make).await?;
    let node = cassandra.node(0);
    node.start()?;
    let process = node.component().process()?;
    jvm.keep_archive(&cassandra.ground.layout(), &process, STARTED)
        .await?;
    cassandra.shutdown().await
}

/// One certificate per node, all by one authority, which is returned.
fn tls(layout: &Layout, nodes: &[Node], addresses: &[IpAddr]) -> Result<String> {
    let names = addresses.iter().map(ToString::to_string);
    let (authority, server) = certificates::server(names.collect())?;
    for node in nodes {
        fs::write(node.certificate(), &server)
            .with_context(|| format!("failed to write below {}", layout.root().display()))?;
    }
    Ok(authority)
}

impl Home {
    async fn make(options: &Options, nodes: usize, layout: &Layout) -> Result<Self> {
        if options.namespaces {
            let log = layout.log("network");
            let network = Network::create(u8::try_from(nodes)?, &log).await?;
            return Ok(Self::Namespaces(network));
        }
        Ok(Self::Loopback(Subnet::claim()?))
    }

    fn address(&self, n: usize) -> IpAddr {
        match self {
            Self::Loopback(subnet) => subnet.address(n).into(),
            Self::Namespaces(network) => network.address(n).into(),
        }
    }

    fn wrapper(&self, n: usize) -> Result<Vec<String>> {
        match self {
            Self::Loopback(_) => Ok(Vec::new()),
            Self::Namespaces(network) => Ok(network.enter(n)?.into()),
        }
    }
}

/// A part of 127.0.0.0/8, ours as long as we listen on one address in it.
#[derive(Debug)]
struct Subnet {
    second: u8,
    third: u8,
    _claim: TcpListener,
}

impl Subnet {
    fn claim() -> Result<Self> {
        for _ in 0..ATTEMPTS {
            let [second, third, ..] = RandomState::new().hash_one(0).to_be_bytes();
            // 127.0.x.y is where people and other programs are.
            let (second, (last, port)) = (second.max(1), CLAIM);
            let address = Ipv4Addr::new(127, second, third, last);
            if let Ok(claim) = TcpListener::bind((address, port)) {
                return Ok(Self {
                    second,
                    third,
                    _claim: claim,
                });
            }
        }
        bail!("no free loopback subnet after {ATTEMPTS} attempts")
    }

    fn address(&self, n: usize) -> Ipv4Addr {
        let last = u8::try_from(n + 1).unwrap_or(u8::MAX);
        Ipv4Addr::new(127, self.second, self.third, last)
    }
}
