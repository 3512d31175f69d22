//! In: which jobs to serve, and with how much patience. Out: the same, if it can be.
//! Pure.

use std::time::Duration;

use crate::keys::check_name;
use crate::{Error, sample};

/// The most workers of one pool.
const MOST_WORKERS: u32 = 10_000;

/// Jobs of one name, as a pool serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Their name.
    pub name: String,
    /// 1 to 100000: how often this queue is looked at first, in proportion to the others.
    pub priority: u32,
    /// How many of all pools may work on them at once; 0 is no limit. Written when the pool starts.
    pub max_concurrency: u64,
}

impl Kind {
    /// With priority 1 and without limit.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            priority: 1,
            max_concurrency: 0,
        }
    }
}

/// What a pool serves, and how patient it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// The jobs it serves.
    pub kinds: Vec<Kind>,
    /// How many jobs it works on at once. Others read it from the heartbeat; the pool does not enforce it.
    pub concurrency: u32,
    /// Shown beside the pool; if empty, the name of this machine.
    pub host: String,
    /// Shown beside the pool.
    pub pid: u32,
    /// How often it says that it lives.
    pub beat_every: Duration,
    /// A pool that has not said so for this long is dead, and its jobs go to others. To be the same for all pools:
    /// gocraft/work has 10 s. Redis counts in whole seconds.
    pub patience: Duration,
    /// How often it looks for dead pools.
    pub reap_every: Duration,
    /// How often it looks for lost lists and wrong counts, which takes a walk through the keys of the whole server. Each pool
    /// does, so that what nobody else looks for is found by whoever lives; the first time at a random moment, so that they
    /// do not all do so at once.
    pub search_every: Duration,
    /// How often it looks for jobs that are due.
    pub requeue_every: Duration,
}

impl PoolOptions {
    /// With the periods of gocraft/work, except that dead pools are looked for every 2 s instead of every 10 min.
    pub fn new(kinds: Vec<Kind>, concurrency: u32) -> Self {
        Self {
            kinds,
            concurrency,
            host: String::new(),
            pid: std::process::id(),
            beat_every: Duration::from_secs(5),
            patience: Duration::from_secs(10),
            reap_every: Duration::from_secs(2),
            search_every: Duration::from_mins(1),
            requeue_every: Duration::from_secs(1),
        }
    }
}

impl PoolOptions {
    pub(super) fn check(&self) -> Result<(), Error> {
        let refuse = |what: &str| Err(Error::invalid(what));
        if self.kinds.is_empty() {
            return refuse("a pool needs jobs to serve");
        }
        for (index, kind) in self.kinds.iter().enumerate() {
            check_name(&kind.name)?;
            if kind.priority == 0 || kind.priority > sample::MOST {
                return refuse("a priority must be between 1 and 100000");
            }
            if self.kinds[..index]
                .iter()
                .any(|other| other.name == kind.name)
            {
                return refuse("a pool serves a name once");
            }
        }
        if self.concurrency == 0 || self.concurrency > MOST_WORKERS {
            return refuse("a pool has between 1 and 10000 workers");
        }
        if self.patience < Duration::from_secs(2) || self.beat_every * 2 > self.patience {
            return refuse("patience must be at least 2 s, and two heartbeats");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut PoolOptions)) -> bool {
        let mut options = PoolOptions::new(vec![Kind::new("A"), Kind::new("B")], 1);
        change(&mut options);
        options.check().is_err()
    }

    #[test]
    fn options_that_cannot_be_are_refused() {
        assert!(!refused(|_| {}));
        assert!(refused(|options| options.kinds.clear()));
        assert!(refused(|options| options.kinds[0].priority = 0));
        assert!(refused(|options| options.kinds[0].priority = 100_001));
        assert!(refused(|options| options.kinds[0].name = "a,b".into()));
        assert!(refused(|options| options.kinds[0].name = "B".into()));
        assert!(refused(|options| options.concurrency = 0));
        assert!(refused(|options| options.patience = Duration::from_secs(1)));
        assert!(refused(|options| options.beat_every = options.patience));
    }
}
