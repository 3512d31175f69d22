//! In: a stage that was mended. Out: whether everything held.
//! Touches: asks the API server, reads its audit log.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{
    history::History,
    operator::{LEAD_AGAIN, NAMESPACE},
    schedules,
};
use testbed::audit::Log;
use tokio::time::timeout;

use super::{
    LEADS_AGAIN, ONLY_LEADERS, WORKS,
    act::{PROBE, Stage},
};
use crate::journal::Journal;

/// How soon an operator that leads takes up a request.
const PROMPT: Duration = Duration::from_secs(15);

/// What was known after the last round.
pub(super) struct Checks<'a> {
    /// The part of the audit log that was not read yet.
    log: Log,
    /// The part before it.
    history: History,
    probes: usize,
    journal: &'a Journal,
}

impl<'a> Checks<'a> {
    pub(super) fn new(stage: &Stage, journal: &'a Journal) -> Self {
        Self {
            log: stage.cluster().audit(),
            history: History::default(),
            probes: 0,
            journal,
        }
    }

    /// Somebody leads and works, and nobody else has written.
    pub(super) async fn after_a_round(&mut self, stage: &mut Stage<'_>) -> Result<()> {
        stage.leads_again(LEAD_AGAIN).await?;
        self.journal.held(&LEADS_AGAIN, 1);
        self.works(stage).await?;
        self.journal.held(&WORKS, 1);
        let writes = self.only_leaders_wrote()?;
        self.journal.held(&ONLY_LEADERS, writes);
        Ok(())
    }

    async fn works(&mut self, stage: &Stage<'_>) -> Result<()> {
        let client = stage.client();
        self.probes += 1;
        let token = format!("probe-{}", self.probes);
        let ask = schedules::ask(&client, NAMESPACE, PROBE, &token);
        timeout(PROMPT, ask).await.context("no answer")??;
        schedules::handled(&client, NAMESPACE, PROBE, &token, PROMPT).await?;
        let runs = schedules::runs_by_schedule(&client, NAMESPACE).await?;
        let runs = runs.get(PROBE).copied().unwrap_or_default();
        let probes = self.probes;
        ensure!(runs == probes, "{runs} runs for {probes} requests");
        Ok(())
    }

    /// Looks at what the log has more since the last time; says how many writes that were.
    fn only_leaders_wrote(&mut self) -> Result<u64> {
        // First where the next part begins: what is logged meanwhile is in both, and counted once.
        let next = self.log.from_now()?;
        self.history = History::read_after(&self.log, &self.history)?;
        self.log = next;
        self.history.only_leaders_wrote()?;
        let events = self.history.events().iter();
        let writes =
            events.filter(|it| it.is_write() && !it.is_about("coordination.k8s.io", "leases"));
        Ok(u64::try_from(writes.count())?)
    }
}
