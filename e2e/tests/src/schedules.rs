#![expect(clippy::disallowed_methods, reason = "tests set the stage directly")]
//! Schedules to keep an operator busy, and what became of them.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use crds::{
    checksum_run::ChecksumRun, checksum_schedule::ChecksumSchedule, name::RUN_NOW_ANNOTATION,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testbed::wait::eventually;

/// A schedule that starts runs only on request, any number at once.
pub fn on_request(name: &str) -> Result<ChecksumSchedule> {
    schedule(
        name,
        &json!({"schedule": "@yearly", "concurrencyPolicy": "Allow"}),
    )
}

/// A schedule with the given fields and a template.
pub fn schedule(name: &str, fields: &Value) -> Result<ChecksumSchedule> {
    let mut spec =
        json!({"template": {"spec": {"source": {"persistentVolumeClaim": {"claimName": "home"}}}}});
    let all = spec.as_object_mut().context("an object")?;
    all.extend(fields.as_object().cloned().context("fields")?);
    let object = json!({"apiVersion": "orrery.dev/v1alpha1", "kind": "ChecksumSchedule", "metadata": {"name": name}, "spec": spec});
    Ok(serde_json::from_value(object)?)
}

/// Creates a schedule.
pub async fn create(client: &Client, namespace: &str, schedule: &ChecksumSchedule) -> Result<()> {
    let api = Api::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), schedule).await?;
    Ok(())
}

/// Asks for a run.
pub async fn ask(client: &Client, namespace: &str, name: &str, token: &str) -> Result<()> {
    let api: Api<ChecksumSchedule> = Api::namespaced(client.clone(), namespace);
    let change = json!({"metadata": {"annotations": {RUN_NOW_ANNOTATION: token}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&change))
        .await?;
    Ok(())
}

/// Waits until the request was taken up.
pub async fn handled(
    client: &Client,
    namespace: &str,
    name: &str,
    token: &str,
    within: Duration,
) -> Result<()> {
    let api: Api<ChecksumSchedule> = Api::namespaced(client.clone(), namespace);
    eventually(
        &format!("token {token} of {name} taken up"),
        within,
        async || {
            let status = api.get_status(name).await?.status.unwrap_or_default();
            let told = status.last_handled_run_now;
            ensure!(
                told.as_deref() == Some(token),
                "the status tells of {told:?}"
            );
            Ok(Some(()))
        },
    )
    .await
}

/// How many runs each schedule has.
pub async fn runs_by_schedule(client: &Client, namespace: &str) -> Result<BTreeMap<String, usize>> {
    let api: Api<ChecksumRun> = Api::namespaced(client.clone(), namespace);
    let mut counts = BTreeMap::new();
    for run in api.list(&ListParams::default()).await? {
        let owner = run
            .owner_references()
            .first()
            .map(|owner| owner.name.clone());
        *counts.entry(owner.unwrap_or_default()).or_default() += 1;
    }
    Ok(counts)
}
