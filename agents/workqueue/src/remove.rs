//! In: a name that nobody uses any more. Out: no key in Redis that has to do with it.
//! Touches: Redis.

use crate::walk::Walk;
use crate::{Error, Inspector, Job, Namespace};

/// So many members of a set are looked at in one step.
const PAGE: isize = 500;

/// So many steps through one set.
const MOST_PAGES: isize = 10_000;

/// So many keys are removed by one command.
const KEYS_AT_ONCE: usize = 500;

impl Inspector {
    /// Removes the queue, the jobs in progress, to be retried, put off and dead, the counts, the switches and the
    /// name itself. Tells how many keys and members of sets that were.
    ///
    /// Not one step: whoever still enqueues or serves that name brings some of it back. A job in progress that is
    /// finished afterwards is [fenced](crate::Outcome::Fenced), and leaves nothing behind.
    pub async fn remove(&self, name: &str) -> Result<u64, Error> {
        let space = &self.namespace;
        let mut removed = self.forget(&space.known_jobs(), name).await?;
        // At first what is known by name: to find the rest takes long where others have many keys.
        let named = [
            space.queue(name),
            space.paused(name),
            space.lock(name),
            space.lock_info(name),
            space.max_concurrency(name),
            space.come_back(name),
        ];
        removed += self.unlink(&named).await?;
        for set in [space.retry(), space.scheduled(), space.dead()] {
            removed += self.remove_members(&set, name).await?;
        }
        let is_of_it = |key: &str| is_list_of(space, name, key);
        removed += self.sweep(&space.in_progress_pattern(), is_of_it).await?;
        let is_of_it = |key: &str| is_marker_of(space, name, key);
        Ok(removed + self.sweep(&space.unique_pattern(name), is_of_it).await?)
    }

    async fn forget(&self, set: &str, name: &str) -> Result<u64, Error> {
        let mut command = redis::cmd("SREM");
        self.client.query(command.arg(set).arg(name)).await
    }

    /// Removes all there is in the namespace, pools included. Tells how many keys that were. Only for a namespace that
    /// nobody uses any more.
    pub async fn clear(&self) -> Result<u64, Error> {
        self.sweep(&self.namespace.all_pattern(), |_| true).await
    }

    /// Removes those of the keys that match, page by page: the walk ends where the keys of Redis end, however many there are,
    /// and what it has removed stays so if it is broken off.
    async fn sweep(&self, pattern: &str, is_doomed: impl Fn(&str) -> bool) -> Result<u64, Error> {
        let (mut removed, mut walk) = (0, Walk::default());
        loop {
            let (mut keys, is_through) = walk.go(&self.client, pattern, 1).await?;
            keys.retain(|key| is_doomed(key));
            removed += self.unlink(&keys).await?;
            if is_through {
                return Ok(removed);
            }
        }
    }

    async fn unlink(&self, doomed: &[String]) -> Result<u64, Error> {
        let mut removed = 0;
        for keys in doomed.chunks(KEYS_AT_ONCE) {
            let mut command = redis::cmd("UNLINK");
            removed += self.client.query::<u64>(command.arg(keys)).await?;
        }
        Ok(removed)
    }

    async fn remove_members(&self, set: &str, name: &str) -> Result<u64, Error> {
        let (mut removed, mut from) = (0_u64, 0);
        for _ in 0..MOST_PAGES {
            let mut command = redis::cmd("ZRANGE");
            command.arg(set).arg(from).arg(from + PAGE - 1);
            let members: Vec<Vec<u8>> = self.client.query(&command).await?;
            let is_last = members.len() < PAGE.unsigned_abs();
            let ours: Vec<Vec<u8>> = members
                .into_iter()
                .filter(|member| Job::decode(member).is_ok_and(|job| job.name == name))
                .collect();
            // The others stay, and the next page begins after them.
            let gone = isize::try_from(ours.len()).unwrap_or(PAGE);
            from += PAGE - gone;
            if !ours.is_empty() {
                let mut command = redis::cmd("ZREM");
                let count: u64 = self.client.query(command.arg(set).arg(ours)).await?;
                removed += count;
            }
            if is_last {
                return Ok(removed);
            }
        }
        Err(Error::Protocol {
            reason: format!("{set} has too many members").into(),
        })
    }
}

fn is_list_of(space: &Namespace, name: &str, key: &str) -> bool {
    let split = space.split_in_progress(key);
    split.is_some_and(|(of, _)| of == name)
}

/// What follows the name is an object or nothing: otherwise it is of a name that goes on with a colon.
fn is_marker_of(space: &Namespace, name: &str, key: &str) -> bool {
    let rest = key.strip_prefix(&space.unique(name, ""));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
}
