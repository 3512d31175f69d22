//! Every status that an object of a case had, judged by kstatus. In: what a watch showed. Out: where Flux, or any other
//! pipeline that waits with kstatus, would be told something else than our conditions tell. Starts kubectl.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::render;
use serde_json::{Deserializer, Value};
use tempfile::TempDir;
use testbed::{
    Access,
    process::{Launch, Process},
    tools,
};

/// The kinds that have a controller.
const KINDS: [&str; 2] = ["checksumschedules", "checksumruns"];

/// Watches of all that a namespace has of our kinds.
pub(crate) struct Statuses {
    watches: Vec<Process>,
    _folder: TempDir,
}

impl Statuses {
    pub(crate) async fn watch(cluster: &Access, namespace: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let kubectl = tools::binary("kubectl").await?;
        let watch = |kind: &&str| {
            Launch::new(
                format!("watch of {kind}"),
                &kubectl,
                folder.path().join(kind),
            )
            .args([
                "--namespace",
                namespace,
                "get",
                kind,
                "--watch",
                "--output=json",
            ])
            .envs([("KUBECONFIG", cluster.kubeconfig())])
            .spawn()
        };
        Ok(Self {
            watches: KINDS.iter().map(watch).collect::<Result<_>>()?,
            _folder: folder,
        })
    }

    /// Current exactly when ready, in progress while there is something to do or to see, failed when stalled.
    pub(crate) async fn agree_with(&self, kstatus: &Path) -> Result<()> {
        for watch in &self.watches {
            let seen = watch.log()?;
            let said = render::run_with(kstatus, &[], whole(&seen)).await?.ok()?;
            let objects = Deserializer::from_str(&seen).into_iter::<Value>();
            for (object, said) in objects.map_while(Result::ok).zip(said.lines()) {
                let (said, _) = said.split_once('\t').context("kstatus changed")?;
                let ours = meaning(&object);
                ensure!(
                    said == ours,
                    "kstatus says {said}, but we mean {ours}: {object}"
                );
            }
        }
        Ok(())
    }
}

/// Without the object that is being written at this moment.
fn whole(seen: &str) -> &str {
    let mut objects = Deserializer::from_str(seen).into_iter::<Value>();
    while let Some(Ok(_)) = objects.next() {}
    &seen[..objects.byte_offset()]
}

fn meaning(object: &Value) -> &'static str {
    let is = |kind: &str| {
        let conditions = object["status"]["conditions"].as_array();
        conditions.is_some_and(|all| {
            all.iter()
                .any(|it| it["type"] == kind && it["status"] == "True")
        })
    };
    if object["metadata"].get("deletionTimestamp").is_some() {
        "Terminating"
    } else if object["status"]["observedGeneration"] != object["metadata"]["generation"] {
        "InProgress"
    } else if is("Stalled") {
        "Failed"
    } else if is("Ready") && !is("Reconciling") {
        "Current"
    } else {
        "InProgress"
    }
}
