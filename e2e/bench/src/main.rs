//! In: a topic, or none for all. Out: a table on standard output, and the files in `docs/`.
//! Touches: what measuring touches. A goal that is not met is told, and is no failure.

use std::{io::Write, process::ExitCode};

use anyhow::Result;
use bench::{docs::Docs, machine::machine, table::table, topic::Topic};
use clap::Parser;
use runtime::clock::{Clock, SystemClock};
use tokio::signal::unix::{SignalKind, signal};

/// What a shell reports for a command ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Measures what this project costs beside others, and writes docs/benchmarks.md.
#[derive(Parser)]
struct Arguments {
    /// What to measure; all by default.
    #[arg(value_enum)]
    topic: Option<Topic>,
    /// Measure nothing; write the page and the pictures again from the figures that are kept.
    #[arg(long)]
    refresh: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    runtime::tls::install_crypto_provider();
    // What was started ends with the future that is dropped here.
    let result = tokio::select! {
        result = run(&arguments) => result,
        result = interrupted() => match result {
            Ok(()) => return ExitCode::from(INTERRUPTED),
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    let docs = Docs::of_repository();
    if arguments.refresh {
        return docs.refresh();
    }
    let topics = arguments
        .topic
        .map_or_else(|| Topic::ALL.to_vec(), |topic| vec![topic]);
    for topic in topics {
        let date = SystemClock.wall().strftime("%Y-%m-%d").to_string();
        let rows = topic.measure(date, machine()?).await?;
        docs.write(topic, &rows)?;
        writeln!(std::io::stdout(), "{}", table(&rows))?;
    }
    Ok(())
}

async fn interrupted() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
