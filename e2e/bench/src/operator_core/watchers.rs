//! In: a control plane. Out: the operator's stores, filled by its own watches.
//! Touches: reads objects, for as long as it is let.

use std::{convert::Infallible, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use crds::name::AGENT_LABEL;
use kube::{Api, Client, Resource, core::NamespaceResourceScope};
use operator::{
    checksum_schedule::observe::{CachedRun, CachedSchedule},
    client,
    metrics::Metrics,
    watch::{
        self, Cached, Scope, Store, WATCH_TIMEOUT, Watch,
        freshness::{Freshness, Watches},
        pod::{SlimPod, WirePod},
    },
};
use runtime::{
    clock::{Clock, SystemClock},
    tasks::TaskGroup,
};
use serde::de::DeserializeOwned;

use super::seed;

/// Does nothing but watch what `seed` has made: the program `watching`.
pub async fn watch() -> Result<()> {
    let config = client::configuration("bench").await?;
    let client = client::connect(&config, Metrics::default(), Watches::default())?;
    let mut tasks = TaskGroup::new(3);
    let schedules = follow(&mut tasks, &client, None, None, CachedSchedule::slim)?;
    let runs = follow(&mut tasks, &client, None, None, CachedRun::slim)?;
    let pods =
        follow::<WirePod, SlimPod>(&mut tasks, &client, None, Some(AGENT_LABEL), SlimPod::from)?;
    while !(schedules.is_synced() && runs.is_synced() && pods.is_synced()) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let seen = [schedules.all().len(), runs.all().len(), pods.all().len()];
    ensure!(seen == seed::COUNTS, "saw {seen:?} objects");
    eprintln!("synced");
    let failure = tasks.failed().await;
    Err(failure.into())
}

/// Follows a kind in one or all namespaces, as the operator does.
pub(crate) fn follow<K, T>(
    tasks: &mut TaskGroup,
    client: &Client,
    namespace: Option<&str>,
    labels: Option<&str>,
    slim: fn(K) -> T,
) -> Result<Store<T>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
    T: Cached + Send + Sync + 'static,
{
    let store = Store::new(&Scope::Cluster);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let metrics = Metrics::default().watch("bench", "");
    let watch = Watch {
        store: store.clone(),
        part: 0,
        labels: labels.map(Into::into),
        timeout: WATCH_TIMEOUT,
        freshness: Arc::new(Freshness::new("bench".into(), clock, metrics)),
    };
    let api: Api<K> = Scope::api(client, namespace);
    tasks.spawn("watch", async move {
        watch::follow(api, watch, slim, |_| {}).await;
        Ok::<_, Infallible>(())
    })?;
    Ok(store)
}
