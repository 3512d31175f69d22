//! In: a command line. Out: an exit code, and what happened on standard output and standard error.
//! Touches what a run touches. Ctrl-C ends everything that was started and records nothing.

use std::{io::Write, process::ExitCode};

use anyhow::{Result, ensure};
use clap::Parser;
use soak::{
    docs::Docs,
    run::soak,
    wish::{self, Wish},
};
use tokio::signal::unix::{SignalKind, signal};

/// What a shell reports for a command ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Runs real parts under faults for a long time, and writes docs/soak.md. An empty value is none.
#[derive(Parser)]
struct Arguments {
    /// What to run; everything by default.
    #[arg(long, default_value = "")]
    topic: String,
    /// What decides the faults; a new one by default.
    #[arg(long, default_value = "")]
    seed: String,
    /// How long each topic runs.
    #[arg(long, default_value = "")]
    minutes: String,
    /// Run nothing; write the page again from the results that are kept.
    #[arg(long)]
    refresh: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // What was started ends with the future that is dropped here.
    let result = tokio::select! {
        result = Box::pin(obey(&arguments)) => result,
        result = interrupted() => match result {
            Ok(()) => return ExitCode::from(INTERRUPTED),
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn obey(arguments: &Arguments) -> Result<()> {
    let Arguments {
        topic,
        seed,
        minutes,
        refresh,
    } = arguments;
    let docs = Docs::of_repository();
    if *refresh {
        return docs.refresh();
    }
    let Wish {
        topics,
        seed,
        minutes,
    } = wish::parse(topic, seed, minutes)?;
    // Fresh ones are short, because people type them.
    let seed = seed.unwrap_or_else(|| fastrand::u32(..).into());
    writeln!(std::io::stdout(), "seed {seed}")?;
    let mut failed = Vec::new();
    for topic in topics {
        if let Err(error) = soak(topic, seed, minutes, &docs).await {
            let name = topic.name();
            eprintln!("soak: {name} failed: {error:#}");
            eprintln!("soak: to repeat it: make soak ONLY={name} SEED={seed} MINUTES={minutes}");
            failed.push(name);
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

async fn interrupted() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}
