//! In: jobs that are to be tried again, or were put off, and are due. Out: the same jobs in their queues.
//! Touches: Redis. Several can run at once: a job is moved by whoever removes it from its set.

use crate::pool::{stray, wrapped};
use crate::{Client, Error, Job, Namespace, scripts};

/// So many jobs are looked at in one step.
const BATCH: usize = 100;

/// So many steps in a row; what is left is due the next second as well.
const MOST_STEPS: usize = 100;

/// A job whose name nobody knows is looked at again after so many seconds. A pool that serves it may yet come.
const LATER: i64 = 5;

/// Moves jobs of all known names, not only of those that the pool serves.
#[derive(Debug)]
pub(crate) struct Requeuer<'a> {
    client: &'a Client,
    keys: &'a Namespace,
}

/// What to do with one member of the set.
#[derive(Debug, PartialEq)]
struct Move {
    /// Empty for the dead.
    name: String,
    job: Job,
}

impl<'a> Requeuer<'a> {
    pub(crate) fn new(client: &'a Client, keys: &'a Namespace) -> Self {
        Self { client, keys }
    }

    /// Moves what is due. Tells how many jobs that were.
    pub(crate) async fn step(&self) -> Result<u64, Error> {
        let mut total = 0;
        for set in [self.keys.retry(), self.keys.scheduled()] {
            for _ in 0..MOST_STEPS {
                let (seen, moved) = self.some(&set).await?;
                total += moved;
                if seen < BATCH {
                    break;
                }
            }
        }
        Ok(total)
    }

    async fn some(&self, set: &str) -> Result<(usize, u64), Error> {
        let mut call = scripts::DUE.prepare_invoke();
        call.key(set).arg(BATCH);
        let (now, members): (i64, Vec<Vec<u8>>) = self.client.run(&call).await?;
        if members.is_empty() {
            return Ok((0, 0));
        }
        let mut call = scripts::REQUEUE.prepare_invoke();
        call.key(set)
            .key(self.keys.known_jobs())
            .key(self.keys.dead());
        call.arg(now.saturating_add(LATER));
        for member in &members {
            let Move { name, job } = plan(member, now);
            call.key(self.keys.queue(&name));
            call.arg(name).arg(member).arg(job.encode());
        }
        let (moved, _later): (u64, u64) = self.client.run(&call).await?;
        Ok((members.len(), moved))
    }
}

/// Bytes that are no job would stop every Go pool, which looks at the first member again and again.
fn plan(member: &[u8], now: i64) -> Move {
    let dead = |job: Job| Move {
        name: String::new(),
        job: Job {
            enqueued_at: now,
            failed_at: now,
            ..job
        },
    };
    match Job::decode(member) {
        Ok(job) if job.name.is_empty() => dead(stray(job, "a job without a name")),
        Ok(job) => Move {
            name: job.name.clone(),
            job: Job {
                enqueued_at: now,
                ..job
            },
        },
        Err(reason) => dead(wrapped("undecodable", member, &reason.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_due_keeps_everything_but_its_time() {
        let retried = br#"{"name":"N","id":"1","t":5,"args":{"n":12345678901234567},"fails":2,"err":"e","failed_at":6}"#;
        let planned = plan(retried, 99);
        assert_eq!(planned.name, "N");
        assert_eq!(
            planned.job.encode(),
            r#"{"name":"N","id":"1","t":99,"args":{"n":12345678901234567},"fails":2,"err":"e","failed_at":6}"#
        );
    }

    #[test]
    fn what_cannot_be_served_is_dead() {
        for member in [&b"nonsense"[..], br#"{"id":"1"}"#] {
            let planned = plan(member, 99);
            assert_eq!(planned.name, "");
            assert_eq!((planned.job.fails, planned.job.failed_at), (1, 99));
            assert!(!planned.job.error.is_empty());
        }
    }
}
