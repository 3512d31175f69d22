//! Which parts there are, in which order they start and end, as in the operator. In: arguments. Out: the reason
//! for ending.

use std::{convert::Infallible, fmt::Debug, sync::Arc, time::Duration};

use crds::{checksum_schedule::ChecksumSchedule, name::MANAGED_BY_LABEL};
use kube::{Api, Client, Config, Resource, core::NamespaceResourceScope};
use operator::{
    args::Args,
    checksum_schedule::observe::CachedSchedule,
    client, controller,
    leader::{self, Candidate, Leadership, state::Times},
    metrics::Metrics,
    object::Key,
    received::Received,
    report::{Reporter, STATUS_INTERVAL},
    requeue::Stamp,
    watch::{
        self, Cached, Scope, Store, Watch,
        freshness::{Freshness, Watches},
    },
};
use runtime::{
    admin::{Admin, Health},
    clock::{Clock, SystemClock},
    metrics::Metrics as Registry,
    shutdown::Signals,
    tasks::TaskGroup,
};
use serde::de::DeserializeOwned;
use tokio::sync::watch as channel;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    child::{Child, MANAGER},
    reconcile::{Context, reconcile},
};

/// The admin port, the signals and two watches.
const PARTS: usize = 4;

/// How long parts that hold nothing get to end.
const QUICK: Duration = Duration::from_secs(2);

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Runs the controller until a signal, the loss of the lease, or the death of a part.
pub(crate) async fn run(args: Args) -> Result<(), Error> {
    let signals = Signals::install()?;
    let admin = Admin::bind(&args.admin).await?;
    let core = Core::new(args).await?;
    let registry = Registry::new();
    registry.with(|registry| core.metrics.register(registry));
    let mut parts = TaskGroup::new(PARTS);
    let stop = CancellationToken::new();
    let on_signal = stop.clone();
    until_end(&mut parts, "signals", async move {
        match signals.cancel(on_signal).await {}
    })?;
    let serve = admin.serve(core.health.clone(), registry, parts.token());
    parts.spawn("admin", serve)?;
    let result = core.work(&mut parts, &stop).await;
    parts.shutdown(core.clock.monotonic() + QUICK).await;
    result
}

/// Spawns a part that has no end of its own: it ends with the group.
fn until_end(
    parts: &mut TaskGroup,
    name: &'static str,
    part: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let end = parts.token();
    let part = async move {
        tokio::select! {
            () = part => {}
            () = end.cancelled() => {}
        }
        Ok::<_, Infallible>(())
    };
    Ok(parts.spawn(name, part)?)
}

/// What every part shares.
struct Core {
    args: Args,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    watches: Watches,
    health: Health,
    identity: String,
    client: Client,
    config: Config,
    parents: Store<CachedSchedule>,
    children: Store<Child>,
    handle: controller::Handle,
}

impl Core {
    async fn new(args: Args) -> Result<Self, Error> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (metrics, watches) = (Metrics::default(), Watches::default());
        let identity = leader::identity(MANAGER, clock.wall(), std::process::id());
        let config = client::configuration(&identity).await?;
        Ok(Self {
            client: client::connect(&config, metrics.clone(), watches.clone())?,
            parents: Store::new(&Scope::Cluster),
            children: Store::new(&Scope::Cluster),
            handle: controller::Handle::new(Arc::clone(&clock), metrics.controller(MANAGER)),
            health: Health::default(),
            args,
            clock,
            metrics,
            watches,
            identity,
            config,
        })
    }

    /// Caches, then the lease, then the controller.
    async fn work(&self, parts: &mut TaskGroup, stop: &CancellationToken) -> Result<(), Error> {
        self.watch(parts)?;
        tokio::select! {
            () = self.synced() => {}
            failure = parts.failed() => return Err(failure.into()),
            () = stop.cancelled() => return Ok(()),
        }
        let leadership = Leadership::new(Arc::clone(&self.clock));
        let (mut election, mut controllers) = (TaskGroup::new(1), TaskGroup::new(1));
        let mut leading = self.compete(&mut election, &leadership)?;
        let result = tokio::select! {
            failure = parts.failed() => Err(failure.into()),
            failure = election.failed() => Err(failure.into()),
            result = self.lead(&mut controllers, &leadership, &mut leading) => result,
            () = stop.cancelled() => Ok(()),
        };
        // Whoever takes over must not meet a write of ours: first the controller, then the lease.
        let now = self.clock.monotonic();
        controllers.shutdown(now + self.args.drain()).await;
        election.shutdown(self.clock.monotonic() + QUICK).await;
        result
    }

    fn watch(&self, parts: &mut TaskGroup) -> Result<(), Error> {
        let handle = self.handle.clone();
        let changed = move |parent: &CachedSchedule| {
            handle.changed(parent.key(), Some(&Stamp::of(parent.meta())));
        };
        let slim: fn(Received<ChecksumSchedule>) -> _ = CachedSchedule::slim;
        self.follow(parts, &self.parents, None, slim, changed)?;
        let handle = self.handle.clone();
        let changed = move |child: &Child| {
            if let Some(parent) = child.parent() {
                handle.changed(parent, None);
            }
        };
        // Other people's ConfigMaps are not ours to keep.
        let labels = format!("{MANAGED_BY_LABEL}={MANAGER}");
        self.follow(parts, &self.children, Some(labels), Child::slim, changed)?;
        let (watches, limit) = (self.watches.clone(), self.args.watch_timeout() * 3);
        self.health.live("watches", move || watches.check(limit));
        Ok(())
    }

    fn follow<K, T>(
        &self,
        parts: &mut TaskGroup,
        store: &Store<T>,
        labels: Option<String>,
        slim: fn(K) -> T,
        changed: impl Fn(&T) + Send + 'static,
    ) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
        T: Cached + Send + Sync + 'static,
    {
        let api: Api<K> = Scope::api(&self.client, None);
        let kind = K::kind(&()).into_owned();
        let metrics = self.metrics.watch(&kind, "");
        let freshness = Arc::new(Freshness::new(kind, Arc::clone(&self.clock), metrics));
        self.watches
            .register(api.resource_url().into(), Arc::clone(&freshness));
        let watch = Watch {
            store: store.clone(),
            part: 0,
            labels,
            timeout: self.args.watch_timeout(),
            freshness,
        };
        until_end(parts, "watch", async move {
            watch::follow(api, watch, slim, changed).await;
        })
    }

    /// Waits until everything is known: who knows nothing should not lead.
    async fn synced(&self) {
        // Nothing tells when a list is whole, so ask.
        while !(self.parents.is_synced() && self.children.is_synced()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn compete(
        &self,
        election: &mut TaskGroup,
        leadership: &Leadership,
    ) -> Result<channel::Receiver<bool>, Error> {
        let own = self.args.lease_namespace.as_deref();
        let namespace = own.unwrap_or(&self.config.default_namespace);
        // Connections of its own: renewals never wait behind, or die with, those of the controller.
        let client = client::connect(&self.config, self.metrics.clone(), self.watches.clone())?;
        let candidate = Candidate {
            api: Api::namespaced(client, namespace),
            lease: MANAGER.into(),
            identity: self.identity.clone(),
            times: Times::default(),
            clock: Arc::clone(&self.clock),
            leadership: leadership.clone(),
            metrics: self.metrics.clone(),
            seen: Arc::default(),
        };
        self.metrics.set_leading(false);
        let (sender, receiver) = channel::channel(false);
        let token = election.token();
        election.spawn("leader election", leader::run(candidate, token, sender))?;
        Ok(receiver)
    }

    /// Starts the controller when this process leads, and watches over it.
    async fn lead(
        &self,
        controllers: &mut TaskGroup,
        leadership: &Leadership,
        leading: &mut channel::Receiver<bool>,
    ) -> Result<(), Error> {
        leading.wait_for(|leads| *leads).await?;
        let (handle, parents) = (self.handle.clone(), self.parents.clone());
        let resync = move || {
            for parent in parents.all() {
                handle.changed(parent.key(), None);
            }
        };
        let (handle, stop) = (self.handle.clone(), controllers.token());
        let context = self.context(leadership);
        controllers.spawn("one child", async move {
            let pass = move |key: Key| reconcile(context.clone(), key);
            controller::run(handle, stop, pass, resync).await;
            Ok::<_, Infallible>(())
        })?;
        info!("controllers started");
        Err(controllers.failed().await.into())
    }

    fn context(&self, leadership: &Leadership) -> Context {
        Context {
            parents: self.parents.clone(),
            children: self.children.clone(),
            client: self.client.clone(),
            leadership: leadership.clone(),
            reporter: Reporter::new(
                self.client.clone(),
                leadership.clone(),
                Arc::clone(&self.clock),
                &self.identity,
                STATUS_INTERVAL,
            ),
            clock: Arc::clone(&self.clock),
        }
    }
}
