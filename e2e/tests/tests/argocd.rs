//! Claims about the scripts for Argo CD: what it makes of our objects, and what its actions change.
//! Touches: runs the interpreter that Argo CD uses, with the libraries that it gives to such scripts.

#[path = "argocd/lua.rs"]
mod lua;

use anyhow::{Context, Result, ensure};
use e2e::operator::shipped;
use serde_json::{Value, json};

const RUN: &str = "ChecksumRun";
const SCHEDULE: &str = "ChecksumSchedule";

/// An object of generation 2 whose status is of generation `seen`, with `conditions` as (type, status, reason).
fn object(kind: &str, seen: i64, conditions: &[(&str, &str, &str)]) -> Value {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(type_, status, reason)| {
            json!({"type": type_, "status": status, "reason": reason, "message": format!("it is \"{reason}\"\n")})
        })
        .collect();
    json!({
        "apiVersion": "orrery.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": "it", "namespace": "ns", "generation": 2},
        "spec": {"suspend": false, "template": {"spec": {"source": {"exclude": ["*.tmp", "*.bak"]}}}},
        "status": {"observedGeneration": seen, "conditions": conditions},
    })
}

fn suspended(mut object: Value) -> Value {
    object["spec"]["suspend"] = true.into();
    object
}

fn without_status(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

async fn health(object: &Value) -> Result<(String, String)> {
    let script = script(object, "health.lua")?;
    let health = lua::run(&script, object).await?;
    let text = |name: &str| health[name].as_str().map(str::to_owned).context("a text");
    Ok((text("status")?, text("message")?))
}

fn script(object: &Value, file: &str) -> Result<String> {
    let kind = object["kind"].as_str().context("a kind")?;
    shipped(&format!(
        "config/argocd/resource_customizations/orrery.dev/{kind}/{file}"
    ))
}

#[tokio::test]
async fn health_follows_the_conditions() -> Result<()> {
    let ready = ("Ready", "True", "Scheduled");
    let failing = ("Ready", "False", "ReconcileFailed");
    let reconciling = ("Reconciling", "True", "ReconcileFailed");
    let stalled = ("Stalled", "True", "InvalidSpec");
    for kind in [RUN, SCHEDULE] {
        let of = |seen, conditions: &[_]| object(kind, seen, conditions);
        for (object, expected, words) in [
            (of(2, &[ready]), "Healthy", "Scheduled"),
            (of(1, &[ready]), "Progressing", "has not seen"),
            (of(1, &[failing, stalled]), "Progressing", "has not seen"),
            (of(-1, &[]), "Progressing", "has not seen"),
            (without_status(of(2, &[])), "Progressing", "has not seen"),
            (of(2, &[]), "Progressing", "waiting for the condition"),
            (
                of(2, &[failing, reconciling]),
                "Progressing",
                "ReconcileFailed",
            ),
            (of(2, &[ready, reconciling]), "Progressing", "Scheduled"),
            (of(2, &[failing, stalled]), "Degraded", "InvalidSpec"),
            (suspended(of(2, &[ready])), "Suspended", "Scheduled"),
            (suspended(of(2, &[])), "Suspended", "suspended"),
            (suspended(of(1, &[ready])), "Progressing", "has not seen"),
            (
                suspended(of(2, &[failing, stalled])),
                "Degraded",
                "InvalidSpec",
            ),
        ] {
            let (status, message) = health(&object).await?;
            ensure!(
                status == expected && message.contains(words),
                "{status} {message} of {object:#}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_result_of_a_run_is_its_health() -> Result<()> {
    let results = crds::checksum_run::reason::RESULTS
        .iter()
        .map(|reason| reason.name);
    for result in results {
        let expected = match result {
            "Verified" | "ChangedMeanwhile" | "Cancelled" | "Stopped" => "Healthy",
            _ => "Degraded",
        };
        let ready = if result == "Verified" {
            "True"
        } else {
            "False"
        };
        let run = object(
            RUN,
            2,
            &[("Ready", ready, result), ("Complete", "True", result)],
        );
        for run in [run.clone(), suspended(run)] {
            let (status, message) = health(&run).await?;
            ensure!(
                status == expected && message.starts_with(result),
                "{result}: {status} {message}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_action_changes_one_field() -> Result<()> {
    for (kind, action, field, value) in [
        (RUN, "suspend", "/spec/suspend", json!(true)),
        (RUN, "resume", "/spec/suspend", json!(false)),
        (RUN, "cancel", "/spec/cancel", json!(true)),
        (SCHEDULE, "suspend", "/spec/suspend", json!(true)),
        (SCHEDULE, "resume", "/spec/suspend", json!(false)),
    ] {
        let mut before = object(kind, 2, &[("Ready", "True", "Scheduled")]);
        before["spec"]["suspend"] = (action == "resume").into();
        let after = act(&before, action).await?;
        ensure!(
            after.pointer(field) == Some(&value),
            "{kind} {action}: {after:#}"
        );
        let parent = field.rsplit_once('/').context("a path")?;
        let fields = before.pointer_mut(parent.0).and_then(Value::as_object_mut);
        fields.context("fields")?.insert(parent.1.into(), value);
        ensure!(after == before, "{kind} {action} changes more: {after:#}");
    }
    Ok(())
}

#[tokio::test]
async fn run_now_writes_a_new_token_and_keeps_other_annotations() -> Result<()> {
    let plain = object(SCHEDULE, 2, &[("Ready", "True", "Scheduled")]);
    let mut annotated = plain.clone();
    annotated["metadata"]["annotations"] = json!({"a": "b", "orrery.dev/run-now": "old"});
    for mut before in [plain, annotated] {
        let after = act(&before, "run-now").await?;
        let token = after["metadata"]["annotations"][crds::name::RUN_NOW_ANNOTATION].clone();
        let token = token.as_str().context("a token")?;
        ensure!(token.parse::<jiff::Timestamp>().is_ok(), "{token}");
        before["metadata"]["annotations"][crds::name::RUN_NOW_ANNOTATION] = token.into();
        ensure!(after == before, "more was changed: {after:#}");
    }
    Ok(())
}

#[tokio::test]
async fn only_actions_that_make_sense_are_offered() -> Result<()> {
    let ended = object(RUN, 2, &[("Complete", "True", "Verified")]);
    let mut cancelled = object(RUN, 2, &[]);
    cancelled["spec"]["cancel"] = true.into();
    for (object, expected) in [
        (object(SCHEDULE, 2, &[]), &["run-now", "suspend"][..]),
        (suspended(object(SCHEDULE, 2, &[])), &["resume", "run-now"]),
        (without_status(object(RUN, 2, &[])), &["cancel", "suspend"]),
        (
            object(RUN, 2, &[("Complete", "False", "Running")]),
            &["cancel", "suspend"],
        ),
        (suspended(object(RUN, 2, &[])), &["cancel", "resume"]),
        (ended, &[]),
        (cancelled, &[]),
    ] {
        let found = lua::run(&script(&object, "actions/discovery.lua")?, &object).await?;
        let found = found.as_object().context("a table")?.iter();
        let enabled = found.filter(|(_, action)| action["disabled"] == false);
        let mut names: Vec<_> = enabled.map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        ensure!(names == expected, "{names:?} are offered for {object:#}");
    }
    Ok(())
}

#[tokio::test]
async fn the_patch_for_argo_cd_holds_every_script() -> Result<()> {
    let patch: Value = serde_saphyr::from_str(&shipped("config/argocd/argocd-cm.yaml")?)?;
    ensure!(patch["metadata"]["name"] == "argocd-cm");
    let data = patch["data"].as_object().context("data")?;
    ensure!(
        data.len() == 2 * crds::definition::all().len(),
        "a kind is missing"
    );
    for kind in [RUN, SCHEDULE] {
        let object = object(kind, 2, &[]);
        let entry =
            |what| data[&format!("resource.customizations.{what}.orrery.dev_{kind}")].as_str();
        ensure!(entry("health") == Some(script(&object, "health.lua")?.as_str()));
        let actions: Value = serde_saphyr::from_str(entry("actions").context("actions")?)?;
        ensure!(actions["discovery.lua"] == script(&object, "actions/discovery.lua")?);
        let offered = lua::run(&script(&object, "actions/discovery.lua")?, &object).await?;
        let definitions = actions["definitions"].as_array().context("definitions")?;
        ensure!(definitions.len() == offered.as_object().context("a table")?.len());
        for definition in definitions {
            let name = definition["name"].as_str().context("a name")?;
            ensure!(offered.get(name).is_some(), "{name} is never offered");
            ensure!(
                definition["action.lua"] == script(&object, &format!("actions/{name}/action.lua"))?
            );
        }
    }
    Ok(())
}

async fn act(object: &Value, action: &str) -> Result<Value> {
    lua::run(
        &script(object, &format!("actions/{action}/action.lua"))?,
        object,
    )
    .await
}
