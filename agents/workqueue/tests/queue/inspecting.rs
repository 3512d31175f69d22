//! What producers see, and how everything is removed.

use anyhow::{Result, ensure};
use workqueue::{Config, Failed, Job, Outcome, Tries};

use crate::support::{Bed, Space, options};

#[tokio::test]
async fn pools_are_seen_while_their_heartbeat_is_young_by_the_clock_of_redis() -> Result<()> {
    let bed = Bed::new().await?;
    let now = bed.client.now().await?;
    // Seconds may pass until they are looked at: what is young enough stays so for some.
    for (pool, age, names) in [
        ("p1", 20, "A,N"),
        ("p2", 31, "N"),
        ("p3", -3600, "N"),
        ("p4", 0, "A"),
    ] {
        let at = (now - age).to_string();
        let fields = ["heartbeat_at", &at, "job_names", names, "concurrency", "5"];
        bed.ask::<i64>("HSET", &format!("worker_pools:{pool}"), &fields)
            .await?;
        bed.ask::<i64>("SADD", "worker_pools", &[pool]).await?;
    }
    bed.ask::<i64>("SADD", "worker_pools", &["no-heartbeat"])
        .await?;
    let pools = bed.inspector.pools().await?;
    let ids: Vec<&str> = pools.iter().map(|pool| pool.id.as_str()).collect();
    ensure!(ids == ["p1", "p3", "p4"], "{ids:?}");
    ensure!(bed.inspector.workers("N").await? == 10);
    ensure!(bed.inspector.workers("Nobody").await? == 0);
    Ok(())
}

#[tokio::test]
async fn jobs_are_counted_wherever_they_are() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["a/b"])?;
    for number in 0..4 {
        bed.enqueue("a/b", number).await?;
    }
    let failing = worker.next().await?;
    let failed = worker
        .pool
        .fail(&failing, "later", Tries::default())
        .await?;
    ensure!(matches!(failed, Failed::Retry { .. }));
    let held = worker.next().await?;
    for number in 0..1200 {
        let name = if number % 3 == 0 { "a/b" } else { "other" };
        let job = Job {
            name: name.into(),
            id: number.to_string(),
            args: Some([("name".into(), "a/b".into())].into()),
            ..Job::default()
        };
        let (set, mut text) = if number < 3 {
            ("scheduled", job.encode())
        } else {
            ("dead", job.encode())
        };
        if number % 2 == 0 {
            text = text.replace('/', "\\/");
        }
        let score = (99_999_999_999_i64 + number).to_string();
        bed.ask::<i64>("ZADD", set, &[&score, &text]).await?;
    }
    bed.ask::<i64>("ZADD", "dead", &["1", "nonsense \"a/b\""])
        .await?;
    let counts = bed.inspector.counts("a/b").await?;
    ensure!(
        (counts.queued, counts.in_progress, counts.retry) == (2, 1, 1),
        "{counts:?}"
    );
    ensure!((counts.scheduled, counts.dead) == (1, 399), "{counts:?}");
    ensure!(!counts.is_partial && !counts.is_drained());
    ensure!(bed.inspector.queue_length("a/b").await? == 2);
    let none = bed.inspector.counts("nobody").await?;
    ensure!(none.is_drained() && none.dead == 0);
    ensure!(worker.pool.finish(&held).await? == Outcome::Done);
    worker.stop().await
}

/// A name that is a pattern, too.
const NAME: &str = "WriteBack-fs-[1]*";

#[tokio::test]
async fn no_key_is_left_of_a_name_that_was_removed() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&[NAME])?;
    for number in 0..3 {
        bed.enqueue(NAME, number).await?;
    }
    let failing = worker.next().await?;
    let failed = worker.pool.fail(&failing, "later", Tries::default());
    ensure!(matches!(failed.await?, Failed::Retry { .. }));
    let held = worker.next().await?;
    bed.inspector.pause(NAME).await?;
    leave_more_of_it(&bed).await?;
    let alike = leave_what_looks_alike(&bed).await?;

    let pool = worker.freeze().await;
    let removed = bed.inspector.remove(NAME).await?;
    ensure!(removed >= 1300, "{removed}");
    ensure!(pool.finish(&held).await? == Outcome::Fenced);
    let id = pool.id().unwrap();
    let mut expected = alike;
    expected.extend(["known_jobs", "worker_pools"].map(|key| bed.key(key)));
    expected.push(bed.key(&format!("worker_pools:{id}")));
    expected.sort();
    let mut keys = bed.keys().await?;
    keys.retain(|key| !key.contains(":worker:"));
    ensure!(keys == expected, "{keys:#?}");
    ensure!(bed.inspector.remove(NAME).await? == 0);
    Ok(())
}

async fn leave_more_of_it(bed: &Bed) -> Result<()> {
    for number in 0..1300 {
        let job = Job {
            name: NAME.into(),
            id: number.to_string(),
            ..Job::default()
        };
        let (set, score) = match number {
            0..3 => ("scheduled", "99999999999"),
            _ => ("dead", "1"),
        };
        bed.ask::<i64>("ZADD", set, &[score, &job.encode()]).await?;
    }
    let list = format!("jobs:{NAME}:long-gone:inprogress");
    bed.ask::<i64>("LPUSH", &list, &["x"]).await?;
    let marker = format!("unique:{NAME}:{{\"a\":1}}\n");
    bed.ask::<String>("SET", &marker, &["1"]).await?;
    Ok(())
}

/// Keys of other names, which stay.
async fn leave_what_looks_alike(bed: &Bed) -> Result<Vec<String>> {
    let name = format!("{NAME}:2");
    bed.enqueue(&name, 1).await?;
    let marker = format!("unique:{name}:{{}}\n");
    bed.ask::<String>("SET", &marker, &["1"]).await?;
    let list = "jobs:WriteBack-fs-1x:p:inprogress";
    bed.ask::<i64>("LPUSH", list, &["x"]).await?;
    Ok([list, &format!("jobs:{name}"), &marker]
        .map(|key| bed.key(key))
        .into())
}

#[tokio::test]
async fn a_name_is_removed_however_many_keys_others_have() -> Result<()> {
    let server = testbed::redis::start().await?;
    let space = Space::new(options(&server), &server.url()).await?;
    let fill = redis::Script::new(
        "for n = 1, 5000 do redis.call('SET', 'other:' .. ARGV[1] .. ':' .. n, '') end",
    );
    let mut connection = space.raw().await?;
    for part in 0..220 {
        let fill = fill.arg(part);
        fill.invoke_async::<()>(&mut connection).await?;
    }
    let left = async || -> Result<()> {
        space.enqueue("N", 1).await?;
        let list = "jobs:N:long-gone:inprogress";
        space.ask::<i64>("LPUSH", list, &["x"]).await?;
        let marker = "unique:N:{\"a\":1}\n";
        space.ask::<String>("SET", marker, &["1"]).await?;
        Ok(())
    };
    left().await?;
    ensure!(space.inspector.remove("N").await? == 4);
    left().await?;
    ensure!(space.inspector.clear().await? == 4);
    let size: u64 = redis::cmd("DBSIZE")
        .query_async(&mut space.raw().await?)
        .await?;
    ensure!(size == 1_100_000, "those of others stay: {size}");
    server.shutdown().await
}

#[tokio::test]
async fn a_run_that_ended_leaves_no_key_at_all() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N"])?;
    bed.enqueue("N", 1).await?;
    let taken = worker.next().await?;
    ensure!(worker.pool.finish(&taken).await? == Outcome::Done);
    drop(taken);
    worker.stop().await?;
    bed.inspector.remove("N").await?;
    let keys = bed.keys().await?;
    ensure!(keys.is_empty(), "{keys:?}");
    Ok(())
}

#[tokio::test]
async fn a_configuration_has_an_epoch() -> Result<()> {
    let bed = Bed::new().await?;
    let config = Config::new(bed.client.clone(), bed.key("dconfig:data"));
    ensure!(config.read().await?.is_none());
    ensure!(
        config
            .publish(&[("max_node_throughput", "7".into())])
            .await?
            == 1
    );
    ensure!(
        config
            .publish(&[("max_node_throughput", "9".into()), ("b", "x".into())])
            .await?
            == 2
    );
    let published = config.read().await?.unwrap();
    ensure!(published.epoch == 2);
    ensure!(published.fields["max_node_throughput"] == "9" && published.fields.len() == 2);
    ensure!(config.publish(&[("epoch", "5".into())]).await.is_err());
    config.delete().await?;
    ensure!(config.read().await?.is_none() && bed.keys().await?.is_empty());
    Ok(())
}
