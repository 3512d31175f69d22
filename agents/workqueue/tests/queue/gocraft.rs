//! Together with real Go programs on the same queues.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testbed::tools;
use testbed::wait::eventually;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;
use workqueue::{Args, Failed, Job, NewJob, Outcome, Taken, Tries};

use crate::support::{Bed, SOON, numbered, pool_options};

/// A Go program that is fed `input` until it ends. Tells what it printed.
async fn go(bed: &Bed, args: &[&str], input: &str) -> Result<String> {
    let mut child = start(bed, args).await?;
    let mut stdin = child.stdin.take().context("its input")?;
    stdin.write_all(input.as_bytes()).await?;
    drop(stdin);
    let output = timeout(SOON, child.wait_with_output()).await??;
    ensure!(output.status.success(), "{args:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

async fn start(bed: &Bed, args: &[&str]) -> Result<Child> {
    let mut command = Command::new(tools::gocraft().await?);
    command.args(["-redis", &bed.server.url()]);
    command
        .args(["-namespace", bed.namespace.prefix()])
        .args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(command.kill_on_drop(true).spawn()?)
}

/// A Go pool.
struct GoPool {
    child: Child,
    done: Lines<BufReader<ChildStdout>>,
}

impl GoPool {
    async fn start(bed: &Bed, args: &[&str]) -> Result<Self> {
        let mut words = vec!["work"];
        words.extend(args);
        let mut child = start(bed, &words).await?;
        let stdout = child.stdout.take().context("its output")?;
        let done = BufReader::new(stdout).lines();
        Ok(Self { child, done })
    }

    /// The identifier of the next job it has done, or with `-hold` begun.
    async fn next(&mut self) -> Result<Option<String>> {
        Ok(timeout(SOON, self.done.next_line()).await??)
    }

    /// Ends cleanly, and tells what it has done since.
    async fn stop(mut self) -> Result<Vec<String>> {
        drop(self.child.stdin.take());
        let mut rest = Vec::new();
        while let Some(line) = self.next().await? {
            rest.push(line);
        }
        let status = timeout(SOON, self.child.wait()).await??;
        ensure!(status.success(), "{status}");
        Ok(rest)
    }
}

async fn inspect(bed: &Bed) -> Result<Value> {
    Ok(serde_json::from_str(&go(bed, &["inspect"], "").await?)?)
}

/// Text and numbers that are written in a way of Go's own.
fn odd_args() -> Args {
    Args::from([
        (
            "z".into(),
            json!("<a href=\"/\">&amp;</a>\u{2028}\u{2029}\u{7f}\t\n\u{1} é 🦀"),
        ),
        (
            "a".into(),
            json!({"y": [1, -2, 1.5, true, null, {}], "x": ""}),
        ),
        ("pl".into(), json!("3q2+7w")),
    ])
}

#[tokio::test]
async fn a_job_is_written_as_go_writes_it() -> Result<()> {
    let bed = Bed::new().await?;
    let ours = bed.enqueuer.enqueue("N", Some(odd_args())).await?;
    let theirs = go(
        &bed,
        &["enqueue", "N"],
        &serde_json::to_string(&odd_args())?,
    )
    .await?;
    let elements: Vec<String> = bed.ask("LRANGE", "jobs:N", &["0", "-1"]).await?;
    let [second, first] = elements.try_into().unwrap();
    let plain = |element: &str, id: &str| {
        let t = Job::decode(element.as_bytes()).unwrap().enqueued_at;
        element.replace(id, "ID").replace(&t.to_string(), "T")
    };
    assert_eq!(plain(&first, &ours.id), plain(&second, theirs.trim()));
    // And so does our encoder with what theirs has written.
    ensure!(Job::decode(second.as_bytes())?.encode() == second);
    Ok(())
}

#[tokio::test]
async fn we_work_on_what_go_enqueues() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N"])?;
    let id = go(
        &bed,
        &["enqueue", "N"],
        &serde_json::to_string(&odd_args())?,
    )
    .await?;
    let taken = worker.next().await?;
    ensure!(taken.job().id == id.trim() && taken.job().args == Some(odd_args()));
    ensure!(worker.pool.finish(&taken).await? == Outcome::Done);

    let unique = json!({"p": "<x>"}).to_string();
    ensure!(
        !go(&bed, &["enqueue-unique", "N"], &unique)
            .await?
            .is_empty()
    );
    ensure!(
        go(&bed, &["enqueue-unique", "N"], &unique)
            .await?
            .is_empty(),
        "there is one"
    );
    let taken = worker.next().await?;
    ensure!(taken.job().unique);
    ensure!(
        !go(&bed, &["enqueue-unique", "N"], &unique)
            .await?
            .is_empty(),
        "it has begun"
    );

    go(&bed, &["schedule", "N", "1"], r#"{"n":9}"#).await?;
    // Held until the end: a job that is let go of comes again.
    let again = worker.next().await?;
    ensure!(again.job().unique, "{again:?}");
    let later = worker.next().await?;
    ensure!(later.job().integer("n") == Some(9), "{later:?}");
    worker.stop().await
}

#[tokio::test]
async fn go_works_on_what_we_enqueue() -> Result<()> {
    let bed = Bed::new().await?;
    let mut pool = GoPool::start(&bed, &["N", "Answer"]).await?;
    let enqueued = bed.enqueuer.enqueue("N", Some(odd_args())).await?;
    ensure!(pool.next().await?.as_deref() == Some(enqueued.id.as_str()));
    let worker = bed.pool(&["Answer"])?;
    let answer = worker.next().await?;
    ensure!(answer.job().args == Some(odd_args()), "{answer:?}");
    ensure!(worker.pool.finish(&answer).await? == Outcome::Done);
    ensure!(
        bed.inspector.workers("N").await? == 1,
        "its heartbeat is there"
    );
    pool.stop().await?;
    ensure!(bed.inspector.workers("N").await? == 0);
    worker.stop().await
}

#[tokio::test]
async fn ours_and_theirs_share_a_queue_and_do_each_job_once() -> Result<()> {
    const JOBS: usize = 600;
    let bed = Bed::new().await?;
    let mut options = pool_options(&["N"]);
    options.kinds[0].max_concurrency = 5;
    let worker = bed.pool_with(options)?;
    let go_pool = GoPool::start(&bed, &["-concurrency", "4", "-cap", "5", "N"]).await?;
    let mut expected = BTreeSet::new();
    for chunk in 0..6 {
        let jobs = (0..100).map(|number| NewJob {
            name: "N".into(),
            args: Some(numbered(chunk * 100 + number)),
        });
        let enqueued = bed.enqueuer.enqueue_many(jobs.collect()).await?;
        expected.extend(enqueued.into_iter().map(|job| job.id));
    }
    let done = RefCell::new(Vec::new());
    eventually("the queue to be empty", SOON, async || {
        while let Some(taken) = worker.pool.take().await? {
            let answer = NewJob {
                name: "Answer".into(),
                args: None,
            };
            // Slower than they are, so that both have something to do.
            tokio::time::sleep(Duration::from_millis(2)).await;
            let ended = worker.pool.finish_with(&taken, vec![answer]).await?;
            ensure!(ended == Outcome::Done);
            done.borrow_mut().push(taken.job().id.clone());
        }
        let counts = bed.inspector.counts("N").await?;
        Ok(counts.is_drained().then_some(()))
    })
    .await?;
    let (ours, theirs) = (done.into_inner(), go_pool.stop().await?);
    ensure!(
        ours.len() + theirs.len() == JOBS,
        "{} and {}",
        ours.len(),
        theirs.len()
    );
    ensure!(
        !ours.is_empty() && !theirs.is_empty(),
        "{} and {}",
        ours.len(),
        theirs.len()
    );
    let all: BTreeSet<String> = ours.iter().chain(&theirs).cloned().collect();
    ensure!(all == expected);
    ensure!(bed.length("jobs:Answer").await? == ours.len() as u64);
    ensure!(bed.ask::<i64>("GET", "jobs:N:lock", &[]).await? == 0);
    worker.stop().await
}

#[tokio::test]
async fn the_web_ui_shows_ours() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N"])?;
    for number in 0..4 {
        bed.enqueue("N", number).await?;
    }
    bed.ask::<i64>("RPUSH", "jobs:N", &["poison"]).await?;
    let retried = worker.next().await?;
    let failed = worker
        .pool
        .fail(&retried, "no luck", Tries::default())
        .await?;
    ensure!(matches!(failed, Failed::Retry { .. }));
    let dead = worker.next().await?;
    let once = Tries {
        max_fails: 1,
        ..Tries::default()
    };
    ensure!(worker.pool.fail(&dead, "no luck", once).await? == Failed::Dead);
    drop((retried, dead));
    let held = worker.next().await?;
    let shown = eventually("a busy worker in the web UI", SOON, async || {
        let shown = inspect(&bed).await?;
        let workers = shown["workers"].as_array().unwrap();
        let busy = workers.iter().find(|worker| worker["is_busy"] == true);
        let is_ours = busy.is_some_and(|busy| busy["job_id"] == *held.job().id);
        ensure!(is_ours, "{workers:?}");
        Ok(Some(shown))
    })
    .await?;
    ensure!(shown["queues"][0]["job_name"] == "N" && shown["queues"][0]["count"] == 1);
    let pool = &shown["worker_pools"][0];
    ensure!(
        pool["worker_pool_id"] == *worker.pool.id().unwrap(),
        "{pool}"
    );
    ensure!(pool["concurrency"] == 4 && pool["job_names"] == json!(["N"]));
    ensure!(pool["worker_ids"].as_array().unwrap().len() == 4);
    let retry = &shown["retry_jobs"];
    ensure!(
        retry["count"] == 1 && retry["jobs"][0]["err"] == "no luck",
        "{retry}"
    );
    let dead = &shown["dead_jobs"];
    ensure!(
        dead["count"] == 2 && dead["jobs"][0]["fails"] == 1,
        "{dead}"
    );

    Ok(())
}

/// Its button takes the dead back, with a clean slate; what is no job comes back as a job that can be listed.
#[tokio::test]
async fn the_dead_are_taken_back_by_the_web_ui() -> Result<()> {
    let bed = Bed::new().await?;
    let worker = bed.pool(&["N"])?;
    bed.ask::<i64>("RPUSH", "jobs:N", &["poison"]).await?;
    bed.enqueue("N", 1).await?;
    let dead = worker.next().await?;
    let once = Tries {
        max_fails: 1,
        ..Tries::default()
    };
    ensure!(worker.pool.fail(&dead, "no luck", once).await? == Failed::Dead);
    ensure!(inspect(&bed).await?["dead_jobs"]["count"] == 2);
    go(&bed, &["retry-dead"], "").await?;
    ensure!(inspect(&bed).await?["dead_jobs"]["count"] == 0);
    let fresh = [worker.next().await?, worker.next().await?];
    for taken in &fresh {
        ensure!(taken.job().fails == 0 && taken.job().error.is_empty());
    }
    let kept = |taken: &Taken| taken.job().text("undecodable") == Some("cG9pc29u");
    ensure!(fresh.iter().any(kept));
    worker.stop().await?;
    let gone = inspect(&bed).await?;
    ensure!(gone["worker_pools"] == json!([]) && gone["workers"] == json!([]));
    Ok(())
}

#[tokio::test]
async fn their_requeuer_moves_our_retries() -> Result<()> {
    let bed = Bed::new().await?;
    let mut options = pool_options(&["N"]);
    options.patience = Duration::from_secs(20);
    // Not run, so that only theirs requeues.
    let pool = bed.idle_pool(options)?;
    bed.enqueuer.enqueue("N", Some(odd_args())).await?;
    let taken = pool.take().await?.unwrap();
    let failed = pool.fail(&taken, "first try", Tries::default()).await?;
    ensure!(matches!(failed, Failed::Retry { .. }));
    bed.inspector.pause("N").await?;
    let go_pool = GoPool::start(&bed, &["N"]).await?;
    bed.hasten("retry").await?;
    bed.list_becomes("jobs:N", 1).await?;
    go_pool.stop().await?;
    bed.inspector.unpause("N").await?;
    let again = pool.take().await?.unwrap();
    ensure!(again.job().fails == 1 && again.job().error == "first try");
    ensure!(
        again.job().text("pl") == Some("3q2+7w"),
        "rewritten by Lua, and read all the same"
    );
    ensure!(
        pool.finish(&again).await? == Outcome::Done,
        "its bytes are found"
    );
    ensure!(pool.stats().requeued == 0);
    Ok(())
}

#[tokio::test]
async fn our_requeuer_moves_their_retries() -> Result<()> {
    let bed = Bed::new().await?;
    let mut go_pool = GoPool::start(&bed, &["-fails", "1", "N"]).await?;
    let id = bed.enqueue("N", 5).await?;
    eventually("a retry of theirs", SOON, async || {
        let retry = bed.sorted("retry").await?;
        Ok((retry.len() == 1 && retry[0].0.error == "failure 1 of 1").then_some(()))
    })
    .await?;
    go_pool.child.kill().await?;
    // Another name: what theirs would kill, ours moves.
    let worker = bed.pool(&["Other"])?;
    bed.hasten("retry").await?;
    bed.list_becomes("jobs:N", 1).await?;
    worker.counts(|stats| stats.requeued == 1).await?;
    let mut go_pool = GoPool::start(&bed, &["-fails", "1", "N"]).await?;
    ensure!(go_pool.next().await?.as_deref() == Some(id.as_str()));
    go_pool.stop().await?;
    worker.stop().await
}

/// Why pools of theirs that serve other names need a namespace of their own.
#[tokio::test]
async fn their_requeuer_kills_what_it_does_not_serve() -> Result<()> {
    let bed = Bed::new().await?;
    bed.ask::<i64>("SADD", "known_jobs", &["Ours"]).await?;
    let job = Job {
        name: "Ours".into(),
        id: "1".into(),
        ..Job::default()
    };
    bed.ask::<i64>("ZADD", "retry", &["1", &job.encode()])
        .await?;
    let go_pool = GoPool::start(&bed, &["Theirs"]).await?;
    eventually("the dead", SOON, async || {
        let dead = bed.sorted("dead").await?;
        Ok((dead.len() == 1 && dead[0].0.error == "unknown job when requeueing").then_some(()))
    })
    .await?;
    go_pool.stop().await?;
    Ok(())
}

/// Theirs says that it lives every 5 s, so it has the patience of 10 s.
#[tokio::test]
async fn a_go_pool_lives_until_it_is_killed_and_then_its_job_is_ours() -> Result<()> {
    let bed = Bed::new().await?;
    let mut options = pool_options(&["N"]);
    options.patience = Duration::from_secs(10);
    let mut go_pool = GoPool::start(&bed, &["-hold", "-cap", "1", "N"]).await?;
    let id = bed.enqueue("N", 1).await?;
    ensure!(
        go_pool.next().await?.as_deref() == Some(id.as_str()),
        "it has begun"
    );
    options.kinds[0].max_concurrency = 1;
    let worker = bed.pool_with(options)?;
    tokio::time::sleep(Duration::from_secs(12)).await;
    ensure!(
        worker.pool.take().await?.is_none(),
        "it is alive, and has the job"
    );
    ensure!(bed.length("jobs:N").await? == 0);
    go_pool.child.kill().await?;
    let taken = worker.next().await?;
    ensure!(taken.job().id == id);
    ensure!(worker.pool.finish(&taken).await? == Outcome::Done);
    ensure!(bed.ask::<i64>("GET", "jobs:N:lock", &[]).await? == 0);
    let shown = inspect(&bed).await?;
    ensure!(
        shown["worker_pools"].as_array().unwrap().len() == 1,
        "{shown}"
    );
    worker.stop().await
}
