//! Limits and pauses. In: what the operator says, and how many results wait. Out: what is published to workers.
//! Several runs may share a queue, so each ends the pauses that it began, and no other.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;
use tracing::warn;

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
        self.publish().await?;
        *self.shared.queue_trouble() = None;
        Ok(seen)
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
        })
    }

    async fn publish(&self) -> Result<(), workqueue::Error> {
        let pools = self.queue.inspector().pools().await?;
        let serves = |names: &[String]| names.iter().any(|it| it == COMPUTE);
        let pools = pools.iter().filter(|it| serves(&it.job_names)).count() as u64;
        let limit = match self.shared.total_limit.load(Ordering::Relaxed) {
            0 => 0,
            // Nobody's share is nothing: that would be no limit.
            total => (total / pools.max(1)).max(1),
        };
        let published = self.queue.published();
        let known = published.read().await?;
        let known = known.and_then(|it| it.fields.get(LIMIT).cloned());
        if known != Some(limit.to_string()) {
            published.publish(&[(LIMIT, limit.to_string())]).await?;
        }
        Ok(())
    }
}

/// Whether so many results wait that no more packs should be given out.
fn is_crowded(results: u64, was_crowded: bool) -> bool {
    results > if was_crowded { LOW_WATER } else { HIGH_WATER }
}

#[cfg(test)]
mod tests {
    use super::*;

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
