//! How packs end. In: what came of them. Out: jobs that say so, for the coordinator. Touches: the queue.

use tracing::warn;
use workqueue::{NewJob, Outcome, Taken, Tries};

use super::Crew;

/// How often a worker that is to end tries to tell what it has read, while it cannot.
const LAST_ATTEMPTS: usize = 30;

impl Crew {
    /// Results go out in the same step in which the pack is done, so they are seldom sent twice. If Redis was away for long,
    /// somebody else has the pack by now. A run of ours hears of it all the same: what was read for an hour is not read for
    /// nothing, and whatever comes twice counts once.
    pub(super) async fn finish(
        &self,
        taken: &Taken,
        results: Option<NewJob>,
        rest: Option<NewJob>,
    ) {
        let then: Vec<NewJob> = results.iter().cloned().chain(rest).collect();
        for attempt in 0.. {
            match self.pool.finish_with(taken, then.clone()).await {
                Ok(Outcome::Done) => return,
                Ok(Outcome::Fenced) => return self.send_late(results).await,
                Err(error) => self.trouble(&error).await,
            }
            if self.shared.is_stopped() && attempt >= LAST_ATTEMPTS {
                return;
            }
        }
    }

    /// As long as somebody waits for it.
    async fn send_late(&self, results: Option<NewJob>) {
        let Some(results) = results else {
            return;
        };
        while self.is_wanted().await {
            match self
                .queue
                .enqueuer()
                .enqueue_many(vec![results.clone()])
                .await
            {
                Ok(_) => return,
                Err(error) => self.trouble(&error).await,
            }
            if self.shared.is_stopped() {
                return;
            }
        }
    }

    pub(super) async fn refuse(&self, taken: &Taken, why: &str, max_fails: u32) {
        warn!(why, "a pack is refused");
        let tries = Tries {
            max_fails,
            skip_dead: false,
        };
        if let Err(error) = self.pool.fail(taken, why, tries).await {
            self.trouble(&error).await;
        }
    }
}
