//! What dead pools leave behind.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use testbed::wait::eventually;
use tokio::time::Instant;
use workqueue::{Kind, NewJob, Outcome, PoolOptions};

use crate::support::{Bed, PATIENCE, SOON, Space, numbered, options, pool_options};

/// With the periods that are used in earnest.
#[tokio::test]
async fn jobs_of_a_dead_pool_are_back_within_fifteen_seconds() -> Result<()> {
    let bed = Bed::new().await?;
    let options = |name: &str| PoolOptions::new(vec![Kind::new(name)], 1);
    let survivor = bed.pool_with(options("Other"))?;
    let doomed = bed.pool_with(options("N"))?;
    bed.enqueue("N", 1).await?;
    let taken = doomed.next().await?;
    // Who has only just come does not judge.
    tokio::time::sleep(Duration::from_secs(11)).await;
    ensure!(doomed.pool.stats().identities == 1, "it has lived so far");
    let pool = doomed.freeze().await;
    #[expect(clippy::disallowed_methods, reason = "time is the subject")]
    let died = Instant::now();
    bed.list_becomes("jobs:N", 1).await?;
    ensure!(
        died.elapsed() <= Duration::from_secs(15),
        "{:?}",
        died.elapsed()
    );
    ensure!(pool.finish(&taken).await? == Outcome::Fenced);
    survivor.stop().await
}

#[tokio::test]
async fn a_job_that_comes_back_is_next_and_one_that_comes_back_again_is_last() -> Result<()> {
    let bed = Bed::new().await?;
    let reaper = bed.pool(&["Other"])?;
    let first = bed.enqueue("N", 1).await?;
    for _ in 0..2 {
        let doomed = bed.pool(&["N"])?;
        let taken = doomed.next().await?;
        ensure!(
            taken.job().id == first,
            "it waited longest, and then it is next"
        );
        let waiting = bed.length("jobs:N").await?;
        bed.enqueue("N", 2).await?;
        let _frozen = doomed.freeze().await;
        bed.list_becomes("jobs:N", waiting + 2).await?;
    }
    let last = bed.pool(&["N"])?;
    for is_first in [false, false, true] {
        let taken = last.next().await?;
        ensure!((taken.job().id == first) == is_first);
    }
    reaper.stop().await
}

#[tokio::test]
async fn a_job_that_has_come_back_five_times_goes_to_the_dead() -> Result<()> {
    let bed = Bed::new().await?;
    let reaper = bed.pool(&["Other"])?;
    let id = bed.enqueue("N", 1).await?;
    let doomed = bed.pool(&["N"])?;
    let _held = doomed.next().await?;
    let _frozen = doomed.freeze().await;
    bed.list_becomes("jobs:N", 1).await?;
    let come_back = bed.hash("jobs:N:come_back").await?;
    let element = come_back.keys().next().unwrap();
    // As if four more had died of it, which takes long.
    bed.ask::<i64>("HINCRBY", "jobs:N:come_back", &[element, "4"])
        .await?;

    let doomed = bed.pool(&["N"])?;
    let last = doomed.next().await?;
    ensure!(last.job().id == id);
    bed.enqueue("N", 2).await?;
    let _other = doomed.next().await?;
    let _frozen = doomed.freeze().await;
    bed.list_becomes("jobs:N", 1).await?;
    let dead = bed.sorted("dead").await?;
    let [(job, at)] = dead.as_slice() else {
        anyhow::bail!("{dead:?}");
    };
    ensure!(job.id == id && job.integer("n") == Some(1) && job.fails == 1);
    ensure!(job.error == "each of the 6 pools that took it died");
    ensure!(job.failed_at == *at && *at <= bed.client.now().await?);
    ensure!(bed.ask::<i64>("GET", "jobs:N:lock", &[]).await? == 0);
    ensure!(bed.hash("jobs:N:lock_info").await?.is_empty());
    let heir = bed.pool(&["N"])?;
    let other = heir.next().await?;
    ensure!(other.job().integer("n") == Some(2), "that one is innocent");
    ensure!(heir.pool.finish(&other).await? == Outcome::Done);
    ensure!(bed.inspector.counts("N").await?.is_drained());
    reaper.counts(|stats| stats.reaped == 3).await?;
    heir.stop().await?;
    reaper.stop().await
}

#[tokio::test]
async fn several_reapers_move_each_job_once() -> Result<()> {
    let bed = Bed::new().await?;
    let jobs = (0..100).map(|number| NewJob {
        name: "N".into(),
        args: Some(numbered(number)),
    });
    bed.enqueuer.enqueue_many(jobs.collect()).await?;
    let doomed = bed.pool(&["N"])?;
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(doomed.next().await?);
    }
    let pool = doomed.pool.id().unwrap();
    let busy = eventually("a busy worker", SOON, async || {
        let keys = bed.keys().await?;
        Ok(keys.into_iter().find(|key| key.contains(":worker:")))
    })
    .await?;
    let _frozen = doomed.freeze().await;
    let mut reapers = Vec::new();
    for name in ["A", "B", "C"] {
        reapers.push(bed.pool(&[name])?);
    }
    bed.list_becomes("jobs:N", 100).await?;
    eventually("the pool to be gone", SOON, async || {
        let keys = bed.keys().await?;
        let left: Vec<_> = keys.iter().filter(|key| key.contains(&pool)).collect();
        ensure!(left.is_empty() && !keys.contains(&busy), "{left:?}");
        Ok(Some(()))
    })
    .await?;
    let elements: Vec<String> = bed.ask("LRANGE", "jobs:N", &["0", "-1"]).await?;
    ensure!(elements.iter().collect::<BTreeSet<_>>().len() == 100);
    eventually("all to be counted", SOON, async || {
        let moved = reapers.iter().map(|reaper| reaper.pool.stats().reaped);
        let moved: u64 = moved.sum();
        ensure!(moved == 100, "{moved}");
        Ok(Some(()))
    })
    .await?;
    ensure!(bed.ask::<i64>("GET", "jobs:N:lock", &[]).await? == 0);
    ensure!(bed.hash("jobs:N:lock_info").await?.is_empty());
    for reaper in reapers {
        reaper.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_list_without_a_heartbeat_is_found_but_not_at_once() -> Result<()> {
    let bed = Bed::new().await?;
    let reaper = bed.pool(&["N"])?;
    // It may judge from now on.
    tokio::time::sleep(PATIENCE + Duration::from_secs(1)).await;
    let list = "jobs:Any:name:0123456789abcdef01234567:inprogress";
    bed.ask::<i64>("LPUSH", list, &["one", "two"]).await?;
    bed.ask::<i64>(
        "HSET",
        "jobs:Any:name:lock_info",
        &["0123456789abcdef01234567", "2"],
    )
    .await?;
    bed.ask::<String>("SET", "jobs:Any:name:lock", &["7"])
        .await?;
    // A Go pool takes jobs before it writes its first heartbeat.
    tokio::time::sleep(PATIENCE * 2 / 3).await;
    ensure!(bed.length(list).await? == 2);
    bed.list_becomes("jobs:Any:name", 2).await?;
    ensure!(bed.length(list).await? == 0);
    let lock = async || bed.ask::<i64>("GET", "jobs:Any:name:lock", &[]).await;
    eventually("a count that is true", SOON, async || {
        Ok((lock().await? == 0).then_some(()))
    })
    .await?;
    reaper.counts(|stats| stats.reaped == 2).await?;
    reaper.stop().await
}

#[tokio::test]
async fn pools_that_begin_at_once_do_not_walk_through_all_keys_at_once() -> Result<()> {
    let server = testbed::redis::start().await?;
    let space = Space::new(options(&server), &server.url()).await?;
    let seldom = || PoolOptions {
        search_every: Duration::from_hours(10_000),
        ..pool_options(&["N"])
    };
    let pools = [space.pool_with(seldom())?, space.pool_with(seldom())?];
    let calls = async |command: &str| -> Result<u64> {
        let mut info = redis::cmd("INFO");
        info.arg("commandstats");
        let stats: String = info.query_async(&mut space.raw().await?).await?;
        let prefix = format!("cmdstat_{command}:calls=");
        let found = stats.lines().find_map(|line| line.strip_prefix(&prefix));
        let calls = found.and_then(|rest| rest.split(',').next());
        Ok(calls.map_or(Ok(0), str::parse)?)
    };
    eventually("looks at each other", SOON, async || {
        Ok((calls("hmget").await? >= 20).then_some(()))
    })
    .await?;
    ensure!(calls("scan").await? == 0);
    for pool in pools {
        pool.stop().await?;
    }
    server.shutdown().await
}

#[tokio::test]
async fn a_pool_that_lives_is_never_touched() -> Result<()> {
    let bed = Bed::new().await?;
    let (one, other) = (bed.pool(&["N"])?, bed.pool(&["N"])?);
    bed.enqueue("N", 1).await?;
    let taken = one.next().await?;
    let id = one.pool.id();
    // Go pools whose clocks are wrong.
    let wrong = async |pool: &str, by: i64| {
        let at = (bed.client.now().await? + by).to_string();
        let fields = ["heartbeat_at", &at, "job_names", "N", "concurrency", "1"];
        let key = format!("worker_pools:{pool}");
        bed.ask::<i64>("HSET", &key, &fields).await
    };
    for pool in ["ahead", "behind"] {
        bed.ask::<i64>("SADD", "worker_pools", &[pool]).await?;
        let list = format!("jobs:N:{pool}:inprogress");
        bed.ask::<i64>("LPUSH", &list, &["its job"]).await?;
    }
    for _ in 0..9 {
        wrong("ahead", 3600).await?;
        wrong("behind", -3600).await?;
        tokio::time::sleep(PATIENCE / 3).await;
    }
    for pool in ["ahead", "behind"] {
        ensure!(bed.length(&format!("jobs:N:{pool}:inprogress")).await? == 1);
    }
    ensure!(one.pool.id() == id, "it has kept its identifier");
    ensure!(one.pool.finish(&taken).await? == Outcome::Done);
    ensure!(one.pool.stats().reaped + other.pool.stats().reaped == 0);
    one.stop().await?;
    other.stop().await
}

#[tokio::test]
async fn a_count_that_has_drifted_does_not_close_a_queue_for_ever() -> Result<()> {
    let bed = Bed::new().await?;
    let mut options = pool_options(&["N"]);
    options.kinds[0].max_concurrency = 2;
    let worker = bed.pool_with(options)?;
    bed.enqueue("N", 1).await?;
    let taken = worker.next().await?;
    let pool = worker.pool.id().unwrap();
    bed.ask::<String>("SET", "jobs:N:lock", &["20519"]).await?;
    bed.ask::<i64>(
        "HSET",
        "jobs:N:lock_info",
        &["long-gone", "20518", "negative", "-3"],
    )
    .await?;
    bed.enqueue("N", 2).await?;
    let next = worker.next().await?;
    ensure!(bed.ask::<i64>("GET", "jobs:N:lock", &[]).await? == 2);
    ensure!(bed.hash("jobs:N:lock_info").await? == [(pool, "2".into())].into());
    for taken in [&taken, &next] {
        ensure!(worker.pool.finish(taken).await? == Outcome::Done);
    }
    worker.stop().await
}

#[tokio::test]
async fn a_limit_opens_again_after_the_death_of_who_held_it() -> Result<()> {
    let bed = Bed::new().await?;
    let mut options = pool_options(&["N"]);
    options.kinds[0].max_concurrency = 1;
    let doomed = bed.pool_with(options.clone())?;
    bed.enqueue("N", 1).await?;
    let _held = doomed.next().await?;
    let _frozen = doomed.freeze().await;
    let heir = bed.pool_with(options)?;
    let taken = heir.next().await?;
    ensure!(heir.pool.finish(&taken).await? == Outcome::Done);
    ensure!(bed.ask::<i64>("GET", "jobs:N:lock", &[]).await? == 0);
    heir.stop().await
}
