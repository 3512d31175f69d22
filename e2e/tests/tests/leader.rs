//! Three operator processes under faults: by the audit log only the leader ever writes, and somebody
//! leads again soon.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{
    history::History,
    operator::{self, LEAD_AGAIN, NAMESPACE, Replica, Settings},
    schedules,
};
use kube::Client;
use testbed::{
    Kubernetes, Part, faketime::FakeClock, proxy::Proxy, repository_crds, wait::eventually,
};
use tokio::time::sleep;

const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];

/// How soon an operator that leads takes up a request.
const PROMPT: Duration = Duration::from_secs(15);

/// A cluster with three replicas and a schedule that keeps them busy.
struct Stage {
    cluster: Kubernetes,
    client: Client,
    replicas: Vec<Replica>,
}

impl Stage {
    async fn set(name: &str, settings: impl Fn(&str) -> Settings) -> Result<Self> {
        let cluster = Kubernetes::start(repository_crds()?.named(name)).await?;
        operator::install(&cluster).await?;
        let client = cluster.client().await?;
        for name in ["busy", "asked"] {
            schedules::create(&client, NAMESPACE, &schedules::on_request(name)?).await?;
        }
        let mut replicas = Vec::new();
        for name in NAMES {
            replicas.push(Replica::start(&cluster, name, &settings(name)).await?);
        }
        let stage = Self {
            cluster,
            client,
            replicas,
        };
        stage.works("first").await?;
        Ok(stage)
    }

    /// Somebody leads and takes up a request.
    async fn works(&self, token: &str) -> Result<()> {
        schedules::ask(&self.client, NAMESPACE, "asked", token).await?;
        schedules::handled(&self.client, NAMESPACE, "asked", token, LEAD_AGAIN + PROMPT).await
    }

    async fn leader(&self, except: Option<&str>) -> Result<&Replica> {
        operator::leader(&self.client, &self.replicas, except, LEAD_AGAIN).await
    }

    /// Asks for runs until `over`, so that whoever thinks it leads has something to write.
    async fn busy(&self, over: impl Future<Output = Result<()>>) -> Result<()> {
        let ask = async {
            for n in 0u32.. {
                // The API server may be away: that is part of it.
                let _ = schedules::ask(&self.client, NAMESPACE, "busy", &format!("busy-{n}")).await;
                sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            () = ask => Ok(()),
            result = over => result,
        }
    }

    /// Nobody but the leader wrote, nothing was forbidden, and at least `leaders` have led.
    async fn end(self, leaders: usize) -> Result<()> {
        let history = History::read(&self.cluster.audit())?;
        history.only_leaders_wrote()?;
        ensure!(
            history.leaders() >= leaders,
            "only {} leaders",
            history.leaders()
        );
        drop(self.replicas);
        self.cluster.shutdown().await
    }
}

#[tokio::test]
async fn a_killed_leader_is_replaced() -> Result<()> {
    let stage = Stage::set("leader-killed", |_| Settings::default()).await?;
    stage
        .busy(async {
            let leader = stage.leader(None).await?;
            leader.process().kill().await?;
            stage.leader(Some(&leader.name)).await?;
            Ok(())
        })
        .await?;
    stage.works("after").await?;
    stage.end(2).await
}

#[tokio::test]
async fn a_leader_that_ends_in_order_hands_over_at_once() -> Result<()> {
    let stage = Stage::set("leader-ends", |_| Settings::default()).await?;
    stage
        .busy(async {
            let leader = stage.leader(None).await?;
            let status = leader.process().stop(Duration::from_secs(15)).await?;
            ensure!(status.success(), "the leader ended with {status}");
            let at_once = Duration::from_secs(3);
            operator::leader(&stage.client, &stage.replicas, Some(&leader.name), at_once).await?;
            Ok(())
        })
        .await?;
    stage.works("after").await?;
    stage.end(2).await
}

#[tokio::test]
async fn a_leader_that_stood_still_beyond_its_lease_writes_nothing_more() -> Result<()> {
    let stage = Stage::set("leader-paused", |_| Settings::default()).await?;
    let paused = stage.leader(None).await?;
    stage
        .busy(async {
            paused.process().pause().await?;
            stage.leader(Some(&paused.name)).await?;
            stage.works("meanwhile").await?;
            paused.process().resume()?;
            let status = paused.process().wait_exit(Duration::from_secs(20)).await?;
            ensure!(
                !status.success(),
                "losing the lease must show in the exit code"
            );
            Ok(())
        })
        .await?;
    let log = paused.process().log()?;
    ensure!(
        log.contains("lost the lease"),
        "the log must say why it ended"
    );
    stage.works("after").await?;
    stage.end(2).await
}

#[tokio::test]
async fn a_jump_of_the_wall_clock_changes_nothing_about_who_leads() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut clocks = Vec::new();
    for name in NAMES {
        clocks.push((name, FakeClock::new(folder.path().join(name))?));
    }
    let envs = |name: &str| {
        let clock = clocks.iter().find(|(owner, _)| *owner == name);
        let envs = clock.map(|(_, clock)| clock.envs()).into_iter().flatten();
        Settings {
            envs: envs
                .map(|(key, value)| (key.to_owned(), value.to_string_lossy().into_owned()))
                .collect(),
            ..Settings::default()
        }
    };
    let stage = Stage::set("leader-clocks", envs).await?;
    let leader = stage.leader(None).await?.name.clone();
    for (n, seconds) in [30, -60, 30].into_iter().enumerate() {
        for (name, clock) in &mut clocks {
            // Leader and standbys disagree by up to a minute.
            clock.jump(if *name == leader { seconds } else { -seconds })?;
        }
        stage.works(&format!("jump-{n}")).await?;
    }
    let term = Duration::from_secs(20);
    let a_while = async {
        sleep(term).await;
        Ok(())
    };
    stage.busy(a_while).await?;
    ensure!(
        stage.leader(None).await?.name == leader,
        "the jump moved the lease"
    );
    stage.end(1).await
}

#[tokio::test]
async fn after_an_outage_of_the_api_server_somebody_leads_again() -> Result<()> {
    let mut stage = Stage::set("leader-outage", |_| Settings::default()).await?;
    let server = stage.cluster.part(Part::ApiServer);
    server.kill().await?;
    sleep(Duration::from_mins(1)).await;
    server.start()?;
    stage.cluster.ready(Duration::from_mins(1)).await?;
    restart_the_dead(&mut stage).await?;
    stage.leader(None).await?;
    stage.works("after").await?;
    let running = stage
        .replicas
        .iter()
        .filter(|replica| replica.process().is_running());
    ensure!(running.count() == 3, "replicas died again");
    caches_are_right(&stage).await?;
    stage.end(2).await
}

/// What the kubelet does with containers that ended.
async fn restart_the_dead(stage: &mut Stage) -> Result<()> {
    for n in 0..stage.replicas.len() {
        if !stage.replicas[n].process().is_running() {
            let name = format!("{}-again", stage.replicas[n].name);
            stage.replicas[n] = Replica::start(&stage.cluster, &name, &Settings::default()).await?;
        }
    }
    Ok(())
}

/// What was made while nobody looked is seen, by every replica: each is asked once as the leader.
async fn caches_are_right(stage: &Stage) -> Result<()> {
    schedules::create(&stage.client, NAMESPACE, &schedules::on_request("new")?).await?;
    schedules::ask(&stage.client, NAMESPACE, "new", "seen").await?;
    schedules::handled(&stage.client, NAMESPACE, "new", "seen", LEAD_AGAIN + PROMPT).await
}

#[tokio::test]
async fn a_paused_etcd_costs_time_but_never_two_leaders() -> Result<()> {
    let mut stage = Stage::set("leader-etcd", |_| Settings::default()).await?;
    let etcd = stage.cluster.part(Part::Etcd);
    etcd.pause().await?;
    sleep(Duration::from_secs(25)).await;
    etcd.resume()?;
    stage.cluster.ready(Duration::from_mins(1)).await?;
    restart_the_dead(&mut stage).await?;
    stage.leader(None).await?;
    stage.works("after").await?;
    caches_are_right(&stage).await?;
    stage.end(1).await
}

#[tokio::test]
async fn dropped_and_half_open_watches_are_mended() -> Result<()> {
    let cluster = Kubernetes::start(repository_crds()?.named("leader-watches")).await?;
    operator::install(&cluster).await?;
    let client = cluster.client().await?;
    let proxy = Proxy::start(cluster.address()?).await?;
    let settings = Settings {
        url: Some(format!("https://{}", proxy.address())),
        // A dead connection is noticed a little after this.
        args: vec!["--watch-timeout-seconds".into(), "5".into()],
        ..Settings::default()
    };
    let replica = Replica::start(&cluster, "alpha", &settings).await?;
    replica.ready().await?;
    let noticed = LEAD_AGAIN + PROMPT;
    for (n, fault) in [
        Proxy::drop_existing,
        Proxy::half_open_existing,
        Proxy::drop_existing,
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("s{n}");
        fault(&proxy);
        // Made while the watch is dead: only a watch that was mended can see it.
        schedules::create(&client, NAMESPACE, &schedules::on_request(&name)?).await?;
        schedules::ask(&client, NAMESPACE, &name, "seen").await?;
        schedules::handled(&client, NAMESPACE, &name, "seen", noticed)
            .await
            .with_context(|| format!("fault {n}"))?;
    }
    eventually("a live process", PROMPT, async || {
        let (code, body) = replica.ask("/livez").await?;
        ensure!(code == 200, "{body}");
        Ok(Some(()))
    })
    .await?;
    ensure!(replica.process().is_running(), "the operator died");
    History::read(&cluster.audit())?.only_leaders_wrote()?;
    drop(replica);
    cluster.shutdown().await
}
