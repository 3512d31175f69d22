//! Runs over snapshots: the real kinds and the real snapshot controller, the real binding of claims, and a storage that
//! does what it is told.

use anyhow::{Context as _, Result, ensure};
use crds::{
    checksum_run::ChecksumRun,
    report::checksum::{CoordinatorReport, Explained},
};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::ResourceExt;
use operator::checksum_run::snapshot::VolumeSnapshot;
use serde_json::{Value, json};
use std::time::Duration;
use testbed::{Kubernetes, SharedStore, Snapshots, repository_crds, wait::eventually};

use super::{
    damaged,
    storage::{Driver, Storage},
    support::{Fault, World},
    sweep::{AT_ONCE, remains},
    text,
};

/// The garbage collector learns of new kinds within 30 seconds.
const COLLECTED: Duration = Duration::from_mins(1);

const SOON: Duration = Duration::from_secs(30);

/// A world whose claim `home` is a volume of a storage with snapshots.
struct Snapped {
    world: World,
    storage: Storage,
}

/// The controller of snapshots, as long as it is needed.
async fn controller() -> Result<SharedStore<Value>> {
    testbed::snapshots(&testbed::kubernetes().await?).await
}

impl Snapped {
    async fn new(driver: Driver) -> Result<Self> {
        let snapped = Self::without_class(World::without_claim().await?, driver).await?;
        snapped.storage.offer_snapshots().await?;
        Ok(snapped)
    }

    async fn without_class(world: World, driver: Driver) -> Result<Self> {
        let storage = Storage::start(&world, driver).await?;
        world
            .create::<PersistentVolumeClaim>(json!({"metadata": {"name": "home"},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": storage.class(),
                    "resources": {"requests": {"storage": "1Gi"}}}}))
            .await?;
        let snapped = Self { world, storage };
        snapped.bound("home").await?;
        Ok(snapped)
    }

    /// Makes a run over a snapshot, with more to say about it.
    async fn run(&self, name: &str, csi: Value) -> Result<()> {
        let mut snapshot = json!({"className": self.storage.class()});
        let fields = snapshot.as_object_mut().context("an object")?;
        fields.extend(csi.as_object().cloned().context("fields")?);
        let source =
            json!({"persistentVolumeClaim": {"claimName": "home"}, "snapshot": {"csi": snapshot}});
        self.world.run(name, json!({"source": source})).await
    }

    async fn bound(&self, claim: &str) -> Result<()> {
        eventually(&format!("{claim} to be bound"), SOON, async || {
            let claim = self.world.get::<PersistentVolumeClaim>(claim).await?;
            let phase = claim.status.and_then(|status| status.phase);
            ensure!(phase.as_deref() == Some("Bound"), "{phase:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until the snapshot controller has said so, without a pass of ours.
    async fn ready(&self, snapshot: &str) -> Result<()> {
        eventually(&format!("{snapshot} to be ready"), SOON, async || {
            let snapshot = self.world.get::<VolumeSnapshot>(snapshot).await?;
            let status = snapshot.status.unwrap_or_default();
            ensure!(status.ready_to_use == Some(true), "{status:?}");
            Ok(Some(()))
        })
        .await
    }

    async fn gone<K: operator::act::Kind>(&self, name: &str) -> Result<()> {
        let what = format!("{} {name} to go", K::kind(&()));
        eventually(&what, COLLECTED, async || {
            Ok(self.world.find::<K>(name).await?.is_none().then_some(()))
        })
        .await
    }

    /// Waits until nothing is left in the storage but the volume of `home`, and nobody holds that.
    async fn is_clean(&self) -> Result<()> {
        let home = self.world.get::<PersistentVolumeClaim>("home").await?;
        let own = format!("pv-{}", home.uid().unwrap_or_default());
        eventually("a storage with nothing but home", SOON, async || {
            let held = self.storage.holds().await?;
            ensure!(held == [own.as_str()], "{held:?}");
            let home = self.world.get::<PersistentVolumeClaim>("home").await?;
            let finalizers = home.finalizers().to_vec();
            ensure!(
                finalizers == ["kubernetes.io/pvc-protection"],
                "{finalizers:?}"
            );
            Ok(Some(()))
        })
        .await
    }

    /// Passes until the words of the Ready condition are as expected.
    async fn says(&self, run: &str, reason: &str, words: &str) -> Result<()> {
        eventually(&format!("{reason}: {words}"), SOON, async || {
            self.world.pass(run).await?;
            let told = self.world.condition(run, "Ready").await?;
            let message = self.world.message(run).await?;
            ensure!(
                told == reason && message.contains(words),
                "{told}: {message}"
            );
            Ok(Some(()))
        })
        .await
    }

    /// From the first pass until nothing is left but the Job and the store. The number of passes does not depend on
    /// how fast others are.
    async fn live(&self, run: &str) -> Result<()> {
        let (world, snapshot) = (&self.world, format!("{run}-snapshot"));
        world.passes(run).await?;
        self.ready(&snapshot).await?;
        world.passes(run).await?;
        self.bound(&snapshot).await?;
        let coordinator = world.start_coordinator(run).await?;
        coordinator.report(&damaged())?;
        world.until(run, "Complete", "True/DamageFound").await?;
        world.end(coordinator, 0, &text(&damaged())?).await?;
        world.passes(run).await?;
        self.gone::<PersistentVolumeClaim>(&snapshot).await?;
        world.passes(run).await?;
        self.gone::<VolumeSnapshot>(&snapshot).await?;
        world.passes(run).await?;
        self.is_clean().await
    }
}

#[tokio::test]
async fn a_snapshot_becomes_a_claim_is_read_and_removed() -> Result<()> {
    let _controller = controller().await?;
    for (run, csi, mode) in [
        ("many", json!({}), "ReadOnlyMany"),
        (
            "one",
            json!({"restore": {"accessMode": "ReadWriteOnce"}}),
            "ReadWriteOnce",
        ),
    ] {
        let snapped = Snapped::new(Driver::Slow).await?;
        let (world, snapshot) = (&snapped.world, format!("{run}-snapshot"));
        snapped.run(run, csi).await?;
        world.passes(run).await?;
        assert_eq!(world.condition(run, "Ready").await?, "Unknown/Snapshotting");
        assert_eq!(world.names::<Job>().await?, Vec::<String>::new());
        snapped.storage.becomes(Driver::Prompt);
        snapped.ready(&snapshot).await?;
        world.passes(run).await?;
        assert_eq!(world.condition(run, "Ready").await?, "Unknown/Starting");
        snapped.bound(&snapshot).await?;
        let claim = world.get::<PersistentVolumeClaim>(&snapshot).await?;
        let spec = claim.spec.unwrap_or_default();
        assert_eq!(spec.access_modes.context("modes")?, [mode]);
        assert_eq!(spec.data_source.context("a source")?.name, snapshot);
        let asked = spec.resources.and_then(|r| r.requests).unwrap_or_default();
        assert_eq!(
            asked["storage"].0, "3Gi",
            "as large as the snapshot asks for"
        );
        assert_eq!(
            world.status(run).await?.snapshot.as_deref(),
            Some(&*snapshot)
        );

        let pod = world.pod(run, "checksum-coordinator").await?;
        assert_eq!(source_of(&pod)?, (snapshot.clone(), true));
        snapped.live(run).await?;
        assert_eq!(
            world.names::<PersistentVolumeClaim>().await?,
            ["home".to_owned(), format!("{run}-store")]
        );
        assert_eq!(world.status(run).await?.snapshot, None);
        let sent = world.line.sent();
        world.pass(run).await?;
        assert_eq!(world.line.sent(), sent, "nobody asks once it is gone");
    }
    Ok(())
}

/// The claim that a pod reads, and whether it is mounted read-only both as a volume and in the container.
fn source_of(pod: &Pod) -> Result<(String, bool)> {
    let spec = pod.spec.clone().context("a spec")?;
    let mounts = spec.containers[0].volume_mounts.clone().unwrap_or_default();
    let mount = mounts
        .into_iter()
        .find(|mount| mount.mount_path == "/source");
    let mount = mount.context("a mount")?;
    let mut volumes = spec.volumes.unwrap_or_default().into_iter();
    let volume = volumes.find(|volume| volume.name == mount.name);
    let claim = volume.and_then(|volume| volume.persistent_volume_claim);
    let claim = claim.context("a claim")?;
    let read_only = claim.read_only == Some(true) && mount.read_only == Some(true);
    Ok((claim.claim_name, read_only))
}

#[tokio::test]
async fn what_a_driver_says_is_told_and_the_run_goes_on_when_it_can() -> Result<()> {
    let _controller = controller().await?;
    let snapped = Snapped::new(Driver::Failing("the pool is 99% full")).await?;
    snapped.run("r", json!({})).await?;
    snapped
        .says("r", "False/SnapshotFailing", "the pool is 99% full")
        .await?;
    assert_eq!(snapped.world.names::<Job>().await?, Vec::<String>::new());
    snapped.storage.becomes(Driver::Prompt);
    snapped.says("r", "Unknown/Starting", "").await?;
    snapped.live("r").await
}

#[tokio::test]
async fn nothing_is_read_before_a_slow_snapshot_is_ready() -> Result<()> {
    let _controller = controller().await?;
    let snapped = Snapped::new(Driver::Slow).await?;
    let world = &snapped.world;
    snapped.run("r", json!({})).await?;
    world.passes("r").await?;
    eventually("the storage to have it", SOON, async || {
        Ok((snapped.storage.holds().await?.len() == 2).then_some(()))
    })
    .await?;
    world.passes("r").await?;
    assert_eq!(world.condition("r", "Ready").await?, "Unknown/Snapshotting");
    assert_eq!(world.names::<Job>().await?, Vec::<String>::new());
    assert_eq!(world.names::<PersistentVolumeClaim>().await?, ["home"]);
    snapped.storage.becomes(Driver::Prompt);
    snapped.live("r").await
}

#[tokio::test]
async fn a_class_that_is_missing_is_named_and_may_come_later() -> Result<()> {
    let _controller = controller().await?;
    let world = World::without_claim().await?;
    let snapped = Snapped::without_class(world, Driver::Prompt).await?;
    snapped.run("r", json!({})).await?;
    let class = snapped.storage.class().to_owned();
    snapped.says("r", "False/SnapshotFailing", &class).await?;
    snapped.storage.offer_snapshots().await?;
    snapped.live("r").await
}

#[tokio::test]
async fn a_cluster_without_snapshots_says_so_and_may_learn() -> Result<()> {
    let kubernetes = Kubernetes::start(repository_crds()?).await?;
    let world = World::on(&kubernetes).await?;
    let snapped = Snapped::without_class(world, Driver::Prompt).await?;
    snapped.run("r", json!({})).await?;
    snapped
        .says(
            "r",
            "False/ReferenceMissing",
            "install its snapshot controller",
        )
        .await?;
    let _controller = Snapshots::start(&kubernetes).await?;
    snapped.storage.offer_snapshots().await?;
    snapped.live("r").await?;
    drop(snapped);
    kubernetes.shutdown().await
}

#[tokio::test]
async fn a_run_that_is_deleted_or_cancelled_meanwhile_leaves_nothing() -> Result<()> {
    let _controller = controller().await?;
    let snapped = Snapped::new(Driver::Slow).await?;
    let world = &snapped.world;
    let runs = ["early", "cancelled", "late"];
    for run in runs {
        snapped.run(run, json!({})).await?;
        world.passes(run).await?;
    }
    world.delete::<ChecksumRun>("early").await?;
    world
        .edit::<ChecksumRun>("cancelled", json!({"spec": {"cancel": true}}))
        .await?;
    world
        .until("cancelled", "Complete", "True/Cancelled")
        .await?;
    world.passes("cancelled").await?;
    snapped.storage.becomes(Driver::Prompt);
    snapped.ready("late-snapshot").await?;
    world.passes("late").await?;
    world.pod("late", "checksum-coordinator").await?;
    world.delete::<ChecksumRun>("late").await?;
    for run in runs {
        world.pass(run).await?;
        let snapshot = format!("{run}-snapshot");
        snapped.gone::<VolumeSnapshot>(&snapshot).await?;
        snapped.gone::<PersistentVolumeClaim>(&snapshot).await?;
    }
    snapped.is_clean().await
}

#[tokio::test]
async fn a_snapshot_that_was_never_written_down_is_removed_all_the_same() -> Result<()> {
    let _controller = controller().await?;
    let mut snapped = Snapped::new(Driver::Prompt).await?;
    snapped.run("r", json!({})).await?;
    snapped.world.line.lose("/checksumruns/r/status");
    snapped.world.pass("r").await?;
    snapped.ready("r-snapshot").await?;
    snapped.world.pass("r").await?;
    assert_eq!(snapped.world.names::<Job>().await?, ["r-checksum"]);
    assert_eq!(snapped.world.status("r").await?.snapshot, None);
    snapped.world.line.open();
    snapped.world.replace_operator()?;
    snapped.live("r").await
}

#[tokio::test]
async fn a_snapshot_is_kept_where_somebody_wants_to_look_at_it() -> Result<()> {
    let _controller = controller().await?;
    let snapped = Snapped::new(Driver::Prompt).await?;
    let world = &snapped.world;
    snapped.run("r", json!({})).await?;
    world
        .edit::<ChecksumRun>("r", json!({"spec": {"keepSnapshotOnFailure": true}}))
        .await?;
    world.passes("r").await?;
    snapped.ready("r-snapshot").await?;
    world.passes("r").await?;
    let coordinator = world.start_coordinator("r").await?;
    let denied = CoordinatorReport {
        result: Some(Explained {
            reason: "PermissionDenied".into(),
            message: "may not read".into(),
        }),
        ..damaged()
    };
    coordinator.report(&denied)?;
    world
        .until("r", "Complete", "True/PermissionDenied")
        .await?;
    world.end(coordinator, 0, &text(&denied)?).await?;
    world.passes("r").await?;
    snapped.bound("r-snapshot").await?;
    assert_eq!(world.names::<VolumeSnapshot>().await?, ["r-snapshot"]);
    world.delete::<ChecksumRun>("r").await?;
    snapped.gone::<VolumeSnapshot>("r-snapshot").await?;
    snapped.gone::<PersistentVolumeClaim>("r-snapshot").await?;
    snapped.is_clean().await
}

#[tokio::test]
async fn failing_at_any_request_of_a_run_over_a_snapshot_ends_in_the_same_state() -> Result<()> {
    let _controller = controller().await?;
    let prepared = async || {
        let snapped = Snapped::new(Driver::Prompt).await?;
        snapped.run("r", json!({})).await?;
        anyhow::Ok(snapped)
    };
    let undisturbed = prepared().await?;
    undisturbed.live("r").await?;
    let expected = remains(&undisturbed.world, "r").await?;
    let requests = undisturbed.world.line.sent();
    assert!(requests > 10, "{requests} requests are no test");
    let cases = [Fault::Unsent, Fault::Unanswered]
        .into_iter()
        .flat_map(|fault| (1..=requests).map(move |request| (request, fault)));
    let lives = stream::iter(cases).map(|(request, fault)| {
        let (prepared, expected) = (&prepared, &expected);
        async move {
            let snapped = prepared().await?;
            snapped.world.line.spoil(request, fault);
            let lived = snapped.live("r").await;
            lived.with_context(|| format!("request {request} was {fault:?}"))?;
            let remains = remains(&snapped.world, "r").await?;
            assert_eq!(remains, *expected, "after request {request} was {fault:?}");
            anyhow::Ok(())
        }
    });
    lives.buffer_unordered(AT_ONCE).try_collect::<()>().await
}
