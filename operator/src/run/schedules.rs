//! The controller of ChecksumSchedules and what it reads.

use std::sync::Arc;

use crds::checksum_schedule::ChecksumSchedule;
use prometheus_client::registry::Registry;
use runtime::tasks::TaskGroup;

use super::{Core, Error, control, runs::ChecksumRuns};
use crate::{
    checksum_schedule::{
        self,
        metrics::ScheduleMetrics,
        observe::{CachedSchedule, Started},
    },
    controller,
    leader::Leadership,
    object::Key,
    requeue::Stamp,
    watch::{Cached, Store},
};

pub(super) struct ChecksumSchedules {
    schedules: Store<CachedSchedule>,
    pub(super) handle: controller::Handle,
}

impl ChecksumSchedules {
    pub(super) fn new(core: &Core) -> Self {
        let metrics = core.metrics.controller(checksum_schedule::NAME);
        Self {
            schedules: Store::new(&core.args.scope()),
            handle: controller::Handle::new(Arc::clone(&core.clock), metrics),
        }
    }

    pub(super) fn watch(&self, core: &Core, parts: &mut TaskGroup) -> Result<(), Error> {
        let handle = self.handle.clone();
        core.follow::<ChecksumSchedule, _>(
            parts,
            &self.schedules,
            None,
            CachedSchedule::slim,
            move |schedule| {
                handle.changed(schedule.key(), Some(&Stamp::of(schedule.meta())));
            },
        )
    }

    /// Tells of the schedules in metrics.
    pub(super) fn register(&self, registry: &mut Registry) {
        ScheduleMetrics::register(self.schedules.clone(), registry);
    }

    pub(super) fn unsynced(&self) -> impl Fn() -> Vec<String> + Send + Sync + 'static {
        let schedules = self.schedules.clone();
        move || schedules.unsynced()
    }

    pub(super) fn is_known_somewhere(&self) -> bool {
        self.schedules.is_synced_somewhere()
    }

    pub(super) fn control(
        &self,
        core: &Core,
        leadership: &Leadership,
        running: &mut TaskGroup,
        runs: &ChecksumRuns,
    ) -> Result<(), Error> {
        let clock = Arc::clone(&core.clock);
        let context = checksum_schedule::Context {
            schedules: self.schedules.clone(),
            runs: runs.runs.clone(),
            started: Started::new(clock.clone()),
            writer: core.writer(leadership),
            reporter: core.reporter(leadership),
            clock,
        };
        let reconcile = move |key: Key| checksum_schedule::reconcile(context.clone(), key);
        let name = "checksum schedules";
        control(running, name, &self.handle, &self.schedules, reconcile)
    }
}
