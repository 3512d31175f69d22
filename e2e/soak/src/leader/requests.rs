#![expect(clippy::disallowed_methods, reason = "a user, not an operator")]
//! In: a cluster. Out: a stream of run requests, each accounted for.
//! Touches: schedules on that cluster. Few exist at a time, however long it goes on.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context, Error, Result, ensure};
use crds::checksum_schedule::ChecksumSchedule;
use e2e::{operator::NAMESPACE, schedules};
use futures::future::try_join_all;
use kube::{Api, Client, api::DeleteParams};
use testbed::wait::eventually;
use tokio::time::{sleep, timeout};

use super::ONCE;
use crate::journal::Journal;

/// Users that wait for each of their requests to be taken up before they make the next.
const PATIENT: usize = 10;

/// Requests to one schedule. Then they are counted, and later its runs go with it.
const BATCH: usize = 20;
const HASTY_BATCH: usize = 200;

/// The pause between two requests of the user who does not wait: whoever thinks it leads has something to write.
const HASTE: Duration = Duration::from_millis(200);

/// A request that was not taken up in this time is lost: longer than any round.
const LOST: Duration = Duration::from_mins(4);

/// For one answer; the API server may be away.
const ANSWER: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(500);

/// The users.
pub(super) struct Requests<'a> {
    schedules: Api<ChecksumSchedule>,
    client: Client,
    journal: &'a Journal,
    over: &'a AtomicBool,
}

impl<'a> Requests<'a> {
    pub(super) fn new(client: Client, journal: &'a Journal, over: &'a AtomicBool) -> Self {
        Self {
            schedules: Api::namespaced(client.clone(), NAMESPACE),
            client,
            journal,
            over,
        }
    }

    /// Asks until it is over, and counts.
    pub(super) async fn go_on(&self) -> Result<()> {
        let patient = try_join_all((0..PATIENT).map(|user| self.patiently(user)));
        tokio::try_join!(patient, self.hastily())?;
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    async fn patiently(&self, user: usize) -> Result<()> {
        let mut previous: Option<(String, usize)> = None;
        for batch in 0.. {
            let name = format!("patient-{user}-{batch}");
            self.create(&name).await?;
            let mut asked = 0;
            while asked < BATCH && !self.is_over() {
                asked += 1;
                self.request(&name, &format!("token-{asked}")).await?;
            }
            self.has_runs(&name, asked).await?;
            self.journal.held(&ONCE, u64::try_from(asked)?);
            // Once more after a while: what comes late would be seen now.
            if let Some((name, asked)) = previous.replace((name, asked)) {
                self.has_runs(&name, asked).await?;
                self.delete(&name).await?;
            }
            if self.is_over() {
                break;
            }
        }
        Ok(())
    }

    /// A request may be replaced by the next one before anybody has seen it, but none has two runs.
    async fn hastily(&self) -> Result<()> {
        for batch in 0.. {
            let name = format!("hasty-{batch}");
            self.create(&name).await?;
            for n in 0..HASTY_BATCH {
                let token = format!("token-{n}");
                let ask = schedules::ask(&self.client, NAMESPACE, &name, &token);
                // The API server may be away: that is part of it.
                let _ = timeout(ANSWER, ask).await;
                sleep(HASTE).await;
                if self.is_over() {
                    return Ok(());
                }
            }
            let runs = self.runs(&name).await?;
            ensure!(
                runs <= HASTY_BATCH,
                "{runs} runs for {HASTY_BATCH} requests to {name}"
            );
            self.delete(&name).await?;
        }
        Ok(())
    }

    async fn create(&self, name: &str) -> Result<()> {
        let schedule = schedules::on_request(name)?;
        persist(&format!("{name} to be made"), async || {
            let made = schedules::create(&self.client, NAMESPACE, &schedule).await;
            unless(made, 409)
        })
        .await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        persist(&format!("{name} to be deleted"), async || {
            let deleted = self.schedules.delete(name, &DeleteParams::default()).await;
            unless(deleted.map(|_| ()).map_err(Error::from), 404)
        })
        .await
    }

    /// Asks for a run until that is known to have arrived, and waits until it is taken up.
    async fn request(&self, name: &str, token: &str) -> Result<()> {
        persist(&format!("{name} to be asked for {token}"), async || {
            schedules::ask(&self.client, NAMESPACE, name, token).await
        })
        .await?;
        persist(&format!("{token} of {name} to be taken up"), async || {
            let status = self.schedules.get_status(name).await?.status;
            let told = status.and_then(|status| status.last_handled_run_now);
            ensure!(
                told.as_deref() == Some(token),
                "the status tells of {told:?}"
            );
            Ok(())
        })
        .await
    }

    async fn has_runs(&self, name: &str, asked: usize) -> Result<()> {
        let runs = self.runs(name).await?;
        ensure!(runs == asked, "{runs} runs for {asked} requests to {name}");
        Ok(())
    }

    async fn runs(&self, name: &str) -> Result<usize> {
        let all = persist("the list of runs", async || {
            schedules::runs_by_schedule(&self.client, NAMESPACE).await
        })
        .await?;
        Ok(all.get(name).copied().unwrap_or_default())
    }
}

/// Tries again until it works: the API server may be away for a while.
async fn persist<T, F: Future<Output = Result<T>>>(
    what: &str,
    mut attempt: impl FnMut() -> F,
) -> Result<T> {
    eventually(what, LOST, || {
        let attempt = timeout(ANSWER, attempt());
        async {
            let result = attempt.await.context("no answer").flatten();
            if result.is_err() {
                sleep(AGAIN).await;
            }
            result.map(Some)
        }
    })
    .await
}

/// An earlier attempt may have succeeded without our knowing it.
fn unless(result: Result<()>, done_already: u16) -> Result<()> {
    match result {
        Err(error) if code(&error) == Some(done_already) => Ok(()),
        result => result,
    }
}

fn code(error: &Error) -> Option<u16> {
    if let kube::Error::Api(status) = error.downcast_ref()? {
        return Some(status.code);
    }
    None
}
