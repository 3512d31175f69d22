//! In: a topic, or none for all. Out: a table on standard output, and the files in `docs/`.
//! Touches: what measuring touches. A goal that is not met is told, and is no failure.

use std::{io::Write, process::ExitCode};

use anyhow::Result;
use bench::{
    checksum::Part, docs::Docs, machine::machine, rounds::Rules, row::Row, table::table,
    topic::Topic,
};
use clap::Parser;
use runtime::clock::{Clock, SystemClock};
use tokio::signal::unix::{SignalKind, signal};

/// What is measured in this process has the allocator of the image's program: docs/decisions/0014.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Measure only these parts of the topic `checksum`, and keep the figures of the others.
    #[arg(
        long = "part",
        value_enum,
        value_delimiter = ',',
        env = "ORRERY_BENCH_PARTS"
    )]
    parts: Vec<Part>,
    /// A first look: measure once, whoever else uses the machine, and write nothing.
    #[arg(long, env = "ORRERY_BENCH_DRAFT")]
    draft: bool,
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
        let rows = measure(topic, arguments, &docs).await?;
        writeln!(std::io::stdout(), "{}", table(&rows))?;
    }
    Ok(())
}

/// What was measured of a topic now. Each piece is kept as soon as there is one.
async fn measure(topic: Topic, arguments: &Arguments, docs: &Docs) -> Result<Vec<Row>> {
    let rules = Rules {
        lenient: arguments.draft,
        ..Rules::default()
    };
    let mut rows = Vec::new();
    for piece in topic.pieces(&arguments.parts) {
        let date = SystemClock.wall().strftime("%Y-%m-%d").to_string();
        let found = Box::pin(piece.measure(rules, date, machine()?)).await?;
        if !arguments.draft {
            docs.amend(topic, &found)?;
        }
        rows.extend(found);
    }
    if arguments.parts.is_empty() && !arguments.draft {
        docs.write(topic, &rows)?;
    }
    Ok(rows)
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
