//! In: a run. Out: whether leader election held under its faults.
//! Touches: a control plane and operator processes of its own.

mod act;
mod check;
mod member;
pub mod plan;
mod requests;

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use tokio::time::sleep;

use crate::{journal::Claim, run::Run};
use act::Stage;
use check::Checks;
use plan::{Round, rounds};
use requests::Requests;

/// What is claimed.
pub const CLAIMS: [Claim; 5] = [ONLY_LEADERS, LEADS_AGAIN, WORKS, ONCE, ENDS_WELL];

const ONLY_LEADERS: Claim = Claim {
    name: "only the holder of the lease wrote",
    meaning: "by the audit log of the API server; once per write",
};
const LEADS_AGAIN: Claim = Claim {
    name: "somebody leads again",
    meaning: "within 20 s of the moment at which all is mended and every replica is ready: a replica that \
              runs has renewed the lease since; once per round",
};
const WORKS: Claim = Claim {
    name: "who leads works",
    meaning: "takes up a request within 15 s; once per round",
};
const ONCE: Claim = Claim {
    name: "no request was lost or done twice",
    meaning: "each was taken up, and has one run; once per request",
};
const ENDS_WELL: Claim = Claim {
    name: "replicas end only as they should",
    meaning: "killed, in order when told to, or because the lease was lost, and never by a panic; once per process",
};

/// Runs until the time is over or a claim does not hold.
pub async fn run(run: &Run<'_>) -> Result<()> {
    let mut stage = Stage::set(run.journal).await?;
    let over = AtomicBool::new(false);
    let requests = Requests::new(stage.client(), run.journal, &over);
    let chaos = async {
        let result = chaos(&mut stage, run).await;
        over.store(true, Ordering::Relaxed);
        result
    };
    tokio::try_join!(chaos, requests.go_on())?;
    stage.end().await
}

async fn chaos(stage: &mut Stage<'_>, run: &Run<'_>) -> Result<()> {
    let mut checks = Checks::new(stage, run.journal);
    checks.after_a_round(stage).await?;
    for (n, round) in rounds(run.seed).enumerate() {
        let went = go_through(&round, stage, &mut checks, run).await;
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
    checks: &mut Checks<'_>,
    run: &Run<'_>,
) -> Result<()> {
    for step in &round.steps {
        sleep(step.after).await;
        stage.act(step.action).await?;
        run.journal.did(step.action.name());
    }
    sleep(round.hold).await;
    stage.mend().await?;
    checks.after_a_round(stage).await
}
