//! Claims about what users see and reach with kubectl: columns, names, scale, explanations.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::objects::{RUN, SCHEDULE, object};
use crate::place::Place;

const RUN_COLUMNS: &str = "NAME READY STATUS MODE PROGRESS FILES CORRUPT UNREADABLE RATE AGE";
const SCHEDULE_COLUMNS: &str = "NAME READY STATUS SCHEDULE SUSPEND ACTIVE LAST RESULT NEXT AGE";

/// Stands for any age: the one thing that differs from run to run.
const AGE: &str = "(age)";

#[tokio::test]
async fn a_run_shows_its_verdict_and_its_numbers() -> Result<()> {
    let place = Place::new("columns").await?;
    let run = object(RUN, "home-0142", &json!({}));
    place.apply_quietly(&[], &[run]).await?;
    let status = json!({
        "conditions": [ready("False", "DamageFound", "3 of 1204332 files are damaged")],
        "progress": "100%",
        "files": {"total": 1_204_332, "corrupt": 3},
        "throughput": "412Mi/s",
    });
    place.patch_status("cksum/home-0142", &status).await?;
    let row = [
        "home-0142",
        "False",
        "DamageFound",
        "Full",
        "100%",
        "1204332",
        "3",
        "0",
        "412Mi/s",
        AGE,
    ];
    shows(&place, "cksum", RUN_COLUMNS, &row).await?;
    let wide = [&row[..], &["3 of 1204332 files are damaged"]].concat();
    shows(
        &place,
        "cksum --output=wide",
        &format!("{RUN_COLUMNS} MESSAGE"),
        &wide,
    )
    .await
}

#[tokio::test]
async fn a_schedule_shows_its_last_and_its_next_run() -> Result<()> {
    let place = Place::new("columns").await?;
    let schedule = object(SCHEDULE, "nightly", &json!({}));
    place.apply_quietly(&[], &[schedule]).await?;
    let status = json!({
        "conditions": [ready("True", "Running", "nightly-2611160300 is active")],
        "activeCount": 1,
        "active": [{"name": "nightly-2611160300"}],
        "lastScheduleTime": "2020-01-01T03:00:00Z",
        "lastResult": "Verified",
        "nextScheduleTime": "2126-11-17T03:00:00Z",
    });
    place.patch_status("cksched/nightly", &status).await?;
    let row = [
        "nightly",
        "True",
        "Running",
        "0 3 * * *",
        "false",
        "1",
        AGE,
        "Verified",
        "2126-11-17T03:00:00Z",
        AGE,
    ];
    shows(&place, "cksched", SCHEDULE_COLUMNS, &row).await?;
    let wide = [&row[..], &["nightly-2611160300 is active"]].concat();
    let columns = format!("{SCHEDULE_COLUMNS} MESSAGE");
    shows(&place, "cksched --output=wide", &columns, &wide).await
}

#[tokio::test]
async fn one_category_lists_every_kind() -> Result<()> {
    let place = Place::new("category").await?;
    let both = [RUN, SCHEDULE].map(|kind| object(kind, "home", &json!({})));
    place.apply_quietly(&[], &both).await?;
    let listed = place.kubectl(&["get", "orrery", "--output=name"]).await?;
    let listed = listed.ok()?;
    let names = "checksumrun.orrery.dev/home\nchecksumschedule.orrery.dev/home\n";
    ensure!(listed == names, "{listed}");
    Ok(())
}

#[tokio::test]
async fn the_workers_of_a_run_scale_within_its_rules() -> Result<()> {
    let place = Place::new("scale").await?;
    let shared = json!({
        "store": {"mysql": {"host": "db", "database": "sums", "credentialsRef": {"name": "db"}}},
        "queue": {"redis": {"host": "redis"}},
    });
    let runs = [
        object(RUN, "many", &shared),
        object(RUN, "single", &json!({})),
    ];
    place.apply_quietly(&[], &runs).await?;

    for replicas in [0, 5] {
        ensure!(scaled(&place, "many", replicas).await?.is_none());
    }
    for (run, replicas, says) in [
        ("single", 0, "without spec.queue there is one pod"),
        ("single", 2, "without spec.queue there is one pod"),
        ("many", 1001, "should be less than or equal to 1000"),
    ] {
        let refusal = scaled(&place, run, replicas).await?;
        let refusal = refusal.with_context(|| format!("{run} took {replicas} workers"))?;
        ensure!(refusal.contains(says), "{refusal}");
    }
    let stored = [
        place.get("cksum/many").await?,
        place.get("cksum/single").await?,
    ];
    let replicas = stored.map(|run| run["spec"]["workers"]["replicas"].clone());
    ensure!(replicas == [5, 1], "{replicas:?}");
    Ok(())
}

#[tokio::test]
async fn autoscalers_see_the_workers_that_are_there() -> Result<()> {
    let place = Place::new("scale").await?;
    place
        .apply_quietly(&[], &[object(RUN, "home", &json!({}))])
        .await?;
    let status = json!({"workers": 1, "selector": "orrery.dev/agent=checksum"});
    place.patch_status("cksum/home", &status).await?;
    let output = "--output=jsonpath={.spec.replicas} {.status.replicas} {.status.selector}";
    let scale = place
        .kubectl(&["get", "cksum/home", "--subresource=scale", output])
        .await?;
    ensure!(scale.ok()? == "1 1 orrery.dev/agent=checksum");
    Ok(())
}

#[tokio::test]
async fn fields_are_explained() -> Result<()> {
    let place = Place::new("explain").await?;
    for (field, text) in [
        ("cksum", "One pass over the files of a volume"),
        (
            "cksum.spec.source",
            "Only this folder of the volume, relative to its root.",
        ),
        ("cksum.spec.stopAfter", "absent means run to the end."),
        (
            "cksched.spec",
            "A slot that could not be started within this time",
        ),
        (
            "cksched.spec.template.spec.source",
            "The volume, mounted read-only.",
        ),
    ] {
        let explained = place.kubectl(&["explain", field]).await?.ok()?;
        ensure!(explained.contains(text), "{explained}");
    }
    Ok(())
}

fn ready(status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-11-16T03:00:00Z",
    })
}

/// `kubectl get` prints these columns and, of the only object there is, these values.
async fn shows(place: &Place, what: &str, columns: &str, row: &[&str]) -> Result<()> {
    let args: Vec<&str> = ["get"].into_iter().chain(what.split(' ')).collect();
    let table = place.kubectl(&args).await?.ok()?;
    let (header, rows) = table.split_once('\n').context("no header")?;
    let header: Vec<&str> = header.split_whitespace().collect();
    ensure!(header == columns.split(' ').collect::<Vec<_>>(), "{table}");
    let cells: Vec<&str> = rows.trim_end().split("   ").map(str::trim).collect();
    let cells: Vec<&str> = cells.into_iter().filter(|cell| !cell.is_empty()).collect();
    let same =
        |(cell, expected): (&&str, &&str)| cell == expected || (*expected == AGE && is_age(cell));
    let all = cells.len() == row.len() && cells.iter().zip(row).all(same);
    ensure!(all, "{cells:?} instead of {row:?}");
    Ok(())
}

/// Such as `5s` or `6y320d`.
fn is_age(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with(['s', 'm', 'h', 'd', 'y'])
}

/// What the server has against so many workers, if anything.
async fn scaled(place: &Place, run: &str, replicas: u32) -> Result<Option<String>> {
    let args = [
        "scale",
        &format!("cksum/{run}"),
        &format!("--replicas={replicas}"),
    ];
    let output = place.kubectl(&args).await?;
    Ok((!output.status.success()).then_some(output.stderr))
}
