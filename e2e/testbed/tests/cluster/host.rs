//! What of this machine a cluster must leave as it found it.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use testbed::wait::eventually;

use crate::SOON;

/// What a kubelet, a proxy or a bridge would like to set.
const SETTINGS: [&str; 8] = [
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/bridge/bridge-nf-call-iptables",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

/// What the programs of a node would make if they were not told of other places, or saw these.
const FOLDERS: [&str; 8] = [
    "/etc/cni",
    "/run/containerd",
    "/run/netns",
    "/run/runc",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
];

const GROUPS: &str = "/sys/fs/cgroup";

/// This machine, one fact per line.
pub(crate) struct Host(BTreeSet<String>);

impl Host {
    pub(crate) fn observe() -> Result<Self> {
        let mut facts = BTreeSet::new();
        facts.extend(firewall("iptables-save")?);
        facts.extend(firewall("ip6tables-save")?);
        facts.extend(mounts()?);
        for setting in SETTINGS {
            facts.insert(format!("setting {setting} {}", value(setting)?));
        }
        let made = FOLDERS.iter().filter(|it| Path::new(it).exists());
        facts.extend(made.map(|folder| format!("folder {folder}")));
        for interface in names("/sys/class/net")? {
            facts.insert(format!("interface {interface}"));
        }
        facts.extend(groups()?);
        Ok(Self(facts))
    }

    /// Waits until the machine differs from what it was before as `expected` says. The kernel takes a namespace down in
    /// its own time, and others may mount and unmount meanwhile; what we leave stays.
    pub(crate) async fn differs(
        before: &Self,
        ours: &Names,
        expected: impl Fn(&[String]) -> bool,
    ) -> Result<()> {
        eventually("the traces on this machine", SOON, async || {
            let changes = Self::observe()?.changes(before, ours);
            ensure!(expected(&changes), "{changes:#?}");
            Ok(Some(()))
        })
        .await
    }

    /// What has come (`+`) and gone (`-`) since, but for what testbeds other than `ours` have beside it.
    fn changes(&self, before: &Self, ours: &Names) -> Vec<String> {
        let come = self.0.difference(&before.0).map(|it| format!("+ {it}"));
        let gone = before.0.difference(&self.0).map(|it| format!("- {it}"));
        let all = come.chain(gone);
        all.filter(|it| ours.include(it) || !is_of_a_testbed(it))
            .collect()
    }
}

/// What the traces of a cluster are called.
pub(crate) struct Names {
    interface: String,
    folder: String,
}

impl Names {
    /// By the address of its API server, and where it keeps its state.
    pub(crate) fn of(kubeconfig: &Path) -> Result<Self> {
        let text = fs::read_to_string(kubeconfig)?;
        let address = text.split_once("https://198.").context("no address")?.1;
        let mut octets = address.split('.');
        let mut octet = || octets.next().context("half an address");
        let folder = kubeconfig.parent().and_then(Path::file_name);
        let folder = folder.context("a kubeconfig outside of a folder")?;
        Ok(Self {
            interface: format!("orrery-{}-{}", octet()?, octet()?),
            folder: folder.to_string_lossy().into_owned(),
        })
    }

    /// Whether these are our interface and our control groups, and nothing else.
    pub(crate) fn are_all_of(&self, changes: &[String]) -> bool {
        let interface = format!("+ interface {}", self.interface);
        let (groups, rest): (Vec<_>, Vec<_>) = changes.iter().partition(|it| self.is_group(it));
        rest == [&interface] && !groups.is_empty()
    }

    /// Whether these are our control groups, and nothing else.
    pub(crate) fn are_groups_of(&self, changes: &[String]) -> bool {
        !changes.is_empty() && changes.iter().all(|it| self.is_group(it))
    }

    fn is_group(&self, change: &str) -> bool {
        change.starts_with("+ group ") && change.contains(&format!("/{}-node-", self.folder))
    }

    fn include(&self, change: &str) -> bool {
        change.ends_with(&self.interface) || change.contains(&self.folder)
    }
}

/// Whether this is what any testbed may have on a machine.
fn is_of_a_testbed(change: &str) -> bool {
    change.contains(" interface orrery-")
        || (change.contains(" group ") && change.contains("/orrery-testbed-"))
}

/// The rules, without the packets they have counted and the time they were read.
fn firewall(program: &str) -> Result<Vec<String>> {
    let output = Command::new(program).output();
    let output = output.with_context(|| format!("failed to run {program}"))?;
    ensure!(output.status.success(), "{program}: {output:?}");
    let text = String::from_utf8(output.stdout)?;
    let rules = text.lines().filter(|line| !line.starts_with('#'));
    let uncounted = rules.map(|rule| rule.split(" [").next().unwrap_or(rule));
    Ok(uncounted.map(|rule| format!("{program} {rule}")).collect())
}

/// Without those of Podman and Docker, which others may use meanwhile.
fn mounts() -> Result<Vec<String>> {
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    let others = [" /var/lib/containers/", " /var/lib/docker/"];
    let mounts = text.lines();
    let mounts = mounts.filter(|mount| !others.iter().any(|it| mount.contains(it)));
    Ok(mounts.map(|mount| format!("mount {mount}")).collect())
}

fn value(setting: &str) -> Result<String> {
    match fs::read_to_string(Path::new("/proc/sys").join(setting)) {
        Ok(value) => Ok(value.trim().to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok("does not exist".to_owned()),
        Err(error) => Err(error.into()),
    }
}

/// The groups right below each hierarchy.
fn groups() -> Result<Vec<String>> {
    let unified = Path::new(GROUPS).join("cgroup.controllers").exists();
    let hierarchies = if unified {
        vec![String::new()]
    } else {
        names(GROUPS)?
    };
    let mut groups = Vec::new();
    for hierarchy in hierarchies {
        let folder = Path::new(GROUPS).join(&hierarchy);
        for name in names(&folder)? {
            if folder.join(&name).is_dir() {
                groups.push(format!("group {hierarchy}/{name}"));
            }
        }
    }
    Ok(groups)
}

fn names(folder: impl AsRef<Path>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}
