//! `orrery-checksum coordinator`: carries out one ChecksumRun. In: the configuration of the operator. Out: reports, and in the
//! end a message in the pod. Touches: the store, the source, and the shell of all agents.
//!
//! All that matters is in the store, so whatever happens is answered in one way: begin again, and find out how far the run is.

mod plan;
mod tell;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crds::checksum_run::reason;
use crds::report::ConfigDocument;
use crds::report::checksum::Explained;
use runtime::clock::Clock;
use runtime::config::ConfigReceiver;
use runtime::shell::{self, Shell, ShellArgs};
use thiserror::Error;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::{Folders, Told};
use crate::engine::{self, Shared};
use crate::result::explained;
use crate::store::{NewRun, Run, Store};
use plan::{Claim, claim};
use tell::Teller;

/// How long the result is served before the process ends: several times the operator's interval.
const LINGER: Duration = Duration::from_secs(15);
/// The first pause after something went wrong; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Arguments of `coordinator`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What every agent has.
    #[command(flatten)]
    pub shell: ShellArgs,
    /// Where things are mounted.
    #[command(flatten)]
    pub folders: Folders,
    /// Where the last report is left for those who come too late to ask
    #[arg(
        long,
        env = "ORRERY_TERMINATION_MESSAGE",
        default_value = "/dev/termination-log"
    )]
    pub termination_message: PathBuf,
    /// How long the result is served before the process ends
    #[arg(long, env = "ORRERY_LINGER", value_parser = shell::duration, hide = true)]
    pub linger: Option<Duration>,
}

/// The process was told to end before the run had.
#[derive(Debug, Error)]
#[error("ended before the run had: whoever starts next goes on with it")]
pub struct Interrupted;

/// Runs the agent until the run has ended, or the process is told to.
pub async fn agent(args: &Args) -> Result<(), shell::Error> {
    let validate = |document: &ConfigDocument| Told::read(document).map(drop);
    let mut shell = Shell::start("checksum-coordinator", &args.shell, validate).await?;
    let coordinator = Coordinator {
        args: args.clone(),
        config: shell.config(),
        stop: shell.token(),
        clock: shell.clock(),
        teller: Teller::new(&shell, args.termination_message.clone()),
    };
    shell.spawn("run", coordinator.run())?;
    shell.run_until_shutdown().await
}

struct Coordinator {
    args: Args,
    config: ConfigReceiver,
    stop: CancellationToken,
    clock: Arc<dyn Clock>,
    teller: Teller,
}

/// Why an attempt did not end the run.
#[derive(Debug)]
enum Failure {
    /// The process is to end.
    Stopped,
    /// Later it may work.
    Waiting(Explained),
    /// It will not.
    Final(Explained),
}

impl Coordinator {
    async fn run(mut self) -> Result<(), Interrupted> {
        let mut pause = FIRST_PAUSE;
        let result = loop {
            let Some(told) = self.told().await else {
                return Err(Interrupted);
            };
            match Box::pin(self.attempt(&told)).await {
                Ok(result) | Err(Failure::Final(result)) => break result,
                Err(Failure::Stopped) => return Err(Interrupted),
                // What cannot be reached cannot be told either: the next run gives this one up.
                Err(Failure::Waiting(_)) if self.is_cancelled() => {
                    break explained(reason::CANCELLED.name, "cancelled while it waited");
                }
                Err(Failure::Waiting(why)) => {
                    warn!(reason = why.reason, message = why.message, "waiting");
                    self.teller.waiting(why);
                    self.rest(pause).await.ok_or(Interrupted)?;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        };
        info!(
            reason = result.reason,
            message = result.message,
            "the run has ended"
        );
        self.teller.ended(result);
        let linger = self.args.linger.unwrap_or(LINGER);
        self.stop.run_until_cancelled(sleep(linger)).await;
        self.stop.cancel();
        Ok(())
    }

    /// What is in force, as soon as anything is; none if the process is to end.
    async fn told(&mut self) -> Option<Told> {
        let stop = self.stop.clone();
        let document = stop
            .run_until_cancelled(self.config.wait_for(Option::is_some))
            .await?;
        let document = document.ok()?.clone()?;
        Told::read(&document).ok()
    }

    fn is_cancelled(&self) -> bool {
        let document = self.config.borrow().clone();
        let told = document.and_then(|it| Told::read(&it).ok());
        told.is_some_and(|told| told.config.cancel)
    }

    /// Waits, but not longer than until the configuration changes; none if the process is to end.
    async fn rest(&mut self, pause: Duration) -> Option<()> {
        let (stop, mut config) = (self.stop.clone(), self.config.clone());
        let waiting = async {
            tokio::select! {
                () = sleep(pause) => {}
                Ok(()) = config.changed() => {}
            }
        };
        stop.run_until_cancelled(waiting).await
    }

    async fn attempt(&self, told: &Told) -> Result<Explained, Failure> {
        let location = told
            .location(&self.args.folders)
            .map_err(Failure::Waiting)?;
        let tuning = &told.config.tuning;
        let writers = tuning.write_back_concurrency.max(tuning.sync_concurrency);
        let store = Store::open(&location, writers.into())
            .await
            .map_err(|error| plan::of_store(&error))?;
        let run = self.find(&store, told).await?;
        let id = run.id;
        let shared = Arc::new(Shared::new(None, self.clock.monotonic().into_std()));
        let _end = EndWith(shared.clone());
        let working = self.work(told, &store, run, &shared);
        let outcome = tokio::select! {
            outcome = working => outcome,
            lost = store.kept() => Err(plan::of_store(&lost)),
            never = self.follow(&shared) => match never {},
            never = self.teller.follow(&store, &shared) => match never {},
        };
        let result = outcome?;
        let bytes = shared.bytes.load(Ordering::Relaxed);
        info!(bytes, "bytes read here");
        self.teller.last(&store, id).await;
        Ok(result)
    }

    /// The run to carry out, whatever state it is in.
    async fn find(&self, store: &Store, told: &Told) -> Result<Run, Failure> {
        let (owner, view) = (told.owner(), store.view());
        let of_store = |error| plan::of_store(&error);
        let own = view.run_for(&owner.uid).await.map_err(of_store)?;
        let last = view.last_run().await.map_err(of_store)?;
        let of_engine = |error: engine::Error| plan::of_engine(&error);
        match claim(own, last, &owner) {
            Claim::Ours(run) => return Ok(*run),
            Claim::Abandoned(run) => {
                warn!(
                    run = run.id,
                    "an earlier run is given up: its ChecksumRun is gone or has ended"
                );
                self.clear(told, &run.what).await;
                engine::abort(store, *run, None).await.map_err(of_engine)?;
            }
            Claim::Others(why) => return Err(Failure::Waiting(why)),
            Claim::Free => {}
        }
        let what = told.what();
        let begun = store.begin_run(&what, self.clock.wall()).await;
        begun.map_err(of_store)
    }

    /// Removes what a run that is given up has left in the queue.
    async fn clear(&self, told: &Told, what: &NewRun) {
        let Some(owner) = &what.owner else { return };
        let folders = &self.args.folders;
        if let Ok(queue) = told.queue_of(&owner.uid, what.snapshot.as_deref(), folders) {
            engine::clean_up(&queue).await;
            let _ = queue.inspector().clear().await; // as good as it goes: nobody reads it any more
        }
    }

    async fn work(
        &self,
        told: &Told,
        store: &Store,
        run: Run,
        shared: &Arc<Shared>,
    ) -> Result<Explained, Failure> {
        let job = told.job(&self.args.folders).map_err(Failure::Waiting)?;
        let id = run.id;
        let ended = engine::run(&job, store, run, shared).await;
        let load = || async {
            let run = store.view().run(id).await;
            run.map_err(|error| plan::of_store(&error))
        };
        let run = match ended {
            Ok(ended) => ended.run,
            Err(engine::Error::Stopped { .. }) if self.is_cancelled() => {
                self.give_up(store, load().await?, plan::cancelled())
                    .await?
            }
            Err(error) => match plan::of_engine(&error) {
                Failure::Final(why) => self.give_up(store, load().await?, why).await?,
                other @ (Failure::Stopped | Failure::Waiting(_)) => return Err(other),
            },
        };
        if let Some(queue) = &job.queue {
            engine::clean_up(queue).await;
        }
        let first = store.view().problems(run.id, 1).await;
        let first = first.map_err(|error| plan::of_store(&error))?;
        let damaged = store.view().open_warnings().await;
        let damaged = damaged.map_err(|error| plan::of_store(&error))?;
        plan::result(&run, first.first(), damaged, &job.root).ok_or(Failure::Stopped)
    }

    async fn give_up(&self, store: &Store, run: Run, why: Explained) -> Result<Run, Failure> {
        let ending = crate::store::Ending {
            result: why.reason,
            message: why.message,
        };
        let aborted = engine::abort(store, run, Some(&ending)).await;
        aborted.map_err(|error| plan::of_engine(&error))
    }

    /// Brings what the operator says to those who read, until it is dropped.
    async fn follow(&self, shared: &Shared) -> std::convert::Infallible {
        let mut config = self.config.clone();
        config.mark_changed();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => {
                    shared.stop.store(true, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                }
                changed = config.changed() => if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            let document = config.borrow_and_update().clone();
            let Some(Ok(told)) = document.map(|it| Told::read(&it)) else {
                continue;
            };
            told.apply(shared, self.clock.monotonic().into_std());
        }
    }
}

/// Ends the threads of an attempt that was given up.
struct EndWith(Arc<Shared>);

impl Drop for EndWith {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}
