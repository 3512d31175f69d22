//! In: options. Out: a real control plane of its own, to be used and to be broken.
//! Touches: starts and ends processes, a state folder, and `target/testbed-logs` after a failure.

mod flags;
mod options;
mod seat;

use std::fs;
use std::future::Future;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::access::{self, Access};
use crate::certificates::{self, ADMIN, CONTROLLER_MANAGER, SCHEDULER};
use crate::component::Component;
use crate::ground::Ground;
use crate::process::Launch;
use crate::{ports, tools};

pub use options::Options;
pub(crate) use seat::Seat;

/// Time for one step of the start. Five seconds are usual; tests may share two cores with many others.
const STEP_DEADLINE: Duration = Duration::from_mins(2);

/// Ports are chosen before they are used, so somebody else may be faster; not many times in a row.
const ATTEMPTS: usize = 5;

const AUDIT_POLICY: &str = include_str!("kubernetes/audit-policy.yaml");

/// The processes of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The database.
    Etcd,
    /// The API server.
    ApiServer,
    /// The controllers: garbage collection, namespaces, workloads.
    ControllerManager,
    /// The scheduler; runs if asked for by [`Options::with_scheduler`], or once started.
    Scheduler,
}

impl Part {
    /// Clients before their servers: the order in which nobody waits for somebody gone.
    const LAST_FIRST: [Self; 4] = [
        Self::Scheduler,
        Self::ControllerManager,
        Self::ApiServer,
        Self::Etcd,
    ];
}

/// A control plane without nodes, and all of [`Access`] to it.
///
/// It ends with this value or with this process, whichever ends first and however it ends. To end well
/// call [`shutdown`](Self::shutdown): a drop without it is taken for a failure, and the logs are kept.
#[derive(Debug)]
pub struct Kubernetes {
    access: Access,
    etcd: Component,
    api_server: Component,
    controller_manager: Component,
    scheduler: Component,
    ground: Ground,
}

impl Kubernetes {
    /// Starts a control plane and waits until it works.
    pub async fn start(options: Options) -> Result<Self> {
        let binaries = Binaries::find().await?;
        let name = options.name();
        for _ in 0..ATTEMPTS {
            let [etcd, api_server] = ports::free()?;
            let seat = Seat::Loopback { etcd, api_server };
            let ground = Ground::create(name.clone())?;
            let kubernetes = Self::prepare(ground, &seat, &binaries)?;
            match kubernetes.boot(&options).await {
                Err(_) if kubernetes.found_a_port_taken() => drop(kubernetes.ends_by_drop()),
                Err(error) => return Err(error.context("failed to start Kubernetes")),
                Ok(()) => return Ok(kubernetes),
            }
        }
        bail!("failed to start Kubernetes: each of {ATTEMPTS} times a port was taken meanwhile")
    }

    /// Starts a control plane on a host of a network, with controllers for nodes.
    pub(crate) async fn start_on_host(
        ground: Ground,
        seat: &Seat,
        options: Options,
    ) -> Result<Self> {
        let kubernetes = Self::prepare(ground, seat, &Binaries::find().await?)?;
        let booted = kubernetes.boot(&options.with_scheduler()).await;
        booted.context("failed to start Kubernetes")?;
        Ok(kubernetes)
    }

    /// One of the processes, to break and mend it.
    pub fn part(&self, part: Part) -> &Component {
        match part {
            Part::Etcd => &self.etcd,
            Part::ApiServer => &self.api_server,
            Part::ControllerManager => &self.controller_manager,
            Part::Scheduler => &self.scheduler,
        }
    }

    /// Ends every process in an orderly way, waits for it, and removes the state folder.
    pub async fn shutdown(mut self) -> Result<()> {
        for part in Part::LAST_FIRST {
            self.part(part).stop().await?;
        }
        self.ground.ends_well();
        Ok(())
    }

    /// Copies the logs, audit log included, to where they stay; an earlier copy of that name is replaced.
    pub fn keep_logs(&self) -> Result<PathBuf> {
        self.ground.keep_logs()
    }

    /// Its processes.
    pub(crate) fn roots(&self) -> impl Iterator<Item = u32> {
        let parts = Part::LAST_FIRST.into_iter();
        parts.filter_map(|part| self.part(part).pid())
    }

    /// From now on a drop is no sign of failure.
    pub(crate) fn ends_by_drop(mut self) -> Self {
        self.ground.ends_well();
        self
    }

    /// Everything but the processes.
    fn prepare(ground: Ground, seat: &Seat, binaries: &Binaries) -> Result<Self> {
        let layout = ground.layout();
        let url = seat.url();
        certificates::write(&layout, seat.address(), seat.nodes())
            .context("failed to make certificates")?;
        access::write_kubeconfigs(&layout, &url, &[ADMIN, CONTROLLER_MANAGER, SCHEDULER])?;
        fs::write(layout.audit_policy(), AUDIT_POLICY).context("failed to write a policy")?;
        let part = |name: &'static str, binary: &PathBuf, flags: Vec<String>| {
            let launch = Launch::new(name, binary, layout.log(name)).args(flags);
            Component::new(launch.wrapped(seat.enter()))
        };
        Ok(Self {
            etcd: part("etcd", &binaries.etcd, flags::etcd(&layout, seat)),
            api_server: part(
                "kube-apiserver",
                &binaries.api_server,
                flags::api_server(&layout, seat),
            ),
            controller_manager: part(
                "kube-controller-manager",
                &binaries.controller_manager,
                flags::controller_manager(&layout, seat),
            ),
            scheduler: part(
                "kube-scheduler",
                &binaries.scheduler,
                flags::scheduler(&layout),
            ),
            access: Access::sole(layout, url, binaries.kubectl.clone()),
            ground,
        })
    }

    async fn boot(&self, options: &Options) -> Result<()> {
        self.etcd.start()?;
        self.api_server.start()?;
        self.unless_a_part_ends(self.ready(STEP_DEADLINE)).await?;
        for crd in options.crds() {
            self.apply_yaml(crd).await?;
        }
        // Now, because the garbage collector learns of kinds when it starts, and then every 30 seconds.
        self.controller_manager.start()?;
        if options.scheduler() {
            self.scheduler.start()?;
        }
        let controllers = self.default_service_account("default", STEP_DEADLINE);
        self.unless_a_part_ends(controllers).await
    }

    async fn unless_a_part_ends(&self, step: impl Future<Output = Result<()>>) -> Result<()> {
        tokio::select! {
            done = step => done,
            error = self.etcd.ended() => Err(error),
            error = self.api_server.ended() => Err(error),
            error = self.controller_manager.ended() => Err(error),
            error = self.scheduler.ended() => Err(error),
        }
    }

    fn found_a_port_taken(&self) -> bool {
        self.etcd.found_its_port_taken() || self.api_server.found_its_port_taken()
    }
}

impl Deref for Kubernetes {
    type Target = Access;

    fn deref(&self) -> &Access {
        &self.access
    }
}

impl Drop for Kubernetes {
    /// All get the signal before any is waited for. The ground goes after this, with its field.
    fn drop(&mut self) {
        for part in Part::LAST_FIRST {
            self.part(part).send_kill();
        }
        for part in Part::LAST_FIRST {
            self.part(part).reap();
        }
    }
}

/// Where the real programs are.
struct Binaries {
    etcd: PathBuf,
    api_server: PathBuf,
    controller_manager: PathBuf,
    scheduler: PathBuf,
    kubectl: PathBuf,
}

impl Binaries {
    async fn find() -> Result<Self> {
        Ok(Self {
            etcd: tools::binary("etcd").await?,
            api_server: tools::binary("kube-apiserver").await?,
            controller_manager: tools::binary("kube-controller-manager").await?,
            scheduler: tools::binary("kube-scheduler").await?,
            kubectl: tools::binary("kubectl").await?,
        })
    }
}
