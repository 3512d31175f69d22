//! Jobs from the queue to their end.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use testbed::wait::eventually;
use workqueue::{Args, Error, Failed, HELD_FOR, Job, Kind, MOST_AT_ONCE, NewJob, Outcome, Tries};

use crate::support::{Bed, SOON, numbered, pool_options};

#[tokio::test]
async fn a_job_that_is_finished_leaves_nothing_behind() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N"])?;
    let id = bed.enqueue("N", 7).await?;
    let taken = worker.next().await?;
    ensure!(taken.job().id == id && taken.job().integer("n") == Some(7));
    let pool = worker.pool.id().unwrap();
    ensure!(bed.length(&format!("jobs:N:{pool}:inprogress")).await? == 1);
    ensure!(bed.ask::<i64>("GET", "jobs:N:lock", &[]).await? == 1);
    ensure!(bed.hash("jobs:N:lock_info").await? == [(pool.clone(), "1".into())].into());

    ensure!(worker.pool.finish(&taken).await? == Outcome::Done);
    ensure!(bed.length(&format!("jobs:N:{pool}:inprogress")).await? == 0);
    ensure!(bed.ask::<i64>("GET", "jobs:N:lock", &[]).await? == 0);
    ensure!(bed.hash("jobs:N:lock_info").await?.is_empty());
    ensure!(worker.pool.take().await?.is_none());
    ensure!(worker.pool.finish(&taken).await? == Outcome::Fenced, "once");
    worker.stop().await
}

#[tokio::test]
async fn jobs_are_served_in_the_order_they_came() -> Result<()> {
    let bed = Bed::new().await?;
    let new = |number| NewJob {
        name: "N".into(),
        args: Some(numbered(number)),
    };
    let enqueued = bed
        .enqueuer
        .enqueue_many((0..100).map(new).collect())
        .await?;
    let lengths: Vec<u64> = enqueued.iter().map(|job| job.length).collect();
    ensure!(lengths == (1..=100).collect::<Vec<_>>());
    ensure!(bed.inspector.known_jobs().await? == ["N"]);
    let too_many = (0..=MOST_AT_ONCE).map(|_| new(0)).collect();
    let refused = bed.enqueuer.enqueue_many(too_many).await;
    ensure!(matches!(refused, Err(Error::Invalid { .. })));

    let worker = bed.pool(&["N"])?;
    for (number, expected) in enqueued.iter().enumerate() {
        let taken = worker.next().await?;
        ensure!(taken.job().id == expected.id, "number {number}");
        ensure!(taken.job().enqueued_at > 1_700_000_000);
        ensure!(worker.pool.finish(&taken).await? == Outcome::Done);
    }
    worker.stop().await
}

#[tokio::test]
async fn what_follows_from_a_job_is_enqueued_in_the_same_step() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N"])?;
    bed.enqueue("N", 1).await?;
    let taken = worker.next().await?;
    let answers = ["A", "B"].map(|name| NewJob {
        name: name.into(),
        args: Some(numbered(2)),
    });
    let outcome = worker.pool.finish_with(&taken, answers.into()).await?;
    ensure!(outcome == Outcome::Done);
    for name in ["A", "B"] {
        let raw: Vec<u8> = bed.ask("LINDEX", &format!("jobs:{name}"), &["0"]).await?;
        let job = Job::decode(&raw)?;
        ensure!(job.name == name && job.args == Some(numbered(2)) && job.id.len() == 24);
        ensure!(job.encode().as_bytes() == raw, "written as Go would");
    }
    let known = bed.inspector.known_jobs().await?;
    ensure!(known == ["A", "B", "N"], "{known:?}");
    worker.stop().await
}

#[tokio::test]
async fn a_paused_queue_is_left_alone_until_it_goes_on() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N", "M"])?;
    bed.enqueue("N", 1).await?;
    let running = worker.next().await?;
    bed.enqueue("N", 2).await?;
    bed.inspector.pause("N").await?;
    ensure!(bed.inspector.is_paused("N").await?);
    for _ in 0..20 {
        ensure!(worker.pool.take().await?.is_none());
    }
    bed.enqueue("M", 3).await?;
    let other = worker.next().await?;
    ensure!(other.job().name == "M", "the other queue is not paused");
    ensure!(worker.pool.finish(&running).await? == Outcome::Done);
    bed.inspector.unpause("N").await?;
    ensure!(worker.next().await?.job().integer("n") == Some(2));
    worker.stop().await
}

#[tokio::test]
async fn a_pause_is_ended_by_who_began_it_or_by_time() -> Result<()> {
    let bed = Bed::new().await?;
    let inspector = &bed.inspector;
    inspector.hold("N", "one").await?;
    inspector.hold("N", "other").await?;
    inspector.let_go("N", "other").await?;
    ensure!(inspector.is_paused("N").await?, "one still wants it");
    let left = async || bed.ask::<i64>("PTTL", "jobs:N:paused", &[]).await;
    let most = i64::try_from(HELD_FOR.as_millis())?;
    ensure!((1..=most).contains(&left().await?), "it ends by itself");
    bed.ask::<i64>("PEXPIRE", "jobs:N:paused", &["1000"])
        .await?;
    inspector.hold("N", "one").await?;
    ensure!(left().await? > 1000, "and is renewed");
    inspector.let_go("N", "one").await?;
    ensure!(!inspector.is_paused("N").await?);
    // A person's, or a Go program's.
    inspector.pause("N").await?;
    inspector.hold("N", "one").await?;
    inspector.let_go("N", "one").await?;
    ensure!(inspector.is_paused("N").await? && left().await? == -1);
    Ok(())
}

#[tokio::test]
async fn never_more_than_the_limit_are_in_flight() -> Result<()> {
    let bed = Bed::new().await?;
    let mut options = pool_options(&["N"]);
    options.kinds[0].max_concurrency = 2;
    let (one, other) = (bed.pool_with(options.clone())?, bed.pool_with(options)?);
    for number in 0..10 {
        bed.enqueue("N", number).await?;
    }
    let mut held = vec![one.next().await?, other.next().await?];
    ensure!(bed.ask::<i64>("GET", "jobs:N:max_concurrency", &[]).await? == 2);
    for _ in 0..8 {
        ensure!(one.pool.take().await?.is_none() && other.pool.take().await?.is_none());
        let done = held.remove(0);
        ensure!(one.pool.finish(&done).await? == Outcome::Done);
        held.push(other.next().await?);
    }
    for taken in &held {
        ensure!(one.pool.finish(taken).await? == Outcome::Done);
    }
    ensure!(bed.ask::<i64>("GET", "jobs:N:lock", &[]).await? == 0);
    one.stop().await?;
    other.stop().await
}

#[tokio::test]
async fn a_job_that_fails_comes_back_three_times_and_then_is_dead() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N"])?;
    bed.enqueue("N", 12_345_678_901_234_567).await?;
    for (fails, soonest, latest) in [(1, 16, 74), (2, 31, 118), (3, 96, 212)] {
        let taken = worker.next().await?;
        let now = bed.client.now().await?;
        let failed = worker
            .pool
            .fail(&taken, "no <luck>", Tries::default())
            .await?;
        ensure!(matches!(failed, Failed::Retry { after } if (soonest..=latest).contains(&after)));
        let retry = bed.sorted("retry").await?;
        let (job, due) = &retry[0];
        ensure!(job.fails == fails && job.error == "no <luck>", "{job:?}");
        ensure!((now..now + 5).contains(&job.failed_at), "{job:?}");
        ensure!((now + soonest..=now + latest + 5).contains(due), "{due}");
        ensure!(
            job.integer("n") == Some(12_345_678_901_234_567),
            "no digit is lost"
        );
        bed.hasten("retry").await?;
    }
    let taken = worker.next().await?;
    ensure!(taken.job().fails == 3);
    let failed = worker.pool.fail(&taken, "", Tries::default()).await?;
    ensure!(failed == Failed::Dead);
    let dead = bed.sorted("dead").await?;
    ensure!(dead.len() == 1 && dead[0].0.fails == 4 && dead[0].0.error == "failed");
    ensure!(bed.sorted("retry").await?.is_empty());
    ensure!(bed.ask::<i64>("GET", "jobs:N:lock", &[]).await? == 0);

    bed.enqueue("N", 2).await?;
    let taken = worker.next().await?;
    let tries = Tries {
        max_fails: 1,
        skip_dead: true,
    };
    ensure!(worker.pool.fail(&taken, "no", tries).await? == Failed::Dropped);
    ensure!(bed.sorted("dead").await?.len() == 1);
    worker.stop().await
}

#[tokio::test]
async fn retries_of_names_that_a_pool_does_not_serve_are_never_killed() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N"])?;
    let put = async |set: &str, name: &str| {
        let job = Job {
            name: name.into(),
            id: name.into(),
            args: Some(numbered(1)),
            ..Job::default()
        };
        bed.ask::<i64>("ZADD", set, &["1", &job.encode()]).await
    };
    bed.ask::<i64>("SADD", "known_jobs", &["Known"]).await?;
    put("retry", "Known").await?;
    put("scheduled", "Known").await?;
    put("retry", "Unknown").await?;
    bed.list_becomes("jobs:Known", 2).await?;
    let now = bed.client.now().await?;
    let retry = eventually("the unknown one to be put off", SOON, async || {
        let retry = bed.sorted("retry").await?;
        ensure!(retry.len() == 1 && retry[0].1 > now, "{retry:?}");
        Ok(Some(retry))
    })
    .await?;
    ensure!(retry[0].0.name == "Unknown" && retry[0].0.error.is_empty());
    ensure!(bed.sorted("dead").await?.is_empty());

    bed.ask::<i64>("SADD", "known_jobs", &["Unknown"]).await?;
    bed.list_becomes("jobs:Unknown", 1).await?;
    ensure!(bed.sorted("retry").await?.is_empty());
    worker.stop().await
}

#[tokio::test]
async fn what_is_no_job_is_put_to_the_dead_and_does_not_block_the_queue() -> Result<()> {
    let bed = Bed::new().await?;
    let stray = r#"{"name":"Other","id":"1","t":5,"args":null}"#;
    for poison in ["nonsense \u{1}", r#"{"name":"N","t":"#, stray, "[]"] {
        bed.ask::<i64>("LPUSH", "jobs:N", &[poison]).await?;
    }
    bed.enqueue("N", 7).await?;
    bed.ask::<i64>("ZADD", "retry", &["1", "nonsense"]).await?;
    let worker = bed.pool(&["N"])?;
    ensure!(worker.next().await?.job().integer("n") == Some(7));
    ensure!(worker.pool.stats().buried == 4);
    let dead = eventually("the dead", SOON, async || {
        let dead = bed.sorted("dead").await?;
        Ok((dead.len() == 5).then_some(dead))
    })
    .await?;
    for (job, _) in &dead {
        ensure!(
            job.fails == 1 && !job.error.is_empty() && job.failed_at > 0,
            "{job:?}"
        );
    }
    ensure!(
        dead.iter()
            .any(|(job, _)| job.name == "Other" && job.id == "1")
    );
    let kept = dead.iter().filter_map(|(job, _)| job.text("undecodable"));
    ensure!(
        kept.clone().any(|text| text == "bm9uc2Vuc2UgAQ=="),
        "nothing is lost"
    );
    ensure!(kept.count() == 4);
    worker.stop().await
}

#[tokio::test]
async fn a_job_that_nobody_works_on_goes_back_to_its_queue() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N"])?;
    bed.enqueue("N", 1).await?;
    bed.enqueue("N", 2).await?;
    let kept = worker.next().await?;
    drop(worker.next().await?);
    let again = worker.next().await?;
    ensure!(again.job().integer("n") == Some(2), "it was dropped");

    // A fetch whose answer never came.
    bed.enqueue("N", 3).await?;
    let pool = worker.pool.id().unwrap();
    let (from, to) = (
        bed.key("jobs:N"),
        bed.key(&format!("jobs:N:{pool}:inprogress")),
    );
    let mut lost = redis::pipe();
    lost.cmd("RPOPLPUSH").arg(from).arg(to);
    lost.cmd("INCR").arg(bed.key("jobs:N:lock"));
    lost.cmd("HINCRBY")
        .arg(bed.key("jobs:N:lock_info"))
        .arg(&pool)
        .arg(1);
    lost.exec_async(&mut bed.raw().await?).await?;
    let found = worker.next().await?;
    ensure!(found.job().integer("n") == Some(3));
    worker.counts(|stats| stats.given_back == 2).await?;
    for taken in [&kept, &again, &found] {
        ensure!(worker.pool.finish(taken).await? == Outcome::Done);
    }
    ensure!(bed.ask::<i64>("GET", "jobs:N:lock", &[]).await? == 0);
    worker.stop().await
}

#[tokio::test]
async fn a_pool_that_stops_gives_back_what_it_holds() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N"])?;
    bed.enqueue("N", 1).await?;
    let taken = worker.next().await?;
    let pool = worker.pool.clone();
    worker.stop().await?;
    ensure!(bed.length("jobs:N").await? == 1);
    ensure!(pool.take().await?.is_none(), "it has stopped");
    ensure!(pool.finish(&taken).await? == Outcome::Fenced);
    ensure!(bed.length("jobs:N").await? == 1);
    ensure!(bed.hash("jobs:N:lock_info").await?.is_empty());
    ensure!(
        bed.length("worker_pools").await.is_ok(),
        "gone, or it would be a set"
    );
    Ok(())
}

#[tokio::test]
async fn the_heartbeat_says_what_gocraft_says() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N", "M"])?;
    let id = eventually("an identifier", SOON, async || Ok(worker.pool.id())).await?;
    let beat = bed.hash(&format!("worker_pools:{id}")).await?;
    let now = bed.client.now().await?; // later than the beat, whichever it was
    let mut fields: Vec<&str> = beat.keys().map(String::as_str).collect();
    fields.sort_unstable();
    let expected = [
        "concurrency",
        "heartbeat_at",
        "host",
        "job_names",
        "pid",
        "started_at",
        "worker_ids",
    ];
    ensure!(fields == expected, "{fields:?}");
    ensure!(beat["job_names"] == "M,N" && beat["concurrency"] == "4");
    ensure!(beat["host"] == "host-of-tests" && beat["pid"] == std::process::id().to_string());
    let workers: Vec<&str> = beat["worker_ids"].split(',').collect();
    ensure!(workers.is_sorted() && workers.iter().all(|worker| worker.len() == 24));
    let at: i64 = beat["heartbeat_at"].parse()?;
    let soon = i64::try_from(SOON.as_secs())?;
    ensure!((at..at + soon).contains(&now) && beat["started_at"].parse::<i64>()? <= at);
    ensure!(
        bed.ask::<Vec<String>>("SMEMBERS", "worker_pools", &[])
            .await?
            == [id.clone()]
    );
    ensure!(
        bed.ask::<String>("GET", "jobs:M:max_concurrency", &[])
            .await?
            == "0"
    );
    eventually("the next heartbeat", SOON, async || {
        let beat = bed.hash(&format!("worker_pools:{id}")).await?;
        Ok((beat["heartbeat_at"].parse::<i64>()? > at).then_some(()))
    })
    .await?;
    worker.stop().await?;
    ensure!(
        bed.ask::<Vec<String>>("SMEMBERS", "worker_pools", &[])
            .await?
            .is_empty()
    );
    ensure!(bed.hash(&format!("worker_pools:{id}")).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_pool_says_on_which_machine_it_runs() -> Result<()> {
    let bed = Bed::new().await?;
    let mut options = pool_options(&["N"]);
    options.host = String::new();
    let worker = bed.pool_with(options)?;
    let pools = eventually("a pool", SOON, async || {
        let pools = bed.inspector.pools().await?;
        Ok((!pools.is_empty()).then_some(pools))
    })
    .await?;
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    ensure!(pools[0].host == machine.trim_end(), "{pools:?}");
    worker.stop().await
}

#[tokio::test]
async fn busy_workers_are_seen() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N"])?;
    let id = bed.enqueue("N", 1).await?;
    let taken = worker.next().await?;
    let busy = async || -> Result<Option<String>> {
        let keys = bed.keys().await?;
        Ok(keys.into_iter().find(|key| key.contains(":worker:")))
    };
    let key = eventually("a busy worker", SOON, busy).await?;
    let key = key.strip_prefix(bed.namespace.prefix()).unwrap();
    let doing = bed.hash(key).await?;
    ensure!(doing["job_name"] == "N" && doing["job_id"] == id && doing["args"] == r#"{"n":1}"#);
    ensure!(doing["started_at"].parse::<i64>()? > 1_700_000_000 && doing.len() == 4);
    ensure!(bed.ask::<i64>("TTL", key, &[]).await? > 86_000);
    ensure!(worker.pool.finish(&taken).await? == Outcome::Done);
    drop(taken);
    eventually("nobody to be busy", SOON, async || {
        Ok(busy().await?.is_none().then_some(()))
    })
    .await?;
    worker.stop().await
}

#[tokio::test]
async fn the_marker_of_a_unique_job_is_removed_when_it_is_taken() -> Result<()> {
    let bed = Bed::new().await?;
    let job = Job {
        name: "N".into(),
        id: "1".into(),
        args: Some(Args::from([("p".into(), json!("<a>"))])),
        unique: true,
        ..Job::default()
    };
    let marker = "unique:N:{\"p\":\"\\u003ca\\u003e\"}\n";
    bed.ask::<String>("SET", marker, &["1"]).await?;
    bed.ask::<i64>("LPUSH", "jobs:N", &[&job.encode()]).await?;
    let worker = bed.pool(&["N"])?;
    let taken = worker.next().await?;
    ensure!(taken.job() == &job);
    ensure!(bed.ask::<i64>("EXISTS", marker, &[]).await? == 0);
    worker.stop().await
}

#[tokio::test]
async fn priorities_decide_how_often_a_queue_comes_first() -> Result<()> {
    let bed = Bed::new().await?;
    let mut options = pool_options(&["often", "seldom"]);
    options.kinds[0].priority = 99;
    options.kinds.push(Kind::new("empty"));
    let worker = bed.pool_with(options)?;
    let new = |name: &str| NewJob {
        name: name.into(),
        args: None,
    };
    for name in ["often", "seldom"] {
        bed.enqueuer.enqueue_many(vec![new(name); 100]).await?;
    }
    let mut often = 0;
    for _ in 0..100 {
        let taken = worker.next().await?;
        often += u32::from(taken.job().name == "often");
        ensure!(worker.pool.finish(&taken).await? == Outcome::Done);
    }
    ensure!(often >= 90, "{often}");
    worker.stop().await
}

#[tokio::test]
async fn a_pool_needs_no_help_to_take_and_finish() -> Result<()> {
    let bed = Bed::new().await?;
    let mut options = pool_options(&["N"]);
    options.patience = Duration::from_secs(10);
    let pool = bed.idle_pool(options)?;
    bed.enqueue("N", 1).await?;
    let taken = pool.take().await?.unwrap();
    ensure!(pool.finish(&taken).await? == Outcome::Done);
    ensure!(pool.stats().identities == 1);
    Ok(())
}
