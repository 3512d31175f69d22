//! In: flags, a name, and the agent's own check of its configuration. Out: everything an agent runs in.
//! Opens the ports, reads the mounted folders, and ends the process's tasks in order.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crds::report::ConfigDocument;
use jiff::SignedDuration;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::admin::{Admin, AdminArgs, BindError, Health};
use crate::clock::{Clock, SystemClock};
use crate::config::{ConfigFile, ConfigReceiver, ConfigStore};
use crate::control::{Control, Subject};
use crate::metrics::Metrics;
use crate::shutdown::Signals;
use crate::tasks::{Drained, Failure, Full, TaskGroup};
use crate::telemetry::{TelemetryArgs, chain};
use crate::tls::Reloader;

/// How many tasks an agent's own code may start in the shell's group.
const MEMBERS: usize = 32;

/// The shell's own: admin port, control port, TLS files, configuration file.
const SERVERS: usize = 5;

/// The last part of the drain time-out, in which the ports finish what they are answering.
const CLOSING: Duration = Duration::from_millis(500);

/// The flags every agent has.
#[derive(Clone, Debug, clap::Args)]
pub struct ShellArgs {
    /// How to log.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,

    /// Where the plain port is.
    #[command(flatten)]
    pub admin: AdminArgs,

    /// Where /status and /config are served to the operator, with mutual TLS
    #[arg(
        long,
        env = "ORRERY_CONTROL_ADDRESS",
        default_value = "0.0.0.0:8444",
        value_name = "IP:PORT"
    )]
    pub control_address: SocketAddr,

    /// The folder where the ConfigMap with config.json is mounted
    #[arg(
        long,
        env = "ORRERY_CONFIG_FOLDER",
        default_value = "/etc/orrery/config"
    )]
    pub config_folder: PathBuf,

    /// The folder where the Secret with tls.crt, tls.key and ca.crt is mounted
    #[arg(long, env = "ORRERY_TLS_FOLDER", default_value = "/etc/orrery/tls")]
    pub tls_folder: PathBuf,

    /// The UID of the pod this runs in, from the downward API
    #[arg(long, env = "ORRERY_POD_UID", value_name = "UID")]
    pub pod_uid: String,

    /// How long tasks may take to end; less than the pod's grace period
    #[arg(long, env = "ORRERY_DRAIN_TIMEOUT", default_value = "20s", value_parser = duration)]
    pub drain_timeout: Duration,

    /// How often the mounted configuration is looked at
    #[arg(long, env = "ORRERY_CONFIG_POLL", default_value = "2s", value_parser = interval, hide = true)]
    pub config_poll: Duration,

    /// How often the TLS files are looked at
    #[arg(long, env = "ORRERY_TLS_POLL", default_value = "10s", value_parser = interval, hide = true)]
    pub tls_poll: Duration,
}

/// Reads durations such as `20s` or `1m 30s`; for use as a clap `value_parser`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: SignedDuration = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from(parsed).map_err(|_| "must not be negative".into())
}

fn interval(text: &str) -> Result<Duration, String> {
    let parsed = duration(text)?;
    let is_positive = parsed > Duration::ZERO;
    is_positive
        .then_some(parsed)
        .ok_or_else(|| "must not be zero".into())
}

/// Why an agent could not start, or ended before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The signal handlers could not be installed.
    #[error("failed to install signal handlers")]
    Signals(#[source] std::io::Error),
    /// A port could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// More tasks than the group holds.
    #[error(transparent)]
    Full(#[from] Full),
    /// A task died.
    #[error(transparent)]
    Died(#[from] Failure),
    /// Tasks were still busy when the drain time-out was over.
    #[error("failed to end in time: cut off {}", .0.join(", "))]
    CutOff(Vec<&'static str>),
}

/// What an agent runs in. Nothing of the agent's own has started yet; the ports are open and the folders are watched.
#[derive(Debug)]
pub struct Shell {
    admin_address: SocketAddr,
    control_address: SocketAddr,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    health: Health,
    config: ConfigReceiver,
    detail: Detail,
    members: TaskGroup,
    servers: TaskGroup,
    drain_timeout: Duration,
}

impl Shell {
    /// Opens the ports, reads the mounted folders once, and starts to serve and to watch.
    ///
    /// `validate` has the last word on each configuration that is well-formed and new; its message reaches people.
    pub async fn start<V>(name: &'static str, args: &ShellArgs, validate: V) -> Result<Self, Error>
    where
        V: Fn(&ConfigDocument) -> Result<(), String> + Send + Sync + 'static,
    {
        let signals = Signals::install().map_err(Error::Signals)?;
        let admin = Admin::bind(&args.admin).await?;
        let control = Control::bind(args.control_address).await?;
        let metrics = Metrics::new();
        let health = Health::default();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let config = Arc::new(ConfigStore::new(&metrics, validate));
        let detail = watch::Sender::new(Value::Null);
        let members = TaskGroup::new(MEMBERS);

        let mut file = ConfigFile::new(&args.config_folder, args.config_poll, config.clone());
        file.poll().await;
        let mut tls = Reloader::new(args.tls_folder.clone(), args.tls_poll, &metrics);
        tls.poll().await;
        check_readiness(&health, &config, &tls, members.token());

        let subject = Arc::new(Subject {
            agent: name,
            pod_uid: args.pod_uid.clone(),
            clock: clock.clone(),
            config: config.clone(),
            detail: detail.subscribe(),
            draining: members.token(),
        });
        let mut servers = TaskGroup::new(SERVERS);
        let token = servers.token();
        let addresses = (admin.address(), control.address());
        let admin = admin.serve(health.clone(), metrics.clone(), token.clone());
        let control = control.serve(subject, tls.subscribe(), metrics.clone(), token.clone());
        servers.spawn("admin port", admin)?;
        servers.spawn("control port", control)?;
        servers.spawn("TLS files", tls.run(token.clone()))?;
        servers.spawn("configuration file", file.run(token.clone()))?;
        let stop = members.token();
        servers.spawn("signals", async move {
            // Heard from the beginning: an agent may take its time before it waits for the end.
            token.run_until_cancelled(signals.cancel(stop)).await;
            Ok::<_, Infallible>(())
        })?;
        Ok(Self {
            admin_address: addresses.0,
            control_address: addresses.1,
            clock,
            metrics,
            health,
            config: config.subscribe(),
            detail: Detail(Arc::new(detail)),
            members,
            servers,
            drain_timeout: args.drain_timeout,
        })
    }

    /// The plain port's address.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// The control port's address.
    pub fn control_address(&self) -> SocketAddr {
        self.control_address
    }

    /// The clock to read.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// Where to register metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Where to register health checks.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// The configuration in force, now and later. One that is already in force counts as a change.
    pub fn config(&self) -> ConfigReceiver {
        let mut config = self.config.clone();
        let is_configured = config.borrow().is_some();
        if is_configured {
            config.mark_changed();
        }
        config
    }

    /// Sets what `/status` says about the agent's own work.
    pub fn detail(&self) -> Detail {
        self.detail.clone()
    }

    /// Cancelled when the agent should finish what it began, and end.
    pub fn token(&self) -> CancellationToken {
        self.members.token()
    }

    /// Starts a task of the agent's own. It should run until [`Shell::token`] is cancelled; if it ends before, the process does.
    pub fn spawn<F, E>(&mut self, name: &'static str, task: F) -> Result<(), Full>
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.members.spawn(name, task)
    }

    /// Waits for SIGTERM or SIGINT, then drains. An error if a task died, or was cut off by the drain time-out.
    pub async fn run_until_shutdown(self) -> Result<(), Error> {
        let Self {
            members,
            servers,
            clock,
            drain_timeout,
            ..
        } = self;
        let stop = members.token();
        supervise(members, servers, stop, &*clock, drain_timeout).await
    }
}

/// What `/status` says about the agent's own work, shared by cloning. Only the newest is kept.
#[derive(Clone, Debug)]
pub struct Detail(Arc<watch::Sender<Value>>);

impl Detail {
    /// Replaces it. It is read by the operator and must not contain a credential.
    pub fn set(&self, detail: Value) {
        self.0.send_replace(detail);
    }
}

fn check_readiness(
    health: &Health,
    config: &Arc<ConfigStore>,
    tls: &Reloader,
    draining: CancellationToken,
) {
    health.ready("shutdown", move || {
        let is_draining = draining.is_cancelled();
        (!is_draining)
            .then_some(())
            .ok_or_else(|| "draining".into())
    });
    health.ready("tls", tls.check());
    let config = config.clone();
    health.ready("config", move || {
        let configured = config.current().map(drop);
        let refused = || config.error().map(|error| format!(": {error}"));
        configured.ok_or_else(|| format!("waiting for one{}", refused().unwrap_or_default()))
    });
}

/// Runs until told to stop or a task dies; then the agent's tasks end, and the ports after them, so that the drain can be watched.
async fn supervise(
    mut members: TaskGroup,
    mut servers: TaskGroup,
    stop: CancellationToken,
    clock: &dyn Clock,
    drain_timeout: Duration,
) -> Result<(), Error> {
    let death = tokio::select! {
        failure = members.failed() => Some(failure),
        failure = servers.failed() => Some(failure),
        () = stop.cancelled() => None,
    };
    if let Some(failure) = &death {
        error!(error = chain(failure), "task died, ending the process");
    }
    let deadline = clock.monotonic() + drain_timeout;
    let drained = members
        .shutdown(deadline - CLOSING.min(drain_timeout))
        .await;
    // What a port is still answering is no reason to fail.
    servers.shutdown(deadline).await;
    outcome(death, drained)
}

/// The first thing that went wrong; the others are logged.
fn outcome(death: Option<Failure>, drained: Drained) -> Result<(), Error> {
    let Drained { failures, aborted } = drained;
    for failure in &failures {
        error!(error = chain(failure), "task failed to drain");
    }
    if let Some(failure) = death.into_iter().chain(failures).next() {
        return Err(failure.into());
    }
    if !aborted.is_empty() {
        return Err(Error::CutOff(aborted));
    }
    info!("drained");
    Ok(())
}

#[cfg(test)]
mod tests;
