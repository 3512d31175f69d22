//! A life of runs that needs every right: with workers and credentials, ended, cancelled, and expired.
//! The tests are the kubelet.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testbed::{Kubernetes, wait::eventually};

use super::SOON;

pub(super) async fn live(cluster: &Kubernetes, namespace: &str) -> Result<()> {
    for name in ["db-user", "cache-user"] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
            "stringData": {"username": "u", "password": "p"}});
        cluster.apply_yaml(&secret.to_string()).await?;
    }
    apply(cluster, &claim(namespace, "files")).await?;
    let store =
        json!({"mysql": {"host": "db", "database": "sums", "credentialsRef": {"name": "db-user"}}});
    let queue = json!({"redis": {"host": "cache", "credentialsRef": {"name": "cache-user"}}});
    apply(
        cluster,
        &run(
            namespace,
            "shared",
            &json!({"store": store, "queue": queue}),
        ),
    )
    .await?;
    begins(cluster, namespace, "alone").await?;
    eventually("workers", SOON, async || {
        let workers = get(
            cluster,
            namespace,
            "deployment/shared-checksum-worker",
            "{.metadata.name}",
        )
        .await?;
        Ok((!workers.is_empty()).then_some(()))
    })
    .await?;
    ended(cluster, namespace, "shared").await?;
    snapped(cluster, namespace, "snapped").await?;
    cancelled_and_expired(cluster, namespace, "alone").await
}

/// A run gets its Job.
pub(super) async fn begins(cluster: &Kubernetes, namespace: &str, name: &str) -> Result<()> {
    apply(cluster, &run(namespace, name, &json!({}))).await?;
    eventually("a Job", SOON, async || {
        let job = format!("job/{name}-checksum");
        let job = get(cluster, namespace, &job, "{.metadata.name}").await?;
        Ok((!job.is_empty()).then_some(()))
    })
    .await
}

/// Its coordinator ends with a result, and the workers go.
async fn ended(cluster: &Kubernetes, namespace: &str, name: &str) -> Result<()> {
    let label = format!("orrery.dev/checksum-run={name},orrery.dev/agent=checksum-coordinator");
    let pod = eventually("a pod", SOON, async || {
        let pods = ["-n", namespace, "get", "pods", "-l", &label, "-o", "name"];
        let pods = cluster.kubectl(&pods).await?.ok()?;
        Ok(pods.lines().next().map(str::to_owned))
    })
    .await?;
    let report =
        json!({"state": "Finished", "result": {"reason": "Verified", "message": "all is well"}});
    let terminated = json!({"exitCode": 0, "message": report.to_string()});
    let status = json!({"status": {"phase": "Succeeded", "containerStatuses": [
        {"name": "checksum", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated}}]}});
    let patch = status.to_string();
    let args = [
        "-n",
        namespace,
        "patch",
        &pod,
        "--subresource=status",
        "--type=strategic",
        "-p",
        &patch,
    ];
    cluster.kubectl(&args).await?.ok()?;
    eventually("the end told and the workers gone", SOON, async || {
        let run = format!("cksum/{name}");
        let complete = "{.status.conditions[?(@.type=='Complete')].reason}";
        let told = get(cluster, namespace, &run, complete).await?;
        ensure!(told == "Verified", "{told}");
        let workers = format!("deployment/{name}-checksum-worker");
        let workers = get(cluster, namespace, &workers, "{.metadata.name}").await?;
        ensure!(workers.is_empty(), "{workers} is there");
        Ok(Some(()))
    })
    .await
}

/// The snapshot of a run is made, becomes a claim, and goes with the claim when the run has ended.
async fn snapped(cluster: &Kubernetes, namespace: &str, name: &str) -> Result<()> {
    cluster.apply_yaml(&snapshots().to_string()).await?;
    let source = json!({"persistentVolumeClaim": {"claimName": "files"}, "snapshot": {"csi": {}}});
    apply(cluster, &run(namespace, name, &json!({"source": source}))).await?;
    let (snapshot, claim) = (
        format!("volumesnapshots/{name}-snapshot"),
        format!("pvc/{name}-snapshot"),
    );
    let there = async |object: &str, expected: bool| {
        eventually(&format!("{object}: {expected}"), SOON, async || {
            let found = get(cluster, namespace, object, "{.metadata.name}").await?;
            Ok((found.is_empty() != expected).then_some(()))
        })
        .await
    };
    there(&snapshot, true).await?;
    let ready = json!({"status": {"readyToUse": true, "restoreSize": "1Gi"}}).to_string();
    let args = [
        "-n",
        namespace,
        "patch",
        &snapshot,
        "--subresource=status",
        "--type=merge",
        "-p",
        &ready,
    ];
    cluster.kubectl(&args).await?.ok()?;
    there(&claim, true).await?;
    let cancel = json!({"spec": {"cancel": true}}).to_string();
    let args = [
        "-n",
        namespace,
        "patch",
        "cksum",
        name,
        "--type=merge",
        "-p",
        &cancel,
    ];
    cluster.kubectl(&args).await?.ok()?;
    there(&claim, false).await?;
    there(&snapshot, false).await
}

/// The kind that CSI drivers bring.
fn snapshots() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "volumesnapshots.snapshot.storage.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-csi/external-snapshotter"}},
        "spec": {"group": "snapshot.storage.k8s.io", "scope": "Namespaced",
            "names": {"kind": "VolumeSnapshot", "plural": "volumesnapshots", "singular": "volumesnapshot"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": open}}]},
    })
}

/// The Job of a run that nobody can end is removed, and the run itself when its time is over.
async fn cancelled_and_expired(cluster: &Kubernetes, namespace: &str, name: &str) -> Result<()> {
    let spec = json!({"spec": {"cancel": true, "ttlAfterFinished": "1s"}}).to_string();
    let args = [
        "-n",
        namespace,
        "patch",
        "cksum",
        name,
        "--type=merge",
        "-p",
        &spec,
    ];
    cluster.kubectl(&args).await?.ok()?;
    eventually("a run that is gone", SOON, async || {
        let run = get(
            cluster,
            namespace,
            &format!("cksum/{name}"),
            "{.metadata.name}",
        )
        .await?;
        ensure!(run.is_empty(), "{run} is there");
        Ok(Some(()))
    })
    .await
}

fn run(namespace: &str, name: &str, fields: &Value) -> Value {
    let mut spec = json!({"source": {"persistentVolumeClaim": {"claimName": "files"}}});
    if let (Some(spec), Some(fields)) = (spec.as_object_mut(), fields.as_object()) {
        spec.extend(fields.clone());
    }
    json!({"apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumRun", "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

fn claim(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}})
}

async fn apply(cluster: &Kubernetes, object: &Value) -> Result<()> {
    cluster.apply_yaml(&object.to_string()).await
}

/// What `kubectl get` prints of an object; nothing if it is not there.
pub(crate) async fn get(
    cluster: &Kubernetes,
    namespace: &str,
    object: &str,
    path: &str,
) -> Result<String> {
    let path = format!("jsonpath={path}");
    let args = [
        "-n",
        namespace,
        "get",
        object,
        "--ignore-not-found",
        "-o",
        &path,
    ];
    cluster.kubectl(&args).await?.ok()
}
