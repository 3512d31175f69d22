//! In: a number of hosts. Out: a network of their own, one namespace each, in which any two can be cut apart.
//! Touches: network namespaces and one interface of this machine; the kernel removes them with our processes.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::geteuid;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::process::{Launch, Process};
use crate::wait::eventually;

/// One use of `ip`, or the making of one namespace: milliseconds.
const STEP_DEADLINE: Duration = Duration::from_secs(20);

/// Networks that are tried until one is free.
const ATTEMPTS: usize = 20;

/// The priority by which cuts are told from the rules that every namespace has.
const CUT: u32 = 100;

/// Last octet of the router in the middle, and of this machine.
const ROUTER: u8 = 254;
const MACHINE: u8 = 253;

/// Hosts around a router, each in a network namespace of its own.
///
/// The router is a namespace too. It forwards between hosts, and drops without a word what is to be lost,
/// so to both ends it looks like a cable that was cut. A namespace lives as long as a process is in it, and
/// ours die with us: nothing is left behind, however we end.
#[derive(Debug)]
pub struct Network {
    subnet: Subnet,
    router: Namespace,
    hosts: Vec<Namespace>,
    /// What is behind hosts: the host's number, and a prefix.
    behind: Vec<(usize, String)>,
}

impl Network {
    /// Makes the namespaces and connects them. Needs root.
    pub async fn create(hosts: u8, log: &Path) -> Result<Self> {
        ensure!(
            geteuid().is_root(),
            "network namespaces need root: run as root, or do without cutting nodes off"
        );
        let router = Namespace::create("router", log).await?;
        let subnet = connect_machine(&router).await?;
        let mut network = Self {
            subnet,
            router,
            hosts: Vec::new(),
            behind: Vec::new(),
        };
        for n in 1..=hosts {
            network.add_host(n, log).await?;
        }
        Ok(network)
    }

    /// The address of host `n`, counted from 0.
    pub fn address(&self, n: usize) -> Ipv4Addr {
        let n = u8::try_from(n + 1).unwrap_or(u8::MAX);
        self.subnet.address(n)
    }

    /// The command that runs another one as host `n`, for [`Launch::wrapped`].
    pub fn enter(&self, n: usize) -> Result<[String; 4]> {
        let host = self.hosts.get(n).with_context(|| format!("no host {n}"))?;
        Ok(host.enter())
    }

    /// Sends what is for `prefix` to host `n`, which must forward it.
    pub async fn route(&mut self, n: usize, prefix: &str) -> Result<()> {
        let (host, device) = (self.address(n), n + 1);
        let route = format!("route add {prefix} via {host} dev host-{device}\n");
        self.router.ip(&route).await?;
        self.behind.push((n, prefix.to_owned()));
        Ok(())
    }

    /// Runs a script as host `n`.
    pub(crate) async fn shell(&self, n: usize, script: &str) -> Result<()> {
        let host = self.hosts.get(n).with_context(|| format!("no host {n}"))?;
        host.run("sh", &["-ec", script], "").await?;
        Ok(())
    }

    /// Loses everything that hosts of `from` send to hosts of `to`, until [`heal`](Self::heal).
    pub async fn lose(&self, from: &[usize], to: &[usize]) -> Result<()> {
        let pairs = from
            .iter()
            .flat_map(|from| to.iter().map(move |to| (*from, *to)));
        let rules: Vec<_> = pairs
            .map(|(from, to)| {
                let (from, to) = (self.address(from), self.address(to));
                format!("rule add pref {CUT} from {from} to {to} blackhole")
            })
            .collect();
        self.router
            .ip(&rules.join(
                "
",
            ))
            .await
    }

    /// Cuts two groups of hosts apart, both ways; this machine still reaches them all.
    pub async fn cut(&self, one: &[usize], other: &[usize]) -> Result<()> {
        self.lose(one, other).await?;
        self.lose(other, one).await
    }

    /// Cuts a host, and what is behind it, off from everybody, this machine included.
    pub async fn isolate(&self, n: usize) -> Result<()> {
        let behind = self.behind.iter().filter(|(host, _)| *host == n);
        let prefixes = behind.map(|(_, prefix)| prefix.clone());
        let rules: Vec<_> = [self.address(n).to_string()]
            .into_iter()
            .chain(prefixes)
            .map(|it| {
                format!("rule add pref {CUT} from {it} blackhole\nrule add pref {CUT} to {it} blackhole\n")
            })
            .collect();
        self.router.ip(&rules.concat()).await
    }

    /// Undoes every cut.
    pub async fn heal(&self) -> Result<()> {
        let rules = self.router.run("ip", &["rule", "list"], "").await?;
        let rules = String::from_utf8_lossy(&rules.stdout);
        let cuts = rules
            .lines()
            .filter(|rule| rule.starts_with(&format!("{CUT}:")));
        self.router
            .ip(&format!("rule del pref {CUT}\n").repeat(cuts.count()))
            .await
    }

    async fn add_host(&mut self, n: u8, log: &Path) -> Result<()> {
        let host = Namespace::create(&format!("host-{n}"), log).await?;
        let (address, router) = (self.subnet.address(n), self.subnet.address(ROUTER));
        let there = format!(
            "link add host-{n} type veth peer name eth0 netns {}
             addr add {router}/32 dev host-{n}
             link set host-{n} up
             route add {address}/32 dev host-{n}
            ",
            host.pid()
        );
        self.router.ip(&there).await?;
        let here = format!(
            "link set lo up
             link set eth0 up
             addr add {address}/32 dev eth0
             route add {router} dev eth0
             route add default via {router} src {address}
            "
        );
        host.ip(&here).await?;
        self.hosts.push(host);
        Ok(())
    }
}

/// Finds a subnet nobody uses and makes it reachable from this machine.
async fn connect_machine(router: &Namespace) -> Result<Subnet> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let subnet = Subnet::candidate();
        let name = format!("orrery-{}-{}", subnet.0, subnet.1);
        // The name is the claim: the kernel gives it to one of us only.
        let claim = format!(
            "link add {name} type veth peer name machine netns {}",
            router.pid()
        );
        match ip(&claim).await {
            Ok(()) => {
                route(router, subnet, &name).await?;
                return Ok(subnet);
            }
            Err(error) => last = Some(error),
        }
    }
    let last = last.context("no attempt was made")?;
    Err(last.context("no free subnet in 198.18.0.0/15"))
}

async fn route(router: &Namespace, subnet: Subnet, name: &str) -> Result<()> {
    let (machine, middle) = (subnet.address(MACHINE), subnet.address(ROUTER));
    router
        .ip(&format!(
            "link set lo up
             link set machine up
             addr add {middle}/32 dev machine
             route add {machine} dev machine
            "
        ))
        .await?;
    let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
    router.run("sh", &["-c", forward], "").await?;
    ip(&format!(
        "link set {name} up
         addr add {machine}/32 dev {name}
         route add {middle} dev {name}
         route add {} via {middle} src {machine}
        ",
        subnet.prefix()
    ))
    .await
}

/// A part of the range that is set aside for tests of networks (RFC 2544).
#[derive(Clone, Copy, Debug)]
struct Subnet(u8, u8);

impl Subnet {
    fn candidate() -> Self {
        let [second, third, ..] = RandomState::new().hash_one(0).to_be_bytes();
        Self(18 + second % 2, third)
    }

    fn address(self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, self.0, self.1, last)
    }

    fn prefix(self) -> String {
        format!("{}/24", self.address(0))
    }
}

/// A network namespace, held by a process that sleeps in it.
#[derive(Debug)]
struct Namespace(Process);

impl Namespace {
    async fn create(name: &str, log: &Path) -> Result<Self> {
        let own = fs::read_link("/proc/self/ns/net")?;
        let process = Launch::new(name, "sleep", log)
            .wrapped(["unshare", "--net"])
            .args(["infinity"])
            .spawn()?;
        let namespace = Self(process);
        eventually("a network namespace", STEP_DEADLINE, async || {
            ensure!(namespace.0.is_running(), "{}", namespace.0.log()?);
            let entered = fs::read_link(format!("/proc/{}/ns/net", namespace.pid()))?;
            Ok((entered != own).then_some(()))
        })
        .await?;
        Ok(namespace)
    }

    fn pid(&self) -> u32 {
        self.0.pid()
    }

    fn enter(&self) -> [String; 4] {
        let pid = self.pid().to_string();
        ["nsenter".into(), "--target".into(), pid, "--net".into()]
    }

    /// Carries out lines of `ip`, all or an error.
    async fn ip(&self, lines: &str) -> Result<()> {
        self.run("ip", &["-batch", "-"], lines).await?;
        Ok(())
    }

    async fn run(&self, program: &str, args: &[&str], input: &str) -> Result<Output> {
        let [enter, rest @ ..] = self.enter();
        let mut command = Command::new(enter);
        command.args(rest).arg(program).args(args);
        run(command, input).await
    }
}

/// The same on this machine.
async fn ip(lines: &str) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]);
    run(command, lines).await?;
    Ok(())
}

async fn run(mut command: Command, input: &str) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("failed to run ip or nsenter; are iproute2 and util-linux installed?")?;
    let mut stdin = child.stdin.take().context("no input")?;
    let working = async {
        stdin.write_all(input.as_bytes()).await?;
        drop(stdin);
        child.wait_with_output().await
    };
    let output = timeout(STEP_DEADLINE, working)
        .await
        .context("ip hangs")??;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output)
}
