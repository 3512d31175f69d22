//! In: a job that was taken, and how it went. Out: its end in Redis, all of it or, if it is no longer ours, nothing.
//! Touches: Redis.

use std::sync::atomic::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Fetched, Inner, Pool, Taken};
use crate::enqueue::{NewJob, identified, push};
use crate::{Args, Error, Job, backoff, id, scripts};

/// More of an error is not kept: it is written into the job.
const ERROR_BYTES: usize = 4096;

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a job that was fenced is somebody else's"]
pub enum Outcome {
    /// As asked.
    Done,
    /// Nothing was written: the job is no longer in our list. Either the pool was taken for dead and somebody else
    /// has the job, or an earlier attempt to end it had its effect although it seemed to fail. In both cases
    /// there is nothing left to do.
    Fenced,
}

/// How often a job is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tries {
    /// With this many failures it is not tried again. gocraft/work has 4.
    pub max_fails: u32,
    /// Whether it is then forgotten instead of kept among the dead.
    pub skip_dead: bool,
}

impl Default for Tries {
    fn default() -> Self {
        Self {
            max_fails: 4,
            skip_dead: false,
        }
    }
}

/// What becomes of a job that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a job that was fenced is somebody else's"]
pub enum Failed {
    /// It comes back after so many seconds.
    Retry {
        /// How many.
        after: i64,
    },
    /// It is kept among the dead.
    Dead,
    /// It is forgotten.
    Dropped,
    /// See [`Outcome::Fenced`].
    Fenced,
}

impl Pool {
    /// The job is done. May be called again after an error.
    pub async fn finish(&self, taken: &Taken) -> Result<Outcome, Error> {
        self.finish_with(taken, Vec::new()).await
    }

    /// The job is done, and these are enqueued in the same step: if it is no longer ours, they are not.
    ///
    /// At most [`MOST_AT_ONCE`](crate::MOST_AT_ONCE). May be called again after an error.
    pub async fn finish_with(&self, taken: &Taken, then: Vec<NewJob>) -> Result<Outcome, Error> {
        let then = identified(then)?;
        self.inner.end(taken, Fate::Done, &then).await
    }

    /// The job has failed for the given reason: it comes back later, or is dead. May be called again after an error.
    pub async fn fail(&self, taken: &Taken, reason: &str, tries: Tries) -> Result<Failed, Error> {
        let mut job = stray(taken.job.clone(), reason);
        // A text that is empty would not be written.
        if job.error.is_empty() {
            "failed".clone_into(&mut job.error);
        }
        let failed = verdict(job.fails, tries, fastrand::i64(0..30));
        let fate = match failed {
            Failed::Retry { after } => Fate::Retry(job, after),
            Failed::Dead => Fate::Dead(job),
            Failed::Dropped | Failed::Fenced => Fate::Done,
        };
        match self.inner.end(taken, fate, &[]).await? {
            Outcome::Done => Ok(failed),
            Outcome::Fenced => Ok(Failed::Fenced),
        }
    }
}

/// What is written when a job leaves the in-progress list.
pub(super) enum Fate {
    Done,
    Retry(Job, i64),
    Dead(Job),
}

impl Inner {
    pub(super) async fn end(
        &self,
        taken: &Taken,
        fate: Fate,
        then: &[Job],
    ) -> Result<Outcome, Error> {
        let (keys, entry) = (&self.namespace, &taken.entry);
        let mut call = scripts::FINISH.prepare_invoke();
        call.key(keys.in_progress(&entry.name, &entry.pool))
            .key(keys.lock(&entry.name))
            .key(keys.lock_info(&entry.name))
            .key(keys.known_jobs())
            .key(keys.retry())
            .key(keys.dead());
        call.arg(&*entry.pool).arg(&*entry.element);
        let (word, after, (head, tail)) = match fate {
            Fate::Done => ("done", 0, <_>::default()),
            Fate::Retry(job, after) => ("retry", after, job.around_failed_at()),
            Fate::Dead(job) => ("dead", 0, job.around_failed_at()),
        };
        call.arg(word).arg(after).arg(head).arg(tail);
        push(&mut call, keys, then);
        if self.client.run::<i64>(&call).await? == 1 {
            return Ok(Outcome::Done);
        }
        self.counters.fenced.fetch_add(1, Ordering::Relaxed);
        Ok(Outcome::Fenced)
    }

    pub(super) async fn bury(&self, held: &Taken, job: Job) -> Result<Fetched, Error> {
        let (queue, reason) = (&*held.entry.name, job.error.clone());
        tracing::warn!(queue, reason, "an element of a queue is put to the dead");
        if self.end(held, Fate::Dead(job), &[]).await? == Outcome::Done {
            self.counters.buried.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Fetched::Buried)
    }
}

fn verdict(fails: i64, tries: Tries, draw: i64) -> Failed {
    if i64::from(tries.max_fails) > fails {
        let after = backoff::until_retry(fails, draw);
        return Failed::Retry { after };
    }
    if tries.skip_dead {
        Failed::Dropped
    } else {
        Failed::Dead
    }
}

/// The job, failed once more.
pub(crate) fn stray(mut job: Job, reason: &str) -> Job {
    job.fails = job.fails.saturating_add(1);
    job.error = shortened(reason).into();
    job
}

/// A job around bytes that are none: lists of jobs with such bytes in them cannot be read by the web UI.
pub(crate) fn wrapped(queue: &str, element: &[u8], reason: &str) -> Job {
    let args = Args::from([("undecodable".into(), STANDARD.encode(element).into())]);
    let job = Job {
        name: queue.into(),
        id: id::fresh(),
        args: Some(args),
        ..Job::default()
    };
    stray(job, reason)
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_failure_is_the_last() {
        let tries = Tries::default();
        assert_eq!(verdict(1, tries, 0), Failed::Retry { after: 16 });
        assert_eq!(verdict(3, tries, 29), Failed::Retry { after: 212 });
        assert_eq!(verdict(4, tries, 0), Failed::Dead);
        let skip_dead = Tries {
            skip_dead: true,
            ..tries
        };
        assert_eq!(verdict(4, skip_dead, 0), Failed::Dropped);
        let once = Tries {
            max_fails: 1,
            ..tries
        };
        assert_eq!(verdict(1, once, 0), Failed::Dead);
    }

    #[test]
    fn long_errors_are_cut_between_characters() {
        let job = stray(Job::default(), &"é".repeat(4000));
        assert_eq!(job.error.len(), 4096);
        let odd = format!("x{}", "é".repeat(4000));
        assert_eq!(stray(Job::default(), &odd).error.len(), 4095);
        assert_eq!(job.fails, 1);
    }

    #[test]
    fn what_is_no_job_is_kept_in_one() {
        let job = wrapped("N", b"\xff{", "not JSON");
        assert_eq!(job.text("undecodable"), Some("/3s="));
        assert_eq!((job.name.as_str(), job.fails), ("N", 1));
        assert_eq!(Job::decode(job.encode().as_bytes()).unwrap(), job);
    }
}
