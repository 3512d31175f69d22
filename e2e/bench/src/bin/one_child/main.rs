//! Ours of the two controllers that are compared: one ConfigMap per ChecksumSchedule, on the operator's core.
//! In: the operator's flags. Out: an exit code. Its peer is `peers/controller-runtime`; keep the two equal.

mod child;
mod reconcile;
mod wiring;

use std::process::ExitCode;

use clap::Parser;
use operator::args::Args;
use runtime::process::{self, Threads};

fn main() -> ExitCode {
    let args = Args::parse();
    let telemetry = args.telemetry.clone();
    process::run(&telemetry, Threads::One, wiring::run(args))
}
