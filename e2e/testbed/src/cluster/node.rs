//! In: a host of a network. Out: a real Kubernetes node on it.
//! Touches: namespaces, a control group, a folder, and the processes of containerd, kubelet and kube-proxy.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use super::cgroup::Cgroup;
use crate::certificates::{AUTHORITY, SERVICE_PROXY, serving};
use crate::component::Component;
use crate::layout::Layout;
use crate::process::{Launch, Process, Signal};
use crate::tools;
use crate::wait::eventually;

const INIT: &str = include_str!("box.sh");
const CONTAINERD: &str = include_str!("containerd.toml");

/// What a sandbox holds its namespaces with, and what tests run in pods.
pub const BUSYBOX: &str = "localhost/busybox:1";

/// Namespaces and sockets are there in a moment; two cores may be busy with other things.
const STEP_DEADLINE: Duration = Duration::from_mins(1);

/// An image has ten megabytes, or with Java and Cassandra some hundred.
const IMPORT_DEADLINE: Duration = Duration::from_mins(2);

/// What a node is told before it is started.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) address: Ipv4Addr,
    /// Where names are asked for.
    pub(super) dns: Ipv4Addr,
    /// The addresses of its pods.
    pub(super) pods: String,
    /// The command that runs another one on its host.
    pub(super) enter: Vec<String>,
    pub(super) layout: Layout,
}

impl Place {
    fn folder(&self) -> PathBuf {
        self.layout.root().join(&self.name)
    }

    fn socket(&self) -> PathBuf {
        self.folder().join("containerd.sock")
    }
}

/// One node. Its processes see folders and processes of their own; all of them end with it.
#[derive(Debug)]
pub struct Node {
    place: Place,
    // Dropped in this order: who is in the box, the box, the group its processes were in.
    parts: [Component; 3],
    inside: Process,
    /// The first process in the box, by its id outside.
    first: Pid,
    _cgroup: Cgroup,
}

impl Node {
    pub(super) async fn start(place: Place) -> Result<Self> {
        let programs = Programs::find().await?;
        let cgroup = Cgroup::create(cgroup_name(&place))?;
        write_files(&place, &cgroup).context("failed to write the files of a node")?;
        let inside = enter_box(&place).await?;
        let first = first_child(&inside)?;
        let parts = parts(&place, &programs, first);
        let node = Self {
            place,
            parts,
            inside,
            first,
            _cgroup: cgroup,
        };
        node.boot()
            .await
            .with_context(|| format!("failed to start {}", node.name()))?;
        Ok(node)
    }

    /// What it is called in the cluster.
    pub fn name(&self) -> &str {
        &self.place.name
    }

    /// Brings an image (an OCI archive) to the node.
    pub async fn load(&self, archive: &Path) -> Result<()> {
        let mut import = Command::new(tools::installed("ctr", "containerd")?);
        import
            .arg("--address")
            .arg(self.place.socket())
            .args(["--namespace", "k8s.io", "images", "import"])
            .arg(archive)
            .kill_on_drop(true);
        let output = timeout(IMPORT_DEADLINE, import.output()).await;
        let output = output.context("importing an image takes too long")??;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.success(),
            "failed to import {}: {said}",
            archive.display()
        );
        Ok(())
    }

    /// The processes that all of its processes descend from.
    pub(super) fn roots(&self) -> impl Iterator<Item = u32> {
        let parts = self.parts.iter().filter_map(Component::pid);
        parts.chain([self.inside.pid()])
    }

    /// containerd, kubelet and kube-proxy.
    pub fn parts(&self) -> &[Component] {
        &self.parts
    }

    async fn boot(&self) -> Result<()> {
        let [containerd, kubelet, proxy] = &self.parts;
        containerd.start()?;
        eventually("containerd", STEP_DEADLINE, async || {
            ensure!(containerd.is_running(), "{}", containerd.last_words());
            Ok(self.place.socket().exists().then_some(()))
        })
        .await?;
        let busybox = self.place.layout.root().join("busybox.tar");
        eventually("containerd to take an image", STEP_DEADLINE, async || {
            self.load(&busybox).await.map(Some)
        })
        .await?;
        kubelet.start()?;
        proxy.start()
    }
}

impl Drop for Node {
    /// With its first process the kernel ends everything in the box, and who waits outside for it.
    fn drop(&mut self) {
        let _ = kill(self.first, Signal::SIGKILL);
        self.inside.reap();
        for part in &self.parts {
            part.reap();
        }
    }
}

/// Tells by its first part whose it is.
fn cgroup_name(place: &Place) -> String {
    let folder = place.layout.root().file_name().unwrap_or_default();
    format!("{}-{}", folder.to_string_lossy(), place.name)
}

async fn enter_box(place: &Place) -> Result<Process> {
    let log = place.layout.log(&format!("{}-box", place.name));
    let inside = Launch::new("box", "unshare", log)
        .wrapped(&place.enter)
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["--propagation", "private", "bash", "-c", INIT, "box"])
        .args([place.folder()])
        .spawn()?;
    eventually("the namespaces of a node", STEP_DEADLINE, async || {
        ensure!(inside.is_running(), "{}", inside.log()?);
        Ok(inside.log()?.contains("the box is ready").then_some(()))
    })
    .await?;
    Ok(inside)
}

/// The process `unshare` has forked, by its id outside.
fn first_child(unshare: &Process) -> Result<Pid> {
    let pid = unshare.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let first = children.split_whitespace().next().context("an empty box")?;
    Ok(Pid::from_raw(first.parse()?))
}

fn parts(place: &Place, programs: &Programs, first: Pid) -> [Component; 3] {
    let folder = place.folder();
    let part = |name: &str, program: &Path, args: Vec<String>| {
        let log = place.layout.log(&format!("{}-{name}", place.name));
        // Entering a pid namespace takes a fork: what is inside has to go with what waits outside.
        let enter = ["nsenter", "--net", "--mount", "--pid", "--target"].map(String::from);
        let tied = ["setpriv", "--pdeathsig", "KILL", "--"].map(String::from);
        let launch = Launch::new(format!("{name} of {}", place.name), program, log).args(args);
        Component::new(launch.wrapped(enter.into_iter().chain([first.to_string()]).chain(tied)))
    };
    let (address, name) = (place.address, &place.name);
    let kubelet = vec![
        format!("--config={}", folder.join("kubelet.json").display()),
        format!("--kubeconfig={}", place.layout.kubeconfig(name).display()),
        format!("--hostname-override={name}"),
        format!("--node-ip={address}"),
        format!("--root-dir={}", folder.join("kubelet").display()),
        format!("--cert-dir={}", folder.join("kubelet/pki").display()),
    ];
    let proxy = vec![
        "--proxy-mode=iptables".into(),
        format!(
            "--kubeconfig={}",
            place.layout.kubeconfig(SERVICE_PROXY).display()
        ),
        format!("--hostname-override={name}"),
        "--cluster-cidr=10.244.0.0/16".into(),
        // Not writable in a network namespace.
        "--conntrack-max-per-core=0".into(),
        "--conntrack-tcp-timeout-established=0".into(),
        "--conntrack-tcp-timeout-close-wait=0".into(),
    ];
    let containerd = vec![format!(
        "--config={}",
        folder.join("containerd.toml").display()
    )];
    [
        part("containerd", &programs.containerd, containerd),
        part("kubelet", &programs.kubelet, kubelet),
        part("kube-proxy", &programs.proxy, proxy),
    ]
}

fn write_files(place: &Place, cgroup: &Cgroup) -> Result<()> {
    let folder = place.folder();
    for needed in ["cni", "kubelet", "podlogs", "volumeplugins"] {
        fs::create_dir_all(folder.join(needed))?;
    }
    let containerd = CONTAINERD
        .replace("{folder}", &folder.to_string_lossy())
        .replace("{sandbox}", BUSYBOX);
    fs::write(folder.join("containerd.toml"), containerd)?;
    fs::write(folder.join("cni/pods.conflist"), cni(place).to_string())?;
    fs::write(folder.join("resolv.conf"), "nameserver 127.0.0.1\n")?;
    fs::write(
        folder.join("kubelet.json"),
        kubelet(place, cgroup).to_string(),
    )?;
    Ok(())
}

fn cni(place: &Place) -> Value {
    json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipMasq": false, "hairpinMode": true,
         "ipam": {"type": "host-local", "dataDir": place.folder().join("ipam"),
                  "ranges": [[{"subnet": place.pods}]]}},
        {"type": "portmap", "capabilities": {"portMappings": true}},
    ]})
}

fn kubelet(place: &Place, cgroup: &Cgroup) -> Value {
    let (folder, layout) = (place.folder(), &place.layout);
    let serving = serving(&place.name);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup.path(),
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "containerRuntimeEndpoint": format!("unix://{}", place.socket().display()),
        "address": place.address,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": layout.certificate(AUTHORITY)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": layout.certificate(&serving),
        "tlsPrivateKeyFile": layout.key(&serving),
        "clusterDomain": "cluster.local",
        "clusterDNS": [place.dns],
        "resolvConf": folder.join("resolv.conf"),
        "podLogsDir": folder.join("podlogs"),
        "volumePluginDir": folder.join("volumeplugins"),
        // No shares: what was asked for before the start is enough on a disk of any size.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "200Mi", "imagefs.available": "200Mi"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeStatusUpdateFrequency": "2s",
        // A volume that has grown too large is noticed by then, instead of after one to two minutes.
        "volumeStatsAggPeriod": "5s",
        "shutdownGracePeriod": "0s",
    })
}

/// Where the programs of a node are.
struct Programs {
    containerd: PathBuf,
    kubelet: PathBuf,
    proxy: PathBuf,
}

impl Programs {
    async fn find() -> Result<Self> {
        let built = tools::printed("node.sh").await?;
        Ok(Self {
            containerd: tools::installed("containerd", "containerd")?,
            kubelet: built.join("kubelet"),
            proxy: built.join("kube-proxy"),
        })
    }
}
