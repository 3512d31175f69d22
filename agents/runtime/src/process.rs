//! In: the one future a binary consists of. Out: the process's exit code.
//! Builds the tokio runtime, starts logging and installs the crypto provider.

use std::error::Error as StdError;
use std::process::ExitCode;
use std::time::Duration;

use tracing::error;

use crate::telemetry::{self, TelemetryArgs, chain};
use crate::tls::install_crypto_provider;

/// How long blocking calls may hold up the end; a file system that hangs would do so for ever.
const BLOCKED: Duration = Duration::from_secs(1);

/// Runs a binary: `fn main() -> ExitCode { process::run(&args.telemetry, program(args)) }`.
///
/// An error is logged once, with its causes, and becomes exit code 1.
pub fn run<F, E>(telemetry: &TelemetryArgs, program: F) -> ExitCode
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
    match block_on(program) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => failure(error.into().as_ref()),
        Err(error) => failure(&error),
    }
}

fn block_on<F: Future>(program: F) -> std::io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let output = runtime.block_on(program);
    runtime.shutdown_timeout(BLOCKED);
    Ok(output)
}

fn failure(error: &(dyn StdError + 'static)) -> ExitCode {
    error!(error = chain(error), "process failed");
    ExitCode::FAILURE
}
