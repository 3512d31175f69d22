//! A ChecksumRun controller in this process against a real API server, with a clock that tests set, a connection that
//! fails when they say so, and agents that are real but for their work. The tests are the kubelet.

#[path = "../shared/caches.rs"]
mod caches;
#[path = "../shared/line.rs"]
mod line;
#[path = "../shared/told.rs"]
mod told;

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use crds::{
    checksum_run::{ChecksumRun, ChecksumRunStatus},
    condition::find,
    name::{AGENT_LABEL, AGENT_TLS_NAME, AGENT_TLS_SECRET, CHECKSUM_RUN_LABEL},
    report::checksum::{ChecksumConfig, CoordinatorReport},
};
use futures::try_join;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use operator::{
    act::{Kind, Writer},
    applied::Applied,
    checksum_run::{Context, pod::Image, reconcile, turns::Turns},
    controller::Next,
    fleet::{Fleet, FleetMetrics, Pace, Settings},
    leader::Leadership,
    object::Key,
    pki::Certificates,
    report::Reporter,
    secrets::Secrets,
    watch::{Scope, Store, child::Child, custom::Custom, pod::SlimPod},
};
use runtime::{
    clock::{Clock, ManualClock, SystemClock},
    tasks::TaskGroup,
};
use serde_json::{Value, json};
use testbed::{Access, Namespace, Shared, wait::eventually};

use super::agent::{Agent, address, port};
use caches::{caught_up, follow};
pub(crate) use line::Fault;
use line::{Line, spoiled_client};

pub(crate) const SOON: Duration = Duration::from_secs(30);

/// As in production, but in a hurry.
fn settings() -> Settings {
    Settings {
        pace: Pace {
            interval: Duration::from_millis(20),
            first_pause: Duration::from_millis(10),
            longest_pause: Duration::from_millis(40),
        },
        ..Settings::default()
    }
}

/// A controller in a namespace of its own.
pub(crate) struct World {
    /// Shared with others, if it is not the test's own.
    _kubernetes: Option<Shared>,
    pub(crate) namespace: Namespace,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) line: Line,
    client: Client,
    context: Context,
    /// Ends the watches when dropped.
    _watches: TaskGroup,
}

impl World {
    /// A controller that has just started, and a claim to read.
    pub(crate) async fn new() -> Result<Self> {
        let world = Self::without_claim().await?;
        world.claim("home").await?;
        Ok(world)
    }

    /// A controller that has just started.
    pub(crate) async fn without_claim() -> Result<Self> {
        let kubernetes = testbed::kubernetes().await?;
        Self::start(&kubernetes, Some(kubernetes.clone())).await
    }

    /// The same in a cluster that outlives it.
    pub(crate) async fn on(kubernetes: &Access) -> Result<Self> {
        Self::start(kubernetes, None).await
    }

    async fn start(kubernetes: &Access, held: Option<Shared>) -> Result<Self> {
        runtime::tls::install_crypto_provider();
        let namespace = kubernetes.namespace("run").await?;
        let client = kubernetes.client().await?;
        let line = Line::default();
        let spoiled = spoiled_client(kubernetes, &line).await?;
        // Certificates are judged by the real time.
        let clock = Arc::new(ManualClock::new(SystemClock.wall()));
        let context = context(&spoiled, clock.clone(), &namespace)?;
        let mut watches = TaskGroup::new(6);
        watch(&mut watches, &client, &namespace, &context)?;
        Ok(Self {
            _kubernetes: held,
            namespace,
            clock,
            line,
            client,
            context,
            _watches: watches,
        })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The same world after the operator was replaced: nothing is remembered.
    pub(crate) fn replace_operator(&mut self) -> Result<()> {
        let writer = self.context.writer.clone();
        let secrets = self.context.secrets.forgetful();
        let certificates = Certificates::new(
            self.namespace.to_string(),
            secrets.clone(),
            writer,
            self.clock.clone(),
        );
        let leadership = Leadership::unchallenged(self.clock.clone());
        self.context.fleet = Arc::new(fleet(&certificates, leadership)?);
        self.context.certificates = Arc::new(certificates);
        self.context.secrets = secrets;
        self.context.applied = Applied::default();
        self.context.turns = Turns::new(self.clock.clone());
        Ok(())
    }

    pub(crate) fn api<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create<K: Kind>(&self, object: Value) -> Result<K> {
        let object = serde_json::from_value(object)?;
        let params = PostParams::default();
        Ok(self.api::<K>().create(&params, &object).await?)
    }

    pub(crate) async fn claim(&self, name: &str) -> Result<()> {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        self.create::<PersistentVolumeClaim>(claim).await?;
        Ok(())
    }

    pub(crate) async fn secret(&self, name: &str, values: Value) -> Result<()> {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": values});
        self.create::<Secret>(secret).await?;
        Ok(())
    }

    /// Makes a run over the claim `home` with more fields.
    pub(crate) async fn run(&self, name: &str, fields: Value) -> Result<()> {
        let mut spec = json!({"source": {"persistentVolumeClaim": {"claimName": "home"}}});
        let all = spec.as_object_mut().context("an object")?;
        all.extend(fields.as_object().cloned().context("fields")?);
        let run = json!({"apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumRun", "metadata": {"name": name}, "spec": spec});
        self.create::<ChecksumRun>(run).await?;
        Ok(())
    }

    pub(crate) async fn edit<K: Kind>(&self, name: &str, change: Value) -> Result<()> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(&change));
        self.api::<K>().patch(name, &params, &patch).await?;
        Ok(())
    }

    pub(crate) async fn get<K: Kind>(&self, name: &str) -> Result<K> {
        Ok(self.api::<K>().get(name).await?)
    }

    pub(crate) async fn find<K: Kind>(&self, name: &str) -> Result<Option<K>> {
        Ok(self.api::<K>().get_opt(name).await?)
    }

    pub(crate) async fn delete<K: Kind>(&self, name: &str) -> Result<()> {
        let params = DeleteParams::background();
        self.api::<K>().delete(name, &params).await?;
        Ok(())
    }

    /// Names of all objects of a kind, sorted.
    pub(crate) async fn names<K: Kind>(&self) -> Result<Vec<String>> {
        let all = self.api::<K>().list(&ListParams::default()).await?;
        let mut names: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
        names.sort();
        Ok(names)
    }

    pub(crate) async fn status(&self, run: &str) -> Result<ChecksumRunStatus> {
        let run = self.get::<ChecksumRun>(run).await?;
        Ok(run.status.unwrap_or_default())
    }

    /// The value and the reason of a condition of a run.
    pub(crate) async fn condition(&self, run: &str, type_: &str) -> Result<String> {
        let status = self.status(run).await?;
        let condition = find(&status.conditions, type_);
        Ok(condition.map_or_else(String::new, |c| format!("{}/{}", c.status, c.reason)))
    }

    /// The reasons and notes of the events about an object, in no order.
    pub(crate) async fn events(&self, object: &str) -> Result<Vec<(String, String)>> {
        told::events(&self.client, &self.namespace, object).await
    }

    /// The message of the condition Ready.
    pub(crate) async fn message(&self, run: &str) -> Result<String> {
        let status = self.status(run).await?;
        let ready = find(&status.conditions, "Ready").context("Ready")?;
        Ok(ready.message.clone())
    }

    /// One pass, on caches that have caught up.
    pub(crate) async fn pass(&self, run: &str) -> Result<Next> {
        self.settle().await?;
        let key = Key {
            namespace: self.namespace.to_string(),
            name: run.into(),
        };
        Ok(reconcile(self.context.clone(), key).await)
    }

    /// Passes until one changes nothing, as watches and agents would cause them.
    pub(crate) async fn passes(&self, run: &str) -> Result<()> {
        let mut quiet = 0;
        for _ in 0..60 {
            let before = self.line.writes();
            let next = self.pass(run).await?;
            let idle = self.line.writes() == before && !matches!(next, Next::Failed { .. });
            quiet = if idle { quiet + 1 } else { 0 };
            // Agents are asked every 20 ms: what they said by then is told in the next pass.
            if quiet == 2 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        anyhow::bail!("after 60 passes there is still something to write")
    }

    /// Passes until a condition of the run is as expected.
    pub(crate) async fn until(&self, run: &str, type_: &str, expected: &str) -> Result<()> {
        eventually(&format!("{type_} {expected}"), SOON, async || {
            self.pass(run).await?;
            let told = self.condition(run, type_).await?;
            ensure!(told == expected, "{told}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until the caches hold exactly what the server has.
    async fn settle(&self) -> Result<()> {
        let (client, here, context) = (&self.client, self.namespace.name(), &self.context);
        let ours = Some(CHECKSUM_RUN_LABEL);
        eventually("caches that have caught up", SOON, async || {
            try_join!(
                caught_up::<ChecksumRun, _>(client, here, &context.runs, None),
                caught_up::<PersistentVolumeClaim, _>(client, here, &context.claims, None),
                caught_up::<ConfigMap, _>(client, here, &context.configs, ours),
                caught_up::<Job, _>(client, here, &context.jobs, ours),
                caught_up::<Deployment, _>(client, here, &context.workers, ours),
                caught_up::<Pod, _>(client, here, &context.pods, Some(AGENT_LABEL)),
            )?;
            Ok(Some(()))
        })
        .await
    }

    /// Lets the controllers of Kubernetes give up the Job of a run, whose pod has failed.
    pub(crate) async fn give_up(&self, job: &str) -> Result<()> {
        self.edit::<Job>(job, json!({"spec": {"backoffLimit": 0}}))
            .await?;
        eventually("a Job that was given up", SOON, async || {
            let status = self.get::<Job>(job).await?.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let failed = conditions.iter().any(|c| c.type_ == "Failed");
            Ok(failed.then_some(()))
        })
        .await
    }

    /// The pods of that agent, once the controllers of Kubernetes have made some.
    pub(crate) async fn pod(&self, run: &str, agent: &str) -> Result<Pod> {
        let labels = format!("{CHECKSUM_RUN_LABEL}={run},{AGENT_LABEL}={agent}");
        self.labelled_pod(&labels).await
    }

    /// Does what a kubelet does with the pod of a Job that ends well, and waits until the Job has.
    pub(crate) async fn carry_out(&self, job: &str) -> Result<()> {
        let labels = format!("batch.kubernetes.io/job-name={job}");
        let pod = self.labelled_pod(&labels).await?.name_any();
        self.tell(&pod, json!({"phase": "Succeeded"})).await?;
        eventually("a Job that is done", SOON, async || {
            let status = self.get::<Job>(job).await?.status.unwrap_or_default();
            Ok(status.completion_time.map(drop))
        })
        .await
    }

    async fn labelled_pod(&self, labels: &str) -> Result<Pod> {
        let params = ListParams::default().labels(labels);
        eventually("a pod", SOON, async || {
            let mut pods = self.api::<Pod>().list(&params).await?.items;
            pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
            pods.sort_by_key(ResourceExt::creation_timestamp);
            Ok(pods.pop())
        })
        .await
    }

    /// Does what a kubelet does with the pod of the coordinator: starts it, and says so.
    pub(crate) async fn start_coordinator(&self, run: &str) -> Result<Coordinator> {
        let (pod, agent) = self.start_agent(run, "checksum-coordinator").await?;
        Ok(Coordinator { pod, agent })
    }

    /// The same with a worker.
    pub(crate) async fn start_worker(&self, run: &str) -> Result<Agent> {
        let (_, agent) = self.start_agent(run, "checksum-worker").await?;
        Ok(agent)
    }

    async fn start_agent(&self, run: &str, agent: &str) -> Result<(String, Agent)> {
        let pod = self.pod(run, agent).await?;
        let tls = self.get::<Secret>(AGENT_TLS_SECRET).await?;
        let (address, uid) = (address(), pod.uid().unwrap_or_default());
        let agent = Agent::start(address, &uid, &tls).await?;
        let status = json!({"phase": "Running", "podIP": address.ip(),
            "containerStatuses": [container(&json!({"running": {}}))],
            "conditions": [{"type": "Ready", "status": "True"}]});
        let name = pod.name_any();
        self.tell(&name, status).await?;
        Ok((name, agent))
    }

    /// Does what a kubelet does when a container ends: takes its last words.
    pub(crate) async fn end(
        &self,
        coordinator: Coordinator,
        code: i32,
        message: &str,
    ) -> Result<()> {
        let (name, phase) = (
            coordinator.pod,
            if code == 0 { "Succeeded" } else { "Failed" },
        );
        drop(coordinator.agent);
        let state =
            json!({"terminated": {"exitCode": code, "reason": "Ended", "message": message}});
        let status = json!({"phase": phase, "containerStatuses": [container(&state)],
            "conditions": [{"type": "Ready", "status": "False"}]});
        self.tell(&name, status).await
    }

    async fn tell(&self, pod: &str, status: Value) -> Result<()> {
        let patch = json!({"status": status});
        let (params, patch) = (PatchParams::default(), Patch::Strategic(&patch));
        self.api::<Pod>().patch_status(pod, &params, &patch).await?;
        Ok(())
    }
}

fn container(state: &Value) -> Value {
    json!({"name": "checksum", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state})
}

/// A pod that leads a run, and the agent in it.
pub(crate) struct Coordinator {
    pub(crate) pod: String,
    agent: Agent,
}

impl Coordinator {
    pub(crate) fn report(&self, report: &CoordinatorReport) -> Result<()> {
        self.agent.report(serde_json::to_value(report)?);
        Ok(())
    }

    pub(crate) fn config(&self) -> Result<Option<ChecksumConfig>> {
        let config = self.agent.config().map(|document| document.spec.clone());
        Ok(config.map(serde_json::from_value).transpose()?)
    }
}

fn context(client: &Client, clock: Arc<ManualClock>, namespace: &Namespace) -> Result<Context> {
    let shared: Arc<dyn Clock> = clock;
    let leadership = Leadership::unchallenged(shared.clone());
    let scope = Scope::Namespaces(vec![namespace.to_string()]);
    let writer = Writer::new(client.clone(), leadership.clone());
    let secrets = Secrets::new(client.clone(), shared.clone());
    let certificates = Certificates::new(
        namespace.to_string(),
        secrets.clone(),
        writer.clone(),
        shared.clone(),
    );
    let fleet = fleet(&certificates, leadership.clone())?;
    Ok(Context {
        runs: Store::new(&scope),
        claims: Store::new(&scope),
        configs: Store::new(&scope),
        jobs: Store::new(&scope),
        workers: Store::new(&scope),
        pods: Store::new(&scope),
        applied: Applied::default(),
        turns: Turns::new(shared.clone()),
        secrets,
        fleet: Arc::new(fleet),
        certificates: Arc::new(certificates),
        control_port: port(),
        image: Image {
            name: "orrery:test".into(),
            pull_policy: None,
            pull_secrets: Vec::new(),
        },
        client: client.clone(),
        writer,
        reporter: Reporter::new(
            client.clone(),
            leadership,
            shared.clone(),
            "test",
            Duration::ZERO,
        ),
        clock: shared,
    })
}

/// Agents have the real time, and their clocks are compared with it.
fn fleet(certificates: &Certificates, leadership: Leadership) -> Result<Fleet> {
    Ok(Fleet::new(
        certificates.identity(),
        AGENT_TLS_NAME,
        settings(),
        Arc::new(SystemClock),
        leadership,
        FleetMetrics::default(),
    )?)
}

fn watch(
    tasks: &mut TaskGroup,
    client: &Client,
    here: &Namespace,
    context: &Context,
) -> Result<()> {
    let ours = Some(CHECKSUM_RUN_LABEL);
    follow(tasks, client, here, &context.runs, None, Custom::slim)?;
    follow(
        tasks,
        client,
        here,
        &context.claims,
        None,
        Child::slim::<PersistentVolumeClaim>,
    )?;
    follow(
        tasks,
        client,
        here,
        &context.configs,
        ours,
        Child::slim::<ConfigMap>,
    )?;
    follow(tasks, client, here, &context.jobs, ours, Child::slim::<Job>)?;
    follow(
        tasks,
        client,
        here,
        &context.workers,
        ours,
        Child::slim::<Deployment>,
    )?;
    follow(
        tasks,
        client,
        here,
        &context.pods,
        Some(AGENT_LABEL),
        SlimPod::slim,
    )
}
