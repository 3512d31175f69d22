#![expect(
    clippy::disallowed_methods,
    reason = "reads the clock: a run has an end and a date"
)]
//! In: a topic, a seed, a time. Out: a run of it, and its record.
//! Touches: the clock, the terminal, and what the topic touches.

use std::{
    convert::Infallible,
    future::pending,
    io::{IsTerminal, stderr},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use jiff::Zoned;
use tokio::time::{Instant, sleep};

use crate::{
    docs::Docs,
    journal::Journal,
    record::{Record, Setting, unchecked},
    topic::Topic,
};

const MINUTE: Duration = Duration::from_mins(1);

/// A run that goes on.
#[derive(Debug)]
pub struct Run<'a> {
    /// What decides the faults.
    pub seed: u64,
    /// Where to note what is done and what holds.
    pub journal: &'a Journal,
    until: Instant,
}

impl Run<'_> {
    /// Whether no new round of faults is to begin. The one that goes on is mended and checked first.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }
}

/// Runs a topic and records what came of it; an error if a claim did not hold.
pub async fn soak(topic: Topic, seed: u64, minutes: u64, docs: &Docs) -> Result<()> {
    let journal = Journal::default();
    let run = Run {
        seed,
        journal: &journal,
        until: Instant::now() + Duration::from_mins(minutes),
    };
    let result = tokio::select! {
        result = topic.run(&run) => result,
        never = progress(topic, minutes, &journal) => match never {},
    };
    let counts = journal.so_far();
    let result = result.and_then(|()| match &*unchecked(topic.claims(), &counts).join("; ") {
        "" => Ok(()),
        unchecked => bail!("too short a run, never checked: {unchecked}"),
    });
    // A run that did not get to do anything says nothing about the claims.
    if !counts.is_empty() {
        let setting = Setting {
            seed,
            minutes,
            date: Zoned::now().date(),
        };
        let failure = result.as_ref().err().map(|error| format!("{error:#}"));
        let record = Record::new(setting, topic.claims(), &counts, failure.as_deref());
        docs.add(topic, record)
            .context("failed to record the run")?;
    }
    result
}

/// A line per minute, if somebody looks.
async fn progress(topic: Topic, minutes: u64, journal: &Journal) -> Infallible {
    if !stderr().is_terminal() {
        return pending().await;
    }
    let mut passed = 0;
    loop {
        sleep(MINUTE).await;
        passed += 1;
        let counts = journal.so_far();
        let (done, held): (u64, u64) = (counts.done.values().sum(), counts.held.values().sum());
        eprintln!(
            "soak: {}, minute {passed} of {minutes}: {done} done, {held} held",
            topic.name()
        );
    }
}
