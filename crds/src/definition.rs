//! The finished CustomResourceDefinitions: what the derive gives, and what it cannot say.
//! In: the kinds. Out: the objects that are written to `config/crd`. Pure.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSON, JSONSchemaProps,
    JSONSchemaPropsOrArray, ValidationRule,
};
use kube::CustomResourceExt;
use serde_json::json;

use crate::{
    checksum_run::ChecksumRun, checksum_schedule::ChecksumSchedule, name::SCHEDULE_NAME_LIMIT,
};

/// Every kind, in the order users read about them.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![checksum_run(), checksum_schedule()]
}

/// The definition of [`ChecksumRun`].
pub fn checksum_run() -> CustomResourceDefinition {
    let immutable = [
        "source",
        "mode",
        "samplePercent",
        "algorithm",
        "fileSystem",
        "store",
        "queue",
        "tuning",
        "deletionGuardPercent",
        "stopAfter",
        "pod",
        "workers.concurrency",
        "workers.runAsUser",
        "workers.runAsGroup",
        "workers.supplementalGroups",
    ];
    let mut rules: Vec<_> = immutable.iter().map(|field| unchanged(field)).collect();
    rules.push(short_name(63, "ChecksumRun", "it is used as a label"));
    rules.push(
        rule(
            "!has(oldSelf.spec.cancel) || !oldSelf.spec.cancel || (has(self.spec.cancel) && self.spec.cancel)",
            "a cancelled run stays cancelled: make a new run",
            Some(".spec.cancel"),
        ),
    );
    finished(
        ChecksumRun::crd(),
        &rules,
        &[
            ("Mode", "string", ".spec.mode"),
            ("Progress", "string", ".status.progress"),
            ("Files", "integer", ".status.files.total"),
            ("Corrupt", "integer", ".status.files.corrupt"),
            ("Unreadable", "integer", ".status.files.unreadable"),
            ("Rate", "string", ".status.throughput"),
        ],
    )
}

/// The definition of [`ChecksumSchedule`].
pub fn checksum_schedule() -> CustomResourceDefinition {
    let name = short_name(
        SCHEDULE_NAME_LIMIT,
        "ChecksumSchedule",
        "the names of its runs are longer",
    );
    finished(
        ChecksumSchedule::crd(),
        &[name],
        &[
            ("Schedule", "string", ".spec.schedule"),
            ("Suspend", "boolean", ".spec.suspend"),
            ("Active", "integer", ".status.activeCount"),
            ("Last", "date", ".status.lastScheduleTime"),
            ("Result", "string", ".status.lastResult"),
            // A date column shows an age, and the future has none.
            ("Next", "string", ".status.nextScheduleTime"),
        ],
    )
}

fn short_name(limit: usize, kind: &str, why: &str) -> ValidationRule {
    rule(
        &format!("self.metadata.name.size() <= {limit}"),
        &format!("the name of a {kind} has at most {limit} characters, because {why}"),
        None,
    )
}

/// A rule that a field of the spec keeps its value, or its absence.
fn unchanged(field: &str) -> ValidationRule {
    let (new, old) = (
        format!("self.spec.{field}"),
        format!("oldSelf.spec.{field}"),
    );
    rule(
        &format!("has({new}) == has({old}) && (!has({new}) || {new} == {old})"),
        &format!("{field} cannot be changed: make a new run"),
        Some(&format!(".spec.{field}")),
    )
}

fn rule(rule: &str, message: &str, field: Option<&str>) -> ValidationRule {
    ValidationRule {
        rule: rule.into(),
        message: Some(message.into()),
        field_path: field.map(Into::into),
        ..ValidationRule::default()
    }
}

fn finished(
    mut crd: CustomResourceDefinition,
    rules: &[ValidationRule],
    numbers: &[Column],
) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(columns(numbers));
        let Some(root) = version
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut())
        else {
            continue;
        };
        root.x_kubernetes_validations
            .get_or_insert_default()
            .extend_from_slice(rules);
        default_status(root);
        refuse_null(root);
    }
    crd
}

/// A column's name, type and path.
type Column = (&'static str, &'static str, &'static str);

/// What `kubectl get` shows of every kind: readiness first, then the kind's own numbers, the age last.
fn columns(numbers: &[Column]) -> Vec<CustomResourceColumnDefinition> {
    let first: &[Column] = &[
        (
            "Ready",
            "string",
            r#".status.conditions[?(@.type=="Ready")].status"#,
        ),
        (
            "Status",
            "string",
            r#".status.conditions[?(@.type=="Ready")].reason"#,
        ),
    ];
    let last: &[Column] = &[
        ("Age", "date", ".metadata.creationTimestamp"),
        (
            "Message",
            "string",
            r#".status.conditions[?(@.type=="Ready")].message"#,
        ),
    ];
    [first, numbers, last]
        .concat()
        .into_iter()
        .map(|(name, type_, json_path)| CustomResourceColumnDefinition {
            name: name.into(),
            type_: type_.into(),
            json_path: json_path.into(),
            priority: (name == "Message").then_some(1),
            ..CustomResourceColumnDefinition::default()
        })
        .collect()
}

/// kstatus takes an object without status for current; this default says that nobody has looked yet,
/// and nothing else.
fn default_status(root: &mut JSONSchemaProps) {
    let properties = root.properties.get_or_insert_default();
    if let Some(status) = properties.get_mut("status") {
        status.default = Some(JSON(json!({"observedGeneration": -1})));
        status.nullable = None;
        for (name, property) in status.properties.iter_mut().flatten() {
            property.default = property
                .default
                .take()
                .filter(|_| name == "observedGeneration");
        }
    }
}

/// Kubernetes keeps an explicit null where the schema allows one, instead of the default. Nobody
/// means that by an empty value in YAML, so a field with a default allows none.
fn refuse_null(schema: &mut JSONSchemaProps) {
    if schema.default.is_some() {
        schema.nullable = None;
    }
    let properties = schema.properties.iter_mut().flat_map(|p| p.values_mut());
    properties.for_each(refuse_null);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        refuse_null(items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plain `kubectl apply` stores the object in an annotation of at most 256 KiB.
    #[test]
    fn every_definition_fits_a_plain_apply() {
        for crd in all() {
            let size = serde_json::to_vec(&crd).unwrap().len();
            assert!(
                size < 200 * 1024,
                "{:?} has {size} bytes",
                crd.metadata.name
            );
        }
    }

    #[test]
    fn no_field_with_a_default_takes_a_null() {
        for crd in all() {
            assert_no_nullable_default(&serde_json::to_value(&crd).unwrap());
        }
    }

    fn assert_no_nullable_default(value: &serde_json::Value) {
        if let Some(map) = value.as_object() {
            let nullable = map.get("nullable").is_some_and(|nullable| nullable == true);
            assert!(!(nullable && map.contains_key("default")), "{value}");
            map.values().for_each(assert_no_nullable_default);
        }
        let items = value.as_array().into_iter().flatten();
        items.for_each(assert_no_nullable_default);
    }

    #[test]
    fn no_string_and_no_list_is_without_bound() {
        for crd in all() {
            for version in crd.spec.versions {
                let root = version.schema.unwrap().open_api_v3_schema.unwrap();
                let properties = root.properties.unwrap();
                unbounded("spec", &properties["spec"]);
            }
        }
    }

    /// Types of Kubernetes itself are bounded by Kubernetes.
    const FOREIGN: &[&str] = &[".affinity", ".tolerations", ".topologySpread", ".resources"];

    fn unbounded(path: &str, schema: &JSONSchemaProps) {
        if FOREIGN.iter().any(|foreign| path.ends_with(foreign)) {
            return;
        }
        let kind = schema.type_.as_deref();
        if kind == Some("string") && schema.enum_.is_none() {
            assert!(schema.max_length.is_some(), "{path} has no maxLength");
        }
        if kind == Some("array") {
            assert!(schema.max_items.is_some(), "{path} has no maxItems");
        }
        for (name, property) in schema.properties.iter().flatten() {
            unbounded(&format!("{path}.{name}"), property);
        }
    }
}
