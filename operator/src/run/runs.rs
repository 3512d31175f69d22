//! The controller of `ChecksumRun` and what it reads.

use std::sync::Arc;

use crds::{
    checksum_run::ChecksumRun,
    name::{AGENT_LABEL, AGENT_TLS_NAME, CHECKSUM_RUN_LABEL},
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolumeClaim},
};
use prometheus_client::registry::Registry;
use runtime::tasks::TaskGroup;

use super::{Core, Error, control, schedules::ChecksumSchedules};
use crate::{
    applied::Applied,
    checksum_run::{self, metrics::RunMetrics, pod::CONTROL_PORT, turns::Turns},
    checksum_schedule::observe::{CachedRun, schedule_of},
    controller,
    fleet::{Fleet, Settings},
    leader::Leadership,
    object::Key,
    pki::Certificates,
    requeue::Stamp,
    secrets::Secrets,
    watch::{
        Cached, Store,
        child::{Child, ClaimState, ConfigState, JobState, WorkersState},
        pod::{SlimPod, WirePod},
    },
};

pub(super) struct ChecksumRuns {
    pub(super) runs: Store<CachedRun>,
    claims: Store<Child<ClaimState>>,
    configs: Store<Child<ConfigState>>,
    jobs: Store<Child<JobState>>,
    workers: Store<Child<WorkersState>>,
    pods: Store<SlimPod>,
    handle: controller::Handle,
}

impl ChecksumRuns {
    pub(super) fn new(core: &Core) -> Self {
        let scope = core.args.scope();
        let metrics = core.metrics.controller(checksum_run::NAME);
        Self {
            runs: Store::new(&scope),
            claims: Store::new(&scope),
            configs: Store::new(&scope),
            jobs: Store::new(&scope),
            workers: Store::new(&scope),
            pods: Store::new(&scope),
            handle: controller::Handle::new(Arc::clone(&core.clock), metrics),
        }
    }

    /// One watch of runs serves both controllers.
    pub(super) fn watch(
        &self,
        core: &Core,
        parts: &mut TaskGroup,
        schedules: &ChecksumSchedules,
    ) -> Result<(), Error> {
        let (handle, schedules) = (self.handle.clone(), schedules.handle.clone());
        let tell_schedule = move |run: &CachedRun| {
            if let Some(schedule) = schedule_of(run.meta()) {
                schedules.changed(schedule, None);
            }
        };
        self.runs.tell_others(tell_schedule.clone());
        core.follow::<ChecksumRun, _>(parts, &self.runs, None, CachedRun::slim, move |run| {
            handle.changed(run.key(), Some(&Stamp::of(run.meta())));
            tell_schedule(run);
        })?;
        self.watch_children(core, parts)?;
        // Nobody waits for a claim for long: who does looks again.
        core.follow::<PersistentVolumeClaim, _>(parts, &self.claims, None, Child::slim, |_| {})
    }

    /// Only objects with our labels are cached.
    fn watch_children(&self, core: &Core, parts: &mut TaskGroup) -> Result<(), Error> {
        let ours = Some(CHECKSUM_RUN_LABEL);
        let changed = self.changed();
        core.follow::<ConfigMap, _>(parts, &self.configs, ours, Child::slim, move |child| {
            changed(child.run());
        })?;
        let changed = self.changed();
        core.follow::<Job, _>(parts, &self.jobs, ours, Child::slim, move |child| {
            changed(child.run());
        })?;
        let changed = self.changed();
        core.follow::<Deployment, _>(parts, &self.workers, ours, Child::slim, move |child| {
            changed(child.run());
        })?;
        let (changed, agents) = (self.changed(), Some(AGENT_LABEL));
        core.follow::<WirePod, _>(parts, &self.pods, agents, SlimPod::slim, move |pod| {
            changed(pod.run.as_deref().map(|run| Key {
                namespace: pod.key.namespace.clone(),
                name: run.into(),
            }));
        })
    }

    fn changed(&self) -> impl Fn(Option<Key>) + Clone + Send + 'static {
        let handle = self.handle.clone();
        move |run| {
            if let Some(run) = run {
                handle.changed(run, None);
            }
        }
    }

    /// Tells of the runs in metrics.
    pub(super) fn register(&self, registry: &mut Registry) {
        RunMetrics::register(self.runs.clone(), registry);
    }

    pub(super) fn unsynced(&self) -> impl Fn() -> Vec<String> + Send + Sync + 'static {
        let (runs, claims, configs) =
            (self.runs.clone(), self.claims.clone(), self.configs.clone());
        let (jobs, workers, pods) = (self.jobs.clone(), self.workers.clone(), self.pods.clone());
        move || {
            [
                runs.unsynced(),
                claims.unsynced(),
                configs.unsynced(),
                jobs.unsynced(),
                workers.unsynced(),
                pods.unsynced(),
            ]
            .concat()
        }
    }

    pub(super) fn is_known_somewhere(&self) -> bool {
        self.runs.is_synced_somewhere()
    }

    pub(super) fn control(
        &self,
        core: &Core,
        leadership: &Leadership,
        running: &mut TaskGroup,
    ) -> Result<(), Error> {
        let context = self.context(core, leadership)?;
        let reconcile = move |key: Key| checksum_run::reconcile(context.clone(), key);
        control(
            running,
            "checksum runs",
            &self.handle,
            &self.runs,
            reconcile,
        )
    }

    fn context(
        &self,
        core: &Core,
        leadership: &Leadership,
    ) -> Result<checksum_run::Context, Error> {
        let clock = Arc::clone(&core.clock);
        let secrets = Secrets::new(core.client.clone(), clock.clone());
        let certificates = Certificates::new(
            core.own_namespace().into(),
            secrets.clone(),
            core.writer(leadership),
            clock.clone(),
        );
        let fleet = Fleet::new(
            certificates.identity(),
            AGENT_TLS_NAME,
            Settings::default(),
            clock.clone(),
            leadership.clone(),
            core.fleet_metrics.clone(),
        )?;
        Ok(checksum_run::Context {
            runs: self.runs.clone(),
            claims: self.claims.clone(),
            configs: self.configs.clone(),
            jobs: self.jobs.clone(),
            workers: self.workers.clone(),
            pods: self.pods.clone(),
            applied: Applied::default(),
            turns: Turns::new(clock.clone()),
            secrets,
            certificates: Arc::new(certificates),
            fleet: Arc::new(fleet),
            control_port: CONTROL_PORT,
            image: core.image.clone(),
            client: core.client.clone(),
            writer: core.writer(leadership),
            reporter: core.reporter(leadership),
            clock,
        })
    }
}
