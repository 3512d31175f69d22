//! In: a pool. Out: its heartbeat, what it is seen doing, and order among what it and others have left behind.
//! Touches: Redis. Each step is bounded, and repeated at the next occasion if it fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Pipeline;
use tokio_util::sync::CancellationToken;

use super::{Inner, Pool};
use crate::clock::monotonic;
use crate::observe::Change;
use crate::reap::Reaper;
use crate::requeue::Requeuer;
use crate::{Error, scripts};

/// What shows busy workers may lag by this much.
const SHOW_EVERY: Duration = Duration::from_secs(1);

/// Between attempts while Redis is away.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// A worker that died without a word is shown as busy for a day at most.
const SHOWN_FOR: u32 = 86_400;

/// So many elements of a list are compared in one go.
const SWEEP_MOST: isize = 1000;

/// So often it tries to leave nothing behind.
const LEAVE_ATTEMPTS: usize = 3;

/// Whose heartbeat is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Of an identifier nobody has seen yet.
    New,
    /// Of the one in use: only if it still counts as alive.
    Renew,
    /// Of a former one that holds jobs: only if nobody has removed it. It offers no workers.
    Old,
}

impl Pool {
    /// Keeps the pool alive until `stop` is cancelled, and then leaves: jobs still held go back to their queues, and
    /// the heartbeat is removed. Errors are logged, and every step is repeated when its time comes.
    pub async fn run(&self, stop: CancellationToken) {
        let inner = &self.inner;
        tokio::join!(
            Box::pin(inner.beats(&stop)),
            Box::pin(inner.shows(&stop)),
            Box::pin(inner.reaps(&stop)),
            Box::pin(inner.requeues(&stop))
        );
        inner.leave().await;
    }
}

impl Inner {
    async fn beats(&self, stop: &CancellationToken) {
        let mut pause = Duration::ZERO;
        let mut log = Log::new("heartbeat");
        while sleeps(stop, pause).await {
            let Some(result) = stop.run_until_cancelled(self.live()).await else {
                return;
            };
            self.heard(&result);
            pause = log.pause(&result, self.options.beat_every);
        }
    }

    async fn shows(&self, stop: &CancellationToken) {
        let mut log = Log::new("observations");
        loop {
            let tick = tokio::time::sleep(SHOW_EVERY);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.shown.notified() => {}
                () = tick => {}
            }
            log.pause(&self.show().await, SHOW_EVERY);
        }
    }

    async fn reaps(&self, stop: &CancellationToken) {
        let mut reaper = Reaper::new(&self.client, &self.namespace, &self.options);
        let mut log = Log::new("reaper");
        let mut pause = self.options.reap_every;
        while sleeps(stop, pause).await {
            let now = monotonic();
            // Nobody could say that it lives while Redis was away: that is not their death.
            let may_judge = self.state().contact.is_steady(now, self.options.patience);
            let looking = reaper.step(now, may_judge);
            let Some(result) = stop.run_until_cancelled(looking).await else {
                return;
            };
            self.heard(&result);
            if let Ok(reaped) = &result {
                self.counters.reaped.fetch_add(*reaped, Ordering::Relaxed);
            }
            pause = log.pause(&result, self.options.reap_every);
        }
    }

    async fn requeues(&self, stop: &CancellationToken) {
        let requeuer = Requeuer::new(&self.client, &self.namespace);
        let mut log = Log::new("requeuer");
        let mut pause = self.options.requeue_every;
        while sleeps(stop, pause).await {
            let Some(result) = stop.run_until_cancelled(requeuer.step()).await else {
                return;
            };
            if let Ok(moved) = &result {
                self.counters.requeued.fetch_add(*moved, Ordering::Relaxed);
            }
            pause = log.pause(&result, self.options.requeue_every);
        }
    }

    fn heard<T>(&self, result: &Result<T, Error>) {
        let contact = &mut self.state().contact;
        match result {
            Ok(_) => contact.heard(monotonic()),
            Err(_) => contact.lost(),
        }
    }

    /// Renews the heartbeat, or takes a new identifier if the old one may have been taken for dead.
    async fn live(&self) -> Result<(), Error> {
        let id = self.identity().await?;
        let sent = monotonic();
        if self.beat(&id, Mode::Renew).await? {
            self.state().identities.renewed(&id, sent);
        } else {
            self.state().identities.abandon(&id);
            self.identity().await?;
        }
        let old = self.state().identities.old();
        for id in old {
            // One that somebody has removed stays removed; what is left of it is for the sweep.
            self.beat(&id, Mode::Old).await?;
        }
        self.sweep().await
    }

    /// Whether the identifier may still be used.
    pub(super) async fn beat(&self, id: &str, mode: Mode) -> Result<bool, Error> {
        let (keys, options) = (&self.namespace, &self.options);
        let mut call = scripts::BEAT.prepare_invoke();
        call.key(keys.worker_pools())
            .key(keys.heartbeat(id))
            .key(keys.known_jobs());
        let (word, concurrency, workers) = match mode {
            Mode::New => ("new", options.concurrency, self.state().workers.ids()),
            Mode::Renew => ("renew", options.concurrency, self.state().workers.ids()),
            Mode::Old => ("old", 0, String::new()),
        };
        call.arg(id).arg(word).arg(options.patience.as_secs());
        call.arg(concurrency).arg(workers);
        call.arg(&options.host).arg(options.pid);
        let mut kinds: Vec<_> = options.kinds.iter().collect();
        kinds.sort_by_key(|kind| &kind.name);
        for kind in kinds {
            call.key(keys.max_concurrency(&kind.name));
            call.arg(&kind.name).arg(kind.max_concurrency);
        }
        Ok(self.client.run::<i64>(&call).await? == 1)
    }

    /// Gives back what we have taken and nobody works on, and retires former identifiers that hold nothing.
    async fn sweep(&self) -> Result<(), Error> {
        let _no_fetch_under_way = self.fetching.write().await;
        let pools = self.state().identities.all();
        for pool in &pools {
            for name in &self.names {
                self.sweep_list(pool, name).await?;
            }
        }
        let old = self.state().identities.old();
        for pool in old {
            if !self.state().ledger.holds_any(&pool) {
                self.deregister(&pool).await?;
                self.state().identities.retire(&pool);
            }
        }
        Ok(())
    }

    async fn sweep_list(&self, pool: &Arc<str>, name: &Arc<str>) -> Result<(), Error> {
        let list = self.namespace.in_progress(name, pool);
        let held = self.state().ledger.count(pool, name);
        let length: usize = self.client.query(redis::cmd("LLEN").arg(&list)).await?;
        if length == held {
            return Ok(());
        }
        let mut command = redis::cmd("LRANGE");
        command.arg(&list).arg(0).arg(SWEEP_MOST - 1);
        let elements: Vec<Vec<u8>> = self.client.query(&command).await?;
        let strays = self.state().ledger.strays(pool, name, elements);
        self.give_back(pool, name, &strays).await
    }

    async fn give_back(&self, pool: &str, name: &str, strays: &[Vec<u8>]) -> Result<(), Error> {
        if strays.is_empty() {
            return Ok(());
        }
        let keys = &self.namespace;
        let mut call = scripts::GIVE_BACK.prepare_invoke();
        call.key(keys.in_progress(name, pool))
            .key(keys.queue(name))
            .key(keys.lock(name))
            .key(keys.lock_info(name));
        call.arg(pool).arg(strays);
        let moved: u64 = self.client.run(&call).await?;
        let counter = &self.counters.given_back;
        counter.fetch_add(moved, Ordering::Relaxed);
        Ok(())
    }

    async fn deregister(&self, pool: &str) -> Result<(), Error> {
        let mut commands = redis::pipe();
        commands
            .cmd("SREM")
            .arg(self.namespace.worker_pools())
            .arg(pool)
            .ignore();
        commands
            .cmd("DEL")
            .arg(self.namespace.heartbeat(pool))
            .ignore();
        self.client.pipeline(&commands).await
    }

    /// Writes what workers do, where it has changed.
    async fn show(&self) -> Result<(), Error> {
        let changes = self.state().workers.changes();
        if changes.is_empty() {
            return Ok(());
        }
        let mut commands = redis::pipe();
        for change in &changes {
            self.add_change(&mut commands, change);
        }
        self.client.pipeline::<()>(&commands).await?;
        self.state().workers.written(&changes);
        Ok(())
    }

    fn add_change(&self, commands: &mut Pipeline, change: &Change) {
        let key = self.namespace.observation(&change.worker);
        // What was there before must not shine through.
        commands.cmd("DEL").arg(&key).ignore();
        if let Some(doing) = &change.doing {
            commands.cmd("HSET").arg(&key);
            commands.arg("job_name").arg(&doing.job_name);
            commands.arg("job_id").arg(&doing.job_id);
            commands.arg("started_at").arg(doing.started_at);
            commands.arg("args").arg(&doing.args).ignore();
            commands.cmd("EXPIRE").arg(&key).arg(SHOWN_FOR).ignore();
        }
    }

    async fn leave(&self) {
        self.stopped.store(true, Ordering::Release);
        for _ in 0..LEAVE_ATTEMPTS {
            match self.leave_nothing().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%error, "the pool could not say good-bye");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    async fn leave_nothing(&self) -> Result<(), Error> {
        let _no_fetch_under_way = self.fetching.write().await;
        let pools = self.state().identities.all();
        for pool in &pools {
            for name in &self.names {
                let mut command = redis::cmd("LRANGE");
                command.arg(self.namespace.in_progress(name, pool));
                command.arg(0).arg(SWEEP_MOST - 1);
                let elements: Vec<Vec<u8>> = self.client.query(&command).await?;
                self.give_back(pool, name, &elements).await?;
            }
            self.deregister(pool).await?;
        }
        let mut commands = redis::pipe();
        let ids = self.state().workers.ids();
        for worker in ids.split(',') {
            let key = self.namespace.observation(worker);
            commands.cmd("DEL").arg(key).ignore();
        }
        self.client.pipeline(&commands).await
    }
}

/// Whether to go on after the pause.
async fn sleeps(stop: &CancellationToken, pause: Duration) -> bool {
    let slept = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    slept.is_some()
}

/// Says once that a loop has trouble, and once that it is over.
struct Log {
    what: &'static str,
    has_trouble: bool,
}

impl Log {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            has_trouble: false,
        }
    }

    /// How long to wait after that result.
    fn pause<T>(&mut self, result: &Result<T, Error>, usual: Duration) -> Duration {
        match result {
            Ok(_) => {
                if self.has_trouble {
                    tracing::info!(task = self.what, "the work queue goes on");
                }
                self.has_trouble = false;
                usual
            }
            Err(error) => {
                if !self.has_trouble {
                    tracing::warn!(task = self.what, %error, "the work queue has trouble");
                }
                self.has_trouble = true;
                usual.min(RETRY_AFTER)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_retried_soon() {
        let mut log = Log::new("any");
        let usual = Duration::from_secs(5);
        assert_eq!(log.pause(&Ok(()), usual), usual);
        let away = Err::<(), _>(Error::unreachable("away"));
        assert_eq!(log.pause(&away, usual), RETRY_AFTER);
        assert_eq!(log.pause(&Ok(()), usual), usual);
    }
}
