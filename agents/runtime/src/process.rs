//! In: the one future a binary consists of. Out: the process's exit code.
//! Builds the tokio runtime, starts logging and installs the crypto provider.

use std::error::Error as StdError;
use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::Builder;
use tracing::error;

use crate::telemetry::{self, TelemetryArgs, chain};
use crate::tls::install_crypto_provider;

/// How long blocking calls may hold up the end; a file system that hangs would do so for ever.
const BLOCKED: Duration = Duration::from_secs(1);

/// Threads for calls that block. More than are ever busy for long, which are up to a thousand readers of files: names of hosts
/// are looked up on such threads, too, and must not wait for a file to be read.
pub const BLOCKING_THREADS: usize = 2048;

/// How many threads run a binary's tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One: for what waits more than it computes. No thread has to wake another, and a machine with many cores does
    /// not cost more memory than a small one.
    One,
    /// One per core.
    PerCore,
}

/// Runs a binary: `fn main() -> ExitCode { process::run(&args.telemetry, Threads::One, program(args)) }`.
///
/// An error is logged once, with its causes, and becomes exit code 1.
pub fn run<F, E>(telemetry: &TelemetryArgs, threads: Threads, program: F) -> ExitCode
where
    F: Future<Output = Result<(), E>>,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    install_crypto_provider();
    if let Err(error) = telemetry::init(telemetry) {
        // There is no log to say it in.
        eprintln!("{}", chain(&error));
        return ExitCode::FAILURE;
    }
    match block_on(threads, program) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => failure(error.into().as_ref()),
        Err(error) => failure(&error),
    }
}

fn block_on<F: Future>(threads: Threads, program: F) -> std::io::Result<F::Output> {
    let mut runtime = match threads {
        Threads::One => Builder::new_current_thread(),
        Threads::PerCore => Builder::new_multi_thread(),
    };
    let runtime = runtime
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    let output = runtime.block_on(program);
    runtime.shutdown_timeout(BLOCKED);
    Ok(output)
}

fn failure(error: &(dyn StdError + 'static)) -> ExitCode {
    error!(error = chain(error), "process failed");
    ExitCode::FAILURE
}
