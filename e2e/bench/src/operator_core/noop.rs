#![expect(
    clippy::disallowed_methods,
    reason = "a tool that measures sets its own stage"
)]
//! In: a control plane. Out: CPU and requests of a pass that has nothing to do, with caches as in the operator.
//! Touches: a namespace of its own.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use crds::{checksum_run::ChecksumRun, checksum_schedule::ChecksumSchedule, name::AGENT_LABEL};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::PostParams};
use nix::time::{ClockId, clock_gettime};
use operator::{
    act::Writer,
    checksum_schedule::{
        Context,
        observe::{CachedRun, CachedSchedule, Started},
        reconcile,
    },
    client,
    controller::Next,
    leader::Leadership,
    metrics::Metrics,
    object::Key,
    report::Reporter,
    watch::{
        freshness::Watches,
        pod::{SlimPod, WirePod},
    },
};
use runtime::{
    clock::{Clock, SystemClock},
    metrics::Metrics as Registry,
    tasks::TaskGroup,
};
use serde_json::json;
use testbed::{Access, wait::eventually};

use super::{seed, watchers::follow};
use crate::scrape::total;

const PASSES: u32 = 20_000;
const CHILDREN: usize = 100;
const SOON: Duration = Duration::from_secs(30);

pub(super) struct Noop {
    pub(super) microseconds: f64,
    pub(super) requests: f64,
}

pub(super) async fn measure(cluster: &Access) -> Result<Noop> {
    let namespace = cluster.namespace("noop").await?;
    let client = cluster.client().await?;
    let uid = family(&client, &namespace).await?;
    let registry = Registry::new();
    let mut tasks = TaskGroup::new(3);
    let context = context(cluster, &client, &namespace, &registry, &mut tasks).await?;
    let (within, labels) = (Some(&*namespace), Some(AGENT_LABEL));
    let pods = follow::<WirePod, SlimPod>(&mut tasks, &client, within, labels, SlimPod::from)?;
    let key = Key {
        namespace: namespace.to_string(),
        name: "s".into(),
    };
    eventually("whole caches and nothing to do", SOON, async || {
        ensure!(
            context.runs.is_synced() && pods.is_synced(),
            "lists are under way"
        );
        let next = reconcile(context.clone(), key.clone()).await;
        Ok(matches!(next, Next::At(_)).then_some(()))
    })
    .await?;
    let sent = requests(&registry)?;
    let used = cpu(async || {
        for _ in 0..PASSES {
            ensure!(
                pods.owned_by(&namespace, &uid).len() == CHILDREN,
                "pods are missing"
            );
            let next = reconcile(context.clone(), key.clone()).await;
            ensure!(
                matches!(next, Next::At(_)),
                "there was something to do: {next:?}"
            );
        }
        Ok(())
    });
    Ok(Noop {
        microseconds: used.await?.as_secs_f64() * 1e6 / f64::from(PASSES),
        requests: requests(&registry)? - sent,
    })
}

/// The controller's context, with a line to the server whose requests are counted in `registry`.
async fn context(
    cluster: &Access,
    client: &Client,
    namespace: &str,
    registry: &Registry,
    tasks: &mut TaskGroup,
) -> Result<Context> {
    let metrics = Metrics::default();
    registry.with(|registry| metrics.register(registry));
    let counted = client::connect(&cluster.config().await?, metrics, Watches::default())?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let leadership = Leadership::unchallenged(Arc::clone(&clock));
    let within = Some(namespace);
    Ok(Context {
        schedules: follow(tasks, client, within, None, CachedSchedule::slim)?,
        runs: follow(tasks, client, within, None, CachedRun::slim)?,
        started: Started::new(Arc::clone(&clock)),
        writer: Writer::new(counted.clone(), leadership.clone()),
        reporter: Reporter::new(
            counted,
            leadership,
            Arc::clone(&clock),
            "bench",
            Duration::ZERO,
        ),
        clock,
    })
}

/// A schedule that controls a hundred runs and a hundred pods; its UID.
async fn family(client: &Client, namespace: &str) -> Result<String> {
    let schedule = json!({"apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumSchedule", "metadata": {"name": "s"},
        "spec": {"schedule": "@yearly", "concurrencyPolicy": "Allow", "template": {"spec": {"source": {"persistentVolumeClaim": {"claimName": "home"}}}}}});
    let (params, schedules) = (
        PostParams::default(),
        Api::<ChecksumSchedule>::namespaced(client.clone(), namespace),
    );
    let schedule = schedules
        .create(&params, &serde_json::from_value(schedule)?)
        .await?;
    let uid = schedule.uid().context("a UID")?;
    let owner = json!([{"apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumSchedule", "name": "s", "uid": uid, "controller": true}]);
    let runs = Api::<ChecksumRun>::namespaced(client.clone(), namespace);
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    for n in 0..CHILDREN {
        let mut run = json!({"metadata": {"name": format!("r{n}"), "ownerReferences": owner}});
        run["apiVersion"] = json!("orrery.dev/v1alpha1");
        run["kind"] = json!("ChecksumRun");
        run["spec"] = json!({"source": {"persistentVolumeClaim": {"claimName": "home"}}});
        runs.create(&params, &serde_json::from_value(run)?).await?;
        let mut pod = seed::pod(n);
        pod["metadata"]["ownerReferences"] = owner.clone();
        pods.create(&params, &serde_json::from_value(pod)?).await?;
    }
    Ok(uid)
}

/// The CPU time of this process while `work` is done.
async fn cpu(work: impl AsyncFnOnce() -> Result<()>) -> Result<Duration> {
    let used =
        || Ok::<Duration, anyhow::Error>(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into());
    let before = used()?;
    work().await?;
    Ok(used()?.saturating_sub(before))
}

fn requests(registry: &Registry) -> Result<f64> {
    Ok(total(&registry.render()?, "rest_client_requests_total"))
}
