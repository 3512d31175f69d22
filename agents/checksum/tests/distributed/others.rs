//! Workers that are not ours: what lsdf-checksum's answer, and what those who answer nothing do to a run.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use checksum::algorithm::Algorithm;
use checksum::judge::Reading;
use checksum::queue::{COMPUTE, Queue, payload, result_job};
use checksum::store::View;
use checksum::wire::{BackPack, WorkPack};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use workqueue::{Client, Kind, Options, Pool, PoolOptions};

use crate::site::Site;

pub(crate) fn queue_of(site: &Site, uid: &str, file_system: &str, snapshot: &str) -> Result<Queue> {
    let address = site.redis_address();
    let client = Client::new(Options {
        password: Some("testbed".into()),
        ..Options::new(address.ip().to_string(), address.port())
    })?;
    let space = format!("{}:{uid}", site.prefix());
    Ok(Queue::new(client, &space, file_system, snapshot))
}

/// Serves the packs below a name until it is dropped: `answer` says what comes of each.
pub(crate) async fn serve(
    site: &Site,
    uid: &str,
    answer: impl Fn(&WorkPack) -> Result<Option<BackPack>>,
) -> Result<()> {
    let Queue {
        client, namespace, ..
    } = queue_of(site, uid, "", "")?;
    let kinds = vec![Kind::new(COMPUTE)];
    let pool = Pool::new(client, namespace, PoolOptions::new(kinds, 1))?;
    let serving = async {
        loop {
            let Some(taken) = pool.take().await? else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let pack = WorkPack::decode(payload(taken.job()).map_err(anyhow::Error::msg)?)?;
            if let Some(back) = answer(&pack)? {
                let queue = queue_of(site, uid, &pack.file_system, &pack.snapshot)?;
                let job = result_job(&queue.results(), &back);
                queue.enqueuer().enqueue_many(vec![job]).await?;
            }
            let _ = pool.finish(&taken).await?; // fenced or not: there is nothing to undo
        }
    };
    tokio::select! {
        ended = serving => ended,
        () = pool.run(CancellationToken::new()) => Ok(()),
    }
}

/// What lsdf-checksum's worker makes of a pack: it knows numbers, paths and SHA-1, and nothing that we added.
pub(crate) fn as_the_original(root: &Path, pack: &WorkPack) -> Result<BackPack> {
    let mut back = BackPack::default();
    for file in &pack.files {
        let path = file.path.strip_prefix(b"/").context("no slash")?;
        let content = fs::read(root.join(OsStr::from_bytes(path)))?;
        let sum = Algorithm::Sha1.digest(&content).as_bytes().to_vec();
        back.files.push((file.id, sum));
    }
    Ok(back)
}

#[tokio::test]
async fn a_worker_of_lsdf_checksum_serves_our_coordinator() -> Result<()> {
    let site = Site::with(60).await?;
    let mut config = site.config("first");
    config["spec"]["algorithm"] = json!("sha1");
    let root = site.pod.root();
    let report = tokio::select! {
        report = site.run(&config) => report?,
        ended = serve(&site, "first", |pack| as_the_original(&root, pack).map(Some)) => {
            anyhow::bail!("the worker ended: {ended:?}")
        }
    };
    let files = report.files.context("no files")?;
    assert_eq!((files.new, files.unreadable), (60, 0));
    let sum = site.checksum("folder1/file12").await?;
    assert_eq!(sum, Algorithm::Sha1.digest(b"content of 12").to_string());
    // One of ours compares with what it answered.
    site.pod.rot("folder1/file12");
    config["uid"] = json!("second");
    let _worker = site.worker("worker-1", &config);
    let report = site.run(&config).await?;
    assert_eq!(report.files.context("no files")?.verified, 59);
    assert_eq!(report.corrupt[0].path, "folder1/file12");
    Ok(())
}

#[tokio::test]
async fn files_of_which_nothing_is_heard_are_asked_for_again_and_in_the_end_told() -> Result<()> {
    let site = Site::with(20).await?;
    let mut config = site.config("run");
    config["spec"]["algorithm"] = json!("sha1");
    let asked = Cell::new(0);
    let forgetful = |pack: &WorkPack| {
        let mut back = as_the_original(&site.pod.root(), pack)?;
        let lost = Algorithm::Sha1.digest(b"content of 7");
        let before = back.files.len();
        back.files.retain(|(_, sum)| sum != lost.as_bytes());
        asked.set(asked.get() + before - back.files.len());
        Ok(Some(back))
    };
    let report = tokio::select! {
        report = site.run(&config) => report?,
        ended = serve(&site, "run", forgetful) => anyhow::bail!("the worker ended: {ended:?}"),
    };
    let files = report.files.context("no files")?;
    assert_eq!((files.new, files.unreadable), (19, 1));
    assert_eq!(report.result.context("no result")?.reason, "Unreadable");
    // Once with all others, and three times of which nothing came.
    assert_eq!(asked.get(), 4);
    Ok(())
}

#[tokio::test]
async fn a_file_that_one_worker_cannot_read_is_read_by_another_and_told_if_none_can() -> Result<()>
{
    let site = Site::with(20).await?;
    let config = site.config("run");
    let tries = [Cell::new(0), Cell::new(0)];
    // The first can be read when it is tried again, the second never.
    let clumsy = |pack: &WorkPack| {
        let mut back = BackPack::default();
        for file in &pack.files {
            let key = file.key.context("no key")?;
            let path = file.path.strip_prefix(b"/").context("no slash")?;
            let which = match path {
                b"folder0/file7" => Some(&tries[0]),
                b"folder1/file12" => Some(&tries[1]),
                _ => None,
            };
            let before = which.map_or(0, |it| it.replace(it.get() + 1));
            let fails = which.is_some() && (before == 0 || path == b"folder1/file12");
            let reading = if fails {
                let why = "stale file handle".into();
                Reading::Failed { why }
            } else {
                let content = fs::read(site.pod.root().join(OsStr::from_bytes(path)))?;
                let digests = vec![Algorithm::Blake3.digest(&content)];
                let bytes = content.len() as u64;
                Reading::Read { digests, bytes }
            };
            back.results.push((key, reading));
        }
        Ok(Some(back))
    };
    let report = tokio::select! {
        report = site.run(&config) => report?,
        ended = serve(&site, "run", clumsy) => anyhow::bail!("the worker ended: {ended:?}"),
    };
    let files = report.files.context("no files")?;
    assert_eq!((files.new, files.unreadable), (19, 1));
    assert_eq!(tries.each_ref().map(Cell::get), [2, 3]);
    let problems = View::open(&site.location).await?.problems(1, 10).await?;
    let told: Vec<_> = problems
        .iter()
        .map(|it| (it.path.to_string(), &*it.why))
        .collect();
    assert_eq!(told, [("folder1/file12".to_owned(), "stale file handle")]);
    Ok(())
}

#[tokio::test]
async fn a_name_that_is_no_text_goes_through_the_queue_and_is_told_escaped() -> Result<()> {
    let site = Site::with(5).await?;
    let name = OsStr::from_bytes(b"\xff\xfe\nname");
    fs::write(site.pod.root().join(name), "content")?;
    let config = site.config("first");
    let worker = site.worker("worker-1", &config);
    assert_eq!(site.run(&config).await?.files.context("no files")?.new, 6);
    drop(worker);
    site.pod.rot_at(name);
    let config = site.config("second");
    let _worker = site.worker("worker-2", &config);
    let report = site.run(&config).await?;
    assert_eq!(report.corrupt[0].path, r"\xff\xfe\nname");
    Ok(())
}

#[tokio::test]
async fn the_last_result_waits_for_no_others() -> Result<()> {
    let site = Site::with(501).await?;
    let mut config = site.config("run");
    config["spec"]["algorithm"] = json!("sha1");
    config["spec"]["tuning"]["writeBackBatch"] = json!(500);
    let (root, last) = (site.pod.root(), Cell::new(Instant::now()));
    let answer = |pack: &WorkPack| {
        last.set(Instant::now());
        as_the_original(&root, pack).map(Some)
    };
    let report = tokio::select! {
        report = site.run(&config) => report?,
        ended = serve(&site, "run", answer) => anyhow::bail!("the worker ended: {ended:?}"),
    };
    // Stored, and the run ended, although no batch was full; two cores may be busy with other things.
    let took = last.get().elapsed();
    ensure!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(report.files.context("no files")?.new, 501);
    Ok(())
}
