//! The wiring: which parts there are, in which order they start and end.
//! In: arguments. Out: the reason for ending. Decides nothing else.

mod runs;
mod schedules;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::{Api, Client, Config};
use runtime::{
    admin::{Admin, Health},
    clock::{Clock, SystemClock},
    metrics::Metrics as Registry,
    shutdown::Signals,
    tasks::{Drained, TaskGroup},
};
use tokio::sync::watch as channel;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    act::Writer,
    args::Args,
    checksum_run::pod::Image,
    client, controller, definitions,
    fleet::FleetMetrics,
    leader::{self, Candidate, Leadership, state::Times},
    metrics::Metrics,
    object::Key,
    received::Received,
    report::{Reporter, STATUS_INTERVAL},
    watch::{
        self, Cached, Scope, Store, Watch,
        freshness::{Freshness, Watches},
    },
};

use runs::ChecksumRuns;
use schedules::ChecksumSchedules;

/// Room for the tasks of one group: watches of a long list of namespaces are most of them.
const TASKS: usize = 1024;

/// A watch that fails for so long makes a replica unready, so that somebody looks.
const FAILING: Duration = Duration::from_mins(5);

/// How long parts that hold nothing get to end.
const QUICK: Duration = Duration::from_secs(2);

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Runs the operator until a signal, the loss of the lease, or the death of a part.
pub async fn run(args: Args) -> Result<(), Error> {
    let signals = Signals::install()?;
    let admin = Admin::bind(&args.admin).await?;
    let core = Core::new(args).await?;
    let registry = Registry::new();
    registry.with(|registry| {
        core.metrics.register(registry);
        core.fleet_metrics.register(registry);
    });
    let mut parts = TaskGroup::new(TASKS);
    let stop = CancellationToken::new();
    let on_signal = stop.clone();
    until_end(&mut parts, "signals", async move {
        match signals.cancel(on_signal).await {}
    })?;
    parts.spawn(
        "admin",
        admin.serve(core.health.clone(), registry.clone(), parts.token()),
    )?;
    let result = core.work(&mut parts, &stop, &registry).await;
    drained(parts.shutdown(core.clock.monotonic() + QUICK).await);
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

fn drained(drained: Drained) {
    for failure in drained.failures {
        warn!(error = %runtime::telemetry::chain(&failure), "a part failed while ending");
    }
    if !drained.aborted.is_empty() {
        warn!(parts = ?drained.aborted, "parts did not end in time");
    }
}

/// What every part shares.
struct Core {
    args: Args,
    clock: Arc<dyn Clock>,
    image: Image,
    metrics: Metrics,
    fleet_metrics: FleetMetrics,
    watches: Watches,
    health: Health,
    identity: String,
    client: Client,
    config: Config,
}

impl Core {
    async fn new(args: Args) -> Result<Self, Error> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (metrics, watches) = (Metrics::default(), Watches::default());
        let identity = leader::identity(&args.pod_name, clock.wall(), std::process::id());
        let config = client::configuration(&identity).await?;
        let client = client::connect(&config, metrics.clone(), watches.clone())?;
        Ok(Self {
            image: args.image()?,
            args,
            clock,
            metrics,
            fleet_metrics: FleetMetrics::default(),
            watches,
            health: Health::default(),
            identity,
            client,
            config,
        })
    }

    /// Definitions, then caches, then the lease, then controllers.
    async fn work(
        &self,
        parts: &mut TaskGroup,
        stop: &CancellationToken,
        registry: &Registry,
    ) -> Result<(), Error> {
        tokio::select! {
            () = self.wait_for_definitions() => {}
            failure = parts.failed() => return Err(failure.into()),
            () = stop.cancelled() => return Ok(()),
        }
        let controllers = Controllers::new(self);
        controllers.watch(self, parts)?;
        registry.with(|registry| {
            controllers.runs.register(registry);
            controllers.schedules.register(registry);
        });
        tokio::select! {
            () = controllers.known_somewhere() => {}
            failure = parts.failed() => return Err(failure.into()),
            () = stop.cancelled() => return Ok(()),
        }
        let leadership = Leadership::new(Arc::clone(&self.clock));
        let mut election = TaskGroup::new(1);
        let mut leading = self.compete(&mut election, &leadership)?;
        let mut running = TaskGroup::new(TASKS);
        let result = tokio::select! {
            failure = parts.failed() => Err(failure.into()),
            failure = election.failed() => Err(failure.into()),
            result = self.lead(&mut running, &controllers, &leadership, &mut leading) => result,
            () = stop.cancelled() => Ok(()),
        };
        // Whoever takes over must not meet a write of ours: first the controllers, then the lease.
        drained(
            running
                .shutdown(self.clock.monotonic() + self.args.drain())
                .await,
        );
        drained(
            election
                .shutdown(self.clock.monotonic() + QUICK + QUICK)
                .await,
        );
        result
    }

    async fn wait_for_definitions(&self) {
        let waiting: Arc<Mutex<Option<String>>> =
            Arc::new(Mutex::new(Some("not looked at yet".into())));
        let known = Arc::clone(&waiting);
        self.health.ready("definitions", move || {
            let waiting = known.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.clone().map_or(Ok(()), Err)
        });
        definitions::wait(&self.client, |missing| {
            *waiting.lock().unwrap_or_else(PoisonError::into_inner) = missing;
        })
        .await;
    }

    fn compete(
        &self,
        election: &mut TaskGroup,
        leadership: &Leadership,
    ) -> Result<channel::Receiver<bool>, Error> {
        let namespace = self.own_namespace();
        // Connections of its own: renewals never wait behind, or die with, those of the controllers.
        let client = client::connect(&self.config, self.metrics.clone(), self.watches.clone())?;
        let candidate = Candidate {
            api: Api::namespaced(client, namespace),
            lease: self.args.lease_name.clone(),
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

    /// Starts the controllers when this process leads, and watches over them.
    async fn lead(
        &self,
        running: &mut TaskGroup,
        controllers: &Controllers,
        leadership: &Leadership,
        leading: &mut channel::Receiver<bool>,
    ) -> Result<(), Error> {
        leading.wait_for(|leads| *leads).await?;
        controllers.control(self, leadership, running)?;
        info!("controllers started");
        Err(running.failed().await.into())
    }

    /// The operator's own namespace.
    fn own_namespace(&self) -> &str {
        let own = self.args.lease_namespace.as_deref();
        own.unwrap_or(&self.config.default_namespace)
    }

    fn writer(&self, leadership: &Leadership) -> Writer {
        Writer::new(self.client.clone(), leadership.clone())
    }

    fn reporter(&self, leadership: &Leadership) -> Reporter {
        Reporter::new(
            self.client.clone(),
            leadership.clone(),
            Arc::clone(&self.clock),
            &self.identity,
            STATUS_INTERVAL,
        )
    }

    /// Follows one kind in every watched namespace, into `store`; only objects with these labels, if any are given.
    fn follow<K, T>(
        &self,
        parts: &mut TaskGroup,
        store: &Store<T>,
        labels: Option<&str>,
        slim: fn(Received<K>) -> T,
        changed: impl Fn(&T) + Clone + Send + 'static,
    ) -> Result<(), Error>
    where
        K: crate::act::Kind + Send + Sync + 'static,
        T: Cached + Send + Sync + 'static,
    {
        let scope = self.args.scope();
        let kind = K::kind(&()).into_owned();
        for (part, namespace) in scope.namespaces().into_iter().enumerate() {
            let api: Api<Received<K>> = Scope::api(&self.client, namespace);
            let metrics = self.metrics.watch(&kind, namespace.unwrap_or_default());
            let freshness = Freshness::new(kind.clone(), Arc::clone(&self.clock), metrics);
            let freshness = Arc::new(freshness);
            self.watches
                .register(api.resource_url().into(), Arc::clone(&freshness));
            let watch = Watch {
                store: store.clone(),
                part,
                labels: labels.map(Into::into),
                timeout: self.args.watch_timeout(),
                freshness,
            };
            let changed = changed.clone();
            until_end(parts, "watch", async move {
                watch::follow(api, watch, slim, changed).await;
            })?;
        }
        Ok(())
    }
}

/// Every controller, and what they read.
struct Controllers {
    schedules: ChecksumSchedules,
    runs: ChecksumRuns,
}

impl Controllers {
    fn new(core: &Core) -> Self {
        Self {
            schedules: ChecksumSchedules::new(core),
            runs: ChecksumRuns::new(core),
        }
    }

    fn watch(&self, core: &Core, parts: &mut TaskGroup) -> Result<(), Error> {
        self.schedules.watch(core, parts)?;
        self.runs.watch(core, parts, &self.schedules)?;
        let (schedules, runs) = (self.schedules.unsynced(), self.runs.unsynced());
        core.health.ready("caches", move || {
            let missing = [schedules(), runs()].concat();
            match missing.first() {
                None => Ok(()),
                Some(first) => Err(format!("not listed yet: namespace {first}")),
            }
        });
        let watches = core.watches.clone();
        core.health
            .ready("watches", move || watches.check_failing(FAILING));
        let (watches, limit) = (
            core.watches.clone(),
            core.args.watch_timeout() * 2 + Duration::from_secs(10),
        );
        core.health.live("watches", move || watches.check(limit));
        Ok(())
    }

    /// Waits until there is a namespace to work in: who knows nothing should not lead.
    async fn known_somewhere(&self) {
        // Lists take a moment; nothing tells when one of several is whole, so ask.
        while !(self.schedules.is_known_somewhere() && self.runs.is_known_somewhere()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn control(
        &self,
        core: &Core,
        leadership: &Leadership,
        running: &mut TaskGroup,
    ) -> Result<(), Error> {
        self.schedules
            .control(core, leadership, running, &self.runs)?;
        self.runs.control(core, leadership, running)
    }
}

/// Runs a controller: `reconcile` for every key that comes due, `everything` at the beginning.
fn control<T, F>(
    running: &mut TaskGroup,
    name: &'static str,
    handle: &controller::Handle,
    everything: &Store<T>,
    reconcile: impl Fn(Key) -> F + Send + 'static,
) -> Result<(), Error>
where
    T: Cached + Send + Sync + 'static,
    F: Future<Output = controller::Next> + Send + 'static,
{
    let (all, resynced) = (everything.clone(), handle.clone());
    let resync = move || {
        for object in all.all() {
            resynced.changed(object.key(), None);
        }
    };
    let (handle, stop) = (handle.clone(), running.token());
    running.spawn(name, async move {
        controller::run(handle, stop, reconcile, resync).await;
        Ok::<_, Infallible>(())
    })?;
    Ok(())
}
