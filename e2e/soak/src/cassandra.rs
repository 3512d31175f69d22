//! In: a run. Out: whether compare-and-set in Cassandra held under its faults.
//! Touches: a cluster of its own in network namespaces.

mod act;
mod client;
mod ledger;
pub mod plan;
mod writer;

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use futures::future::try_join_all;
use testbed::{Cassandra, cassandra::Options, wait::eventually};
use tokio::time::sleep;

use crate::{journal::Claim, run::Run};
use act::Stage;
use client::{Client, make_registers};
use ledger::Ledger;
use plan::{NODES, Round, rounds};
use writer::{Desk, REGISTERS, Writer};

/// What is claimed.
pub const CLAIMS: [Claim; 5] = [
    ONE_MAKER,
    NO_OLDER,
    NOTHING_LOST,
    SEE_EACH_OTHER,
    STEPS_AGAIN,
];

const ONE_MAKER: Claim = Claim {
    name: "no step was acknowledged to two writers",
    meaning: "once per acknowledged step",
};
const NO_OLDER: Claim = Claim {
    name: "no answer was older than what was acknowledged before the question",
    meaning: "neither a read at SERIAL nor the value that comes with a refusal; once per answer",
};
const NOTHING_LOST: Claim = Claim {
    name: "nothing acknowledged was lost",
    meaning: "at the end each register shows at least every step that was acknowledged, and at most the \
              acknowledged and the unknown ones together; once per acknowledged step",
};
const SEE_EACH_OTHER: Claim = Claim {
    name: "all nodes see each other again",
    meaning: "within two minutes of being mended; once per round",
};
const STEPS_AGAIN: Claim = Claim {
    name: "every writer makes a step again",
    meaning: "within a minute of that; once per writer and round",
};

/// Two per node.
const WRITERS: usize = 2 * NODES;

const MENDING: Duration = Duration::from_mins(2);
const STEP_AGAIN: Duration = Duration::from_mins(1);

/// Runs until the time is over or a claim does not hold.
pub async fn run(run: &Run<'_>) -> Result<()> {
    // Without synced commits acknowledged steps are lost: one node is cut off, a second is killed and forgets
    // its last moments, and the two that are left when the third is away do not know.
    let options = Options::new(3).in_namespaces().with_synced_commits();
    let cassandra = Cassandra::start(options).await?;
    make_registers(&cassandra, REGISTERS, MENDING).await?;
    let desk = Desk {
        ledger: RefCell::new(Ledger::new(REGISTERS)),
        journal: run.journal,
        over: Cell::new(false),
    };
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let client = Client::connect(&cassandra, &[number % NODES]).await?;
        writers.push(Writer::new(u8::try_from(number)?, client, &desk));
    }
    let mut rng = Rng::with_seed(run.seed);
    let writing = try_join_all(writers.iter().map(|writer| writer.go_on(rng.fork())));
    let chaos = async {
        let result = chaos(&cassandra, &writers, run).await;
        desk.over.set(true);
        result
    };
    tokio::try_join!(chaos, writing)?;
    settle(&cassandra, &desk).await?;
    cassandra.shutdown().await
}

async fn chaos(cassandra: &Cassandra, writers: &[Writer<'_>], run: &Run<'_>) -> Result<()> {
    let mut stage = Stage::new(cassandra);
    step_again(writers, run).await?;
    for (n, round) in rounds(run.seed).enumerate() {
        let went = go_through(&round, &mut stage, writers, run).await;
        let actions = || {
            round
                .steps
                .iter()
                .map(|step| step.action)
                .collect::<Vec<_>>()
        };
        went.with_context(|| format!("round {} ({:?})", n + 1, actions()))?;
        if run.is_over() {
            break;
        }
    }
    Ok(())
}

async fn go_through(
    round: &Round,
    stage: &mut Stage<'_>,
    writers: &[Writer<'_>],
    run: &Run<'_>,
) -> Result<()> {
    for step in &round.steps {
        sleep(step.after).await;
        stage.act(step.action).await?;
        run.journal.did(step.action.name());
    }
    sleep(round.hold).await;
    stage.mend_all(MENDING).await?;
    run.journal.held(&SEE_EACH_OTHER, 1);
    step_again(writers, run).await
}

/// Waits until each writer has made a step more than now.
async fn step_again(writers: &[Writer<'_>], run: &Run<'_>) -> Result<()> {
    let before: Vec<u64> = writers.iter().map(Writer::made).collect();
    eventually("steps of all writers", STEP_AGAIN, async || {
        for (writer, before) in writers.iter().zip(&before) {
            ensure!(writer.made() > *before, "{}", writer.trouble());
        }
        Ok(Some(()))
    })
    .await?;
    run.journal
        .held(&STEPS_AGAIN, u64::try_from(writers.len())?);
    Ok(())
}

/// Reads every register once more, by way of any node.
async fn settle(cassandra: &Cassandra, desk: &Desk<'_>) -> Result<()> {
    let client = Client::connect(cassandra, &[0, 1, 2]).await?;
    for register in 0..REGISTERS {
        let value = client.read(register).await;
        let value = value.with_context(|| format!("register {register}"))?;
        let confirmed = desk.ledger.borrow().settles(register, value)?;
        desk.journal.held(&NOTHING_LOST, confirmed);
    }
    Ok(())
}
