//! In: actions. Out: a control plane and replicas that are broken, then mended.
//! Touches: their processes, connections and clocks.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use e2e::{operator, operator::NAMESPACE, schedules};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, ResourceExt};
use testbed::{Kubernetes, Part, repository_crds};
use tokio::time::{sleep, timeout};

use super::{
    ENDS_WELL,
    member::Member,
    plan::{Action, Role},
};
use crate::journal::Journal;

const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];

/// The schedule that is asked once per round.
pub(super) const PROBE: &str = "probe";

/// For the API server to be ready again, and for all replicas.
const MENDING: Duration = Duration::from_mins(1);

/// The pause between two looks at replicas or at the lease.
const LOOK: Duration = Duration::from_millis(100);

/// For one request.
const ANSWER: Duration = Duration::from_secs(5);

/// Three replicas on a control plane of their own.
pub(super) struct Stage<'a> {
    members: Vec<Member>,
    /// Who led when the round began, and the others.
    roles: [usize; 3],
    client: Client,
    cluster: Kubernetes,
    journal: &'a Journal,
}

impl<'a> Stage<'a> {
    pub(super) async fn set(journal: &'a Journal) -> Result<Self> {
        let cluster = Kubernetes::start(repository_crds()?.named("soak-leader")).await?;
        operator::install(&cluster).await?;
        let client = cluster.client().await?;
        schedules::create(&client, NAMESPACE, &schedules::on_request(PROBE)?).await?;
        let mut members = Vec::new();
        for name in NAMES {
            members.push(Member::start(&cluster, name).await?);
        }
        let mut stage = Self {
            members,
            roles: [0, 1, 2],
            client,
            cluster,
            journal,
        };
        stage.all_ready().await?;
        Ok(stage)
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(super) fn cluster(&self) -> &Kubernetes {
        &self.cluster
    }

    /// Breaks something.
    pub(super) async fn act(&mut self, action: Action) -> Result<()> {
        match action {
            Action::Kill(role) => self.member(role).kill().await?,
            Action::Terminate(role) => self.member(role).terminate(),
            Action::Pause(role) => self.member(role).pause().await?,
            Action::Cut(role) => self.member(role).cut(),
            Action::HalfOpen(role) => self.member(role).silence(),
            Action::Delay(role, delay) => self.member(role).delay(delay),
            Action::Jump(role, off) => self.member(role).set_clock(off)?,
            Action::KillApiServer => self.cluster.part(Part::ApiServer).kill().await?,
            Action::PauseEtcd => self.cluster.part(Part::Etcd).pause().await?,
        }
        Ok(())
    }

    /// Mends everything, and waits until every replica is ready; clocks stay as they are.
    pub(super) async fn mend(&mut self) -> Result<()> {
        for part in [Part::Etcd, Part::ApiServer, Part::ControllerManager] {
            let part = self.cluster.part(part);
            if part.is_running() {
                part.resume()?;
            } else {
                part.start()?;
            }
        }
        for member in &mut self.members {
            member.mend();
        }
        self.cluster.ready(MENDING).await?;
        self.all_ready().await
    }

    /// Waits until a process that runs has renewed the lease after this was called; whoever ends meanwhile
    /// is started again.
    pub(super) async fn leads_again(&mut self, within: Duration) -> Result<()> {
        let before = self.lease().await?.and_then(|it| it.resource_version());
        let mut seen = None;
        let looking = async {
            loop {
                self.restart_the_dead().await?;
                seen = self.lease().await.ok().flatten();
                let renewed = seen.as_ref().filter(|it| it.resource_version() != before);
                if let Some(leader) = renewed.and_then(|lease| self.holder(lease)) {
                    return anyhow::Ok(leader);
                }
                sleep(LOOK).await;
            }
        };
        let Ok(leader) = timeout(within, looking).await else {
            let holder = seen.and_then(|lease| lease.spec?.holder_identity);
            bail!("nobody leads {within:?} after the faults ended; the lease names {holder:?}");
        };
        let leader = leader?;
        self.roles = [leader, (leader + 1) % 3, (leader + 2) % 3];
        Ok(())
    }

    /// Ends everything in order.
    pub(super) async fn end(mut self) -> Result<()> {
        for member in &mut self.members {
            member.end().await?;
            self.journal.held(&ENDS_WELL, 1);
        }
        drop(self.members);
        self.cluster.shutdown().await
    }

    fn member(&mut self, role: Role) -> &mut Member {
        let place = match role {
            Role::Leader => 0,
            Role::First => 1,
            Role::Second => 2,
        };
        &mut self.members[self.roles[place]]
    }

    async fn all_ready(&mut self) -> Result<()> {
        let waiting = async {
            loop {
                self.restart_the_dead().await?;
                let ready = futures::future::join_all(self.members.iter().map(Member::is_ready));
                if ready.await.into_iter().all(|ready| ready) {
                    return anyhow::Ok(());
                }
                sleep(LOOK).await;
            }
        };
        let ready = timeout(MENDING, waiting).await;
        ready.with_context(|| {
            format!("not all replicas are ready {MENDING:?} after all was mended")
        })?
    }

    async fn restart_the_dead(&mut self) -> Result<()> {
        for member in &mut self.members {
            if !member.is_running() {
                member.ended_well().await?;
                self.journal.held(&ENDS_WELL, 1);
                member.be_born_again(&self.cluster).await?;
            }
        }
        Ok(())
    }

    async fn lease(&self) -> Result<Option<Lease>> {
        let api: Api<Lease> = Api::namespaced(self.client(), NAMESPACE);
        let lease = timeout(ANSWER, api.get_opt(operator::NAME)).await;
        Ok(lease.context("no answer")??)
    }

    /// Which of the processes that run holds it.
    fn holder(&self, lease: &Lease) -> Option<usize> {
        let holder = lease.spec.as_ref()?.holder_identity.as_ref()?;
        let holds = |it: &Member| it.is_running() && holder.starts_with(&it.identity());
        self.members.iter().position(holds)
    }
}
