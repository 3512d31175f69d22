//! In: a cluster. Out: one replica of the operator with its proxy and its clock, to be broken and mended.
//! Touches: its process, its connections, its clock.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::operator::{Replica, Settings};
use testbed::{Access, faketime::FakeClock, process::Signal, proxy::Proxy};
use tokio::time::timeout;

/// How long a replica may take to end when it is told to.
const ENDING: Duration = Duration::from_secs(20);

/// For an answer on the admin port of a replica that is well.
const ANSWER: Duration = Duration::from_secs(2);

/// One replica, reborn under a new name whenever it ended.
#[derive(Debug)]
pub(super) struct Member {
    name: &'static str,
    births: u32,
    replica: Replica,
    proxy: Proxy,
    clock: FakeClock,
    fate: Fate,
    silent: bool,
}

/// What we did to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Nothing that ends it.
    Lives,
    /// SIGKILL.
    Killed,
    /// SIGTERM.
    Told,
}

impl Member {
    pub(super) async fn start(cluster: &Access, name: &'static str) -> Result<Self> {
        let proxy = Proxy::start(cluster.address()?).await?;
        let (replica, clock) = born(cluster, &format!("{name}-1"), &proxy).await?;
        Ok(Self {
            name,
            births: 1,
            replica,
            proxy,
            clock,
            fate: Fate::Lives,
            silent: false,
        })
    }

    /// The beginning of the identity by which this very process holds the lease.
    pub(super) fn identity(&self) -> String {
        format!("{}_", self.replica.name)
    }

    pub(super) fn is_running(&self) -> bool {
        self.replica.process().is_running()
    }

    /// SIGKILL. That it ended before is fine, here and below.
    pub(super) async fn kill(&mut self) -> Result<()> {
        if self.is_running() {
            self.fate = Fate::Killed;
            self.replica.process().kill().await?;
        }
        Ok(())
    }

    /// SIGTERM; does not wait.
    pub(super) fn terminate(&mut self) {
        if self.replica.process().signal(Signal::SIGTERM).is_ok() {
            self.fate = Fate::Told;
        }
    }

    /// SIGSTOP.
    pub(super) async fn pause(&self) -> Result<()> {
        match self.replica.process().pause().await {
            Err(error) if self.is_running() => Err(error),
            _ => Ok(()),
        }
    }

    /// Its connections are reset, also new ones.
    pub(super) fn cut(&self) {
        self.proxy.cut();
    }

    /// Its connections, also new ones, carry nothing.
    pub(super) fn silence(&mut self) {
        self.proxy.half_open();
        self.silent = true;
    }

    /// Its connections carry everything late.
    pub(super) fn delay(&self, delay: Duration) {
        self.proxy.delay(delay);
    }

    /// From now on its wall clock is so many seconds off.
    pub(super) fn set_clock(&mut self, off: i64) -> Result<()> {
        self.clock.jump(off - self.clock.offset())
    }

    /// Lets its process and its connections go on; what a silent connection holds is lost with it.
    pub(super) fn mend(&mut self) {
        if std::mem::take(&mut self.silent) {
            self.proxy.drop_existing();
        } else {
            self.proxy.pass();
        }
        // It may have ended.
        let _ = self.replica.process().resume();
    }

    /// Whether it is a process that is to live, and says that it is ready.
    pub(super) async fn is_ready(&self) -> bool {
        let ready = timeout(ANSWER, self.replica.ask("/readyz")).await;
        self.fate == Fate::Lives && matches!(ready, Ok(Ok((200, _))))
    }

    /// What the kubelet does with a container that ended.
    pub(super) async fn be_born_again(&mut self, cluster: &Access) -> Result<()> {
        self.births += 1;
        let name = format!("{}-{}", self.name, self.births);
        (self.replica, self.clock) = born(cluster, &name, &self.proxy).await?;
        self.fate = Fate::Lives;
        Ok(())
    }

    /// Ends it in order, and looks at how it ended.
    pub(super) async fn end(&mut self) -> Result<()> {
        self.terminate();
        self.ended_well().await
    }

    /// Whether a process that ends did so as it should.
    pub(super) async fn ended_well(&self) -> Result<()> {
        let (name, process) = (&self.replica.name, self.replica.process());
        let status = process.wait_exit(ENDING).await?;
        let log = process.log()?;
        let words = log.lines().next_back().unwrap_or_default();
        ensure!(!log.contains("panicked"), "{name} panicked: {words}");
        let lost = log.contains("lost the lease");
        let expected = match self.fate {
            Fate::Killed => true,
            Fate::Told => status.success() || lost,
            Fate::Lives => lost,
        };
        ensure!(
            expected,
            "{name} ({:?}) ended with {status}: {words}",
            self.fate
        );
        Ok(())
    }
}

/// A process with a clock that is right.
async fn born(cluster: &Access, name: &str, proxy: &Proxy) -> Result<(Replica, FakeClock)> {
    let clock = FakeClock::new(cluster.folder().join(format!("{name}.clock")))?;
    let envs = clock.envs().map(|(key, value)| {
        let value = value.into_string();
        value.map(|value| (key.to_owned(), value)).ok()
    });
    let envs: Option<Vec<_>> = envs.into_iter().collect();
    let settings = Settings {
        url: Some(format!("https://{}", proxy.address())),
        envs: envs.context("a path that is not UTF-8")?,
        ..Settings::default()
    };
    Ok((Replica::start(cluster, name, &settings).await?, clock))
}
