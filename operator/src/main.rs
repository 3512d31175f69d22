//! The operator's process: flags in, exit code out. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser;
use operator::{
    args::{Args, Task},
    probe::probe,
};
use runtime::process::{self, Threads};

fn main() -> ExitCode {
    let args = Args::parse();
    let telemetry = args.telemetry.clone();
    match &args.task {
        Some(Task::Probe { url }) => process::run(&telemetry, Threads::One, probe(url)),
        None => process::run(&telemetry, Threads::One, operator::run(args)),
    }
}
