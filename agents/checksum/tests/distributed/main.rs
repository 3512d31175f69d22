#![expect(clippy::disallowed_methods, reason = "waits for processes")]
//! Coordinator and workers as processes, with a real MariaDB and a real Redis: what is shared, lost and killed.

mod others;
#[path = "../coordinator/pod.rs"]
#[expect(dead_code, reason = "shared with other tests, which use the rest")]
mod pod;
mod queue;
mod sharing;
mod site;
mod strangers;
mod watch;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use site::{Running, Site};

#[tokio::test]
async fn workers_read_what_a_coordinator_sends_and_leave_nothing_in_redis() -> Result<()> {
    let site = Site::with(300).await?;
    let config = site.config("run");
    let workers = [
        site.worker("worker-1", &config),
        site.worker("worker-2", &config),
    ];
    let report = site.run(&config).await?;
    let files = report.files.unwrap_or_default();
    assert_eq!((files.total, files.new, files.remaining), (300, 300, 0));
    assert_eq!(report.result.unwrap().reason, "Verified");
    for worker in workers {
        worker.terminated().await?;
    }
    assert_eq!(site.keys().await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a_large_file_is_read_in_pieces_by_several_workers_and_is_the_same_file() -> Result<()> {
    let site = Site::with(10).await?;
    // Pieces of 2 MiB.
    let content: Vec<u8> = (0..(20_u32 << 20) + 5)
        .map(|n| (n >> 10).to_le_bytes()[0])
        .collect();
    std::fs::write(site.pod.root().join("large"), &content)?;
    let mut config = site.config("run");
    config["spec"]["tuning"]["packBytes"] = json!(64 << 10);
    config["spec"]["maxThroughputPerWorker"] = json!(4 << 20);
    let workers = [
        site.worker("worker-1", &config),
        site.worker("worker-2", &config),
    ];
    site.until("both are there", || async {
        let keys = site.keys().await?;
        let is_pool = |key: &&String| key.contains(":worker_pools:");
        Ok(keys.iter().filter(is_pool).count() == 2)
    })
    .await?;
    let report = site.run(&config).await?;
    let files = report.files.unwrap();
    assert_eq!((files.new, files.unreadable), (11, 0));
    assert_eq!(report.bytes_read, site.pod.total());
    assert_eq!(
        site.checksum("large").await?,
        blake3::hash(&content).to_hex().as_str()
    );
    for worker in &workers {
        let read = worker.pod.read_by_metrics();
        ensure!(read > 4 << 20, "one of them read only {read} bytes");
    }
    // The same file whole, by one process.
    config["spec"]["tuning"]["packBytes"] = json!(5 << 20);
    config["uid"] = json!("second");
    let _worker = site.worker("worker-3", &config);
    let report = site.run(&config).await?;
    assert_eq!(report.files.unwrap().verified, 11);
    Ok(())
}

#[tokio::test]
async fn pieces_that_came_back_are_not_read_again_for_who_goes_on() -> Result<()> {
    const PIECE: u64 = 2 << 20;
    const PIECES: u64 = 11;
    const ENOUGH: u64 = 8;
    let site = Site::with(0).await?;
    let content = vec![1; usize::try_from((PIECES - 1) * PIECE + 5)?];
    std::fs::write(site.pod.root().join("large"), &content)?;
    let mut config = site.config("run");
    config["spec"]["tuning"]["packBytes"] = json!(64 << 10);
    config["spec"]["maxThroughputPerWorker"] = json!(1 << 20);
    let worker = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    site.until("pieces are kept", || async {
        Ok(site.pieces().await? >= ENOUGH)
    })
    .await?;
    drop(coordinator); // killed
    let kept = site.pieces().await?;
    ensure!(kept >= ENOUGH, "{kept}");
    config["spec"]["maxThroughputPerWorker"] = json!(4 << 20);
    config["generation"] = json!(2);
    worker.pod.configure(&config);
    let report = site.run(&config).await?;
    assert_eq!(report.files.unwrap().new, 1);
    let checksum = blake3::hash(&content).to_hex();
    assert_eq!(site.checksum("large").await?, checksum.as_str());
    assert_eq!(site.pieces().await?, 0);
    // Those that had not come back were on their way, and perhaps one more at each reader.
    let read = worker.pod.read_by_metrics();
    let twice = (PIECES - kept + 2) * PIECE;
    ensure!(read <= site.pod.total() + twice, "{read}, {kept} were kept");
    Ok(())
}

#[tokio::test]
async fn what_takes_longer_to_read_than_redis_keeps_its_data_is_read_once() -> Result<()> {
    let site = Site::with(0).await?;
    std::fs::write(site.pod.root().join("long"), vec![1; 16 << 20])?;
    let mut config = site.config("run");
    config["spec"]["concurrency"] = json!(1);
    config["spec"]["maxThroughputPerWorker"] = json!(320 << 10);
    let worker = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    let waits = || async {
        let keys = site.keys().await?;
        Ok(keys.iter().any(|key| key.ends_with("jobs:ComputeChecksum")))
    };
    worker.pod.until_logged("listening");
    site.until("it is being read", || async {
        Ok(worker.pod.metric("orrery_checksum_reading") == 1)
    })
    .await?;
    for _ in 0..3 {
        site.flush().await?;
        site.until("it is asked for again", waits).await?;
    }
    config["spec"]["maxThroughputPerWorker"] = json!(4 << 20);
    config["generation"] = json!(2);
    worker.pod.configure(&config);
    let report = site.ended(coordinator).await?;
    let files = report.files.unwrap();
    assert_eq!((files.new, files.unreadable), (1, 0));
    let (read, all) = (worker.pod.read_by_metrics(), site.pod.total());
    ensure!(read < all * 3 / 2, "{read} of {all}");
    Ok(())
}

#[tokio::test]
async fn a_run_that_reads_nothing_needs_no_worker() -> Result<()> {
    let site = Site::with(100).await?;
    let config = site.config("first");
    let worker = site.worker("worker-1", &config);
    site.run(&config).await?;
    drop(worker);
    let mut config = site.config("second");
    config["spec"]["mode"] = json!("Incremental");
    let began = Instant::now();
    let report = site.run(&config).await?;
    // Who waited for a worker would wait for ever; two cores may be busy with other things.
    let took = began.elapsed();
    ensure!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(report.files.unwrap().not_selected, 100);
    Ok(())
}

#[tokio::test]
async fn what_an_object_that_is_gone_has_left_in_redis_goes_with_the_next_run() -> Result<()> {
    let site = Site::with(300).await?;
    let mut config = site.config("gone");
    config["spec"]["maxThroughputPerWorker"] = json!(500);
    let worker = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    site.until_stored(20).await?;
    drop((coordinator, worker)); // killed
    let config = site.config("next");
    let worker = site.worker("worker-2", &config);
    let report = site.run(&config).await?;
    assert_eq!(report.result.unwrap().reason, "Verified");
    worker.terminated().await?;
    let keys = site.keys().await?;
    ensure!(
        keys.iter().all(|key| key.contains("worker_pools")),
        "{keys:?}"
    );
    Ok(())
}

#[tokio::test]
async fn the_limit_is_shared_by_those_who_read_and_follows_their_number() -> Result<()> {
    let site = Site::with(300).await?;
    let mut config = site.config("run");
    config["spec"]["maxThroughput"] = json!(20);
    let first = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    site.until_limit("20").await?;
    let second = site.worker("worker-2", &config);
    site.until_limit("10").await?;
    second.terminated().await?;
    let left = Instant::now();
    site.until_limit("20").await?;
    ensure!(left.elapsed() < Duration::from_secs(15), "{left:?}");
    let third = site.worker("worker-3", &config);
    site.until_limit("10").await?;
    drop(third); // killed
    let killed = Instant::now();
    site.until_limit("20").await?;
    ensure!(killed.elapsed() < Duration::from_secs(50), "{killed:?}");
    config["spec"]["maxThroughput"] = json!(null);
    config["generation"] = json!(2);
    site.pod.configure(&config);
    site.until_limit("0").await?;
    let report = site.ended(coordinator).await?;
    assert_eq!(report.files.unwrap().new, 300);
    drop(first);
    Ok(())
}

#[tokio::test]
async fn a_worker_tries_more_readers_than_processors_where_nobody_says_how_many() -> Result<()> {
    let site = Site::with(300).await?;
    let mut config = site.config("run");
    config["spec"]["concurrency"] = json!(null);
    config["spec"]["maxThroughputPerWorker"] = json!(100);
    let worker = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    let processors = std::thread::available_parallelism()?.get() as u64;
    let reading = || worker.pod.metric("orrery_checksum_reading");
    worker.pod.until_logged("listening");
    site.until("one more file is read", || async {
        Ok(reading() > processors)
    })
    .await?;
    config["spec"]["maxThroughputPerWorker"] = json!(null);
    config["generation"] = json!(2);
    worker.pod.configure(&config);
    let report = site.ended(coordinator).await?;
    assert_eq!(report.files.unwrap().new, 300);
    Ok(())
}

#[tokio::test]
async fn a_wrong_password_is_told_and_a_right_one_is_taken_up() -> Result<()> {
    let site = Site::with(50).await?;
    let config = site.config("run");
    for (file, reason) in [
        ("queue-password", "QueueUnreachable"),
        ("store-password", "StoreRefused"),
    ] {
        site.credential(file, "wrong")?;
        let coordinator = site.coordinator(&config);
        let worker = site.worker("worker-1", &config);
        site.pod.until_logged(reason);
        if file == "queue-password" {
            worker.pod.until_logged("refuses us");
        }
        site.credential(file, "testbed")?;
        let report = site.ended(coordinator).await?;
        assert_eq!(report.files.unwrap().new, 50, "{file}");
    }
    Ok(())
}

#[tokio::test]
async fn a_database_that_is_away_is_waited_for_at_first_and_while_files_are_read() -> Result<()> {
    let mut site = Site::with(300).await?;
    let server = testbed::mariadb::start().await?;
    site.store_on(&server);
    let mut config = site.config("run");
    config["spec"]["maxThroughputPerWorker"] = json!(100);
    let worker = site.worker("worker-1", &config);
    // Before it was ever there.
    server.server().kill().await?;
    let coordinator = site.coordinator(&config);
    site.pod.until_logged("StoreUnreachable");
    server.server().start().await?;
    site.until_stored(20).await?;
    // While files are read.
    server.server().kill().await?;
    site.pod.until_logged_again("StoreUnreachable");
    server.server().start().await?;
    config["spec"]["maxThroughputPerWorker"] = json!(null);
    config["generation"] = json!(2);
    worker.pod.configure(&config);
    let report = site.ended(coordinator).await?;
    let files = report.files.unwrap();
    assert_eq!((files.new, files.unreadable), (300, 0));
    assert_eq!(report.result.unwrap().reason, "Verified");
    server.shutdown().await
}

#[tokio::test]
async fn two_coordinators_of_one_run_are_one() -> Result<()> {
    let site = Site::with(300).await?;
    let mut config = site.config("run");
    config["spec"]["maxThroughputPerWorker"] = json!(100);
    let worker = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    site.until_stored(20).await?;
    let other = site.pod.beside("other");
    let second = Running::coordinator(&other, &config);
    other.until_logged("StoreInUse");
    config["spec"]["maxThroughputPerWorker"] = json!(null);
    config["generation"] = json!(2);
    worker.pod.configure(&config);
    let report = site.ended(coordinator).await?;
    assert_eq!(report.files.unwrap().new, 300);
    // The other one finds the run done, and tells the same.
    let again = site.ended(second).await?;
    assert_eq!(again.files.unwrap().new, 300);
    Ok(())
}

#[tokio::test]
async fn damage_and_unreadable_files_are_told_as_in_one_process() -> Result<()> {
    let site = Site::with(100).await?;
    let config = site.config("first");
    let worker = site.worker("worker-1", &config);
    site.run(&config).await?;
    drop(worker);
    site.pod.rot("folder1/file11");
    site.pod.permit("folder2/file22", false);
    let config = site.config("second");
    let _worker = site.worker("worker-2", &config);
    let report = site.run(&config).await?;
    assert_eq!(report.result.unwrap().reason, "DamageFound");
    assert_eq!(report.corrupt[0].path, "folder1/file11");
    let files = report.files.unwrap();
    assert_eq!(
        (files.verified, files.corrupt, files.unreadable),
        (98, 1, 1)
    );
    Ok(())
}

#[tokio::test]
async fn a_killed_worker_costs_time_but_no_file() -> Result<()> {
    let site = Site::with(300).await?;
    let mut config = site.config("run");
    config["spec"]["maxThroughputPerWorker"] = json!(400);
    let slow = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    site.until_stored(20).await?;
    drop(slow); // killed
    let killed = Instant::now();
    config["spec"]["maxThroughputPerWorker"] = json!(null);
    let _other = site.worker("worker-2", &config);
    let report = site.ended(coordinator).await?;
    let files = report.files.unwrap();
    assert_eq!((files.new, files.unreadable), (300, 0));
    ensure!(
        killed.elapsed() < Duration::from_secs(45),
        "{:?}",
        killed.elapsed()
    );
    Ok(())
}

#[tokio::test]
async fn redis_that_loses_everything_costs_time_but_no_file() -> Result<()> {
    let site = Site::with(300).await?;
    let mut config = site.config("run");
    config["spec"]["maxThroughput"] = json!(500);
    let worker = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    site.until_stored(20).await?;
    site.flush().await?;
    site.until_limit("500").await?; // told again to who has lost it
    config["spec"]["maxThroughput"] = json!(null);
    config["generation"] = json!(2);
    site.pod.configure(&config);
    worker.pod.configure(&config);
    let report = site.ended(coordinator).await?;
    let files = report.files.unwrap();
    assert_eq!((files.new, files.unreadable), (300, 0));
    Ok(())
}

#[tokio::test]
async fn a_killed_coordinator_is_gone_on_from_by_the_next() -> Result<()> {
    let site = Site::with(300).await?;
    let mut config = site.config("run");
    config["spec"]["maxThroughputPerWorker"] = json!(500);
    let _worker = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    site.until_stored(20).await?;
    drop(coordinator); // killed
    let report = site.run(&config).await?;
    let files = report.files.unwrap();
    assert_eq!((files.total, files.new), (300, 300));
    Ok(())
}

#[tokio::test]
async fn suspension_stops_all_workers_and_its_end_goes_on() -> Result<()> {
    let site = Site::with(300).await?;
    let mut config = site.config("run");
    config["spec"]["maxThroughputPerWorker"] = json!(500);
    let worker = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    site.until_stored(20).await?;
    config["spec"]["suspend"] = json!(true);
    config["generation"] = json!(2);
    site.pod.configure(&config);
    worker.pod.configure(&config);
    tokio::time::sleep(Duration::from_secs(5)).await; // it has so long
    let before = worker.pod.read_by_metrics();
    let all = site.pod.total();
    ensure!((1..all).contains(&before), "{before} of {all}");
    tokio::time::sleep(Duration::from_secs(3)).await; // and so long it could be caught at reading
    assert_eq!(worker.pod.read_by_metrics(), before);
    config["spec"]["suspend"] = json!(false);
    config["spec"]["maxThroughputPerWorker"] = json!(null);
    config["generation"] = json!(3);
    site.pod.configure(&config);
    worker.pod.configure(&config);
    let report = site.ended(coordinator).await?;
    assert_eq!(report.files.unwrap().new, 300);
    // Two readers had a file each under way, at most.
    let read = worker.pod.read_by_metrics();
    ensure!((all..=all + 2 * 20).contains(&read), "{read} of {all}");
    Ok(())
}
