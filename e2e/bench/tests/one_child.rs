//! The controller that is compared does what it is compared for, on a real API server.
#![expect(
    clippy::disallowed_methods,
    reason = "tests set the stage directly and look at the server"
)]

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use crds::{checksum_schedule::ChecksumSchedule, condition::is_true};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use testbed::{Kubernetes, process::Launch, repository_crds, wait::eventually};

const SOON: Duration = Duration::from_secs(30);

const PARENT: &str = "
apiVersion: orrery.dev/v1alpha1
kind: ChecksumSchedule
metadata: {name: p}
spec:
  schedule: 1 3 * * *
  timeZone: UTC
  template: {spec: {source: {persistentVolumeClaim: {claimName: home}}}}
";

#[tokio::test]
async fn a_change_of_the_parent_reaches_the_child_and_the_status() -> Result<()> {
    // Its own control plane: the controller takes every schedule there is for its own.
    let cluster = Kubernetes::start(repository_crds()?).await?;
    let log = cluster.folder().join("logs/one_child.log");
    let controller = Launch::new("one_child", env!("CARGO_BIN_EXE_one_child"), log)
        .args(["--admin-address=127.0.0.1:0", "--lease-namespace=default"])
        .envs([("KUBECONFIG", cluster.kubeconfig())])
        .spawn()?;
    let client = cluster.client().await?;
    let parents: Api<ChecksumSchedule> = Api::namespaced(client.clone(), "default");
    let children: Api<ConfigMap> = Api::namespaced(client, "default");
    let holds = async |schedule: &str| {
        eventually(&format!("`{schedule}` in the child"), SOON, async || {
            let data = children.get("p").await?.data.unwrap_or_default();
            let wanted = [
                ("claimName", "home"),
                ("schedule", schedule),
                ("timeZone", "UTC"),
            ];
            let wanted = wanted.map(|(key, value)| (key.to_owned(), value.to_owned()));
            ensure!(data == BTreeMap::from(wanted), "it holds {data:?}");
            let parent = parents.get("p").await?;
            let status = parent.status.unwrap_or_default();
            let current = Some(status.observed_generation) == parent.metadata.generation;
            ensure!(
                current && is_true(&status.conditions, "Ready"),
                "{status:?}"
            );
            Ok(Some(()))
        })
        .await
    };
    let params = PatchParams::default();
    cluster.apply_yaml(PARENT).await?;
    holds("1 3 * * *").await?;
    let change = Patch::Merge(json!({"spec": {"schedule": "2 3 * * *"}}));
    parents.patch("p", &params, &change).await?;
    holds("2 3 * * *").await?;
    let drift = Patch::Merge(json!({"data": {"schedule": "never"}}));
    children.patch("p", &params, &drift).await?;
    holds("2 3 * * *").await?;
    ensure!(
        controller.stop(SOON).await?.success(),
        "it did not end well"
    );
    cluster.shutdown().await
}
