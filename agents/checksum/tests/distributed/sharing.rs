//! Coordinators whose packs go through one queue: each gets what it asked for, and a pause of one is ended by no other.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use checksum::algorithm::Algorithm;
use checksum::engine::{self, Job, Lister, Shared, Source, Unresolved};
use checksum::list::exclude::Excludes;
use checksum::merge::Mode;
use checksum::pack::Sizes;
use checksum::queue::{COMPUTE, Queue, result_job};
use checksum::read::Medium;
use checksum::store::{Counts, Location, NewRun, Run, Store};
use checksum::wire::{BackPack, WorkPack};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Executor as _};

use crate::others::{as_the_original, queue_of, serve};
use crate::site::Site;

/// What nobody suspends, stops or limits.
fn nobody() -> Arc<Shared> {
    Arc::new(Shared::new(None, Instant::now()))
}

/// The tree of the site, and another with the same paths, so results of one would fit the other.
fn two_trees(site: &Site) -> Result<[PathBuf; 2]> {
    let roots = [site.pod.root(), site.pod.folder.path().join("other")];
    for n in 0..40 {
        let path = roots[1].join(format!("folder{}/file{n}", n / 10));
        fs::create_dir_all(path.parent().context("no folder")?)?;
        fs::write(path, format!("other content of {n}"))?;
    }
    Ok(roots)
}

/// A run whose packs go where those of others go, too.
async fn share(site: &Site, file_system: &str, root: &Path, shared: Arc<Shared>) -> Result<Run> {
    let folder = site.pod.folder.path();
    let job = Job {
        root: root.into(),
        source: Source::Live,
        lister: Lister::Walk,
        excludes: Excludes::default(),
        spill: folder.join(format!("{file_system}.listing")),
        spill_size: None,
        deletion_guard: 10,
        readers: None,
        queue: Some(queue_of(site, "shared", file_system, "run")?),
        medium: Medium::Cache,
        packs: Sizes {
            bytes: 1 << 20,
            files: 3,
        },
        sync_concurrency: 1,
        sync_rows: 1000,
        writers: 1,
        batch: 10,
        stop_after_sync: false,
    };
    let what = NewRun {
        owner: None,
        snapshot: None,
        mode: Mode::Full,
        algorithm: Algorithm::Sha1,
    };
    let location = Location::file(folder.join(format!("{file_system}.sqlite")));
    let store = Store::open(&location, 1).await?;
    let run = engine::begin(&store, &what, Unresolved::Refuse).await?;
    Ok(engine::run(&job, &store, run, &shared).await?.run)
}

/// Waits until a run has looked at pauses: it publishes its limit afterwards, unless that is there already.
async fn looked(site: &Site, run: &Queue) -> Result<()> {
    let published = run.published();
    site.until("the run has looked", || async {
        Ok(published.read().await?.is_some())
    })
    .await
}

/// Lets a run look at pauses, and sees that nothing is given out all the while.
async fn held_for_three_looks(site: &Site, run: &Queue, served: &Cell<u32>) -> Result<()> {
    for _ in 0..3 {
        run.published().delete().await?;
        looked(site, run).await?;
        let is_held = run.inspector().is_paused(COMPUTE).await?;
        ensure!(is_held, "somebody has ended the pause");
        ensure!(served.get() == 0, "a pack was given out");
    }
    Ok(())
}

#[tokio::test]
async fn coordinators_share_one_queue_and_each_gets_what_it_asked_for() -> Result<()> {
    let site = Site::with(60).await?;
    let roots = two_trees(&site)?;
    let worker = |pack: &WorkPack| {
        let root = &roots[usize::from(pack.file_system == "other")];
        as_the_original(root, pack).map(Some)
    };
    let both = || async {
        tokio::try_join!(
            share(&site, "home", &roots[0], nobody()),
            share(&site, "other", &roots[1], nobody())
        )
    };
    for is_first in [true, false] {
        let (home, other) = tokio::select! {
            both = both() => both?,
            ended = serve(&site, "shared", worker) => anyhow::bail!("the worker ended: {ended:?}"),
        };
        let found = [home, other].map(|run| {
            let Counts { new, verified, .. } = run.counts;
            (new, verified)
        });
        let expected = if is_first {
            [(60, 0), (40, 0)]
        } else {
            [(0, 60), (0, 40)]
        };
        assert_eq!(found, expected);
    }
    Ok(())
}

#[tokio::test]
async fn a_suspended_run_holds_the_packs_of_a_shared_queue_until_it_goes_on() -> Result<()> {
    let site = Site::with(60).await?;
    let roots = two_trees(&site)?;
    let served = Cell::new(0);
    let worker = |pack: &WorkPack| {
        served.set(served.get() + 1);
        let root = &roots[usize::from(pack.file_system == "other")];
        as_the_original(root, pack).map(Some)
    };
    let suspended = nobody();
    suspended.pause.store(true, Ordering::Relaxed);
    let other = queue_of(&site, "shared", "other", "run")?;
    let inspector = other.inspector();
    let is_held = || async { Ok(inspector.is_paused(COMPUTE).await?) };
    let held = || site.until("the first holds the packs back", is_held);
    let begun_later = async {
        held().await?;
        share(&site, "other", &roots[1], nobody()).await
    };
    let serving = async {
        held().await?;
        serve(&site, "shared", worker).await
    };
    let watching = async {
        held_for_three_looks(&site, &other, &served).await?;
        suspended.pause.store(false, Ordering::Relaxed);
        Ok(())
    };
    let all = async {
        tokio::try_join!(
            share(&site, "home", &roots[0], suspended.clone()),
            begun_later,
            watching
        )
    };
    let (first, second, ()) = tokio::select! {
        all = all => all?,
        ended = serving => anyhow::bail!("the worker ended: {ended:?}"),
    };
    assert_eq!((first.counts.new, second.counts.new), (60, 40));
    Ok(())
}

#[tokio::test]
async fn packs_are_held_back_while_too_many_results_wait() -> Result<()> {
    let site = Site::with(60).await?;
    let root = site.pod.root();
    let queue = queue_of(&site, "shared", "home", "run")?;
    let (inspector, results) = (queue.inspector(), queue.results());
    inspector.pause(&results).await?; // so that nobody takes them
    let is_held = || async { Ok(inspector.is_paused(COMPUTE).await?) };
    let held = || site.until("packs are held back", is_held);
    let served = Cell::new(0);
    let serving = async {
        held().await?;
        let worker = |pack: &WorkPack| {
            served.set(served.get() + 1);
            as_the_original(&root, pack).map(Some)
        };
        serve(&site, "shared", worker).await
    };
    let crowding = async {
        looked(&site, &queue).await?;
        let result = result_job(&results, &BackPack::default());
        for _ in 0..=10 {
            let many = vec![result.clone(); 100];
            queue.enqueuer().enqueue_many(many).await?;
        }
        held().await?;
        held_for_three_looks(&site, &queue, &served).await?;
        Ok(inspector.unpause(&results).await?)
    };
    let run = share(&site, "home", &root, nobody());
    let (run, ()) = tokio::select! {
        both = async { tokio::try_join!(run, crowding) } => both?,
        ended = serving => anyhow::bail!("the worker ended: {ended:?}"),
    };
    assert_eq!(run.counts.new, 60);
    Ok(())
}

#[tokio::test]
async fn results_are_acknowledged_only_when_they_are_stored() -> Result<()> {
    let site = Site::with(60).await?;
    let root = site.pod.root();
    let file = site.pod.folder.path().join("home.sqlite");
    drop(Store::open(&Location::file(&file), 1).await?);
    let refuse = "CREATE TRIGGER refused BEFORE UPDATE ON orrery_files
                  BEGIN SELECT RAISE(ABORT, 'refused'); END";
    let options = SqliteConnectOptions::new().filename(&file);
    options
        .connect()
        .await?
        .execute(sqlx::raw_sql(refuse))
        .await?;
    let answered = Cell::new(0);
    let worker = |pack: &WorkPack| {
        answered.set(answered.get() + 1);
        as_the_original(&root, pack).map(Some)
    };
    let failed = tokio::select! {
        run = share(&site, "home", &root, nobody()) => run,
        ended = serve(&site, "shared", worker) => anyhow::bail!("the worker ended: {ended:?}"),
    };
    ensure!(failed.is_err(), "{failed:?}");
    let queue = queue_of(&site, "shared", "home", "run")?;
    let results = queue.inspector().counts(&queue.results()).await?;
    // The last answer may have been interrupted.
    let (kept, answered) = (results.queued + results.in_progress, answered.get());
    ensure!(
        answered > 1 && kept + 1 >= answered,
        "{results:?} of {answered}"
    );
    Ok(())
}

#[tokio::test]
async fn a_pause_that_one_who_died_has_left_is_ended_by_who_goes_on() -> Result<()> {
    let site = Site::with(60).await?;
    let config = site.config("run");
    let run = queue_of(&site, "run", "home", "run-run")?.results();
    // For ever, which is longer than what dies with its time.
    site.set("jobs:ComputeChecksum:paused", &run).await?;
    let _worker = site.worker("worker-1", &config);
    let report = site.run(&config).await?;
    assert_eq!(report.files.context("no files")?.new, 60);
    Ok(())
}
