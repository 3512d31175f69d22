//! The wiring: which parts there are, in which order they start and end.
//! In: arguments. Out: the reason for ending. Decides nothing else.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crds::{checksum_run::ChecksumRun, checksum_schedule::ChecksumSchedule};
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
    checksum_schedule::{
        self,
        observe::{CachedRun, CachedSchedule, Started},
    },
    client, controller, definitions,
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
    registry.with(|registry| core.metrics.register(registry));
    let mut parts = TaskGroup::new(TASKS);
    let stop = CancellationToken::new();
    let on_signal = stop.clone();
    until_end(&mut parts, "signals", async move {
        match signals.cancel(on_signal).await {}
    })?;
    parts.spawn(
        "admin",
        admin.serve(core.health.clone(), registry, parts.token()),
    )?;
    let result = core.work(&mut parts, &stop).await;
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
    metrics: Metrics,
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
            args,
            clock,
            metrics,
            watches,
            health: Health::default(),
            identity,
            client,
            config,
        })
    }

    /// Definitions, then caches, then the lease, then controllers.
    async fn work(&self, parts: &mut TaskGroup, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = self.wait_for_definitions() => {}
            failure = parts.failed() => return Err(failure.into()),
            () = stop.cancelled() => return Ok(()),
        }
        let schedules = ChecksumSchedules::new(self);
        schedules.watch(self, parts)?;
        tokio::select! {
            () = schedules.known_somewhere() => {}
            failure = parts.failed() => return Err(failure.into()),
            () = stop.cancelled() => return Ok(()),
        }
        let leadership = Leadership::new(Arc::clone(&self.clock));
        let mut election = TaskGroup::new(1);
        let mut leading = self.compete(&mut election, &leadership)?;
        let mut controllers = TaskGroup::new(TASKS);
        let result = tokio::select! {
            failure = parts.failed() => Err(failure.into()),
            failure = election.failed() => Err(failure.into()),
            result = self.lead(&mut controllers, &schedules, &leadership, &mut leading) => result,
            () = stop.cancelled() => Ok(()),
        };
        // Whoever takes over must not meet a write of ours: first the controllers, then the lease.
        drained(
            controllers
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
        let own = self.args.lease_namespace.as_deref();
        let namespace = own.unwrap_or(&self.config.default_namespace);
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
        controllers: &mut TaskGroup,
        schedules: &ChecksumSchedules,
        leadership: &Leadership,
        leading: &mut channel::Receiver<bool>,
    ) -> Result<(), Error> {
        leading.wait_for(|leads| *leads).await?;
        schedules.control(self, leadership, controllers)?;
        info!("controllers started");
        Err(controllers.failed().await.into())
    }

    /// Follows one kind in every watched namespace, into `store`.
    fn follow<K, T>(
        &self,
        parts: &mut TaskGroup,
        store: &Store<T>,
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
                labels: None,
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

/// The controller of ChecksumSchedules and what it reads.
struct ChecksumSchedules {
    schedules: Store<CachedSchedule>,
    runs: Store<CachedRun>,
    handle: controller::Handle,
}

impl ChecksumSchedules {
    fn new(core: &Core) -> Self {
        let scope = core.args.scope();
        let metrics = core.metrics.controller(checksum_schedule::NAME);
        Self {
            schedules: Store::new(&scope),
            runs: Store::new(&scope),
            handle: controller::Handle::new(Arc::clone(&core.clock), metrics),
        }
    }

    fn watch(&self, core: &Core, parts: &mut TaskGroup) -> Result<(), Error> {
        let handle = self.handle.clone();
        core.follow::<ChecksumSchedule, _>(
            parts,
            &self.schedules,
            CachedSchedule::slim,
            move |schedule| {
                handle.changed(schedule.key(), Some(&Stamp::of(schedule.meta())));
            },
        )?;
        let handle = self.handle.clone();
        core.follow::<ChecksumRun, _>(parts, &self.runs, CachedRun::slim, move |run| {
            if let Some(schedule) = run.schedule() {
                handle.changed(schedule, None);
            }
        })?;
        let (schedules, runs) = (self.schedules.clone(), self.runs.clone());
        core.health.ready("caches", move || {
            let missing = [schedules.unsynced(), runs.unsynced()].concat();
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
        while !(self.schedules.is_synced_somewhere() && self.runs.is_synced_somewhere()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn control(
        &self,
        core: &Core,
        leadership: &Leadership,
        controllers: &mut TaskGroup,
    ) -> Result<(), Error> {
        let clock = Arc::clone(&core.clock);
        let context = checksum_schedule::Context {
            schedules: self.schedules.clone(),
            runs: self.runs.clone(),
            started: Started::new(clock.clone()),
            writer: Writer::new(core.client.clone(), leadership.clone()),
            reporter: Reporter::new(
                core.client.clone(),
                leadership.clone(),
                clock.clone(),
                &core.identity,
                STATUS_INTERVAL,
            ),
            clock,
        };
        let (handle, schedules) = (self.handle.clone(), self.schedules.clone());
        let resync = move || {
            for schedule in schedules.all() {
                handle.changed(schedule.key(), None);
            }
        };
        let (handle, stop) = (self.handle.clone(), controllers.token());
        let reconcile = move |key: Key| checksum_schedule::reconcile(context.clone(), key);
        controllers.spawn("checksum schedules", async move {
            controller::run(handle, stop, reconcile, resync).await;
            Ok::<_, Infallible>(())
        })?;
        Ok(())
    }
}
