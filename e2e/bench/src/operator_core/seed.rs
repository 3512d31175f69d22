#![expect(
    clippy::disallowed_methods,
    reason = "a tool that measures sets its own stage"
)]
//! In: a control plane. Out: a thousand schedules, a thousand runs and ten thousand pods as large as real ones.
//! Touches: creates them in the namespace `default`.

use anyhow::Result;
use crds::{checksum_run::ChecksumRun, checksum_schedule::ChecksumSchedule};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testbed::Access;

const AT_ONCE: usize = 40;

/// How many schedules, runs and pods.
pub(super) const COUNTS: [usize; 3] = [1000, 1000, 10_000];

pub(super) async fn objects(cluster: &Access) -> Result<()> {
    let client = cluster.client().await?;
    let [schedules, runs, pods] = COUNTS;
    let source = json!({"source": {"persistentVolumeClaim": {"claimName": "home"}}});
    create::<ChecksumSchedule>(&client, schedules, |n| {
        json!({"apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumSchedule", "metadata": {"name": format!("s{n}")},
            "spec": {"schedule": "0 3 * * *", "template": {"spec": source}}})
    })
    .await?;
    create::<ChecksumRun>(&client, runs, |n| {
        json!({"apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumRun", "metadata": {"name": format!("r{n}")}, "spec": source})
    })
    .await?;
    create::<Pod>(&client, pods, pod).await
}

async fn create<K>(client: &Client, count: usize, object: impl Fn(usize) -> Value) -> Result<()>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let api: Api<K> = Api::namespaced(client.clone(), "default");
    stream::iter(0..count)
        .map(|n| {
            let (api, object) = (api.clone(), serde_json::from_value::<K>(object(n)));
            async move {
                api.create(&PostParams::default(), &object?).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

/// As large as a Cassandra pod: three containers with a dozen variables each.
pub(super) fn pod(n: usize) -> Value {
    let variable = |v: usize| json!({"name": format!("VARIABLE_{v}"), "value": format!("value number {v} of a realistic length")});
    let variables: Vec<_> = (0..12).map(variable).collect();
    let container = |name: &str| {
        json!({"name": name, "image": "registry.example/cassandra:5.0", "env": variables,
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}})
    };
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("cassandra-{n}"), "labels": {"app.kubernetes.io/name": "cassandra", "orrery.dev/agent": "repair"}},
        "spec": {"containers": [container("cassandra"), container("agent"), container("logger")]}})
}
