//! A cluster on loopback addresses: real agents in this process, and the operator's fleet.
//! Opens local ports and temporary folders, all of which end with the test.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use clap::Parser;
use crds::report::{ConfigDocument, DOCUMENT_VERSION};
use operator::{
    fleet::{
        Fleet, FleetMetrics, Pace, Pod, Roster, Settings, Subject, Summary,
        known::Cause,
        summary::{self, Contact},
    },
    leader::Leadership,
    object::Key,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use runtime::{
    clock::{Clock, SystemClock},
    shell::{Shell, ShellArgs},
    tls::Identity,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::pki::{Authority, Leaf, SERVER_NAME};

/// The longest anything may take.
const LIMIT: Duration = Duration::from_secs(20);

/// As in production, but in a hurry.
pub(crate) fn settings() -> Settings {
    Settings {
        pace: Pace {
            interval: Duration::from_millis(50),
            first_pause: Duration::from_millis(20),
            longest_pause: Duration::from_millis(100),
        },
        ..Settings::default()
    }
}

/// Addresses that nobody else has, all with the same port, and the authority that agents and operator share.
pub(crate) struct Net {
    pub(crate) authority: Authority,
    port: u16,
    /// Keeps the port from being chosen by anybody for all addresses.
    _held: TcpListener,
    given: u16,
}

impl Net {
    pub(crate) fn new() -> Self {
        let held = TcpListener::bind("127.1.0.0:0").unwrap();
        Self {
            authority: Authority::new(),
            port: held.local_addr().unwrap().port(),
            _held: held,
            given: 0,
        }
    }

    pub(crate) fn address(&mut self) -> SocketAddr {
        self.given += 1;
        let [high, low] = self.given.to_be_bytes();
        (Ipv4Addr::new(127, 1, high, low), self.port).into()
    }

    /// A pod, and the agent in it.
    pub(crate) async fn agent(&mut self, uid: &str) -> (Pod, Agent) {
        let address = self.address();
        let agent = Agent::start(address, uid, &self.authority.agent()).await;
        (pod(uid, address), agent)
    }

    pub(crate) fn roster<'a>(
        &self,
        generation: i64,
        pods: impl IntoIterator<Item = &'a Pod>,
    ) -> Roster {
        self.roster_with(generation, json!({}), pods)
    }

    pub(crate) fn roster_with<'a>(
        &self,
        generation: i64,
        spec: Value,
        pods: impl IntoIterator<Item = &'a Pod>,
    ) -> Roster {
        let config = ConfigDocument {
            version: DOCUMENT_VERSION,
            uid: "resource".into(),
            generation,
            spec,
        };
        Roster::new(config.into(), self.port, pods.into_iter().cloned())
    }

    pub(crate) fn operator(&self, settings: Settings) -> Operator {
        let clock = Arc::new(SystemClock);
        let leadership = Leadership::unchallenged(clock.clone());
        self.operator_with(settings, clock, leadership)
    }

    pub(crate) fn operator_with(
        &self,
        settings: Settings,
        clock: Arc<dyn Clock>,
        leadership: Leadership,
    ) -> Operator {
        let (identity, receiver) = watch::channel(Some(self.authority.operator().identity()));
        let (metrics, mut registry) = (FleetMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        let fleet = Fleet::new(receiver, SERVER_NAME, settings, clock, leadership, metrics);
        Operator {
            fleet: fleet.unwrap(),
            registry,
            subject: subject("one"),
            _identity: identity,
        }
    }
}

pub(crate) fn subject(name: &str) -> Subject {
    Subject {
        kind: "Test",
        key: key(name),
    }
}

fn key(name: &str) -> Key {
    Key {
        namespace: "ns".into(),
        name: name.into(),
    }
}

pub(crate) fn pod(uid: &str, address: SocketAddr) -> Pod {
    Pod {
        key: key(&format!("pod-{uid}")),
        uid: uid.into(),
        ip: Some(address.ip()),
        deleting: false,
    }
}

/// Waits until `probe` finds something.
pub(crate) async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let search = async {
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let found = timeout(LIMIT, search).await;
    found.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"))
}

/// The operator, as far as it knows agents.
pub(crate) struct Operator {
    pub(crate) fleet: Fleet,
    pub(crate) subject: Subject,
    registry: Registry,
    _identity: watch::Sender<Option<Arc<Identity>>>,
}

impl Operator {
    pub(crate) async fn round(&self, roster: &Roster) -> Summary {
        let round = self.fleet.round(&self.subject, roster);
        timeout(LIMIT, round).await.unwrap().summary
    }

    /// Makes rounds, each when the last one said, until `accept` likes what is known.
    pub(crate) async fn rounds_until(
        &self,
        roster: &Roster,
        what: &str,
        accept: impl Fn(&Summary) -> bool,
    ) -> Summary {
        self.follow(&self.subject, roster, what, accept).await
    }

    /// As [`Operator::rounds_until`], for any resource.
    pub(crate) async fn follow(
        &self,
        subject: &Subject,
        roster: &Roster,
        what: &str,
        accept: impl Fn(&Summary) -> bool,
    ) -> Summary {
        let search = async {
            loop {
                let round = self.fleet.round(subject, roster).await;
                if accept(&round.summary) {
                    return round.summary;
                }
                sleep(round.again.unwrap()).await;
            }
        };
        let found = timeout(LIMIT, search).await;
        found.unwrap_or_else(|_| {
            let draft = self.fleet.summary(subject, roster).agents_reachable();
            panic!("not within {LIMIT:?}: {what}; {}", draft.message)
        })
    }

    pub(crate) fn summary(&self, roster: &Roster) -> Summary {
        self.fleet.summary(&self.subject, roster)
    }

    /// How many requests ended with that result.
    pub(crate) fn counted(&self, result: &str) -> usize {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let prefix = format!("orrery_fleet_polls_total{{result=\"{result}\"}} ");
        let mut lines = text.lines();
        let count = lines.find_map(|line| line.strip_prefix(&prefix)).unwrap();
        count.parse().unwrap()
    }
}

/// The agent in the pod with that UID.
pub(crate) fn of<'a>(summary: &'a Summary, uid: &str) -> &'a summary::Agent {
    let mut agents = summary.agents.iter();
    agents.find(|agent| &*agent.uid == uid).unwrap()
}

pub(crate) fn cause(summary: &Summary, uid: &str) -> Option<Cause> {
    match &of(summary, uid).contact {
        Contact::Failing(failing) => Some(failing.failure.cause),
        Contact::Reachable | Contact::NotAsked | Contact::NoAddress => None,
    }
}

pub(crate) fn words(summary: &Summary, uid: &str) -> String {
    match &of(summary, uid).contact {
        Contact::Failing(failing) => failing.failure.words.clone(),
        other @ (Contact::Reachable | Contact::NotAsked | Contact::NoAddress) => {
            format!("{other:?}")
        }
    }
}

/// A real agent in this process; its ports close when it is dropped.
pub(crate) struct Agent {
    pub(crate) shell: Shell,
    _mounts: TempDir,
}

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    shell: ShellArgs,
}

impl Agent {
    pub(crate) async fn start(address: SocketAddr, uid: &str, leaf: &Leaf) -> Self {
        let mounts = TempDir::new().unwrap();
        leaf.write(mounts.path());
        let folder = mounts.path().display();
        let flags = Flags::parse_from([
            "agent".to_owned(),
            "--admin-address=127.0.0.1:0".to_owned(),
            format!("--control-address={address}"),
            format!("--tls-folder={folder}"),
            format!("--config-folder={folder}/none"),
            format!("--pod-uid={uid}"),
        ]);
        // An agent that was here a moment ago may not have let go of the port yet.
        let shell = eventually("agent starts", async || {
            Shell::start("test-agent", &flags.shell, validate)
                .await
                .ok()
        })
        .await;
        Self {
            shell,
            _mounts: mounts,
        }
    }

    /// The generation it works by.
    pub(crate) fn generation(&self) -> Option<i64> {
        let config = self.shell.config();
        let config = config.borrow();
        config.as_ref().map(|config| config.generation)
    }

    /// How many configurations it refused.
    pub(crate) fn refusals(&self) -> usize {
        let text = self.shell.metrics().render().unwrap();
        let mut lines = text.lines();
        let count = lines.find_map(|line| line.strip_prefix("orrery_config_errors_total "));
        count.unwrap().parse().unwrap()
    }
}

fn validate(document: &ConfigDocument) -> Result<(), String> {
    let is_bad = document.spec == "bad";
    (!is_bad).then_some(()).ok_or_else(|| "spec is bad".into())
}
