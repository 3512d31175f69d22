//! What others put into our queue: it stops nobody, and what lsdf-checksum asks is answered as its own workers do.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use checksum::algorithm::Algorithm;
use checksum::judge::Reading;
use checksum::path::Key;
use checksum::queue::{COMPUTE, LIMIT, Queue, pack_job, payload, result_job};
use checksum::wire::{BackPack, PackFile, WorkPack};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use workqueue::{Kind, Pool, PoolOptions, Taken};

use crate::others::queue_of;
use crate::site::{PATIENCE, Running, Site};

/// A run that goes on until [`hurry`] lets it end.
fn slow(site: &Site) -> Value {
    let mut config = site.config("run");
    config["spec"]["maxThroughputPerWorker"] = json!(20);
    config
}

fn hurry(worker: &Running, config: &mut Value) {
    config["spec"]["maxThroughputPerWorker"] = json!(null);
    config["generation"] = json!(2);
    worker.pod.configure(config);
}

/// A file as lsdf-checksum asks for it.
fn plain(id: u64, path: &str) -> PackFile {
    PackFile {
        id,
        path: path.into(),
        key: None,
        attributes: None,
        other: None,
        span: None,
    }
}

fn pack(file_system: &str, snapshot: &str, files: Vec<PackFile>) -> WorkPack {
    WorkPack {
        file_system: file_system.into(),
        snapshot: snapshot.into(),
        algorithm: None,
        files,
    }
}

#[tokio::test]
async fn what_is_no_pack_is_left_among_the_dead_and_stops_nobody() -> Result<()> {
    let site = Site::with(50).await?;
    let mut config = slow(&site);
    for element in [
        "this is no job",
        r#"{"name":"ComputeChecksum","id":"a","t":1,"args":{"pl":"AAA"}}"#,
        r#"{"name":"ComputeChecksum","id":"b","t":1,"args":null}"#,
    ] {
        site.push(COMPUTE, element).await?;
    }
    let worker = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    site.until("all three are dead", || async {
        Ok(site.dead().await?.len() == 3)
    })
    .await?;
    for job in site.dead().await? {
        let why = job["err"].as_str().unwrap_or_default();
        ensure!(!why.is_empty(), "nobody says why: {job}");
    }
    hurry(&worker, &mut config);
    let report = site.ended(coordinator).await?;
    assert_eq!(report.files.context("no files")?.new, 50);
    Ok(())
}

#[tokio::test]
async fn packs_of_other_files_and_results_that_are_none_stop_nobody() -> Result<()> {
    let site = Site::with(50).await?;
    let mut config = slow(&site);
    let queue = queue_of(&site, "run", "home", "run-run")?;
    let elsewhere = pack("elsewhere", "run-run", vec![plain(7, "/folder0/file3")]);
    queue
        .enqueuer()
        .enqueue_many(vec![pack_job(&elsewhere)])
        .await?;
    let results = queue.results();
    let nonsense = json!({"name": results, "id": "a", "t": 1, "args": {"pl": "AAA"}});
    site.push(&results, &nonsense.to_string()).await?;
    let worker = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    let inspector = queue.inspector();
    site.until("one is put off, the other is dead", || async {
        let (packs, results) = (
            inspector.counts(COMPUTE).await?,
            inspector.counts(&results).await?,
        );
        Ok((packs.retry, packs.dead, results.dead) == (1, 0, 1))
    })
    .await?;
    hurry(&worker, &mut config);
    let report = site.ended(coordinator).await?;
    let files = report.files.context("no files")?;
    assert_eq!((files.new, files.unreadable), (50, 0));
    assert_eq!(report.result.context("no result")?.reason, "Verified");
    // Whoever has those files may still come.
    let packs = inspector.counts(COMPUTE).await?;
    assert_eq!(packs.queued + packs.in_progress + packs.retry, 1);
    Ok(())
}

#[tokio::test]
async fn results_for_files_that_nobody_knows_change_nothing() -> Result<()> {
    let site = Site::with(50).await?;
    let mut config = slow(&site);
    let worker = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    site.until_stored(1).await?;
    let queue = queue_of(&site, "run", "home", "run-run")?;
    let digest = Algorithm::Blake3.digest(b"nothing");
    let read = Reading::Read {
        digests: vec![digest],
        bytes: 7,
    };
    let unknown = BackPack {
        files: vec![(999_999, vec![7; 20])],
        results: vec![(Key::of(b"nowhere"), read)],
        ..BackPack::default()
    };
    let unknown = result_job(&queue.results(), &unknown);
    queue.enqueuer().enqueue_many(vec![unknown]).await?;
    site.pod.until_logged("a result that fits no file");
    hurry(&worker, &mut config);
    let report = site.ended(coordinator).await?;
    let files = report.files.context("no files")?;
    assert_eq!((files.total, files.new), (50, 50));
    assert_eq!(report.bytes_read, site.pod.total());
    assert_eq!(report.result.context("no result")?.reason, "Verified");
    Ok(())
}

#[tokio::test]
async fn a_pack_of_lsdf_checksum_is_answered_as_its_own_workers_do() -> Result<()> {
    let site = Site::with(10).await?;
    let queue = queue_of(&site, "run", "home", "run-run")?;
    let limit = [(LIMIT, "0".to_owned())];
    queue.published().publish(&limit).await?;
    let files = vec![plain(7, "/folder0/file3"), plain(8, "/nowhere")];
    let pack = pack("home", "run-run", files);
    queue.enqueuer().enqueue_many(vec![pack_job(&pack)]).await?;
    let _worker = site.worker("worker-1", &site.config("run"));
    let answer = answer(&queue).await?;
    let answer = BackPack::decode(payload(answer.job()).map_err(anyhow::Error::msg)?)?;
    let sum = Algorithm::Sha1.digest(b"content of 3");
    let expected = BackPack {
        files: vec![(7, sum.as_bytes().to_vec())],
        ..BackPack::default()
    };
    assert_eq!(answer, expected);
    Ok(())
}

/// The first result, as a coordinator takes it.
async fn answer(queue: &Queue) -> Result<Taken> {
    let options = PoolOptions::new(vec![Kind::new(queue.results())], 1);
    let pool = Pool::new(queue.client.clone(), queue.namespace.clone(), options)?;
    let taking = async {
        let began = Instant::now();
        loop {
            if let Some(taken) = pool.take().await? {
                return Ok(taken);
            }
            ensure!(began.elapsed() < PATIENCE, "no answer came");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        taken = taking => taken,
        () = pool.run(CancellationToken::new()) => anyhow::bail!("the pool ended"),
    }
}
