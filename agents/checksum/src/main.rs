//! `orrery-checksum`: finds files that are no longer what was written.

use std::process::ExitCode;

use checksum::args::{Arguments, Command, Task};
use checksum::{commands, coordinator, worker};
use clap::Parser;
use clap::error::ErrorKind;
use runtime::process::{self, BLOCKING_THREADS, Threads};
use runtime::telemetry::chain;

/// Rows are allocated by one thread and freed by another, millions of times, at which musl is slow: docs/decisions/0014.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// For the shell: an error, which nothing else is.
const FAILED: u8 = 3;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            let is_help = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            );
            return ExitCode::from(if is_help { 0 } else { FAILED });
        }
    };
    match arguments.task {
        Task::Coordinator(args) => {
            let telemetry = args.shell.telemetry.clone();
            process::run(&telemetry, Threads::PerCore, coordinator::agent(&args))
        }
        Task::Worker(args) => {
            let telemetry = args.shell.telemetry.clone();
            process::run(&telemetry, Threads::PerCore, worker::agent(&args))
        }
        Task::Command(command) => run(command),
    }
}

/// A command that a person waits for.
fn run(command: Command) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build();
    let done = match runtime {
        Ok(runtime) => {
            let done = runtime.block_on(commands::run(command));
            // Who reads from a storage that does not answer is not waited for.
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("orrery-checksum: {}", chain(&error));
            ExitCode::from(error.exit_code())
        }
    }
}
