#![expect(clippy::disallowed_methods, reason = "tests set the stage directly")]
//! What a schedule tells of its runs, with a real operator process.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use crds::{checksum_run::ChecksumRun, checksum_schedule::ChecksumSchedule};
use e2e::{
    operator::{self, Replica, Settings},
    schedules,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use testbed::{Kubernetes, repository_crds, wait::eventually};

/// Each takes milliseconds; two cores may be busy with other tests.
const SOON: Duration = Duration::from_secs(40);

/// So many, because what could be missed is missed by chance.
const SCHEDULES: usize = 30;

#[tokio::test]
async fn a_schedule_tells_of_a_run_as_soon_as_it_has_ended() -> Result<()> {
    let cluster = Kubernetes::start(repository_crds()?.named("schedules")).await?;
    operator::install(&cluster).await?;
    let replica = Replica::start(&cluster, "one", &Settings::default()).await?;
    replica.ready().await?;
    let client = cluster.client().await?;
    for n in 0..SCHEDULES {
        let name = format!("s{n}");
        schedules::create(&client, "default", &schedules::on_request(&name)?).await?;
        schedules::ask(&client, "default", &name, "now").await?;
    }
    let runs: Api<ChecksumRun> = Api::namespaced(client.clone(), "default");
    // There is nothing to read, so the only news of a run is its end.
    let waiting = eventually("a run of each that waits", SOON, async || {
        let all = runs.list(&ListParams::default()).await?.items;
        let waits =
            |run: &&ChecksumRun| run.status.as_ref().is_some_and(|s| s.conditions.len() > 1);
        let waiting: Vec<_> = all
            .iter()
            .filter(waits)
            .map(ResourceExt::name_any)
            .collect();
        ensure!(
            waiting.len() == SCHEDULES,
            "{} of {SCHEDULES}",
            waiting.len()
        );
        Ok(Some(waiting))
    })
    .await?;
    for run in waiting {
        let cancel = Patch::Merge(json!({"spec": {"cancel": true}}));
        runs.patch(&run, &PatchParams::default(), &cancel).await?;
    }
    let all: Api<ChecksumSchedule> = Api::namespaced(client, "default");
    eventually("all schedules to tell", SOON, async || {
        let schedules = all.list(&ListParams::default()).await?.items;
        let silent = schedules.iter().filter(|schedule| {
            let told = schedule
                .status
                .as_ref()
                .and_then(|status| status.last_result.as_deref());
            told != Some("Cancelled")
        });
        let silent: Vec<_> = silent.map(ResourceExt::name_any).collect();
        ensure!(silent.is_empty(), "nothing is told by {silent:?}");
        Ok(Some(()))
    })
    .await
    .context("a run ended and its schedule was not told")?;
    drop(replica);
    cluster.shutdown().await
}
