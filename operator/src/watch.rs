//! Watches: one per kind and namespace, shared by all controllers, each with its own retries.
//! In: the API server's events. Out: caches that are right, and a call per change. Reads only.

pub mod cache;
pub mod child;
pub mod custom;
pub mod freshness;
pub mod pod;

use std::{
    fmt::{self, Debug},
    sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use futures::{StreamExt, pin_mut};
use kube::{
    Api, Client, Resource,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, ExponentialBackoff, watcher},
    },
};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use crate::object::Key;
pub use cache::{Cache, Cached};
use freshness::Freshness;

/// The server ends a watch after this time and the client starts it again. Short, because a
/// connection that died without a word is noticed only when that does not happen.
pub const WATCH_TIMEOUT: Duration = Duration::from_mins(1);

/// Objects per page of a list. Small pages keep the peak of memory low.
const PAGE_SIZE: u32 = 50;

/// Which namespaces are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    Cluster,
    /// These.
    Namespaces(Vec<String>),
}

impl Scope {
    /// The namespaces to watch one by one; `None` stands for all at once.
    pub fn namespaces(&self) -> Vec<Option<&str>> {
        match self {
            Self::Cluster => vec![None],
            Self::Namespaces(names) => names.iter().map(|n| Some(n.as_str())).collect(),
        }
    }

    /// The API of a kind, for one of the namespaces of [`Scope::namespaces`].
    pub fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        namespace.map_or_else(
            || Api::all(client.clone()),
            |namespace| Api::namespaced(client.clone(), namespace),
        )
    }
}

/// The objects of one kind in all watched namespaces. Clones share their content.
pub struct Store<T> {
    parts: Arc<[Part<T>]>,
    others: Arc<OnceLock<Others<T>>>,
}

/// Who wants to know of an object beside the one who writes it.
type Others<T> = Box<dyn Fn(&T) + Send + Sync>;

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self {
            parts: Arc::clone(&self.parts),
            others: Arc::clone(&self.others),
        }
    }
}

impl<T> Debug for Store<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Part<T> {
    namespace: Option<String>,
    cache: RwLock<Cache<T>>,
}

impl<T: Cached> Store<T> {
    /// An empty store for the given scope.
    pub fn new(scope: &Scope) -> Self {
        let part = |namespace: Option<&str>| Part {
            namespace: namespace.map(Into::into),
            cache: RwLock::default(),
        };
        Self {
            parts: scope.namespaces().into_iter().map(part).collect(),
            others: Arc::default(),
        }
    }

    /// Who else is told of what we write ourselves: the watch tells nobody of what the cache knows by then. Once per store.
    pub fn tell_others(&self, others: impl Fn(&T) + Send + Sync + 'static) {
        let known = self.others.set(Box::new(others));
        debug_assert!(known.is_ok(), "others are told by one function");
    }

    /// The object of that name.
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.parts(&key.namespace).find_map(|cache| cache.get(key))
    }

    /// The objects of that namespace which the given owner controls.
    pub fn owned_by(&self, namespace: &str, uid: &str) -> Vec<Arc<T>> {
        self.parts(namespace)
            .flat_map(|cache| cache.owned_by(uid))
            .collect()
    }

    /// All objects.
    pub fn all(&self) -> Vec<Arc<T>> {
        let caches = self.parts.iter().map(Part::read);
        caches
            .flat_map(|cache| cache.all().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Whether every watch has listed its objects once.
    pub fn is_synced(&self) -> bool {
        self.parts.iter().all(|part| part.read().is_synced())
    }

    /// Whether some watch has.
    pub fn is_synced_somewhere(&self) -> bool {
        self.parts.iter().any(|part| part.read().is_synced())
    }

    /// Whether the watches of that namespace have listed their objects once.
    pub fn is_synced_in(&self, namespace: &str) -> bool {
        self.parts(namespace).all(|cache| cache.is_synced())
    }

    /// The namespaces that have not been listed yet; `all` stands for all of them.
    pub fn unsynced(&self) -> Vec<String> {
        let unsynced = self.parts.iter().filter(|part| !part.read().is_synced());
        unsynced
            .map(|part| part.namespace.clone().unwrap_or_else(|| "all".into()))
            .collect()
    }

    /// Notes the answer to a write of our own; see [`Cache::refresh`]. Who wrote knows what follows; others are told.
    pub fn refresh(&self, object: T) {
        let namespace = object.key().namespace;
        let part = self.parts.iter().find(|part| part.covers(&namespace));
        let news = part.and_then(|part| part.write(|cache| cache.refresh(object)));
        if let (Some(news), Some(others)) = (news, self.others.get()) {
            others(&news);
        }
    }

    fn parts<'a>(
        &'a self,
        namespace: &'a str,
    ) -> impl Iterator<Item = RwLockReadGuard<'a, Cache<T>>> {
        self.parts
            .iter()
            .filter(move |part| part.covers(namespace))
            .map(Part::read)
    }
}

impl<T> Part<T> {
    fn covers(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|n| n == namespace)
    }

    fn read(&self) -> RwLockReadGuard<'_, Cache<T>> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<R>(&self, change: impl FnOnce(&mut Cache<T>) -> R) -> R {
        change(&mut self.cache.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a watch needs beside its kind.
#[derive(Debug)]
pub struct Watch<T> {
    /// Where the objects go.
    pub store: Store<T>,
    /// Which part of the store, as an index into [`Scope::namespaces`].
    pub part: usize,
    /// Only objects with these labels; `None` means all.
    pub labels: Option<String>,
    /// When the server ends the watch.
    pub timeout: Duration,
    /// Where signs of life are noted.
    pub freshness: Arc<Freshness>,
}

/// Follows the objects of `api` for ever, keeping the store right and telling `changed` of each change.
///
/// `slim` keeps what is needed of an object; `changed` must only enqueue.
pub async fn follow<K, T>(
    api: Api<K>,
    watch: Watch<T>,
    slim: impl Fn(K) -> T + Send,
    changed: impl Fn(&T) + Send,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    T: Cached,
{
    let config = watcher::Config::default()
        .page_size(PAGE_SIZE)
        .timeout(u32::try_from(watch.timeout.as_secs()).unwrap_or(290));
    let config = match &watch.labels {
        Some(labels) => config.labels(labels),
        None => config,
    };
    let part = &watch.store.parts[watch.part];
    let events = watcher(api, config).backoff(patience());
    pin_mut!(events);
    let mut log = Log::new(K::kind(&()).into_owned());
    while let Some(event) = events.next().await {
        watch.freshness.touch();
        log.note(event.as_ref().err());
        match event {
            Ok(event) => {
                watch.freshness.worked();
                apply(part, event, &slim, &changed);
            }
            Err(_) => watch.freshness.failed(),
        }
    }
}

/// The pauses between attempts of a watch. Short even after a long outage: whatever happened
/// meanwhile is waiting to be seen.
pub fn patience() -> ExponentialBackoff {
    backon::ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(500))
        .with_max_delay(Duration::from_secs(5))
        .with_jitter()
        .without_max_times()
        .into()
}

/// Says when a watch begins to fail and when it works again, and nothing in between.
struct Log {
    kind: String,
    failing: bool,
}

impl Log {
    fn new(kind: String) -> Self {
        Self {
            kind,
            failing: false,
        }
    }

    fn note(&mut self, error: Option<&watcher::Error>) {
        let before = std::mem::replace(&mut self.failing, error.is_some());
        match error {
            Some(error) if !before => {
                let error = runtime::telemetry::chain(error);
                warn!(kind = self.kind, error, "a watch fails, it is tried again");
            }
            None if before => info!(kind = self.kind, "the watch works again"),
            Some(_) | None => {}
        }
    }
}

fn apply<K, T: Cached>(
    part: &Part<T>,
    event: Event<K>,
    slim: &impl Fn(K) -> T,
    changed: &impl Fn(&T),
) {
    match event {
        Event::Init => part.write(Cache::begin_list),
        Event::InitApply(object) => part.write(|cache| cache.listed(slim(object))),
        Event::InitDone => {
            let touched = part.write(Cache::end_list);
            for object in &touched {
                changed(object);
            }
        }
        Event::Apply(object) => {
            if let Some(object) = part.write(|cache| cache.put(slim(object))) {
                changed(&object);
            }
        }
        Event::Delete(object) => {
            if let Some(object) = part.write(|cache| cache.remove(&slim(object))) {
                changed(&object);
            }
        }
    }
}
