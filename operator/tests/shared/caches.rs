//! Caches as the operator has them, filled by real watches, and whether they have caught up.

use std::{convert::Infallible, sync::Arc};

use anyhow::{Result, ensure};
use kube::{Api, Client, ResourceExt, api::ListParams};
use operator::{
    act::Kind,
    metrics::Metrics,
    received::Received,
    watch::{self, Cached, Scope, Store, Watch, freshness::Freshness},
};
use runtime::{clock::Clock, tasks::TaskGroup};

/// Follows one kind of a namespace, into `store`.
pub(crate) fn follow<K, T>(
    tasks: &mut TaskGroup,
    client: &Client,
    namespace: &str,
    store: &Store<T>,
    labels: Option<&str>,
    slim: fn(Received<K>) -> T,
) -> Result<()>
where
    K: Kind + Send + Sync + 'static,
    T: Cached + Send + Sync + 'static,
{
    let clock: Arc<dyn Clock> = Arc::new(runtime::clock::SystemClock);
    let metrics = Metrics::default().watch(&K::kind(&()), namespace);
    let watch = Watch {
        store: store.clone(),
        part: 0,
        labels: labels.map(Into::into),
        timeout: watch::WATCH_TIMEOUT,
        freshness: Arc::new(Freshness::new("test".into(), clock, metrics)),
    };
    let api = Scope::api(client, Some(namespace));
    tasks.spawn("watch", async move {
        watch::follow(api, watch, slim, |_| {}).await;
        Ok::<_, Infallible>(())
    })?;
    Ok(())
}

/// Fails unless the cache holds exactly what the server has.
pub(crate) async fn caught_up<K, T>(
    client: &Client,
    namespace: &str,
    store: &Store<T>,
    labels: Option<&str>,
) -> Result<()>
where
    K: Kind,
    T: Cached,
{
    ensure!(store.is_synced(), "the first list is under way");
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let params = ListParams {
        label_selector: labels.map(Into::into),
        ..ListParams::default()
    };
    // Also of objects that this release cannot read.
    let there = versions(&api.list_metadata(&params).await?.items);
    ensure!(there == cached(store), "{} differ", K::plural(&()));
    Ok(())
}

fn versions<K: kube::Resource>(objects: &[K]) -> Vec<(String, u64)> {
    let version = |object: &K| object.meta().resource_version.as_deref()?.parse().ok();
    let mut versions: Vec<_> = objects
        .iter()
        .map(|o| (o.name_any(), version(o).unwrap_or_default()))
        .collect();
    versions.sort();
    versions
}

fn cached<T: Cached>(store: &Store<T>) -> Vec<(String, u64)> {
    let mut versions: Vec<_> = store
        .all()
        .iter()
        .map(|object| (object.key().name, object.version()))
        .collect();
    versions.sort();
    versions
}
