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

/// Watches of all that a namespace has of our kinds. Every one of them has a controller.
pub(crate) struct Statuses {
    watches: Vec<(String, Process)>,
    _folder: TempDir,
}

impl Statuses {
    pub(crate) async fn watch(cluster: &Access, namespace: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let kubectl = tools::binary("kubectl").await?;
        let watch = |kind: String| {
            let launch = Launch::new(
                format!("watch of {kind}"),
                &kubectl,
                folder.path().join(&kind),
            );
            let process = launch
                .args(["--namespace", namespace, "get", &kind])
                .args(["--watch", "--output=json"])
                .envs([("KUBECONFIG", cluster.kubeconfig())])
                .spawn()?;
            Ok((kind, process))
        };
        let kinds = crds::definition::all().into_iter();
        let kinds = kinds.map(|definition| definition.spec.names.plural);
        Ok(Self {
            watches: kinds.map(watch).collect::<Result<_>>()?,
            _folder: folder,
        })
    }

    /// Current exactly when ready, in progress while there is something to do or to see, failed when stalled. Says of
    /// which kinds something was seen.
    pub(crate) async fn agree_with(&self, kstatus: &Path) -> Result<Vec<&str>> {
        let mut kinds = Vec::new();
        for (kind, watch) in &self.watches {
            let seen = watch.log()?;
            let (objects, text) = whole(&seen)?;
            let said = render::run_with(kstatus, &[], text).await?.ok()?;
            let said: Vec<_> = said.lines().collect();
            ensure!(
                objects.len() == said.len(),
                "kstatus was shown {} objects and judged {}",
                objects.len(),
                said.len()
            );
            for (object, said) in objects.iter().zip(&said) {
                let (said, _) = said.split_once('\t').context("kstatus changed")?;
                let ours = meaning(object);
                ensure!(
                    said == ours,
                    "kstatus says {said}, but we mean {ours}: {object}"
                );
            }
            kinds.extend((!objects.is_empty()).then_some(kind.as_str()));
        }
        Ok(kinds)
    }
}

/// Without the object that is being written at this moment.
fn whole(seen: &str) -> Result<(Vec<Value>, &str)> {
    let mut stream = Deserializer::from_str(seen).into_iter::<Value>();
    let mut objects = Vec::new();
    let mut end = 0;
    loop {
        match stream.next() {
            Some(Ok(object)) => objects.push(object),
            Some(Err(error)) if !error.is_eof() => {
                return Err(error).with_context(|| format!("kubectl said {}", &seen[end..]));
            }
            Some(Err(_)) | None => return Ok((objects, &seen[..end])),
        }
        end = stream.byte_offset();
    }
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
