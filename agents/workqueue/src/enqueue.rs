//! In: names and arguments. Out: jobs in their queues.
//! Touches: Redis.

use redis::ScriptInvocation;

use crate::keys::check_name;
use crate::{Args, Client, Error, Job, Namespace, id, scripts};

/// The most jobs that are pushed in one step. Redis does nothing else meanwhile.
pub const MOST_AT_ONCE: usize = 128;

/// A job that is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// Which queue it belongs to.
    pub name: String,
    /// What to work with.
    pub args: Option<Args>,
}

/// A job that is in its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// Which job.
    pub id: String,
    /// How many jobs the queue had right after, this one included.
    pub length: u64,
}

/// Puts jobs into their queues.
#[derive(Clone, Debug)]
pub struct Enqueuer {
    client: Client,
    namespace: Namespace,
}

impl Enqueuer {
    /// For the queues of one namespace.
    pub fn new(client: Client, namespace: Namespace) -> Self {
        Self { client, namespace }
    }

    /// Enqueues one job. After an error nobody knows whether it is there.
    pub async fn enqueue(&self, name: &str, args: Option<Args>) -> Result<Enqueued, Error> {
        let job = NewJob {
            name: name.into(),
            args,
        };
        let enqueued = self.enqueue_many(vec![job]).await?.pop();
        enqueued.ok_or_else(|| Error::Protocol {
            reason: "no length for a push".into(),
        })
    }

    /// Enqueues up to [`MOST_AT_ONCE`] jobs in one step and one exchange: all of them or none.
    ///
    /// The names are made known in the same step, not from time to time as in Go: it costs nothing there, and a
    /// Redis that has lost its data knows them again with the next job.
    pub async fn enqueue_many(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, Error> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let jobs = identified(jobs)?;
        let mut call = scripts::ENQUEUE.prepare_invoke();
        call.key(self.namespace.known_jobs());
        push(&mut call, &self.namespace, &jobs);
        let lengths: Vec<u64> = self.client.run(&call).await?;
        let enqueued = jobs.into_iter().zip(lengths);
        Ok(enqueued
            .map(|(job, length)| Enqueued { id: job.id, length })
            .collect())
    }
}

/// Jobs with identifiers, if they can be pushed.
pub(crate) fn identified(jobs: Vec<NewJob>) -> Result<Vec<Job>, Error> {
    if jobs.len() > MOST_AT_ONCE {
        return Err(Error::invalid(format!(
            "{} jobs are more than the {MOST_AT_ONCE} that are pushed at once",
            jobs.len()
        )));
    }
    let identify = |job: NewJob| {
        check_name(&job.name)?;
        Ok(Job {
            name: job.name,
            id: id::fresh(),
            args: job.args,
            ..Job::default()
        })
    };
    jobs.into_iter().map(identify).collect()
}

/// Adds a queue per job to the keys, and name, beginning and end of each job to the arguments.
pub(crate) fn push(call: &mut ScriptInvocation<'_>, namespace: &Namespace, jobs: &[Job]) {
    for job in jobs {
        let (head, tail) = job.around_enqueued_at();
        call.key(namespace.queue(&job.name));
        call.arg(&job.name).arg(head).arg(tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str) -> NewJob {
        NewJob {
            name: name.into(),
            args: None,
        }
    }

    #[test]
    fn too_many_at_once_are_refused() {
        assert!(identified(vec![new("N"); MOST_AT_ONCE]).is_ok());
        let refused = identified(vec![new("N"); MOST_AT_ONCE + 1]);
        assert!(matches!(refused, Err(Error::Invalid { .. })));
    }

    #[test]
    fn a_name_that_cannot_be_is_refused() {
        assert!(identified(vec![new("a,b")]).is_err());
    }
}
