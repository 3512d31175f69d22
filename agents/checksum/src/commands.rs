#![expect(
    clippy::disallowed_methods,
    reason = "an edge: it reads the clock for everything below it"
)]
//! What each subcommand does. In: arguments. Out: text on standard output, and an exit code. Touches what its parts touch.

mod known;
mod noted;
mod progress;
mod snapshot;
pub mod stores;
mod verify;

use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use runtime::telemetry::chain;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Command, Local, Output, StoreOf, TakeOver};
use crate::engine::{self, Ended, Job, Shared, Source, Unresolved};
use crate::gpfs::{self, FileSystem};
use crate::list::exclude::{BadPattern, Excludes};
use crate::pack::Sizes;
use crate::path::{BadEscape, RelativePath};
use crate::report::{self, Result as Found};
use crate::store::{self, Location, NewRun, Store, View, WarningState};

/// All of them: a command has as much memory as it needs.
const ALL: u32 = u32::MAX;
/// Parts of the listing that are compared at once: one is read while another is written.
const SYNC_CONCURRENCY: usize = 2;
/// Rows in one statement while they are compared.
const SYNC_ROWS: usize = 10_000;
/// For the shell: as of a tool that is ended by SIGPIPE.
const UNHEARD: u8 = 128 + 13;
/// Results that are stored together, at most; what is there is stored without waiting for more.
const BATCH: usize = 5000;

/// Why a command failed.
#[derive(Debug, Error)]
pub enum Error {
    /// A pattern of `--exclude`.
    #[error(transparent)]
    Exclude(#[from] BadPattern),
    /// A run.
    #[error(transparent)]
    Run(#[from] engine::Error),
    /// The store.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// Where the store is to be.
    #[error(transparent)]
    Place(#[from] stores::Error),
    /// A file system with snapshots of its own.
    #[error(transparent)]
    Gpfs(#[from] gpfs::Error),
    /// Standard output.
    #[error("failed to write")]
    Write(#[from] io::Error),
    /// Somebody did not want to wait for what was being read.
    #[error("ended while files were being read; nothing that was stored is lost")]
    Abandoned,
    /// Paths that are not damaged.
    #[error(
        "{} no open warning{}; `report` tells which files have one, and --escaped takes their paths as it prints them",
        have(.paths),
        others(*.done)
    )]
    NoWarning {
        /// Which.
        paths: Vec<RelativePath>,
        /// How many others there were.
        done: usize,
    },
    /// A path that `report` does not print like that.
    #[error(transparent)]
    Escape(#[from] BadEscape),
    /// A share of what.
    #[error("--sample-percent goes with --mode sample")]
    NoSample,
}

impl Error {
    /// For the shell.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Run(engine::Error::Guard { .. }) => Found::Incomplete.exit_code(),
            Self::Exclude(_)
            | Self::Run(_)
            | Self::Store(_)
            | Self::Place(_)
            | Self::Gpfs(_)
            | Self::Write(_)
            | Self::Abandoned
            | Self::NoWarning { .. }
            | Self::Escape(_)
            | Self::NoSample => 3,
        }
    }

    /// Whether nobody reads any more what is written.
    fn is_unheard(&self) -> bool {
        matches!(self, Self::Write(error) if error.kind() == ErrorKind::BrokenPipe)
    }
}

fn have(paths: &[RelativePath]) -> String {
    let verb = if paths.len() == 1 { "has" } else { "have" };
    let paths: Vec<_> = paths.iter().map(ToString::to_string).collect();
    format!("{} {verb}", paths.join(", "))
}

fn others(done: usize) -> String {
    match done {
        0 => String::new(),
        done => format!(", the other {done} are done"),
    }
}

/// Does it; returns the exit code. A program is told in its own language why it failed; whoever does not listen any more is
/// told nothing.
pub async fn run(command: Command) -> Result<u8, Error> {
    let tells_json = command.tells_json();
    let done = dispatch(command).await;
    match &done {
        Err(error) if error.is_unheard() => return Ok(UNHEARD),
        Err(error) if tells_json => {
            let line = report::error_json(&chain(error), error.exit_code());
            let _ = io::stdout().write_all(line.as_bytes()); // it is told on standard error, too
        }
        Ok(_) | Err(_) => {}
    }
    done
}

async fn dispatch(command: Command) -> Result<u8, Error> {
    match command {
        Command::Local(args) => Box::pin(local(&args)).await,
        Command::Report(args) => known::run(&args).await,
        Command::Verify(args) => Box::pin(verify::run(&args)).await,
        Command::Accept(files) => noted::accept(&files).await,
        Command::Acknowledge(files) => noted::acknowledge(&files).await,
        Command::Abort(of) => abort(&of).await,
        Command::TakeOver(args) => take_over(&args).await,
    }
}

async fn local(args: &Local) -> Result<u8, Error> {
    let place = stores::for_run(&args.path, args.store.as_deref())?;
    let job = Job {
        root: args.path.clone(),
        source: Source::Live,
        lister: args.lister(),
        excludes: Excludes::new(args.exclude.iter().chain(&place.inside))?,
        spill: engine::spill_beside(&place.store),
        spill_size: None,
        deletion_guard: args.deletion_guard,
        readers: args.readers.map(usize::from),
        queue: None,
        medium: args.medium,
        packs: Sizes::default(),
        sync_concurrency: SYNC_CONCURRENCY,
        sync_rows: SYNC_ROWS,
        writers: 1,
        batch: BATCH,
        stop_after_sync: args.stop_after.is_some(),
    };
    let what = NewRun {
        owner: None,
        snapshot: None,
        mode: args.mode().ok_or(Error::NoSample)?,
        algorithm: args.algorithm,
    };
    let unresolved = match (args.resume, args.abort) {
        (true, _) => Unresolved::Resume,
        (false, true) => Unresolved::Abort,
        (false, false) => Unresolved::Refuse,
    };
    let location = Location::file(place.store);
    let shared = Arc::new(Shared::new(args.max_throughput, Instant::now()));
    let running = async {
        let store = Store::open(&location, 1).await?;
        if let Some(snapshots) = FileSystem::find(&args.gpfs, &args.path, &shared).await? {
            return snapshot::run(&snapshots, job, &store, what, unresolved, &shared).await;
        }
        let run = snapshot::begin_without(&store, &what, unresolved).await?;
        Ok(engine::run(&job, &store, run, &shared).await?)
    };
    let telling = progress::tell(&shared, args.output, args.quiet);
    let ended = tokio::select! {
        ended = stopped_by_signals(running, &shared) => ended,
        never = telling => match never {},
    };
    match ended {
        Ok(ended) => tell(args.output, &location, &ended).await,
        Err(error) => {
            tell_unfinished(args.output, &shared);
            Err(error)
        }
    }
}

/// The run that failed, if it had begun, as it was stored last; why it did is told by the caller. The store is not asked: its
/// disk may be what does not answer.
fn tell_unfinished(output: Output, shared: &Shared) {
    let (Output::Json, Some(run)) = (output, shared.run()) else {
        return;
    };
    let _ = io::stdout().write_all(report::run_json(&run).as_bytes()); // what matters is why it failed
}

/// The first signal ends what runs in order; it is then resumed or begun again. A storage that does not answer keeps a reader for
/// ever: the second signal ends it all.
async fn stopped_by_signals<T, E>(
    running: impl Future<Output = Result<T, E>>,
    shared: &Shared,
) -> Result<T, Error>
where
    Error: From<E>,
{
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut asked = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let mut running = std::pin::pin!(running);
    tokio::select! {
        ended = &mut running => return Ok(ended?),
        () = asked() => shared.stop.store(true, Ordering::Relaxed),
    }
    tokio::select! {
        ended = running => Ok(ended?),
        () = asked() => Err(Error::Abandoned),
    }
}

async fn tell(output: Output, store: &Location, ended: &Ended) -> Result<u8, Error> {
    let view = View::open(store).await?;
    let warnings = view.warnings(false, ALL).await?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    match output {
        Output::Text => {
            write!(out, "{}", report::run_text(&ended.run))?;
            write!(out, "{}", report::warnings_text(&warnings))?;
            write!(out, "{}", known::problems_text(&view, &ended.run).await?)?;
            write!(out, "{}", report::unlisted_text(&ended.problems))?;
        }
        Output::Json => {
            for warning in &warnings {
                write!(out, "{}", report::warning_json(warning))?;
            }
            known::problems_json(&view, &ended.run, &mut out).await?;
            for problem in &ended.problems.first {
                write!(out, "{}", report::unlisted_json(problem))?;
            }
            write!(out, "{}", report::run_json(&ended.run))?;
        }
    }
    out.flush()?;
    // Damage that an earlier run found, and that this one did not read, is still there.
    let known = warnings.iter().any(|it| it.state == WarningState::Open);
    let found = if known {
        Found::Damage
    } else {
        Found::of(&ended.run)
    };
    Ok(found.exit_code())
}

async fn take_over(args: &TakeOver) -> Result<u8, Error> {
    let from = stores::server(&args.from, "ORRERY_FROM")?;
    let store = Store::open(&stores::new(&args.store)?, 1).await?;
    let theirs = store::Theirs {
        server: &from,
        prefix: &args.table_prefix,
        folder: args.sub_path.as_deref().unwrap_or_else(|| Path::new("")),
    };
    let taken = tokio::select! {
        taken = store::take_over(&store, theirs) => taken?,
        lost = store.kept() => return Err(lost.into()),
    };
    let store::Taken {
        files,
        runs,
        warnings,
    } = taken;
    let text = format!("took over {files} files, {runs} runs and {warnings} warnings\n");
    io::stdout().write_all(text.as_bytes())?;
    Ok(0)
}

async fn abort(of: &StoreOf) -> Result<u8, Error> {
    let store = Store::open(&stores::existing(of)?, 1).await?;
    if store.give_up_taking().await? {
        io::stdout().write_all(b"the take-over is given up, and what it has brought\n")?;
    }
    let Some(run) = store.view().last_run().await? else {
        return Ok(0);
    };
    let told = if run.state.is_resolved() {
        format!("run {} has ended already: nothing is given up\n", run.id)
    } else {
        report::left_snapshot(&run).unwrap_or_default()
    };
    engine::abort(&store, run, None).await?;
    io::stdout().write_all(told.as_bytes())?;
    Ok(0)
}
