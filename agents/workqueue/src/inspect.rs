//! In: names of jobs. Out: how many there are and who works on them; and the switches that stop and remove them.
//! Touches: Redis.

use std::collections::HashMap;
use std::time::Duration;

use crate::keys::check_name;
use crate::walk::members;
use crate::{Client, Error, Namespace, scripts};

/// A pool counts as there while its heartbeat is younger than this, by the clock of Redis. Twice the age at which
/// its jobs go to others: it is better to plan for a pool that is gone than to forget one that is not.
pub const LIVE_FOR: Duration = Duration::from_secs(30);

/// How long a queue stays paused that is [held](Inspector::hold) only once.
pub const HELD_FOR: Duration = Duration::from_mins(1);

/// So many members of a set are looked at in one step.
const PAGE: u64 = 500;

/// So many pages of one set are looked at: fifty thousand jobs.
const MOST_PAGES: u64 = 100;

/// What producers and people want to know about one namespace.
#[derive(Clone, Debug)]
pub struct Inspector {
    pub(crate) client: Client,
    pub(crate) namespace: Namespace,
}

/// A pool that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivePool {
    /// Its identifier.
    pub id: String,
    /// How many jobs it works on at once.
    pub concurrency: u64,
    /// Which jobs it serves.
    pub job_names: Vec<String>,
    /// Where it runs.
    pub host: String,
    /// Seconds since its last heartbeat; negative if its clock is ahead of that of Redis.
    pub age: i64,
}

/// How many jobs of one name there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In the queue.
    pub queued: u64,
    /// Taken by a pool.
    pub in_progress: u64,
    /// To be tried again.
    pub retry: u64,
    /// Put off.
    pub scheduled: u64,
    /// Given up.
    pub dead: u64,
    /// Whether a set was too long to be looked at to its end: then there may be more.
    pub is_partial: bool,
}

impl Counts {
    /// Whether nothing is left that will still be worked on.
    pub fn is_drained(&self) -> bool {
        self.queued == 0
            && self.in_progress == 0
            && self.retry == 0
            && self.scheduled == 0
            && !self.is_partial
    }
}

impl Inspector {
    /// For one namespace.
    pub fn new(client: Client, namespace: Namespace) -> Self {
        Self { client, namespace }
    }

    /// How many jobs wait in the queue.
    pub async fn queue_length(&self, name: &str) -> Result<u64, Error> {
        let mut command = redis::cmd("LLEN");
        self.client
            .query(command.arg(self.namespace.queue(name)))
            .await
    }

    /// All names that were ever enqueued or served, and not removed.
    pub async fn known_jobs(&self) -> Result<Vec<String>, Error> {
        members(&self.client, &self.namespace.known_jobs()).await
    }

    /// The pools with a heartbeat younger than [`LIVE_FOR`], sorted by identifier.
    pub async fn pools(&self) -> Result<Vec<LivePool>, Error> {
        let ids = members(&self.client, &self.namespace.worker_pools()).await?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.client.now().await?;
        let mut commands = redis::pipe();
        for id in &ids {
            commands.cmd("HGETALL").arg(self.namespace.heartbeat(id));
        }
        let heartbeats: Vec<HashMap<String, String>> = self.client.pipeline(&commands).await?;
        let pools = ids.into_iter().zip(heartbeats);
        Ok(pools
            .filter_map(|(id, fields)| live_pool(id, &fields, now))
            .collect())
    }

    /// How many jobs of that name can be worked on at once by the pools that are there.
    pub async fn workers(&self, name: &str) -> Result<u64, Error> {
        let pools = self.pools().await?;
        let serving = pools
            .iter()
            .filter(|pool| pool.job_names.iter().any(|served| served == name));
        Ok(serving.map(|pool| pool.concurrency).sum())
    }

    /// How many jobs of that name there are. Queue, lists in progress and the beginning of each set are seen at one
    /// moment, so that a job on its way from one to the other is not missed. A list of a pool that neither has a
    /// heartbeat nor is counted is not seen here; a running [`Pool`](crate::Pool) finds it.
    pub async fn counts(&self, name: &str) -> Result<Counts, Error> {
        let keys = &self.namespace;
        let sets = [keys.retry(), keys.scheduled(), keys.dead()];
        let first = self.page(name, &sets, 0).await?;
        let [queued, in_progress, pairs @ ..] = first.as_slice() else {
            return Err(Error::Protocol {
                reason: "too few counts".into(),
            });
        };
        let mut counts = Counts {
            queued: *queued,
            in_progress: *in_progress,
            ..Counts::default()
        };
        let mut found = [0; 3];
        for (index, pair) in pairs.chunks_exact(2).take(3).enumerate() {
            let pages = pair[1].div_ceil(PAGE);
            counts.is_partial |= pages > MOST_PAGES;
            found[index] = pair[0];
            for page in 1..pages.min(MOST_PAGES) {
                let more = self.page(name, &sets[index..=index], page).await?;
                found[index] += more.get(2).copied().unwrap_or_default();
            }
        }
        [counts.retry, counts.scheduled, counts.dead] = found;
        Ok(counts)
    }

    async fn page(&self, name: &str, sets: &[String], page: u64) -> Result<Vec<u64>, Error> {
        let mut call = scripts::COUNTS.prepare_invoke();
        call.key(self.namespace.queue(name));
        call.key(self.namespace.lock_info(name));
        call.key(self.namespace.worker_pools());
        for set in sets {
            call.key(set);
        }
        call.arg(name).arg(page * PAGE).arg((page + 1) * PAGE - 1);
        self.client.run(&call).await
    }

    /// No more jobs of that name are taken, by whomever; those in progress go on.
    pub async fn pause(&self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        let mut command = redis::cmd("SET");
        command.arg(self.namespace.paused(name)).arg(1);
        self.client.query(&command).await
    }

    /// Jobs of that name are taken again.
    pub async fn unpause(&self, name: &str) -> Result<(), Error> {
        let mut command = redis::cmd("DEL");
        self.client
            .query(command.arg(self.namespace.paused(name)))
            .await
    }

    /// Pauses jobs of that name for somebody, until they [let go](Self::let_go) or [`HELD_FOR`] has passed: who dies
    /// holds nobody up for ever. Whoever wants the pause to last holds again in time; while somebody else has paused the
    /// queue nothing changes.
    pub async fn hold(&self, name: &str, by: &str) -> Result<(), Error> {
        check_name(name)?;
        let mut call = scripts::HOLD.prepare_invoke();
        call.key(self.namespace.paused(name));
        call.key(self.namespace.lock_info(name));
        call.arg(by).arg(HELD_FOR.as_secs());
        self.client.run::<u64>(&call).await.map(drop)
    }

    /// Ends what they [hold](Self::hold), and no pause of anybody else.
    pub async fn let_go(&self, name: &str, by: &str) -> Result<(), Error> {
        let mut call = scripts::LET_GO.prepare_invoke();
        call.key(self.namespace.paused(name)).arg(by);
        self.client.run::<u64>(&call).await.map(drop)
    }

    /// Whether jobs of that name are not taken.
    pub async fn is_paused(&self, name: &str) -> Result<bool, Error> {
        let mut command = redis::cmd("EXISTS");
        self.client
            .query(command.arg(self.namespace.paused(name)))
            .await
    }
}

/// The pool, if it is there. What a heartbeat does not say counts as nothing.
fn live_pool(id: String, fields: &HashMap<String, String>, now: i64) -> Option<LivePool> {
    let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
    let at: i64 = field("heartbeat_at").parse().ok()?;
    let age = now.saturating_sub(at);
    let is_there = age < i64::try_from(LIVE_FOR.as_secs()).unwrap_or(i64::MAX);
    let names = field("job_names").split(',');
    is_there.then(|| LivePool {
        id,
        concurrency: field("concurrency").parse().unwrap_or_default(),
        job_names: names
            .filter(|name| !name.is_empty())
            .map(Into::into)
            .collect(),
        host: field("host").into(),
        age,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat(at: &str) -> HashMap<String, String> {
        let fields = [
            ("heartbeat_at", at),
            ("job_names", "A,B"),
            ("concurrency", "7"),
            ("host", "h"),
        ];
        let owned = fields.map(|(field, value)| (field.into(), value.into()));
        owned.into()
    }

    #[test]
    fn a_pool_is_there_for_half_a_minute() {
        let seen = |at| live_pool("p".into(), &heartbeat(at), 100);
        let pool = seen("71").unwrap();
        assert_eq!((pool.concurrency, pool.age), (7, 29));
        assert_eq!(pool.job_names, ["A", "B"]);
        assert_eq!(seen("70"), None);
        assert_eq!(seen("nonsense"), None);
        assert!(seen("900").is_some(), "its clock is ahead");
        assert_eq!(live_pool("p".into(), &HashMap::new(), 100), None);
    }

    #[test]
    fn what_is_not_known_to_be_empty_is_not_drained() {
        let empty = Counts::default();
        assert!(empty.is_drained());
        assert!(Counts { dead: 3, ..empty }.is_drained());
        for busy in [
            Counts { queued: 1, ..empty },
            Counts {
                in_progress: 1,
                ..empty
            },
            Counts { retry: 1, ..empty },
            Counts {
                scheduled: 1,
                ..empty
            },
            Counts {
                is_partial: true,
                ..empty
            },
        ] {
            assert!(!busy.is_drained(), "{busy:?}");
        }
    }
}
