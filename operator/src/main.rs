//! The operator's process: flags in, exit code out. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser;
use operator::args::Args;

fn main() -> ExitCode {
    let args = Args::parse();
    let telemetry = args.telemetry.clone();
    runtime::process::run(&telemetry, operator::run(args))
}
