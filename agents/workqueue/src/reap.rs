//! In: heartbeats, and lists of jobs in progress. Out: the jobs of dead pools, back in their queues, where they are next.
//! Touches: Redis. Whether a pool is dead is decided again by Redis, in the step that moves its jobs, so several
//! reapers can run at once, and a pool that comes back in between keeps what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::pool::{stray, wrapped};
use crate::walk::{Walk, members};
use crate::{Client, Error, Job, Namespace, PoolOptions, scripts};

/// So many jobs are moved in one step: Redis does nothing else meanwhile.
const BATCH: u64 = 100;

/// So long after the last one it is known which jobs have come back from dead pools.
const KNOWN: Duration = Duration::from_hours(24);

/// So often a job comes back from dead pools. It may be what they die of: then it would take down one node after the other,
/// and whoever waits for it would wait for ever.
const MOST_TIMES: u64 = 5;

/// So many steps of a walk through the keys per search; the next search goes on there.
const SEARCH_STEPS: usize = 100;

/// So many heartbeats are asked for at once.
const BEATS_AT_ONCE: usize = 500;

/// So many names are looked at for wrong counts per search.
const MOST_NAMES: usize = 1000;

/// How long Redis has been there without a break.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    since: Option<Instant>,
}

impl Contact {
    pub(crate) fn heard(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    pub(crate) fn lost(&mut self) {
        self.since = None;
    }

    /// Whether everybody who lives has had the time to say so.
    pub(crate) fn is_steady(&self, now: Instant, patience: Duration) -> bool {
        let lasted = self.since.map(|since| now.duration_since(since));
        lasted.is_some_and(|lasted| lasted >= patience)
    }
}

/// What was last seen of a pool. Not its age counts, but how long it has not changed: Go pools write the time of
/// their own clocks, which may be wrong.
#[derive(Debug)]
struct Sighting {
    /// The time of its last heartbeat, as it was written; nothing if there is none. A Go pool takes jobs before it
    /// writes its first.
    beat: Option<String>,
    since: Instant,
    /// Of which names it has lists, as far as a search has found them.
    names: BTreeSet<String>,
}

/// What is known of all pools that have been seen.
#[derive(Debug, Default)]
struct Sightings {
    pools: BTreeMap<String, Sighting>,
}

impl Sightings {
    /// Whether the pool has shown no sign of life for as long as is needed.
    fn is_dead(
        &mut self,
        pool: &str,
        beat: Option<String>,
        now: Instant,
        patience: Duration,
    ) -> bool {
        if let Some(seen) = self.pools.get(pool)
            && seen.beat == beat
        {
            return now.duration_since(seen.since) >= patience;
        }
        let fresh = Sighting {
            beat,
            since: now,
            names: BTreeSet::new(),
        };
        self.pools.insert(pool.into(), fresh);
        false
    }

    /// Pools that nobody lists, so they would not be looked at again, and of which names they have lists.
    fn unlisted(&self) -> impl Iterator<Item = (&String, &BTreeSet<String>)> {
        let without = self.pools.iter().filter(|(_, seen)| seen.beat.is_none());
        without.map(|(pool, seen)| (pool, &seen.names))
    }

    fn has_lists(&mut self, pool: &str, names: BTreeSet<String>) {
        if let Some(seen) = self.pools.get_mut(pool) {
            seen.names.extend(names);
        }
    }

    fn forget(&mut self, pool: &str) {
        self.pools.remove(pool);
    }

    fn keep(&mut self, looked_at: &BTreeMap<String, BTreeSet<String>>) {
        self.pools.retain(|pool, _| looked_at.contains_key(pool));
    }
}

/// Looks for dead pools, and for what they have left behind.
#[derive(Debug)]
pub(crate) struct Reaper<'a> {
    client: &'a Client,
    keys: &'a Namespace,
    patience: Duration,
    search_every: Duration,
    /// When it searches next, unless it has not begun: then it is still to be drawn.
    search_at: Option<Instant>,
    walk: Walk,
    sightings: Sightings,
}

/// What a heartbeat says.
struct Heartbeat {
    at: Option<String>,
    names: Vec<String>,
}

impl From<(Option<String>, Option<String>)> for Heartbeat {
    fn from((at, names): (Option<String>, Option<String>)) -> Self {
        let names = names.unwrap_or_default();
        let names = names.split(',').filter(|name| !name.is_empty());
        Self {
            at,
            names: names.map(String::from).collect(),
        }
    }
}

impl<'a> Reaper<'a> {
    pub(crate) fn new(client: &'a Client, keys: &'a Namespace, options: &PoolOptions) -> Self {
        Self {
            client,
            keys,
            patience: options.patience,
            search_every: options.search_every,
            search_at: None,
            walk: Walk::default(),
            sightings: Sightings::default(),
        }
    }

    /// One look at everybody. Tells how many jobs were moved. Without `may_judge` it only looks.
    ///
    /// Each pool looks, not one for all: what counts is how long a heartbeat has stood still by the looker's own clock, so
    /// whoever had to take over from a looker that died would begin to measure when its jobs should be back already.
    pub(crate) async fn step(&mut self, now: Instant, may_judge: bool) -> Result<u64, Error> {
        let pools = members(self.client, &self.keys.worker_pools()).await?;
        let known = members(self.client, &self.keys.known_jobs()).await?;
        let mut lists = self.search(now, &known).await?;
        for pool in pools {
            lists.entry(pool).or_default();
        }
        for (pool, names) in self.sightings.unlisted() {
            let found = lists.entry(pool.clone()).or_default();
            found.extend(names.iter().cloned());
        }
        self.sightings.keep(&lists);
        let pools: Vec<&String> = lists.keys().collect();
        let heartbeats = self.heartbeats(&pools).await?;
        let mut moved = 0;
        for ((pool, names), heartbeat) in lists.into_iter().zip(heartbeats) {
            if self.has_died(now, &pool, &heartbeat) && may_judge {
                moved += self.bury(&pool, names, heartbeat, &known).await?;
            } else {
                self.sightings.has_lists(&pool, names);
            }
        }
        Ok(moved)
    }

    fn has_died(&mut self, now: Instant, pool: &str, heartbeat: &Heartbeat) -> bool {
        let beat = heartbeat.at.clone();
        self.sightings.is_dead(pool, beat, now, self.patience)
    }

    async fn bury(
        &mut self,
        pool: &str,
        mut names: BTreeSet<String>,
        Heartbeat { at, names: served }: Heartbeat,
        known: &[String],
    ) -> Result<u64, Error> {
        names.extend(served);
        names.extend(known.iter().cloned());
        let moved = self.reap(pool, &names, &at.unwrap_or_default()).await?;
        self.sightings.forget(pool);
        Ok(moved)
    }

    /// Those of the pools, in their order: in few exchanges, since each pool asks for those of all.
    async fn heartbeats(&self, pools: &[&String]) -> Result<Vec<Heartbeat>, Error> {
        let mut heartbeats = Vec::with_capacity(pools.len());
        for some in pools.chunks(BEATS_AT_ONCE) {
            let mut commands = redis::pipe();
            for pool in some {
                commands.cmd("HMGET").arg(self.keys.heartbeat(pool));
                commands.arg("heartbeat_at").arg("job_names");
            }
            let answers: Vec<(Option<String>, Option<String>)> =
                self.client.pipeline(&commands).await?;
            heartbeats.extend(answers.into_iter().map(Heartbeat::from));
        }
        Ok(heartbeats)
    }

    async fn reap(&self, pool: &str, names: &BTreeSet<String>, beat: &str) -> Result<u64, Error> {
        let mut total = 0;
        for name in names {
            let mut too_often = None;
            loop {
                let some = self.reap_some(pool, name, beat, too_often.as_deref());
                let (moved, next) = some.await?;
                let Ok(moved) = u64::try_from(moved) else {
                    return Ok(total); // it lives after all
                };
                total += moved;
                if moved < BATCH && next.is_none() {
                    break;
                }
                too_often = next;
            }
        }
        let mut call = scripts::BURY_POOL.prepare_invoke();
        call.key(self.keys.heartbeat(pool));
        call.key(self.keys.worker_pools());
        call.arg(pool).arg(beat).arg(self.keys.observation(""));
        if self.client.run::<i64>(&call).await? == 1 {
            tracing::info!(pool, jobs = total, "a dead pool was cleared away");
        }
        for name in names {
            self.mend(name).await?;
        }
        Ok(total)
    }

    /// How many were moved, and one that has come back too often: to be given to the next call, which puts it to the dead.
    async fn reap_some(
        &self,
        pool: &str,
        name: &str,
        beat: &str,
        too_often: Option<&[u8]>,
    ) -> Result<(i64, Option<Vec<u8>>), Error> {
        let mut call = scripts::REAP.prepare_invoke();
        call.key(self.keys.heartbeat(pool))
            .key(self.keys.in_progress(name, pool))
            .key(self.keys.queue(name))
            .key(self.keys.lock(name))
            .key(self.keys.lock_info(name))
            .key(self.keys.come_back(name))
            .key(self.keys.dead());
        call.arg(pool).arg(beat).arg(BATCH).arg(KNOWN.as_secs());
        call.arg(MOST_TIMES);
        if let Some(element) = too_often {
            let job = given_up(name, element);
            let (queue, id, reason) = (&job.name, &job.id, &job.error);
            tracing::warn!(queue, id, reason, "a job is put to the dead");
            let (head, tail) = job.around_failed_at();
            call.arg(element).arg(head).arg(tail);
        }
        self.client.run(&call).await
    }

    /// From time to time: all lists there are, whoever they belong to, and counts that are wrong.
    async fn search(
        &mut self,
        now: Instant,
        known: &[String],
    ) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
        let mut lists: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let next = self
            .search_at
            .get_or_insert_with(|| now + within(self.search_every));
        if now < *next {
            return Ok(lists);
        }
        let pattern = self.keys.in_progress_pattern();
        let (keys, _) = self.walk.go(self.client, &pattern, SEARCH_STEPS).await?;
        for key in keys {
            if let Some((name, pool)) = self.keys.split_in_progress(&key) {
                lists.entry(pool.into()).or_default().insert(name.into());
            }
        }
        for name in known.iter().take(MOST_NAMES) {
            self.mend(name).await?;
        }
        self.search_at = Some(now + self.search_every);
        Ok(lists)
    }

    async fn mend(&self, name: &str) -> Result<(), Error> {
        let mut call = scripts::MEND.prepare_invoke();
        call.key(self.keys.lock(name))
            .key(self.keys.lock_info(name))
            .key(self.keys.queue(name));
        if self.client.run::<i64>(&call).await? == 1 {
            tracing::info!(name, "the count of jobs in progress was wrong");
        }
        Ok(())
    }
}

/// Some part of a period: pools that begin at once do not all search at once.
fn within(period: Duration) -> Duration {
    period.mul_f64(fastrand::f64())
}

/// What is kept of a job whose pools have died too often.
fn given_up(name: &str, element: &[u8]) -> Job {
    let reason = format!("each of the {} pools that took it died", MOST_TIMES + 1);
    match Job::decode(element) {
        Ok(job) => stray(job, &reason),
        Err(_) => wrapped(name, element, &reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn a_pool_is_dead_when_its_heartbeat_has_not_changed_for_long() {
        let start = monotonic();
        let mut sightings = Sightings::default();
        let mut is_dead = |beat: Option<&str>, seconds| {
            let now = start + Duration::from_secs(seconds);
            sightings.is_dead("p", beat.map(Into::into), now, PATIENCE)
        };
        assert!(!is_dead(None, 0));
        assert!(!is_dead(None, 9));
        assert!(is_dead(None, 10));
        assert!(!is_dead(Some("100"), 11), "its first heartbeat");
        assert!(!is_dead(Some("105"), 16));
        assert!(!is_dead(Some("104"), 20), "its clock goes back");
        assert!(!is_dead(Some("104"), 29));
        assert!(is_dead(Some("104"), 30));
        assert!(!is_dead(None, 31));
    }

    #[test]
    fn pools_that_nobody_lists_are_looked_at_again() {
        let now = monotonic();
        let mut sightings = Sightings::default();
        sightings.is_dead("listed", Some("1".into()), now, PATIENCE);
        sightings.is_dead("orphan", None, now, PATIENCE);
        let names = BTreeSet::from(["N".to_string()]);
        sightings.has_lists("orphan", names.clone());
        let unlisted: Vec<_> = sightings.unlisted().collect();
        assert_eq!(unlisted, [(&"orphan".to_string(), &names)]);
        sightings.keep(&[("listed".into(), BTreeSet::new())].into());
        assert_eq!(sightings.unlisted().count(), 0);
        assert_eq!(sightings.pools.len(), 1);
    }

    #[test]
    fn nobody_is_judged_before_everybody_could_speak() {
        let start = monotonic();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut contact = Contact::default();
        assert!(!contact.is_steady(at(100), PATIENCE));
        contact.heard(at(0));
        contact.heard(at(5));
        assert!(!contact.is_steady(at(9), PATIENCE));
        assert!(contact.is_steady(at(10), PATIENCE));
        contact.lost();
        contact.heard(at(11));
        assert!(!contact.is_steady(at(20), PATIENCE));
    }
}
