//! A queue that cannot be used for a while: it is waited for, and told meanwhile.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::site::Site;

/// How long Redis is away.
const AWAY: Duration = Duration::from_mins(1);

#[tokio::test]
async fn a_queue_that_is_away_for_a_minute_costs_no_file_and_ends_nobody() -> Result<()> {
    let mut site = Site::with(300).await?;
    let server = testbed::redis::start().await?;
    site.queue_on(&server)?;
    let mut config = site.config("run");
    config["spec"]["maxThroughputPerWorker"] = json!(200);
    let mut worker = site.worker("worker-1", &config);
    let mut coordinator = site.coordinator(&config);
    site.until_stored(20).await?;
    server.server().kill().await?;
    site.pod.until_logged("the queue cannot be used for now");
    tokio::time::sleep(AWAY).await; // the time is what is tested
    for process in [&mut worker, &mut coordinator] {
        ensure!(process.is_running()?, "{}", process.pod.log());
    }
    server.server().start().await?;
    config["spec"]["maxThroughputPerWorker"] = json!(null);
    config["generation"] = json!(2);
    worker.pod.configure(&config);
    let report = site.ended(coordinator).await?;
    let files = report.files.context("no files")?;
    assert_eq!((files.new, files.unreadable), (300, 0));
    server.shutdown().await
}

#[tokio::test]
async fn a_run_can_be_given_up_while_the_queue_is_away() -> Result<()> {
    let mut site = Site::with(300).await?;
    let server = testbed::redis::start().await?;
    site.queue_on(&server)?;
    let mut config = site.config("run");
    config["spec"]["maxThroughputPerWorker"] = json!(200);
    let _worker = site.worker("worker-1", &config);
    let coordinator = site.coordinator(&config);
    site.until_stored(20).await?;
    server.server().kill().await?;
    site.pod.until_logged("the queue cannot be used for now");
    config["spec"]["cancel"] = json!(true);
    config["generation"] = json!(2);
    site.pod.configure(&config);
    let report = site.ended(coordinator).await?;
    let result = report.result.context("no result")?;
    ensure!(result.reason == "Cancelled", "{result:?}");
    server.shutdown().await
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_is_told_and_waited_for() -> Result<()> {
    let site = Site::with(50).await?;
    let mut config = site.config("run");
    config["spec"]["queue"]["redis"]["tls"] = json!(true);
    let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    site.credential("queue-ca.crt", broken)?;
    let coordinator = site.coordinator(&config);
    let worker = site.worker("worker-1", &config);
    site.pod.until_logged("QueueUnreachable");
    config["spec"]["queue"]["redis"]["tls"] = json!(false);
    config["generation"] = json!(2);
    site.pod.configure(&config);
    worker.pod.configure(&config);
    let report = site.ended(coordinator).await?;
    assert_eq!(report.files.context("no files")?.new, 50);
    Ok(())
}

#[tokio::test]
async fn packs_that_wait_for_a_worker_are_told_to_prometheus() -> Result<()> {
    let site = Site::with(300).await?;
    let coordinator = site.coordinator(&site.config("run"));
    let queued = || coordinator.pod.metric("orrery_checksum_queued_packs");
    site.pod.until_logged("listening");
    // As many as are wanted for workers that may come, and no more.
    site.until("four packs wait", || async { Ok(queued() == 4) })
        .await?;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await; // so long it could be caught at sending more
        assert_eq!(queued(), 4);
    }
    Ok(())
}
