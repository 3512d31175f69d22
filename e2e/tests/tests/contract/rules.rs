//! Claims about validation: what is accepted, what is refused with which words, and what may change later.

use anyhow::{Context, Result, ensure};
use crds::checksum_run::ChecksumRun;
use crds::checksum_schedule::ChecksumSchedule;
use serde_json::{Value, json};
use testbed::Output;

use crate::objects::{Case, RUN, SCHEDULE, object, table};
use crate::place::Place;

#[tokio::test]
async fn what_breaks_a_rule_is_refused_with_words_that_help() -> Result<()> {
    let place = Place::new("refused").await?;
    let cases = table(include_str!("refused.yaml"))?;
    let said = place.apply(&[], &objects(&cases, Some("spec"))?).await?;
    ensure!(said.stdout.is_empty(), "not refused: {}", said.stdout);
    none_of(cases.iter().filter_map(|case| unlike(case, &said)))
}

#[test]
fn every_rule_has_a_case() -> Result<()> {
    let mut cases = table(include_str!("refused.yaml"))?;
    cases.extend(table(include_str!("changes.yaml"))?);
    let said: Vec<&str> = cases.iter().filter_map(Case::says).collect();
    let tried = |rule: &str| {
        said.iter()
            .any(|says| says.contains(rule) || rule.contains(says))
    };
    let definitions = serde_json::to_value(crds::definition::all())?;
    let mut rules = messages(&definitions);
    rules.retain(|rule| !tried(rule));
    none_of(rules.iter().map(|rule| format!("no case for: {rule}")))
}

#[tokio::test]
async fn what_is_accepted_can_be_read_by_the_operator() -> Result<()> {
    let place = Place::new("accepted").await?;
    let cases = table(include_str!("accepted.yaml"))?;
    let said = place.apply_quietly(&[], &objects(&cases, None)?).await?;
    ensure!(said.matches(" created\n").count() == cases.len(), "{said}");
    for run in items(place.get(RUN).await?)? {
        let read: Result<ChecksumRun, _> = serde_json::from_value(run.clone());
        read.with_context(|| format!("failed to read {run}"))?;
    }
    for schedule in items(place.get(SCHEDULE).await?)? {
        let read: ChecksumSchedule = serde_json::from_value(schedule)?;
        read.spec.schedule.parse()?;
        read.spec.time_zone.parse()?;
        let deadline = read.spec.starting_deadline;
        deadline.map(|deadline| deadline.parse()).transpose()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_run_keeps_what_it_was_made_from_and_a_schedule_may_change() -> Result<()> {
    let place = Place::new("changes").await?;
    let cases = table(include_str!("changes.yaml"))?;
    let server_side = ["--server-side"];
    let (from, to) = (objects(&cases, Some("from"))?, objects(&cases, Some("to"))?);
    place.apply_quietly(&server_side, &from).await?;
    let said = place.apply(&server_side, &to).await?;
    none_of(cases.iter().filter_map(|case| unlike(case, &said)))?;
    let stored = [place.get(RUN).await?, place.get(SCHEDULE).await?];
    let changed = |case: &Case| generation(&stored, case) == Some(2);
    let wrong = cases
        .iter()
        .filter(|case| changed(case) == case.says().is_some());
    none_of(wrong.map(|case| format!("{} {}: stored otherwise than said", case.kind, case.name)))
}

#[tokio::test]
async fn a_field_that_does_not_exist_is_named() -> Result<()> {
    let place = Place::new("unknown").await?;
    let misspelt = [
        object(RUN, "run", &json!({"source": {"subpath": "home"}})),
        object(SCHEDULE, "schedule", &json!({"timezone": "UTC"})),
        object(
            SCHEDULE,
            "deep",
            &json!({"template": {"spec": {"workers": {"replica": 2}}}}),
        ),
    ];
    let fields = [
        "spec.source.subpath",
        "spec.timezone",
        "spec.template.spec.workers.replica",
    ];
    let said = place.apply(&[], &misspelt).await?;
    ensure!(said.stdout.is_empty(), "{}", said.stdout);
    let named = |field: &&str| said.stderr.contains(&format!("unknown field \"{field}\""));
    ensure!(fields.iter().all(named), "{}", said.stderr);
    let said = place.apply(&["--server-side"], &misspelt).await?;
    ensure!(said.stdout.is_empty(), "{}", said.stdout);
    let named = |field: &&str| {
        said.stderr
            .contains(&format!(".{field}: field not declared"))
    };
    ensure!(fields.iter().all(named), "{}", said.stderr);
    Ok(())
}

fn objects(cases: &[Case], column: Option<&str>) -> Result<Vec<Value>> {
    cases.iter().map(|case| case.object(column)).collect()
}

/// How what kubectl said of an object differs from what the table says.
fn unlike(case: &Case, said: &Output) -> Option<String> {
    let Case { kind, name, .. } = case;
    let about = format!("{kind}.orrery.dev \"{name}\" is invalid: ");
    let refusal = said.stderr.lines().find_map(|line| line.split_once(&about));
    match (refusal, case.says()) {
        (None, None) => None,
        (Some((_, why)), Some(says)) if why.contains(says) => None,
        (Some((_, why)), says) => Some(format!("{kind} {name}: {why}\n  instead of: {says:?}")),
        (None, Some(_)) => Some(format!("{kind} {name} was not refused by validation")),
    }
}

/// What the rules below this part of a definition say when they are broken.
fn messages(part: &Value) -> Vec<&str> {
    let rules = part
        .get("x-kubernetes-validations")
        .and_then(Value::as_array);
    let own = rules
        .into_iter()
        .flatten()
        .filter_map(|rule| rule["message"].as_str());
    let below: Vec<&Value> = match part {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    own.chain(below.into_iter().flat_map(messages)).collect()
}

fn none_of(complaints: impl Iterator<Item = String>) -> Result<()> {
    let complaints: Vec<String> = complaints.collect();
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

fn items(mut list: Value) -> Result<Vec<Value>> {
    let items = list["items"].as_array_mut().context("not a list")?;
    Ok(std::mem::take(items))
}

fn generation(stored: &[Value], case: &Case) -> Option<i64> {
    let mut items = stored
        .iter()
        .filter_map(|list| list["items"].as_array())
        .flatten();
    let item = items.find(|it| it["kind"] == case.kind && it["metadata"]["name"] == case.name);
    item?["metadata"]["generation"].as_i64()
}
