//! In: a folder with `tls.crt`, `tls.key` and `ca.crt`, as a Secret is mounted. Out: the newest usable identity.
//! Reads those three files, again and again.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Identity, IdentityReceiver};
use crate::metrics::Metrics;
use crate::telemetry::chain;

/// How often the files are looked at. The kubelet refreshes them about once a minute.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// Follows the files in a folder: a usable set takes the place of the old one, any other set changes nothing.
///
/// It compares contents, because a mounted Secret changes by a symbolic link two levels up.
pub struct Reloader {
    folder: PathBuf,
    interval: Duration,
    seen: Option<Result<Files, Unreadable>>,
    identity: watch::Sender<Option<Arc<Identity>>>,
    problem: watch::Sender<Option<String>>,
    failures: Counter,
    not_after: Gauge,
}

impl Reloader {
    /// Looks into `folder` every `interval`; nothing is read yet.
    pub fn new(folder: PathBuf, interval: Duration, metrics: &Metrics) -> Self {
        let failures = Counter::default();
        let not_after = Gauge::default();
        metrics.with(|registry| {
            registry.register(
                "orrery_tls_reload_failures",
                "Sets of TLS files that could not be used",
                failures.clone(),
            );
            registry.register(
                "orrery_tls_not_after_timestamp_seconds",
                "When the certificate in use ends, 0 without one",
                not_after.clone(),
            );
        });
        Self {
            folder,
            interval,
            seen: None,
            identity: watch::Sender::new(None),
            problem: watch::Sender::new(None),
            failures,
            not_after,
        }
    }

    /// The newest identity, now and later.
    pub fn subscribe(&self) -> IdentityReceiver {
        self.identity.subscribe()
    }

    /// A readiness check: fails until there is an identity. An old one that still serves is ready.
    pub fn check(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static {
        let (identity, problem) = (self.identity.subscribe(), self.problem.subscribe());
        let folder = self.folder.clone();
        move || {
            if identity.borrow().is_some() {
                return Ok(());
            }
            let problem = problem.borrow();
            let why = problem.as_deref().unwrap_or("not read yet");
            Err(format!("no identity from {} yet: {why}", folder.display()))
        }
    }

    /// Keeps looking until `token` is cancelled.
    pub async fn run(mut self, token: CancellationToken) -> Result<(), Infallible> {
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while token.run_until_cancelled(ticks.tick()).await.is_some() {
            self.poll().await;
        }
        Ok(())
    }

    /// Looks once. What has not changed since the last look is not judged, nor logged, again.
    pub async fn poll(&mut self) {
        let found = Files::read(&self.folder).await;
        if self.seen.as_ref() == Some(&found) {
            return;
        }
        match found.as_ref().map(Files::parse) {
            Ok(Ok(identity)) => self.take(identity),
            Ok(Err(error)) => self.keep(chain(&error)),
            Err(missing) if missing.is_absent() && self.seen.is_none() => {
                info!(folder = %self.folder.display(), "waiting for TLS files");
                self.problem.send_replace(Some(missing.to_string()));
            }
            Err(unreadable) => self.keep(unreadable.to_string()),
        }
        self.seen = Some(found);
    }

    fn take(&self, identity: Identity) {
        let not_after = identity.not_after();
        self.not_after.set(not_after.as_second());
        self.identity.send_replace(Some(Arc::new(identity)));
        self.problem.send_replace(None);
        info!(%not_after, "TLS files loaded");
    }

    fn keep(&self, problem: String) {
        self.failures.inc();
        warn!(
            folder = %self.folder.display(),
            problem,
            "TLS files cannot be used, the old ones stay in use"
        );
        self.problem.send_replace(Some(problem));
    }
}

/// The three files as they were read. No `Debug`: one of them is a key.
#[derive(PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Vec<u8>,
}

impl Files {
    async fn read(folder: &Path) -> Result<Self, Unreadable> {
        Ok(Self {
            certificate: read(folder, "tls.crt").await?,
            key: read(folder, "tls.key").await?,
            authorities: read(folder, "ca.crt").await?,
        })
    }

    fn parse(&self) -> Result<Identity, super::Error> {
        Identity::from_pem(&self.certificate, &self.key, &self.authorities)
    }
}

async fn read(folder: &Path, file: &'static str) -> Result<Vec<u8>, Unreadable> {
    let read = tokio::fs::read(folder.join(file)).await;
    read.map_err(|error| Unreadable {
        file,
        kind: error.kind(),
    })
}

#[derive(PartialEq, Eq, thiserror::Error, Debug)]
#[error("failed to read {file}: {kind}")]
struct Unreadable {
    file: &'static str,
    kind: io::ErrorKind,
}

impl Unreadable {
    fn is_absent(&self) -> bool {
        self.kind == io::ErrorKind::NotFound
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;
    use crate::pki::Authority;

    struct Fixture {
        folder: TempDir,
        metrics: Metrics,
        reloader: Reloader,
    }

    fn fixture() -> Fixture {
        let folder = TempDir::new().unwrap();
        let metrics = Metrics::new();
        let path = folder.path().to_owned();
        let reloader = Reloader::new(path, RELOAD_INTERVAL, &metrics);
        Fixture {
            folder,
            metrics,
            reloader,
        }
    }

    impl Fixture {
        fn current(&self) -> Option<Arc<Identity>> {
            self.reloader.subscribe().borrow().clone()
        }

        fn failures(&self) -> u64 {
            self.reloader.failures.get()
        }
    }

    #[tokio::test]
    async fn an_empty_folder_is_not_a_failure_but_not_ready() {
        let mut fixture = fixture();
        let ready = fixture.reloader.check();
        fixture.reloader.poll().await;
        assert_eq!(fixture.failures(), 0);
        assert!(ready().unwrap_err().contains("tls.crt"));
    }

    #[tokio::test]
    async fn files_that_arrive_later_are_taken() {
        let mut fixture = fixture();
        let ready = fixture.reloader.check();
        fixture.reloader.poll().await;
        let authority = Authority::new("one");
        authority
            .server()
            .write(fixture.folder.path(), &authority.pem());
        fixture.reloader.poll().await;
        let identity = fixture.current().unwrap();
        assert_eq!(ready(), Ok(()));
        let text = fixture.metrics.render().unwrap();
        let end = identity.not_after().as_second();
        let line = format!("orrery_tls_not_after_timestamp_seconds {end}\n");
        assert!(text.contains(&line), "{text}");
    }

    #[tokio::test]
    async fn a_half_written_set_keeps_the_old_one_and_is_counted_once() {
        let mut fixture = fixture();
        let authority = Authority::new("one");
        let folder = fixture.folder.path().to_owned();
        authority.server().write(&folder, &authority.pem());
        fixture.reloader.poll().await;
        let before = fixture.current().unwrap();

        let new = authority.server();
        std::fs::write(folder.join("tls.crt"), &new.certificate).unwrap();
        fixture.reloader.poll().await;
        fixture.reloader.poll().await;
        assert!(Arc::ptr_eq(&before, &fixture.current().unwrap()));
        assert_eq!(fixture.failures(), 1);
        assert_eq!(fixture.reloader.check()(), Ok(()));

        std::fs::write(folder.join("tls.key"), &new.key).unwrap();
        fixture.reloader.poll().await;
        assert!(!Arc::ptr_eq(&before, &fixture.current().unwrap()));
        assert_eq!(fixture.failures(), 1);
    }

    #[tokio::test]
    async fn files_that_vanish_keep_the_old_identity() {
        let mut fixture = fixture();
        let authority = Authority::new("one");
        let folder = fixture.folder.path().to_owned();
        authority.server().write(&folder, &authority.pem());
        fixture.reloader.poll().await;
        std::fs::remove_file(folder.join("ca.crt")).unwrap();
        fixture.reloader.poll().await;
        assert!(fixture.current().is_some());
        assert_eq!(fixture.failures(), 1);
    }

    #[tokio::test]
    async fn unchanged_files_are_not_loaded_again() {
        let mut fixture = fixture();
        let authority = Authority::new("one");
        authority
            .server()
            .write(fixture.folder.path(), &authority.pem());
        fixture.reloader.poll().await;
        let mut receiver = fixture.reloader.subscribe();
        receiver.mark_unchanged();
        fixture.reloader.poll().await;
        assert!(!receiver.has_changed().unwrap());
    }

    #[tokio::test]
    async fn the_loop_looks_again_and_ends_when_told() {
        let Fixture {
            folder, metrics, ..
        } = fixture();
        let path = folder.path().to_owned();
        let reloader = Reloader::new(path, Duration::from_millis(5), &metrics);
        let mut receiver = reloader.subscribe();
        let token = CancellationToken::new();
        let authority = Authority::new("one");
        let arrival = async {
            authority.server().write(folder.path(), &authority.pem());
            let arrived = receiver.wait_for(Option::is_some).await.is_ok();
            token.cancel();
            arrived
        };
        let both = async { tokio::join!(reloader.run(token.clone()), arrival) };
        let (ended, arrived) = timeout(Duration::from_secs(5), both).await.unwrap();
        assert!(ended.is_ok() && arrived);
    }
}
