//! The runs that a ChecksumSchedule makes. In: the schedule and what to start. Out: objects. Pure.

use std::collections::BTreeMap;

use crds::{
    checksum_run::ChecksumRun,
    checksum_schedule::ChecksumSchedule,
    name::{
        GROUP, MANAGED_BY, MANAGED_BY_LABEL, RUN_TOKEN_ANNOTATION, SCHEDULE_LABEL,
        SCHEDULED_AT_ANNOTATION,
    },
};
use kube::{Resource, ResourceExt};

use super::plan::Start;

/// The run to make for `start`.
pub fn run(schedule: &ChecksumSchedule, start: &Start) -> ChecksumRun {
    let template = &schedule.spec.template;
    let metadata = template.metadata.clone().unwrap_or_default();
    let mut run = ChecksumRun::new(&start.name, template.spec.clone());
    run.metadata.namespace = schedule.namespace();
    run.metadata.owner_references = schedule.controller_owner_ref(&()).map(|owner| vec![owner]);
    *run.labels_mut() = foreign(metadata.labels);
    *run.annotations_mut() = foreign(metadata.annotations);
    let labels = [
        (MANAGED_BY_LABEL, MANAGED_BY.to_owned()),
        (SCHEDULE_LABEL, schedule.name_any()),
    ];
    for (name, value) in labels {
        run.labels_mut().insert(name.into(), value);
    }
    let slot = start
        .slot
        .map(|slot| (SCHEDULED_AT_ANNOTATION, slot.to_string()));
    let token = start
        .token
        .clone()
        .map(|token| (RUN_TOKEN_ANNOTATION, token));
    for (name, value) in slot.into_iter().chain(token) {
        run.annotations_mut().insert(name.into(), value);
    }
    run
}

/// What is ours to say is not taken from a template: a copied run would bring the words of another.
fn foreign(mut words: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let prefix = format!("{GROUP}/");
    words.retain(|name, _| !name.starts_with(&prefix));
    words
}

#[cfg(test)]
mod tests {
    use super::{super::fixture::schedule, *};

    #[test]
    fn a_run_carries_its_owner_its_slot_and_the_template() {
        let mut schedule = schedule();
        schedule.spec.template.metadata = serde_json::from_str(
            r#"{"labels": {"team": "storage", "orrery.dev/checksum-schedule": "forged"}, "annotations": {"note": "x", "orrery.dev/run-token": "forged"}}"#,
        )
        .unwrap();
        let start = Start {
            name: "nightly-2611160300".into(),
            slot: Some("2026-11-16T03:00:00Z".parse().unwrap()),
            token: Some("please".into()),
        };
        insta::assert_yaml_snapshot!(run(&schedule, &start));
    }
}
