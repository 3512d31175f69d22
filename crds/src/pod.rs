//! The `pod` block: what users may say about the pods the operator makes.
//! In and out: API fields. Pure data.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::reference::LocalRef;

/// What is added to every pod of a workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodOverrides {
    /// CPU and memory of the main container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded::<ResourceRequirements>")]
    pub resources: Option<ResourceRequirements>,
    /// Only nodes with these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that do not keep the pods away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), schema_with = "embedded::<Vec<Toleration>>")]
    pub tolerations: Vec<Toleration>,
    /// Where the pods would rather run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded::<Affinity>")]
    pub affinity: Option<Affinity>,
    /// How the pods are spread over zones and nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        schema_with = "embedded::<Vec<TopologySpreadConstraint>>"
    )]
    pub topology_spread: Vec<TopologySpreadConstraint>,
    /// The pods' priority class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,
    /// Secrets to pull the image with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub image_pull_secrets: Vec<LocalRef>,
    /// More labels; the operator's own win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: BTreeMap<String, String>,
    /// More annotations; the operator's own win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,
}

/// What Kubernetes takes as a quantity, but for negative ones, of which a container can have none.
const QUANTITY: &str = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";

/// The schema of a type of Kubernetes itself, without its descriptions: they are long, they are in
/// everybody's `kubectl explain pod`, and a CRD must stay small enough for a plain `kubectl apply`.
///
/// What is no quantity is refused here, and not only in a pod: no run may change its pods, so it would never get one.
fn embedded<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<T>().to_value();
    strip_descriptions(&mut schema);
    bound_lists(&mut schema);
    bound_quantities(&mut schema);
    schema.try_into().unwrap_or_default()
}

fn strip_descriptions(value: &mut Value) {
    match value {
        Value::Object(map) => {
            // A property may be called `description`; only the keyword holds a string.
            map.retain(|key, value| key != "description" || !value.is_string());
            map.values_mut().for_each(strip_descriptions);
        }
        Value::Array(list) => list.iter_mut().for_each(strip_descriptions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn bound_lists(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("type").is_some_and(|kind| kind == "array") {
                map.entry("maxItems").or_insert(64.into());
            }
            map.values_mut().for_each(bound_lists);
        }
        Value::Array(list) => list.iter_mut().for_each(bound_lists),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn bound_quantities(value: &mut Value) {
    let is_quantity = |value: &Value| value.get("x-kubernetes-int-or-string").is_some();
    match value {
        Value::Object(map) => {
            if map.get("additionalProperties").is_some_and(is_quantity) {
                map.insert("maxProperties".into(), 32.into());
            }
            if map.contains_key("x-kubernetes-int-or-string") {
                map.insert("pattern".into(), QUANTITY.into());
                map.insert("maxLength".into(), 64.into());
                map.insert("minimum".into(), 0.into());
            }
            map.values_mut().for_each(bound_quantities);
        }
        Value::Array(list) => list.iter_mut().for_each(bound_quantities),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
