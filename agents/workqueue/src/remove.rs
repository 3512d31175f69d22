//! In: a name that nobody uses any more. Out: no key in Redis that has to do with it.
//! Touches: Redis.

use crate::walk::keys;
use crate::{Error, Inspector, Job};

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
        // At first what is large: to find the rest may take too long where others have many keys.
        let named = [
            space.queue(name),
            space.paused(name),
            space.lock(name),
            space.lock_info(name),
            space.max_concurrency(name),
            space.come_back(name),
        ];
        removed += self.unlink(&named).await?;
        let mut doomed = keys(&self.client, &space.in_progress_pattern()).await?;
        doomed.retain(|key| {
            let split = space.split_in_progress(key);
            split.is_some_and(|(of, _)| of == name)
        });
        let marker = space.unique(name, "");
        let markers = keys(&self.client, &space.unique_pattern(name)).await?;
        // What follows is an object or nothing: otherwise it is of a name that goes on with a colon.
        doomed.extend(markers.into_iter().filter(|key| {
            let rest = key.strip_prefix(&marker);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        }));
        removed += self.unlink(&doomed).await?;
        for set in [space.retry(), space.scheduled(), space.dead()] {
            removed += self.remove_members(&set, name).await?;
        }
        Ok(removed)
    }

    async fn forget(&self, set: &str, name: &str) -> Result<u64, Error> {
        let mut command = redis::cmd("SREM");
        self.client.query(command.arg(set).arg(name)).await
    }

    /// Removes all there is in the namespace, pools included. Tells how many keys that were. Only for a namespace that
    /// nobody uses any more.
    pub async fn clear(&self) -> Result<u64, Error> {
        let doomed = keys(&self.client, &self.namespace.all_pattern()).await?;
        self.unlink(&doomed).await
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
