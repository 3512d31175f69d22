//! A job has one owner.

use anyhow::{Result, ensure};
use testbed::wait::eventually;
use workqueue::{Failed, NewJob, Outcome, Tries};

use crate::support::{Bed, Running, SOON, numbered, pool_options};

#[tokio::test]
async fn a_pool_that_was_away_cannot_end_a_job_that_somebody_else_has() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N"])?;
    for number in 0..3 {
        bed.enqueue("N", number).await?;
    }
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(worker.next().await?);
    }
    let frozen = worker.freeze().await;
    let other = bed.pool(&["N"])?;
    let stolen = other.next().await?;

    ensure!(frozen.finish(&held[0]).await? == Outcome::Fenced);
    let answer = NewJob {
        name: "Answer".into(),
        args: Some(numbered(1)),
    };
    let outcome = frozen.finish_with(&held[1], vec![answer]).await?;
    ensure!(outcome == Outcome::Fenced);
    ensure!(bed.length("jobs:Answer").await? == 0, "nothing is pushed");
    let failed = frozen.fail(&held[2], "too late", Tries::default()).await?;
    ensure!(failed == Failed::Fenced);
    ensure!(bed.sorted("retry").await?.is_empty(), "nothing is retried");
    ensure!(frozen.stats().fenced == 3);

    ensure!(other.pool.finish(&stolen).await? == Outcome::Done);
    let mut left = 2;
    while left > 0 {
        let taken = other.next().await?;
        ensure!(other.pool.finish(&taken).await? == Outcome::Done);
        left -= 1;
    }
    ensure!(bed.ask::<i64>("GET", "jobs:N:lock", &[]).await? == 0);
    other.stop().await
}

#[tokio::test]
async fn a_pool_that_was_away_takes_a_new_identifier_and_keeps_what_nobody_took() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N"])?;
    bed.enqueue("N", 1).await?;
    let held = worker.next().await?;
    let first = worker.pool.id().unwrap();
    let pool = worker.freeze().await;
    // Nobody else is there to take its jobs.
    let key = format!("worker_pools:{first}");
    eventually("the heartbeat to be old", SOON, async || {
        let at: i64 = bed.hash(&key).await?["heartbeat_at"].parse()?;
        Ok((bed.client.now().await? - at >= 4).then_some(()))
    })
    .await?;
    bed.enqueue("N", 2).await?;
    let next = pool.take().await?.unwrap();
    let second = pool.id().unwrap();
    ensure!(second != first && next.job().integer("n") == Some(2));
    ensure!(bed.length(&format!("jobs:N:{second}:inprogress")).await? == 1);

    let worker = Running::new(pool);
    eventually("the old heartbeat to be renewed", SOON, async || {
        let beat = bed.hash(&key).await?;
        let at: i64 = beat["heartbeat_at"].parse()?;
        let is_young = bed.client.now().await? - at < 4;
        ensure!(is_young && beat["concurrency"] == "0", "{beat:?}");
        Ok(Some(()))
    })
    .await?;
    ensure!(
        bed.inspector.workers("N").await? == 4,
        "they are not counted twice"
    );
    ensure!(worker.pool.finish(&held).await? == Outcome::Done);
    drop(held);
    eventually("the old identifier to be retired", SOON, async || {
        Ok(bed.hash(&key).await?.is_empty().then_some(()))
    })
    .await?;
    ensure!(worker.pool.finish(&next).await? == Outcome::Done);
    worker.stop().await
}

#[tokio::test]
async fn a_pool_whose_heartbeat_was_removed_takes_a_new_identifier() -> Result<()> {
    let bed = Bed::new().await?;
    let mut options = pool_options(&["N"]);
    options.patience = std::time::Duration::from_secs(20);
    let pool = bed.idle_pool(options)?;
    ensure!(pool.take().await?.is_none());
    let first = pool.id().unwrap();
    bed.ask::<i64>("DEL", &format!("worker_pools:{first}"), &[])
        .await?;
    bed.enqueue("N", 1).await?;
    let taken = pool.take().await?.unwrap();
    ensure!(pool.id().unwrap() != first);
    ensure!(bed.length(&format!("jobs:N:{first}:inprogress")).await? == 0);
    ensure!(pool.finish(&taken).await? == Outcome::Done);

    let worker = Running::new(pool);
    let second = worker.pool.id().unwrap();
    bed.ask::<i64>("DEL", &format!("worker_pools:{second}"), &[])
        .await?;
    eventually("a third identifier", SOON, async || {
        let id = worker.pool.id();
        Ok(id.filter(|id| *id != second && *id != first))
    })
    .await?;
    worker.stop().await?;
    ensure!(
        bed.ask::<Vec<String>>("SMEMBERS", "worker_pools", &[])
            .await?
            .is_empty()
    );
    Ok(())
}
