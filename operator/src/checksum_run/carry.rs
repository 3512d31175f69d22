//! Carries a plan out. In: what it asks for. Out: nothing but that it was done, or the first step that failed.
//! Writes through the writer alone, and decides nothing.

use crds::name::{self, CHECKSUM_RUN_MANAGER as MANAGER};
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, core::v1::PersistentVolumeClaim};
use kube::ResourceExt;
use tracing::{debug, info};

use super::{
    Context, Failure, build,
    config::Validated,
    plan::{Apply, Doomed, Plan},
    snapshot::VolumeSnapshot,
};
use crate::{
    act::{self, Kind},
    object::{Key, digest},
    received::Received,
    watch::{Store, child::Child},
};

impl Context {
    /// What pods mount comes before them.
    pub(super) async fn act(&self, run: &Validated, plan: &Plan) -> Result<(), Failure> {
        if let Some(claim) = &plan.store {
            self.writer.provide(MANAGER, claim).await?;
            info!(run = %run.key, claim = claim.name_any(), "store made");
        }
        if let Some(snapshot) = &plan.snapshot {
            self.writer.provide(MANAGER, snapshot).await?;
        }
        if let Some(claim) = &plan.restored {
            self.writer.provide(MANAGER, claim).await?;
        }
        self.apply(&self.configs, plan.config.as_ref()).await?;
        if let Some(Apply { object, known }) = &plan.credentials {
            let secret = build::secret(run, object);
            let written = self
                .writer
                .apply(MANAGER, &secret, known.as_deref())
                .await?;
            self.secrets.written(written);
        }
        self.apply(&self.jobs, plan.preparation.as_ref()).await?;
        if plan.job.is_some() {
            self.certificates.ensure(&run.key.namespace).await?;
        }
        self.apply(&self.jobs, plan.job.as_ref()).await?;
        self.apply(&self.workers, plan.workers.as_ref()).await?;
        self.remove(&run.key, &plan.remove).await?;
        Ok(())
    }

    /// What has to go of a run, in that order.
    pub(super) async fn remove(&self, run: &Key, all: &[Doomed]) -> Result<(), act::Error> {
        for doomed in all {
            self.remove_one(run, doomed).await?;
        }
        Ok(())
    }

    /// Remembers what was applied, so that the next pass need not ask.
    async fn apply<K, S>(
        &self,
        store: &Store<Child<S>>,
        wanted: Option<&Apply<K>>,
    ) -> Result<(), act::Error>
    where
        K: Kind,
        S: Default + for<'a> From<&'a K>,
    {
        let Some(Apply { object, known }) = wanted else {
            return Ok(());
        };
        let stored = self.writer.apply(MANAGER, object, known.as_deref()).await?;
        let child = Child::slim(Received(Ok(stored)));
        self.applied.note(&child.uid, child.stamp, digest(object));
        debug!(kind = %K::kind(&()), object = %child.key, "applied");
        store.refresh(child);
        Ok(())
    }

    async fn remove_one(&self, run: &Key, doomed: &Doomed) -> Result<(), act::Error> {
        let key = |name| Key {
            namespace: run.namespace.clone(),
            name,
        };
        match doomed {
            Doomed::Job(uid) => {
                let key = key(name::checksum(&run.name));
                self.writer.delete::<Job>(&key, uid).await
            }
            Doomed::Preparation(uid) => {
                let key = key(name::checksum_preparation(&run.name));
                self.writer.delete::<Job>(&key, uid).await
            }
            Doomed::Workers(uid) => {
                let key = key(name::checksum_workers(&run.name));
                self.writer.delete::<Deployment>(&key, uid).await
            }
            Doomed::Restored(uid) => {
                let key = key(name::checksum_snapshot(&run.name));
                self.writer.delete::<PersistentVolumeClaim>(&key, uid).await
            }
            Doomed::Snapshot(uid) => {
                let key = key(name::checksum_snapshot(&run.name));
                self.writer.delete::<VolumeSnapshot>(&key, uid).await
            }
        }
    }
}
