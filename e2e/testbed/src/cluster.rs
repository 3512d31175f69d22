//! In: how many nodes. Out: a real Kubernetes cluster in which pods run.
//! Touches: what a control plane and its nodes touch, and a network of their own. Needs root.

mod cgroup;
mod images;
mod node;
mod support;

use std::fs;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::access::{self, Access};
use crate::certificates::{ADMIN, SERVICE_PROXY};
use crate::component::Component;
use crate::folder;
use crate::ground::Ground;
use crate::kubernetes::{Kubernetes, Options, Seat};
use crate::layout::Layout;
use crate::network::Network;
use crate::process::{self, Launch};
use crate::tools;

use node::Place;
pub use node::{BUSYBOX, Node};

const STORAGE: &str = include_str!("cluster/storage.yaml");

/// Usually three seconds; two cores may be busy with other things.
const NODE_DEADLINE: Duration = Duration::from_mins(2);

/// A cluster with nodes, and all of [`Access`] to it.
///
/// The first node is also where the control plane runs. Everything is in namespaces that end with our processes; of
/// this machine it uses one network interface, a control group per node and a state folder.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: clients before servers, and the network last.
    nodes: Vec<Node>,
    servants: Vec<Component>,
    kubernetes: Kubernetes,
    network: Network,
}

impl Cluster {
    /// Starts so many nodes and waits until they are ready.
    pub async fn start(options: Options, nodes: u8) -> Result<Self> {
        support::check().await?;
        cgroup::sweep(folder::belongs_to_the_dead);
        let ground = Ground::create(options.name())?;
        let layout = ground.layout();
        images::write_busybox(&layout.root().join("busybox.tar"))?;
        let mut network = Network::create(nodes, &layout.log("network")).await?;
        let places = places(&mut network, &layout, nodes).await?;
        let seat = Seat::Host {
            address: network.address(0),
            enter: network.enter(0)?.into(),
            nodes: places
                .iter()
                .map(|it| (it.name.clone(), it.address))
                .collect(),
        };
        let kubernetes = Kubernetes::start_on_host(ground, &seat, options).await?;
        let mut cluster = Self {
            nodes: Vec::new(),
            servants: Vec::new(),
            kubernetes,
            network,
        };
        cluster.add_servants(&layout).await?;
        cluster.add_nodes(places).await?;
        Ok(cluster)
    }

    /// The nodes, in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The network between the nodes, to cut it. The control plane is host 0.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The control plane, to break it.
    pub fn control_plane(&self) -> &Kubernetes {
        &self.kubernetes
    }

    /// Brings an image (an OCI archive) to every node.
    pub async fn load(&self, archive: &Path) -> Result<()> {
        for node in &self.nodes {
            node.load(archive).await?;
        }
        Ok(())
    }

    /// Makes an image called `name` that runs a program, which must need no libraries, and brings it to every node.
    pub async fn load_program(&self, name: &str, program: &Path) -> Result<()> {
        let archive = tempfile::NamedTempFile::new_in(self.folder())?;
        images::write_program(archive.path(), name, program)?;
        self.load(archive.path()).await
    }

    /// The memory in use by the control plane, the nodes and all pods, in bytes.
    pub fn memory(&self) -> Result<u64> {
        let servants = self.servants.iter().filter_map(Component::pid);
        let nodes = self.nodes.iter().flat_map(Node::roots);
        let roots: Vec<_> = self
            .kubernetes
            .roots()
            .chain(servants)
            .chain(nodes)
            .collect();
        Ok(process::memory(&process::family(&roots)?))
    }

    /// Takes node `n` away, as a machine that lost its power, and all that ran on it.
    pub fn lose_node(&mut self, n: usize) -> Node {
        self.nodes.remove(n)
    }

    /// Ends everything in an orderly way.
    pub async fn shutdown(mut self) -> Result<()> {
        self.nodes.clear();
        for servant in &self.servants {
            servant.stop().await?;
        }
        self.kubernetes.shutdown().await
    }

    async fn add_nodes(&mut self, places: Vec<Place>) -> Result<()> {
        let url = self.url().to_owned();
        for place in places {
            access::write_kubeconfigs(&place.layout, &url, &[&place.name, SERVICE_PROXY])?;
            self.nodes.push(Node::start(place).await?);
        }
        let deadline = format!("--timeout={}s", NODE_DEADLINE.as_secs());
        for node in &self.nodes {
            let name = format!("node/{}", node.name());
            crate::wait::eventually("a node to register", NODE_DEADLINE, async || {
                let found = self.kubernetes.kubectl(&["get", &name]).await?;
                found.ok().map(Some)
            })
            .await?;
            let ready = ["wait", "--for=condition=Ready", &name, &deadline];
            self.kubernetes.kubectl(&ready).await?.ok()?;
        }
        Ok(())
    }

    /// Names, and volumes.
    async fn add_servants(&mut self, layout: &Layout) -> Result<()> {
        let corefile = layout.root().join("Corefile");
        fs::write(&corefile, names(self.network.address(0), layout))?;
        let coredns = tools::printed("coredns.sh").await?.join("coredns");
        let coredns = Launch::new("coredns", coredns, layout.log("coredns"))
            .args(["-conf".into(), corefile.into_os_string()])
            .wrapped(self.network.enter(0)?);
        self.servants.push(Component::new(coredns));
        self.servants
            .push(Component::new(self.provisioner(layout).await?));
        for servant in &self.servants {
            servant.start()?;
        }
        Ok(())
    }

    async fn provisioner(&self, layout: &Layout) -> Result<Launch> {
        self.apply_yaml(STORAGE).await?;
        let (config, helper) = (
            layout.root().join("volumes.json"),
            layout.root().join("helper.yaml"),
        );
        let paths = json!({"nodePathMap": [{
            "node": "DEFAULT_PATH_FOR_NON_LISTED_NODES",
            "paths": [layout.root().join("volumes")],
        }]});
        fs::write(&config, paths.to_string())?;
        fs::write(&helper, helper_pod().to_string())?;
        let provisioner = tools::printed("provisioner.sh").await?;
        let provisioner = provisioner.join("local-path-provisioner");
        Ok(
            Launch::new("provisioner", provisioner, layout.log("provisioner")).args([
                "start".into(),
                format!("--config={}", config.display()),
                format!("--helper-pod-file={}", helper.display()),
                format!("--helper-image={BUSYBOX}"),
                format!("--kubeconfig={}", layout.kubeconfig(ADMIN).display()),
                "--service-account-name=default".into(),
            ]),
        )
    }
}

impl Deref for Cluster {
    type Target = Access;

    fn deref(&self) -> &Access {
        &self.kubernetes
    }
}

/// Makes every host forward, and every address of a pod known to the network.
async fn places(network: &mut Network, layout: &Layout, nodes: u8) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    for n in 0..usize::from(nodes) {
        let pods = format!("10.244.{n}.0/24");
        network.route(n, &pods).await?;
        // Replies between pods of one bridge must pass the same rules as everybody else's.
        let forward = "echo 1 >/proc/sys/net/ipv4/ip_forward
            echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables";
        network
            .shell(n, forward)
            .await
            .context("failed to make a node forward; if /proc/sys/net/bridge is missing: modprobe br_netfilter")?;
        places.push(Place {
            name: format!("node-{}", n + 1),
            address: network.address(n),
            dns: network.address(0),
            pods,
            enter: network.enter(n)?.into(),
            layout: layout.clone(),
        });
    }
    Ok(places)
}

/// Makes and removes the folder of a volume, on the node that has it.
fn helper_pod() -> Value {
    let container =
        json!({"name": "helper-pod", "image": BUSYBOX, "imagePullPolicy": "IfNotPresent"});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "helper-pod"},
        "spec": {"containers": [container]},
    })
}

fn names(address: Ipv4Addr, layout: &Layout) -> String {
    format!(
        ".:53 {{
    bind {address}
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {}
        ttl 1
    }}
    cache 1
}}
",
        layout.kubeconfig(ADMIN).display()
    )
}
