#![expect(clippy::disallowed_methods, reason = "waits for processes")]
//! Coordinator and workers as processes, with a real MariaDB and a real Redis: what is shared, lost and killed.

#[path = "../coordinator/pod.rs"]
#[expect(dead_code, reason = "shared with other tests, which use the rest")]
mod pod;
mod site;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use site::Site;

#[tokio::test]
async fn workers_read_what_a_coordinator_sends_and_leave_nothing_in_redis() -> Result<()> {
    let site = Site::with(300).await?;
    let config = site.config("run");
    let _workers = [
        site.worker("worker-1", &config),
        site.worker("worker-2", &config),
    ];
    let report = site.run(&config).await?;
    let files = report.files.unwrap_or_default();
    assert_eq!((files.total, files.new, files.remaining), (300, 300, 0));
    assert_eq!(report.result.unwrap().reason, "Verified");
    site.until("no key of the run is left", || async {
        Ok(site.keys().await?.is_empty())
    })
    .await
}

#[tokio::test]
async fn damage_and_unreadable_files_are_told_as_in_one_process() -> Result<()> {
    let site = Site::with(100).await?;
    let config = site.config("first");
    let worker = site.worker("worker-1", &config);
    site.run(&config).await?;
    drop(worker);
    site.pod.rot("folder1/file11");
    let config = site.config("second");
    let _worker = site.worker("worker-2", &config);
    let report = site.run(&config).await?;
    assert_eq!(report.result.unwrap().reason, "DamageFound");
    assert_eq!(report.corrupt[0].path, "folder1/file11");
    assert_eq!(report.files.unwrap().verified, 99);
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
async fn what_is_no_pack_is_left_among_the_dead_and_stops_nobody() -> Result<()> {
    let site = Site::with(50).await?;
    let config = site.config("run");
    site.push("ComputeChecksum", "this is no job").await?;
    site.push(
        "ComputeChecksum",
        r#"{"name":"ComputeChecksum","id":"a","t":1,"args":{"pl":"AAA"}}"#,
    )
    .await?;
    site.push(
        "ComputeChecksum",
        r#"{"name":"ComputeChecksum","id":"b","t":1,"args":null}"#,
    )
    .await?;
    let _worker = site.worker("worker-1", &config);
    let report = site.run(&config).await?;
    assert_eq!(report.files.unwrap().new, 50);
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
    site.until("reading has stopped", || async {
        let before = site.stored().await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(site.stored().await? == before)
    })
    .await?;
    ensure!(
        site.stored().await? < 300,
        "it was done before it was suspended"
    );
    config["spec"]["suspend"] = json!(false);
    config["spec"]["maxThroughputPerWorker"] = json!(null);
    config["generation"] = json!(3);
    site.pod.configure(&config);
    worker.pod.configure(&config);
    let report = site.ended(coordinator).await?;
    assert_eq!(report.files.unwrap().new, 300);
    Ok(())
}
