#![expect(
    clippy::disallowed_methods,
    reason = "an edge: it reads the clock for everything below it"
)]
//! `orrery-checksum worker`: reads packs of files that coordinators send. In: packs. Out: what came of each file.
//! Touches: reads files; the queue; the shell of all agents.

mod end;
mod pack;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crds::checksum_run::reason;
use crds::report::ConfigDocument;
use crds::report::checksum::{Explained, WorkerReport};
use futures::future::join_all;
use runtime::config::ConfigReceiver;
use runtime::shell::{self, Detail, Shell, ShellArgs};
use runtime::telemetry::chain;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use workqueue::{Idle, Kind, Pool, PoolOptions, Published, Taken};

use crate::config::{Folders, Told};
use crate::engine::Shared;
use crate::engine::adapt::Adapt;
use crate::metrics::Metrics;
use crate::queue::{COMPUTE, Contact, LIMIT, Queue, pack_job, payload, result_job};
use crate::rate::Rate;
use crate::read::Root;
use crate::result::explained;
use crate::wire::WorkPack;
use pack::Desk;

/// The most files that are read at once where nobody says how many.
const MOST_READERS: usize = 32;
/// How long a number of readers is tried.
const TRIAL: Duration = Duration::from_secs(2);
/// How often the published limit is looked at, and the report made.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest pause between two looks for a pack.
const IDLE: Duration = Duration::from_secs(1);
/// The pause after something went wrong.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a pack is kept whose run has published nothing: Redis may have lost it, or the run is over.
const UNPUBLISHED: usize = 10;

/// Arguments of `worker`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What every agent has.
    #[command(flatten)]
    pub shell: ShellArgs,
    /// Where things are mounted.
    #[command(flatten)]
    pub folders: Folders,
}

/// Runs the agent until the process is told to end.
pub async fn agent(args: &Args) -> Result<(), shell::Error> {
    let validate = |document: &ConfigDocument| Told::read(document).map(drop);
    let mut shell = Shell::start("checksum-worker", &args.shell, validate).await?;
    let metrics = Metrics::default();
    shell.metrics().with(|registry| metrics.register(registry));
    let worker = Worker {
        folders: args.folders.clone(),
        config: shell.config(),
        stop: shell.token(),
        detail: shell.detail(),
        metrics,
    };
    shell.spawn("work", worker.run())?;
    shell.run_until_shutdown().await
}

struct Worker {
    folders: Folders,
    config: ConfigReceiver,
    stop: CancellationToken,
    detail: Detail,
    metrics: Metrics,
}

impl Worker {
    async fn run(mut self) -> Result<(), Infallible> {
        while let Some(told) = self.told().await {
            match self.prepare(&told) {
                Ok(crew) => self.work(&crew).await,
                Err(why) => {
                    warn!(reason = why.reason, message = why.message, "waiting");
                    self.tell(&WorkerReport {
                        waiting: Some(why),
                        ..WorkerReport::default()
                    });
                    self.stop.run_until_cancelled(sleep(PAUSE)).await;
                }
            }
        }
        Ok(())
    }

    async fn told(&mut self) -> Option<Told> {
        let stop = self.stop.clone();
        let document = stop
            .run_until_cancelled(self.config.wait_for(Option::is_some))
            .await?;
        let document = document.ok()?.clone()?;
        Told::read(&document).ok()
    }

    fn prepare(&self, told: &Told) -> Result<Crew, Explained> {
        let queue = told.queue(&self.folders)?;
        let root = Root::open(&PathBuf::from(&told.config.root)).map_err(|error| {
            let message = format!("failed to open {}: {error}", told.config.root);
            explained(reason::FAILED.name, message)
        })?;
        let processors = thread::available_parallelism().map_or(2, usize::from);
        let fixed = told
            .config
            .concurrency
            .and_then(|it| usize::try_from(it).ok());
        let (least, most) = match fixed {
            Some(readers) => (readers.max(1), readers.max(1)),
            None => (processors, MOST_READERS.max(processors)),
        };
        let concurrency = u32::try_from(most).unwrap_or(1);
        let options = PoolOptions::new(vec![Kind::new(COMPUTE)], concurrency);
        let pool = Pool::new(queue.client.clone(), queue.namespace.clone(), options)
            .map_err(|error| explained(reason::QUEUE_UNREACHABLE.name, chain(&error)))?;
        Ok(Crew {
            queue,
            pool,
            desk: Arc::new(Desk {
                root,
                medium: told.medium(),
                buffers: Mutex::default(),
            }),
            shared: Arc::new(Shared::new(None, Instant::now())),
            allowed: AtomicUsize::new(least),
            least,
            most,
            contact: Contact::default(),
        })
    }

    async fn work(&self, crew: &Crew) {
        let reading = join_all((0..crew.most).map(|number| crew.serve(number)));
        let living = CancellationToken::new();
        let lives = crew.pool.run(living.clone());
        let works = async {
            tokio::select! {
                _ = reading => {}
                never = self.follow(crew) => match never {},
                never = self.report(crew) => match never {},
                never = crew.follow_limit() => match never {},
                never = crew.adapt() => match never {},
                // Perhaps there are other credentials by now.
                _ = crew.contact.refused() => crew.shared.stop.store(true, Ordering::Relaxed),
            }
            living.cancel();
        };
        tokio::join!(works, lives);
        if self.stop.is_cancelled() {
            crew.clear().await;
        } else {
            self.stop.run_until_cancelled(sleep(PAUSE)).await;
        }
    }

    /// Brings what the operator says to those who read, until it is dropped.
    async fn follow(&self, crew: &Crew) -> Infallible {
        let mut config = self.config.clone();
        config.mark_changed();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => {
                    crew.shared.stop.store(true, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                }
                changed = config.changed() => if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            let document = config.borrow_and_update().clone();
            if let Some(Ok(told)) = document.map(|it| Told::read(&it)) {
                told.apply(&crew.shared, Instant::now());
                // A cancelled run takes its packs back; the process ends when the operator says so.
                crew.shared
                    .stop
                    .store(self.stop.is_cancelled(), Ordering::Relaxed);
            }
        }
    }

    async fn report(&self, crew: &Crew) -> Infallible {
        let mut rate = Rate::default();
        loop {
            sleep(INTERVAL).await;
            let bytes = crew.shared.bytes.load(Ordering::Relaxed);
            let trouble = crew.shared.queue_trouble().clone();
            self.metrics.reads(&crew.shared);
            self.tell(&WorkerReport {
                bytes_read: bytes,
                bytes_per_second: rate.observe(Instant::now(), bytes),
                reading: u32::try_from(crew.shared.reading.load(Ordering::Relaxed)).unwrap_or(0),
                waiting: trouble.map(|words| explained(reason::QUEUE_UNREACHABLE.name, words)),
            });
        }
    }

    fn tell(&self, report: &WorkerReport) {
        // Strings and numbers can always be written.
        self.detail
            .set(serde_json::to_value(report).unwrap_or_default());
    }
}

/// What all readers of a worker share.
struct Crew {
    queue: Queue,
    pool: Pool,
    desk: Arc<Desk>,
    shared: Arc<Shared>,
    /// Readers with a lower number may read.
    allowed: AtomicUsize,
    least: usize,
    most: usize,
    contact: Contact,
}

impl Crew {
    /// One reader: takes packs, one after the other, until all reading ends.
    async fn serve(&self, number: usize) {
        let mut idle = Idle::at_most(IDLE);
        while !self.shared.is_stopped() {
            if number >= self.allowed.load(Ordering::Relaxed) || self.shared.is_paused() {
                sleep(INTERVAL).await;
                continue;
            }
            match self.pool.take().await {
                Ok(Some(taken)) => {
                    *self.shared.queue_trouble() = None;
                    idle.reset();
                    self.serve_pack(taken).await;
                }
                Ok(None) => {
                    *self.shared.queue_trouble() = None;
                    sleep(idle.pause()).await;
                }
                Err(error) => self.trouble(&error).await,
            }
        }
    }

    async fn serve_pack(&self, taken: Taken) {
        let pack = payload(taken.job())
            .map_err(str::to_owned)
            .and_then(|it| WorkPack::decode(it).map_err(|error| error.to_string()));
        let pack = match pack {
            Ok(pack) => pack,
            Err(why) => return self.refuse(&taken, &why, 1).await,
        };
        if (&pack.file_system, &pack.snapshot) != (&self.queue.file_system, &self.queue.snapshot) {
            let why = format!(
                "these files are not here: {} {}",
                pack.file_system, pack.snapshot
            );
            return self.refuse(&taken, &why, u32::MAX).await;
        }
        if !self.is_wanted().await {
            info!("a pack of a run that is over is dropped");
            return self.finish(&taken, None, None).await;
        }
        let (desk, shared) = (self.desk.clone(), self.shared.clone());
        let reading = tokio::task::spawn_blocking(move || desk.read(&shared, pack));
        let Ok((results, rest)) = reading.await else {
            return self
                .refuse(&taken, "a reader ended before its time", 4)
                .await;
        };
        let results = (!results.is_empty()).then(|| result_job(&self.queue.results(), &results));
        let rest = (!rest.files.is_empty()).then(|| pack_job(&rest));
        self.finish(&taken, results, rest).await;
    }

    /// Whether anybody waits for results: a run that goes on has published its limits.
    async fn is_wanted(&self) -> bool {
        let mut unpublished = 0;
        while unpublished < UNPUBLISHED {
            match self.queue.published().read().await {
                Ok(Some(published)) => {
                    self.keep_to(&published);
                    return true;
                }
                Ok(None) => {
                    unpublished += 1;
                    sleep(PAUSE).await;
                }
                Err(error) => self.trouble(&error).await,
            }
            if self.shared.is_stopped() {
                return true;
            }
        }
        false
    }

    /// Keeps to the share of the limit that is published, until it is dropped.
    async fn follow_limit(&self) -> Infallible {
        loop {
            match self.queue.published().read().await {
                Ok(Some(published)) => self.keep_to(&published),
                // What was published last holds until somebody says something else.
                Ok(None) => {}
                Err(error) => self.trouble(&error).await,
            }
            sleep(INTERVAL).await;
        }
    }

    fn keep_to(&self, published: &Published) {
        let limit = published.fields.get(LIMIT).and_then(|it| it.parse().ok());
        let limit = limit.filter(|it: &u64| *it > 0);
        self.shared.shared_limit.set(limit, Instant::now());
    }

    async fn adapt(&self) -> Infallible {
        if self.least == self.most {
            return std::future::pending().await;
        }
        let mut adapt = Adapt::new(self.least, self.most);
        let mut before = 0;
        loop {
            sleep(TRIAL).await;
            let bytes = self.shared.bytes.load(Ordering::Relaxed);
            let is_busy = self.shared.reading.load(Ordering::Relaxed) > 0;
            if is_busy && !self.shared.is_paused() {
                #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
                let rate = (bytes - before) as f64;
                self.allowed.store(adapt.observe(rate), Ordering::Relaxed);
            }
            before = bytes;
        }
    }

    async fn trouble(&self, error: &workqueue::Error) {
        self.contact.lost(&self.shared, error).await;
    }

    /// The last one out turns off the light: of a run that is over, nothing stays in the queue.
    async fn clear(&self) {
        let inspector = self.queue.inspector();
        let is_over = matches!(self.queue.published().read().await, Ok(None));
        if is_over && matches!(inspector.workers(COMPUTE).await, Ok(0)) {
            let _ = inspector.remove(COMPUTE).await; // what stays is small, and harms nobody
        }
    }
}
