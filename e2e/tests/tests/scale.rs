//! A thousand schedules that are due at once, over a change of the leader.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use e2e::{
    history::History,
    operator::{self, NAMESPACE, Replica, Settings},
    schedules,
};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use kube::Client;
use serde_json::json;
use testbed::{Kubernetes, Part, audit, repository_crds, wait::eventually};

const SCHEDULES: usize = 1000;

/// How soon after a leader exists everything that was due has begun; seconds, on a machine that does nothing else.
const ALL_STARTED: Duration = Duration::from_mins(2);

/// How soon a replica leads that is only started when the leader is dead. How soon one does that stood by is a subject of the
/// tests of leaders.
const LEADS: Duration = Duration::from_mins(1);

#[tokio::test]
async fn a_thousand_schedules_due_at_once_each_start_one_run_over_a_change_of_leader() -> Result<()>
{
    let cluster = Kubernetes::start(repository_crds()?.named("scale")).await?;
    // Owner references are not the subject, and the collector would compete for the two cores.
    cluster.part(Part::ControllerManager).kill().await?;
    operator::install(&cluster).await?;
    let client = cluster.client().await?;
    let due = make_schedules(&client).await?;
    eventually("the slot", Duration::from_mins(2), async || {
        Ok((now() > due).then_some(()))
    })
    .await?;

    let first = Replica::start(&cluster, "first", &Settings::default()).await?;
    let begun = || started(&cluster.audit());
    eventually("a part of the runs", ALL_STARTED, async || {
        Ok((begun()?.len() >= 200).then_some(()))
    })
    .await?;
    first.process().kill().await?;
    let interrupted = begun()?.len();
    ensure!(
        interrupted < SCHEDULES,
        "the first leader was done before it was killed"
    );

    let replicas = [
        first,
        Replica::start(&cluster, "second", &Settings::default()).await?,
    ];
    operator::leader(&client, &replicas, Some("first"), LEADS).await?;
    eventually("all runs", ALL_STARTED, async || {
        let runs = schedules::runs_by_schedule(&client, NAMESPACE).await?;
        ensure!(
            runs.len() == SCHEDULES,
            "{} of {SCHEDULES}, {interrupted} by the first leader",
            runs.len()
        );
        Ok(Some(()))
    })
    .await?;
    let runs = schedules::runs_by_schedule(&client, NAMESPACE).await?;
    ensure!(
        runs.values().all(|count| *count == 1),
        "some schedule has more than one run"
    );
    ensure!(
        begun()?.values().all(|count| *count == 1),
        "some run was made more than once"
    );
    History::read(&cluster.audit())?.only_leaders_wrote()?;
    drop(replicas);
    cluster.shutdown().await
}

/// Schedules that are all due at the next full minute, and when that is.
async fn make_schedules(client: &Client) -> Result<Timestamp> {
    let due = now().checked_add(75.seconds())?;
    let local = TimeZone::UTC.to_datetime(due);
    let cron = format!("{} {} * * *", local.minute(), local.hour());
    stream::iter(0..SCHEDULES)
        .map(|n| {
            let cron = &cron;
            async move {
                let schedule =
                    schedules::schedule(&format!("s{n:04}"), &json!({"schedule": cron}))?;
                schedules::create(client, NAMESPACE, &schedule).await
            }
        })
        .buffer_unordered(20)
        .try_collect::<()>()
        .await?;
    let due = TimeZone::UTC.to_timestamp(local.date().at(local.hour(), local.minute(), 0, 0))?;
    ensure!(
        now() < due,
        "the slot has passed before every schedule was there"
    );
    Ok(due)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operators under test live in real time"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

/// How often each run was made, by the audit log.
fn started(log: &audit::Log) -> Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for event in log.events_from(operator::AGENT)? {
        if event.verb == "create"
            && event.is_about("orrery.dev", "checksumruns")
            && event.code() == Some(201)
        {
            let name = event
                .request_object
                .as_ref()
                .and_then(|o| o.pointer("/metadata/name")?.as_str());
            *counts
                .entry(name.unwrap_or_default().to_owned())
                .or_default() += 1;
        }
    }
    Ok(counts)
}
