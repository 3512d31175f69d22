//! A storage with snapshots: does what a CSI driver and its sidecars do, in the words of the API. Claims of its class get a
//! volume, contents of snapshots a handle, and both go when they should. In: a namespace. Writes to the server, in one task.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use crds::quantity::Size;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use operator::checksum_run::snapshot::VolumeSnapshot;
use runtime::tasks::TaskGroup;
use serde_json::{Value, json};

use super::support::World;

/// How often the storage looks for something to do.
const PAUSE: Duration = Duration::from_millis(200);

/// What a volume from a snapshot must have at least.
const RESTORE_SIZE: i64 = 3 << 30;

const BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";

/// What the driver answers when a snapshot is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// It is made, and ready.
    Prompt,
    /// It is made, and not ready: data are still copied.
    Slow,
    /// It cannot be made, for this reason.
    Failing(&'static str),
}

/// Ends when dropped.
pub(crate) struct Storage {
    hands: Hands,
    _task: TaskGroup,
}

#[derive(Clone)]
struct Hands {
    client: Client,
    namespace: String,
    /// The driver; its class of storage and its class of snapshots are called the same.
    name: String,
    driver: Arc<Mutex<Driver>>,
}

impl Storage {
    /// A driver of the world's own, with a class for volumes.
    pub(crate) async fn start(world: &World, driver: Driver) -> Result<Self> {
        let hands = Hands {
            client: world.client().clone(),
            namespace: world.namespace.to_string(),
            name: format!("{}.csi.test", world.namespace),
            driver: Arc::new(Mutex::new(driver)),
        };
        let class = json!({"metadata": {"name": hands.name}, "provisioner": hands.name});
        let class: StorageClass = serde_json::from_value(class)?;
        let api = Api::all(hands.client.clone());
        api.create(&PostParams::default(), &class).await?;
        let mut task = TaskGroup::new(1);
        task.spawn("storage", work(hands.clone()))?;
        Ok(Self { hands, _task: task })
    }

    /// The name of its classes.
    pub(crate) fn class(&self) -> &str {
        &self.hands.name
    }

    /// Makes the class for snapshots.
    pub(crate) async fn offer_snapshots(&self) -> Result<()> {
        let class = json!({"metadata": {"name": self.class()}, "driver": self.class(), "deletionPolicy": "Delete"});
        let api = self
            .hands
            .dynamic("VolumeSnapshotClass", "volumesnapshotclasses");
        let class = typed(class, "VolumeSnapshotClass")?;
        api.create(&PostParams::default(), &class).await?;
        Ok(())
    }

    /// From now on it answers otherwise.
    pub(crate) fn becomes(&self, driver: Driver) {
        *self.hands.driver() = driver;
    }

    /// Everything that there is of it: volumes, and contents of snapshots.
    pub(crate) async fn holds(&self) -> Result<Vec<String>> {
        let volumes = self.hands.volumes().await?;
        let contents = self.hands.contents().await?;
        let volumes = volumes.iter().map(ResourceExt::name_any);
        Ok(volumes
            .chain(contents.iter().map(ResourceExt::name_any))
            .collect())
    }
}

async fn work(hands: Hands) -> Result<(), Infallible> {
    loop {
        // What fails now is tried again, as sidecars do.
        let _ = hands.look().await;
        tokio::time::sleep(PAUSE).await;
    }
}

fn typed(mut object: Value, kind: &str) -> Result<DynamicObject> {
    object["apiVersion"] = "snapshot.storage.k8s.io/v1".into();
    object["kind"] = kind.into();
    Ok(serde_json::from_value(object)?)
}

impl Hands {
    fn driver(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dynamic(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", kind);
        Api::all_with(
            self.client.clone(),
            &ApiResource::from_gvk_with_plural(&kind, plural),
        )
    }

    async fn contents(&self) -> Result<Vec<DynamicObject>> {
        let api = self.dynamic("VolumeSnapshotContent", "volumesnapshotcontents");
        let mut contents = api.list(&ListParams::default()).await?.items;
        contents.retain(|content| content.data["spec"]["driver"] == *self.name);
        Ok(contents)
    }

    async fn volumes(&self) -> Result<Vec<PersistentVolume>> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let mut volumes = api.list(&ListParams::default()).await?.items;
        let class = |volume: &PersistentVolume| volume.spec.as_ref()?.storage_class_name.clone();
        volumes.retain(|volume| class(volume).as_deref() == Some(&self.name));
        Ok(volumes)
    }

    /// One look at everything.
    async fn look(&self) -> Result<()> {
        self.provide().await?;
        self.remove_released().await?;
        for content in self.contents().await? {
            if content.metadata.deletion_timestamp.is_some() {
                self.let_go(&content).await?;
            } else if content.data["status"]["readyToUse"] != true {
                self.snap(&content).await?;
            }
        }
        Ok(())
    }

    /// As csi-snapshotter tells what the driver answered.
    async fn snap(&self, content: &DynamicObject) -> Result<()> {
        let driver = *self.driver();
        let handle = format!(
            "snapshot-of-{}",
            content.data["spec"]["source"]["volumeHandle"]
        );
        let made = |ready: bool| {
            json!({"snapshotHandle": handle, "creationTime": 1_700_000_000_000_000_000_i64,
            "readyToUse": ready, "restoreSize": RESTORE_SIZE, "error": null})
        };
        let status = match driver {
            Driver::Prompt => made(true),
            Driver::Slow => made(false),
            Driver::Failing(why) => {
                json!({"readyToUse": false, "error": {"message": why, "time": "2023-11-14T22:13:20Z"}})
            }
        };
        let same = |field: &str| content.data["status"][field] == status[field];
        if ["snapshotHandle", "readyToUse", "error"]
            .into_iter()
            .all(same)
        {
            return Ok(());
        }
        let api = self.dynamic("VolumeSnapshotContent", "volumesnapshotcontents");
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(&content.name_any(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// As csi-snapshotter does once the driver has deleted the snapshot, which it does only with the controller's leave.
    async fn let_go(&self, content: &DynamicObject) -> Result<()> {
        if !content.annotations().contains_key(BEING_DELETED) {
            return Ok(());
        }
        let api = self.dynamic("VolumeSnapshotContent", "volumesnapshotcontents");
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        api.patch(&content.name_any(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// As csi-provisioner does for claims of the class: those from a snapshot wait for it, and must be large enough.
    async fn provide(&self) -> Result<()> {
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &self.namespace);
        for claim in claims.list(&ListParams::default()).await? {
            let spec = claim.spec.clone().unwrap_or_default();
            let ours = spec.storage_class_name.as_deref() == Some(&self.name);
            if ours && spec.volume_name.is_none() && self.has_source(&claim).await? {
                let volume = self.volume(&claim)?;
                let api: Api<PersistentVolume> = Api::all(self.client.clone());
                match api.create(&PostParams::default(), &volume).await {
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    made => drop(made?),
                }
            }
        }
        Ok(())
    }

    async fn has_source(&self, claim: &PersistentVolumeClaim) -> Result<bool> {
        let spec = claim.spec.clone().unwrap_or_default();
        let Some(source) = spec.data_source else {
            return Ok(true);
        };
        let api: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), &self.namespace);
        let status = api.get(&source.name).await?.status.unwrap_or_default();
        let bytes = |size: &str| anyhow::Ok(size.parse::<Size>()?.bytes()?);
        let least = bytes(status.restore_size.as_deref().unwrap_or("0"))?;
        let requests = spec.resources.and_then(|r| r.requests).unwrap_or_default();
        let asked = bytes(&requests.get("storage").context("a size")?.0)?;
        Ok(status.ready_to_use == Some(true) && asked >= least)
    }

    fn volume(&self, claim: &PersistentVolumeClaim) -> Result<PersistentVolume> {
        let (spec, uid) = (claim.spec.clone().unwrap_or_default(), claim.uid());
        let uid = uid.unwrap_or_default();
        let requests = spec.resources.and_then(|r| r.requests).unwrap_or_default();
        let bound = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.name_any(),
            "namespace": self.namespace, "uid": uid});
        let volume = json!({"metadata": {"name": format!("pv-{uid}")},
            "spec": {"capacity": requests, "accessModes": spec.access_modes, "storageClassName": self.name, "claimRef": bound,
                "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": self.name, "volumeHandle": uid}}});
        Ok(serde_json::from_value(volume)?)
    }

    /// As csi-provisioner does with volumes whose claim is gone.
    async fn remove_released(&self) -> Result<()> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        for volume in self.volumes().await? {
            let phase = volume.status.as_ref().and_then(|s| s.phase.as_deref());
            if phase == Some("Released") && volume.metadata.deletion_timestamp.is_none() {
                api.delete(&volume.name_any(), &DeleteParams::default())
                    .await?;
            }
        }
        Ok(())
    }
}
