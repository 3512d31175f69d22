//! In: named futures that should live until shutdown. Out: which one died early, and why.
//! The only file that spawns tasks.

use std::any::Any;
use std::collections::HashMap;
use std::error::Error as StdError;
use std::future::pending;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info_span};

type BoxError = Box<dyn StdError + Send + Sync>;
type Ended = Result<(Id, Result<(), BoxError>), JoinError>;

/// Tasks that belong together: none may end before the others are asked to.
///
/// Dropping the group aborts its members.
#[derive(Debug)]
pub struct TaskGroup {
    capacity: usize,
    token: CancellationToken,
    members: JoinSet<Result<(), BoxError>>,
    names: HashMap<Id, &'static str>,
}

impl TaskGroup {
    /// A group that never holds more than `capacity` members.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            token: CancellationToken::new(),
            members: JoinSet::new(),
            names: HashMap::new(),
        }
    }

    /// Cancelled when the members should end.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Starts a member, which should run until the token is cancelled.
    pub fn spawn<F, E>(&mut self, name: &'static str, member: F) -> Result<(), Full>
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        if self.names.len() >= self.capacity {
            return Err(Full {
                name,
                capacity: self.capacity,
            });
        }
        let member = async move { member.await.map_err(Into::into) };
        let span = info_span!("task", task.name = name);
        let id = self.members.spawn(member.instrument(span)).id();
        self.names.insert(id, name);
        Ok(())
    }

    /// Waits until a member dies; as long as all are well, this waits.
    ///
    /// A member that returns after the token was cancelled has not died. Cancelling this wait loses nothing.
    pub async fn failed(&mut self) -> Failure {
        while let Some(ended) = self.members.join_next_with_id().await {
            if let Some(failure) = self.judge(ended) {
                return failure;
            }
        }
        pending().await
    }

    /// Cancels the token, waits until all members have ended or `deadline` has come, and aborts the rest.
    pub async fn shutdown(mut self, deadline: Instant) -> Drained {
        self.token.cancel();
        let mut drained = Drained::default();
        while let Ok(Some(ended)) = timeout_at(deadline, self.members.join_next_with_id()).await {
            drained.failures.extend(self.judge(ended));
        }
        drained.aborted.extend(self.names.values());
        drained.aborted.sort_unstable();
        drained
    }

    /// Takes the member off the list, and says whether its end is a failure.
    fn judge(&mut self, ended: Ended) -> Option<Failure> {
        let (id, result) = match ended {
            Ok((id, result)) => (id, Ok(result)),
            Err(error) => (error.id(), Err(error)),
        };
        let name = self.names.remove(&id).unwrap_or("unknown");
        match result {
            Ok(Ok(())) if self.token.is_cancelled() => None,
            Ok(Ok(())) => Some(Failure::Returned { name }),
            Ok(Err(source)) => Some(Failure::Failed { name, source }),
            Err(error) => Some(Failure::Panicked {
                name,
                reason: panic_reason(error),
            }),
        }
    }
}

/// A group has no room for another member.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to start task {name}: the group already holds its {capacity}")]
pub struct Full {
    name: &'static str,
    capacity: usize,
}

/// How a member died.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It returned although nobody had asked it to end.
    #[error("task {name} ended before shutdown")]
    Returned {
        /// The member.
        name: &'static str,
    },
    /// It returned an error.
    #[error("task {name} failed")]
    Failed {
        /// The member.
        name: &'static str,
        /// What it returned.
        source: BoxError,
    },
    /// It panicked.
    #[error("task {name} panicked: {reason}")]
    Panicked {
        /// The member.
        name: &'static str,
        /// What the panic said.
        reason: String,
    },
}

/// How a group ended.
#[derive(Debug, Default)]
pub struct Drained {
    /// The members that failed while ending.
    pub failures: Vec<Failure>,
    /// The members that were still busy at the deadline, by name.
    pub aborted: Vec<&'static str>,
}

fn panic_reason(error: JoinError) -> String {
    let Ok(payload) = error.try_into_panic() else {
        return "cancelled from outside the group".into();
    };
    text_of(payload.as_ref())
        .unwrap_or("no reason given")
        .into()
}

fn text_of(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&'static str>().copied())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;
    use crate::clock::{Clock, SystemClock};
    use crate::telemetry::chain;

    type Nothing = Result<(), Infallible>;

    fn soon() -> Instant {
        SystemClock.monotonic() + Duration::from_secs(5)
    }

    /// Time is paused, so that waiting in vain takes no time.
    async fn failure_of(group: &mut TaskGroup) -> Failure {
        timeout(Duration::from_hours(1), group.failed())
            .await
            .unwrap()
    }

    async fn until(token: CancellationToken) -> Nothing {
        token.cancelled().await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_returns_early_is_named() {
        let mut group = TaskGroup::new(2);
        group.spawn("steady", until(group.token())).unwrap();
        group.spawn("hasty", async { Nothing::Ok(()) }).unwrap();
        let failure = failure_of(&mut group).await;
        assert_eq!(chain(&failure), "task hasty ended before shutdown");
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_fails_is_named_with_its_error() {
        let mut group = TaskGroup::new(1);
        let failing = async { Err(io::Error::other("disk on fire")) };
        group.spawn("writer", failing).unwrap();
        assert_eq!(
            chain(&failure_of(&mut group).await),
            "task writer failed: disk on fire"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_that_panics_is_named_with_its_reason() {
        let mut group = TaskGroup::new(1);
        let panicking = async {
            assert_eq!(1, 2, "sums are off");
            Nothing::Ok(())
        };
        group.spawn("adder", panicking).unwrap();
        let text = chain(&failure_of(&mut group).await);
        assert!(text.starts_with("task adder panicked: "), "{text}");
        assert!(text.contains("sums are off"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_reported_while_all_are_well() {
        let mut group = TaskGroup::new(1);
        let wait = Duration::from_hours(1);
        assert!(timeout(wait, group.failed()).await.is_err());
        group.spawn("steady", until(group.token())).unwrap();
        assert!(timeout(wait, group.failed()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_group_refuses_and_has_room_again_after_a_death() {
        let mut group = TaskGroup::new(1);
        group.spawn("first", async { Nothing::Ok(()) }).unwrap();
        let refused = group.spawn("second", until(group.token())).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "failed to start task second: the group already holds its 1"
        );
        failure_of(&mut group).await;
        group.spawn("second", until(group.token())).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_waits_for_members_to_finish_their_work() {
        let mut group = TaskGroup::new(1);
        let (done, finished) = oneshot::channel();
        let token = group.token();
        let careful = async move {
            token.cancelled().await;
            tokio::time::sleep(Duration::from_secs(4)).await;
            done.send(()).unwrap();
            Nothing::Ok(())
        };
        group.spawn("careful", careful).unwrap();
        let drained = group.shutdown(soon()).await;
        assert!(drained.aborted.is_empty() && drained.failures.is_empty());
        finished.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_misses_the_deadline_is_aborted_and_named() {
        let mut group = TaskGroup::new(3);
        let (held, dropped) = oneshot::channel::<()>();
        let stuck = async move {
            let _held = held;
            pending::<Nothing>().await
        };
        group.spawn("stuck", stuck).unwrap();
        group.spawn("also stuck", pending::<Nothing>()).unwrap();
        group.spawn("steady", until(group.token())).unwrap();
        let drained = group.shutdown(soon()).await;
        assert_eq!(drained.aborted, ["also stuck", "stuck"]);
        assert!(dropped.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_during_shutdown_is_reported() {
        let mut group = TaskGroup::new(1);
        let token = group.token();
        let failing = async move {
            token.cancelled().await;
            Err(io::Error::other("could not flush"))
        };
        group.spawn("writer", failing).unwrap();
        let drained = group.shutdown(soon()).await;
        assert_eq!(
            chain(&drained.failures[0]),
            "task writer failed: could not flush"
        );
    }
}
