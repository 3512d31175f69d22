//! A ChecksumSchedule controller in this process against a real API server, with a clock that tests
//! set and a connection that fails when they say so.

#[path = "../shared/caches.rs"]
mod caches;
#[path = "../shared/line.rs"]
#[expect(dead_code, reason = "shared with other tests, which use the rest")]
mod line;
#[path = "../shared/told.rs"]
mod told;

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use crds::{checksum_run::ChecksumRun, checksum_schedule::ChecksumSchedule};
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use operator::{
    act::Writer,
    checksum_schedule::{
        Context,
        observe::{CachedRun, CachedSchedule, Started},
        reconcile,
    },
    controller::Next,
    leader::Leadership,
    object::Key,
    report::Reporter,
    watch::{Scope, Store},
};
use runtime::{
    clock::{Clock, ManualClock},
    tasks::TaskGroup,
};
use serde_json::{Value, json};
use testbed::{Namespace, Shared, wait::eventually};

use caches::{caught_up, follow};
pub(crate) use line::Fault;
use line::{Line, spoiled_client};

const SOON: Duration = Duration::from_secs(20);

/// A controller in a namespace of its own.
pub(crate) struct World {
    _kubernetes: Shared,
    pub(crate) namespace: Namespace,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) line: Line,
    client: Client,
    context: Context,
    /// Ends the watches when dropped.
    _watches: TaskGroup,
}

impl World {
    pub(crate) async fn new(now: &str) -> Result<Self> {
        runtime::tls::install_crypto_provider();
        let kubernetes = testbed::kubernetes().await?;
        let namespace = kubernetes.namespace("schedule").await?;
        let client = kubernetes.client().await?;
        let line = Line::default();
        let spoiled = spoiled_client(&kubernetes, &line).await?;
        let clock = Arc::new(ManualClock::new(now.parse()?));
        let shared: Arc<dyn Clock> = clock.clone();
        let leadership = Leadership::unchallenged(shared.clone());
        let scope = Scope::Namespaces(vec![namespace.to_string()]);
        let context = Context {
            schedules: Store::new(&scope),
            runs: Store::new(&scope),
            started: Started::new(shared.clone()),
            writer: Writer::new(spoiled.clone(), leadership.clone()),
            reporter: Reporter::new(spoiled, leadership, shared, "test", Duration::ZERO),
            clock: clock.clone(),
        };
        let mut watches = TaskGroup::new(2);
        follow(
            &mut watches,
            &client,
            &namespace,
            &context.schedules,
            None,
            CachedSchedule::slim,
        )?;
        follow(
            &mut watches,
            &client,
            &namespace,
            &context.runs,
            None,
            CachedRun::slim,
        )?;
        Ok(Self {
            _kubernetes: kubernetes,
            namespace,
            clock,
            line,
            client,
            context,
            _watches: watches,
        })
    }

    pub(crate) fn schedules(&self) -> Api<ChecksumSchedule> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn runs(&self) -> Api<ChecksumRun> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes a schedule from the given spec, completed by a template.
    pub(crate) async fn schedule(&self, name: &str, mut spec: Value) -> Result<()> {
        let fields = spec.as_object_mut().context("a spec is an object")?;
        let template =
            json!({"spec": {"source": {"persistentVolumeClaim": {"claimName": "home"}}}});
        fields.entry("template").or_insert(template);
        let object = json!({"metadata": {"name": name}, "apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumSchedule", "spec": spec});
        let object = serde_json::from_value(object)?;
        self.schedules()
            .create(&PostParams::default(), &object)
            .await?;
        Ok(())
    }

    pub(crate) fn now(&self, now: &str) -> Result<()> {
        self.clock.set(now.parse()?);
        Ok(())
    }

    /// One pass, on caches that have caught up.
    pub(crate) async fn pass(&self, name: &str) -> Result<Next> {
        self.settle().await?;
        let key = Key {
            namespace: self.namespace.to_string(),
            name: name.into(),
        };
        Ok(reconcile(self.context.clone(), key).await)
    }

    /// Passes until one changes nothing, as the watch would cause them.
    pub(crate) async fn passes(&self, name: &str) -> Result<()> {
        for _ in 0..20 {
            let before = self.line.writes();
            let next = self.pass(name).await?;
            if self.line.writes() == before && !matches!(next, Next::Failed { .. }) {
                return Ok(());
            }
        }
        anyhow::bail!("after 20 passes there is still something to write")
    }

    /// Waits until the caches hold exactly what the server has.
    async fn settle(&self) -> Result<()> {
        let (client, context) = (&self.client, &self.context);
        eventually("caches that have caught up", SOON, async || {
            caught_up::<ChecksumSchedule, _>(client, &self.namespace, &context.schedules, None)
                .await?;
            caught_up::<ChecksumRun, _>(client, &self.namespace, &context.runs, None).await?;
            Ok(Some(()))
        })
        .await
    }

    pub(crate) async fn get(&self, name: &str) -> Result<ChecksumSchedule> {
        Ok(self.schedules().get(name).await?)
    }

    /// Names of the runs, sorted.
    pub(crate) async fn run_names(&self) -> Result<Vec<String>> {
        let runs = self.runs().list(&ListParams::default()).await?;
        let mut names: Vec<_> = runs.iter().map(ResourceExt::name_any).collect();
        names.sort();
        Ok(names)
    }

    /// Ends a run as its controller would.
    pub(crate) async fn end(&self, run: &str, result: &str) -> Result<()> {
        let now = crds::condition::whole_seconds(self.clock.wall());
        let status = json!({"status": {
            "observedGeneration": 1,
            "completionTime": now,
            "conditions": [
                {"type": "Complete", "status": "True", "reason": result, "message": "", "lastTransitionTime": now},
                {"type": "Ready", "status": if result == "Verified" {"True"} else {"False"}, "reason": result, "message": "", "lastTransitionTime": now},
            ],
        }});
        self.runs()
            .patch_status(run, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        Ok(())
    }

    /// The reasons and notes of the events about a schedule, in no order.
    pub(crate) async fn events(&self, schedule: &str) -> Result<Vec<(String, String)>> {
        told::events(&self.client, &self.namespace, schedule).await
    }

    pub(crate) async fn edit(&self, schedule: &str, change: Value) -> Result<()> {
        self.schedules()
            .patch(schedule, &PatchParams::default(), &Patch::Merge(&change))
            .await?;
        Ok(())
    }

    /// Changes the status of a schedule, whether we can read it then or not.
    pub(crate) async fn tell(&self, schedule: &str, status: Value) -> Result<()> {
        let kind = ApiResource::erase::<ChecksumSchedule>(&());
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &kind);
        let (params, patch) = (PatchParams::default(), json!({"status": status}));
        api.patch_status(schedule, &params, &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    pub(crate) async fn delete_run(&self, name: &str) -> Result<()> {
        self.runs().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// The reason of Ready.
pub(crate) fn reason(schedule: &ChecksumSchedule) -> String {
    let conditions = schedule
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    crds::condition::find(&conditions, "Ready")
        .map_or_else(String::new, |ready| ready.reason.clone())
}

pub(crate) fn at(text: &str) -> Result<Timestamp> {
    Ok(text.parse()?)
}
