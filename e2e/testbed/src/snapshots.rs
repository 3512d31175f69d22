//! In: a running control plane. Out: the kinds of snapshots in it, and the real snapshot controller beside it.
//! Touches: writes definitions; one process and its folder. What a storage does is up to the test.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::access::Access;
use crate::component::Component;
use crate::ground::{self, Ground};
use crate::process::Launch;
use crate::server::START_DEADLINE;
use crate::tools;
use crate::wait::eventually;

/// The last words of a start.
const WORKS: &str = "Starting snapshot controller";

/// A snapshot controller that ends with this value.
#[derive(Debug)]
pub struct Snapshots {
    component: Component,
    ground: Ground,
}

impl Snapshots {
    /// Brings the kinds, starts the controller and waits until it works.
    pub async fn start(kubernetes: &Access) -> Result<Self> {
        let folder = tools::printed("snapshotter.sh").await?;
        define(kubernetes, &folder.join("crd")).await?;
        let mut ground = Ground::create(format!("{}-snapshots", ground::test_name()))?;
        ground.ends_well();
        let (program, log) = (folder.join("snapshot-controller"), ground.layout());
        let launch = Launch::new("snapshot-controller", program, log.log("snapshots")).args([
            format!("--kubeconfig={}", kubernetes.kubeconfig().display()),
            "--retry-interval-start=100ms".into(),
            "--retry-interval-max=1s".into(),
            "--kube-api-qps=1000".into(),
            "--kube-api-burst=1000".into(),
        ]);
        let component = Component::new(launch);
        component.start()?;
        let snapshots = Self { component, ground };
        tokio::select! {
            works = snapshots.works() => works?,
            error = snapshots.component.ended() => return Err(error),
        }
        Ok(snapshots)
    }

    /// The same for the control plane that another process runs in this folder.
    pub(crate) async fn start_in(folder: &Path) -> Result<Self> {
        let kubernetes = Access::guest(folder, tools::binary("kubectl").await?)?;
        Self::start(&kubernetes).await
    }

    /// Copies the logs to where they stay; an earlier copy of that name is replaced.
    pub fn keep_logs(&self) -> Result<PathBuf> {
        self.ground.keep_logs()
    }

    async fn works(&self) -> Result<()> {
        let process = self.component.process()?;
        eventually(
            "the snapshot controller to start",
            START_DEADLINE,
            async || Ok(process.log()?.contains(WORKS).then_some(())),
        )
        .await
    }
}

async fn define(kubernetes: &Access, folder: &Path) -> Result<()> {
    let files = fs::read_dir(folder).with_context(|| format!("no {}", folder.display()))?;
    for file in files {
        kubernetes
            .apply_yaml(&fs::read_to_string(file?.path())?)
            .await?;
    }
    Ok(())
}
