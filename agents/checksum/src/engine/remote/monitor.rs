//! Limits and pauses. In: what the operator says, and how many results wait. Out: what is published to workers.
//! Several runs may share a queue, so each ends the pauses that it began, and no other.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;
use tracing::warn;
use workqueue::LivePool;

use super::Remote;
use crate::queue::{COMPUTE, LIMIT};

/// Results that wait: beyond the first, no more packs are given out until there are fewer than the second. Each has those of
/// up to a thousand files, about a hundred kilobytes.
const HIGH_WATER: u64 = 1000;
const LOW_WATER: u64 = 100;
/// How often limits and pauses are looked at.
const INTERVAL: Duration = Duration::from_secs(2);

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Too many results wait.
    is_crowded: bool,
    /// Somebody else holds packs back.
    is_held: bool,
    /// The limit was published.
    is_published: bool,
}

impl Remote<'_> {
    /// Publishes limits and pauses, until it is dropped.
    pub(super) async fn monitor(&self) -> Infallible {
        let mut seen = Seen::default();
        loop {
            match self.monitor_once(seen).await {
                Ok(now) => seen = now,
                Err(error) => self.trouble(&error).await,
            }
            sleep(INTERVAL).await;
        }
    }

    async fn monitor_once(&self, before: Seen) -> Result<Seen, workqueue::Error> {
        let seen = self.pause(before).await?;
        if seen.is_held && !before.is_held {
            warn!("packs wait: somebody else has paused the queue");
        }
        self.publish(before.is_published).await?;
        *self.shared.queue_trouble() = None;
        Ok(Seen {
            is_published: true,
            ..seen
        })
    }

    /// Under the name of the run, so that whoever goes on with it ends what one that died has begun.
    async fn pause(&self, before: Seen) -> Result<Seen, workqueue::Error> {
        let (inspector, run) = (self.queue.inspector(), self.queue.results());
        let results = inspector.queue_length(&run).await?;
        let is_crowded = is_crowded(results, before.is_crowded);
        let should_pause = is_crowded || self.shared.is_paused();
        if should_pause {
            inspector.hold(COMPUTE, &run).await?;
        } else {
            inspector.let_go(COMPUTE, &run).await?;
        }
        Ok(Seen {
            is_crowded,
            is_held: !should_pause && inspector.is_paused(COMPUTE).await?,
            ..before
        })
    }

    async fn publish(&self, was_published: bool) -> Result<(), workqueue::Error> {
        let pools = self.queue.inspector().pools().await?;
        let pools = pools.iter().filter(|it| reads_packs(it)).count() as u64;
        let limit = match self.shared.total_limit.load(Ordering::Relaxed) {
            0 => 0,
            // Nobody's share is nothing: that would be no limit.
            total => (total / pools.max(1)).max(1),
        };
        let published = self.queue.published();
        let known = published.read().await?;
        if known.is_none() && was_published {
            self.losses.fetch_add(1, Ordering::Relaxed);
        }
        let known = known.and_then(|it| it.fields.get(LIMIT).cloned());
        if known != Some(limit.to_string()) {
            published.publish(&[(LIMIT, limit.to_string())]).await?;
        }
        Ok(())
    }
}

/// Whether a worker is behind it. One that has lost its contact for a while goes by another identifier, and keeps the one of
/// before only for what it still has.
fn reads_packs(pool: &LivePool) -> bool {
    pool.concurrency > 0 && pool.job_names.iter().any(|it| it == COMPUTE)
}

/// Whether so many results wait that no more packs should be given out.
fn is_crowded(results: u64, was_crowded: bool) -> bool {
    results > if was_crowded { LOW_WATER } else { HIGH_WATER }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_counts_once_by_whatever_names_it_goes() {
        let pool = |concurrency, name: &str| LivePool {
            id: String::new(),
            concurrency,
            job_names: vec![name.into()],
            host: String::new(),
            age: 0,
        };
        assert!(reads_packs(&pool(8, COMPUTE)));
        assert!(!reads_packs(&pool(0, COMPUTE)));
        assert!(!reads_packs(&pool(8, "WriteBack")));
    }

    #[test]
    fn packs_are_held_back_at_high_water_and_until_low_water() {
        let lengths = [1000, 1001, 500, 101, 100, 500, 1000];
        let mut was = false;
        let crowded = lengths.map(|results| {
            was = is_crowded(results, was);
            was
        });
        assert_eq!(crowded, [false, true, true, true, false, false, false]);
    }
}
