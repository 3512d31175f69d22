//! In: a command line. Out: a control plane for as long as a command runs, or until Ctrl-C.
//! Touches: what the library does, and the terminal.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use testbed::process::{Launch, Process, Signal};
use testbed::{Access, Cluster, Kubernetes, Options, Stock, VARIABLE, repository_crds, tools};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// A command that was told to end is killed after this.
const COMMAND_GRACE: Duration = Duration::from_mins(1);

/// What a shell reports for a command ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

const ENVIRONMENT: &str = "\
Environment:
  ORRERY_TESTBED      state folder of a running control plane, set for COMMAND; tests use that one
  ORRERY_KEEP         keep the logs in target/testbed-logs, as after a failure
  ORRERY_TOOLS        folder with kubernetes.sh, which builds the real parts [default: e2e/tools]
  KUBEBUILDER_ASSETS  folder with parts that are installed already";

/// A real Kubernetes, with or without nodes, and real stores, for tests and for trying things out.
#[derive(Parser)]
#[command(after_help = ENVIRONMENT)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run a command with a control plane: tests in it share that one.
    Run {
        #[command(flatten)]
        cluster: ControlPlane,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Start a cluster in which pods run, for as long as a command runs, or until Ctrl-C. Needs root.
    Nodes {
        /// How many nodes.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
        count: u8,
        /// An image (an OCI archive) to bring to every node; may be given more than once.
        #[arg(long = "image", value_name = "FILE")]
        images: Vec<PathBuf>,
        /// A command and its arguments, run with KUBECONFIG set.
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Print the memory, in megabytes, that a running cluster and all of its pods use; for a COMMAND of `nodes`.
    Memory,
    /// Make, once, the class archives that let Cassandra and Kafka start faster.
    Archives,
    /// Start a control plane and keep it until Ctrl-C.
    Up {
        #[command(flatten)]
        cluster: ControlPlane,
    },
}

#[derive(Args)]
struct ControlPlane {
    /// Folder with the definitions to install [default: config/crd of the repository]
    #[arg(long, value_name = "DIR")]
    crds: Option<PathBuf>,
    /// Run the scheduler too.
    #[arg(long)]
    scheduler: bool,
}

impl ControlPlane {
    fn options(self) -> Result<Options> {
        let options = match self.crds {
            Some(folder) => Options::default().with_crds_in(&folder)?,
            None => repository_crds()?,
        };
        let options = options.named("testbed");
        Ok(if self.scheduler {
            options.with_scheduler()
        } else {
            options
        })
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    match Arguments::parse().task {
        Task::Run { cluster, command } => run(cluster.options()?, &command, &mut signals).await,
        Task::Nodes {
            count,
            images,
            command,
        } => nodes(count, &images, &command, &mut signals).await,
        Task::Memory => memory(),
        Task::Archives => archives(&mut signals).await,
        Task::Up { cluster } => up(cluster.options()?, &mut signals).await,
    }
}

async fn run(options: Options, command: &[OsString], signals: &mut Signals) -> Result<ExitCode> {
    let Some(kubernetes) = start(options, signals).await? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let stock = Stock::open(kubernetes.folder())?;
    let status = supervise(&kubernetes, command, signals).await?;
    if !status.success() {
        for kept in stock
            .keep_logs()?
            .into_iter()
            .chain([kubernetes.keep_logs()?])
        {
            eprintln!("testbed: logs kept in {}", kept.display());
        }
    }
    stock.close().await;
    kubernetes.shutdown().await?;
    testbed::remove_folders_of_the_dead();
    Ok(exit_code(status))
}

async fn up(options: Options, signals: &mut Signals) -> Result<ExitCode> {
    let Some(kubernetes) = start(options, signals).await? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let hint = format!(
        "Kubernetes is up at {}; Ctrl-C ends it. Try:\n\n  \
         {} --kubeconfig={} get namespaces\n  \
         {VARIABLE}={} cargo test -p e2e\n",
        kubernetes.url(),
        tools::binary("kubectl").await?.display(),
        kubernetes.kubeconfig().display(),
        kubernetes.folder().display(),
    );
    writeln!(std::io::stdout(), "{hint}")?;
    signals.next().await;
    kubernetes.shutdown().await?;
    Ok(ExitCode::SUCCESS)
}

async fn nodes(
    count: u8,
    images: &[PathBuf],
    command: &[OsString],
    signals: &mut Signals,
) -> Result<ExitCode> {
    let cluster = tokio::select! {
        started = start_nodes(count, images) => started?,
        _ = signals.next() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let status = if command.is_empty() {
        let hint = format!("export KUBECONFIG={}", cluster.kubeconfig().display());
        writeln!(std::io::stdout(), "{hint}")?;
        signals.next().await;
        ExitStatus::default()
    } else {
        supervise(&cluster, command, signals).await?
    };
    if !status.success() {
        let kept = cluster.control_plane().keep_logs()?;
        eprintln!("testbed: logs kept in {}", kept.display());
    }
    cluster.shutdown().await?;
    Ok(exit_code(status))
}

/// Starts the nodes, and says how long it took and what they use.
#[expect(clippy::disallowed_methods, reason = "measures itself")]
async fn start_nodes(count: u8, images: &[PathBuf]) -> Result<Cluster> {
    let began = Instant::now();
    let cluster = Cluster::start(Options::default().named("nodes"), count).await?;
    for image in images {
        cluster.load(image).await?;
    }
    let nodes = if count == 1 { "node is" } else { "nodes are" };
    eprintln!(
        "testbed: {count} {nodes} ready after {:.1} s, using {} MB",
        began.elapsed().as_secs_f32(),
        cluster.memory()? / 1_000_000
    );
    Ok(cluster)
}

fn memory() -> Result<ExitCode> {
    let folder = std::env::var_os(VARIABLE).with_context(|| format!("{VARIABLE} is not set"))?;
    let bytes = testbed::memory_of_owner(folder.as_ref())?;
    writeln!(std::io::stdout(), "{}", bytes / 1_000_000)?;
    Ok(ExitCode::SUCCESS)
}

async fn archives(signals: &mut Signals) -> Result<ExitCode> {
    tokio::select! {
        made = testbed::make_class_archives() => made.map(|()| ExitCode::SUCCESS),
        _ = signals.next() => Ok(ExitCode::from(INTERRUPTED)),
    }
}

/// A started control plane, or none if a signal came first.
async fn start(options: Options, signals: &mut Signals) -> Result<Option<Kubernetes>> {
    tokio::select! {
        started = Kubernetes::start(options) => started.map(Some),
        _ = signals.next() => Ok(None),
    }
}

async fn supervise(
    cluster: &Access,
    command: &[OsString],
    signals: &mut Signals,
) -> Result<ExitStatus> {
    let (program, arguments) = command.split_first().context("no command")?;
    let process = Launch::in_foreground("the command", program)
        .args(arguments)
        .envs([
            (VARIABLE, cluster.folder().to_owned()),
            ("KUBECONFIG", cluster.kubeconfig()),
        ])
        .spawn()?;
    tokio::select! {
        status = process.exited() => status,
        signal = signals.next() => end(&process, signal).await,
    }
}

/// Passes a signal on, unless the command has it already, and waits for the command.
async fn end(process: &Process, signal: Signal) -> Result<ExitStatus> {
    if signal != Signal::SIGINT || !terminal_interrupts_all() {
        // It may end at this very moment, which is what is wanted.
        let _ = process.signal(signal);
    }
    match process.wait_exit(COMMAND_GRACE).await {
        Ok(status) => Ok(status),
        Err(_) => process.kill().await,
    }
}

/// Ctrl-C goes to everything in the foreground of the terminal, the command included; a second interrupt
/// means "now" to many programs. Only a process that has a terminal can open this file.
fn terminal_interrupts_all() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let by_signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(by_signal).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// The requests to end.
struct Signals {
    interrupt: Stream,
    terminate: Stream,
    hangup: Stream,
}

impl Signals {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("failed to listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.terminate.recv() => Signal::SIGTERM,
            _ = self.hangup.recv() => Signal::SIGHUP,
        }
    }
}
