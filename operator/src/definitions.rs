//! Waits until the API server serves every kind with every field this operator knows.
//! In: the published OpenAPI document. Out: what is missing. Reads only, with no rights beyond discovery.

use std::{collections::BTreeSet, time::Duration};

use crds::name::{GROUP, VERSION};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::Client;
use serde_json::Value;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

/// How often the API server is asked.
const INTERVAL: Duration = Duration::from_secs(2);

/// How often it is said again that definitions are missing, in rounds.
const REMIND: u32 = 15;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits for the definitions, saying through `waiting` and in the log for what.
pub async fn wait(client: &Client, waiting: impl Fn(Option<String>)) {
    for round in 0u32.. {
        let missing = match published(client).await {
            Ok(document) => missing(&crds::definition::all(), &document),
            Err(error) => Some(format!("the API server does not answer: {error}")),
        };
        waiting(missing.clone());
        let Some(missing) = missing else {
            info!("every definition is served");
            return;
        };
        if round % REMIND == 0 {
            warn!(
                missing,
                "waiting for the CustomResourceDefinitions: apply those of this release"
            );
        }
        sleep(INTERVAL).await;
    }
}

async fn published(client: &Client) -> Result<Value, String> {
    let request = http::Request::get(format!("/openapi/v3/apis/{GROUP}/{VERSION}"))
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    match timeout(REQUEST_TIMEOUT, client.request::<Value>(request)).await {
        Ok(Ok(document)) => Ok(document),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(Value::Null),
        Ok(Err(error)) => Err(runtime::telemetry::chain(&error)),
        Err(_) => Err("no answer in time".into()),
    }
}

/// What the published document lacks of the definitions, in words.
fn missing(wanted: &[CustomResourceDefinition], document: &Value) -> Option<String> {
    let lacks: Vec<_> = wanted
        .iter()
        .filter_map(|crd| lack(crd, document))
        .collect();
    (!lacks.is_empty()).then(|| lacks.join("; "))
}

fn lack(crd: &CustomResourceDefinition, document: &Value) -> Option<String> {
    let name = crd.metadata.name.as_deref().unwrap_or_default();
    let Some(schema) = schema(&crd.spec.names.kind, document) else {
        return Some(format!("{name} is not installed"));
    };
    let served = served_paths(schema);
    let absent: Vec<_> = wanted_paths(crd).difference(&served).cloned().collect();
    match &absent[..] {
        [] => None,
        [only] => Some(format!("{name} is too old, it lacks {only}")),
        [first, rest @ ..] => Some(format!(
            "{name} is too old, it lacks {first} and {} more fields",
            rest.len()
        )),
    }
}

fn schema<'a>(kind: &str, document: &'a Value) -> Option<&'a Value> {
    let schemas = document.pointer("/components/schemas")?.as_object()?;
    schemas.values().find(|schema| {
        let kinds = schema
            .get("x-kubernetes-group-version-kind")
            .and_then(Value::as_array);
        kinds
            .into_iter()
            .flatten()
            .any(|gvk| gvk["kind"] == kind && gvk["group"] == GROUP)
    })
}

fn wanted_paths(crd: &CustomResourceDefinition) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let versions = crd
        .spec
        .versions
        .iter()
        .filter(|version| version.name == VERSION);
    for root in versions.filter_map(|v| v.schema.as_ref()?.open_api_v3_schema.as_ref()) {
        collect_wanted(root, "", &mut paths);
    }
    paths
}

fn collect_wanted(schema: &JSONSchemaProps, path: &str, paths: &mut BTreeSet<String>) {
    for (name, property) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        collect_wanted(property, &path, paths);
        paths.insert(path);
    }
}

fn served_paths(schema: &Value) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    collect_served(schema, "", &mut paths);
    paths
}

fn collect_served(schema: &Value, path: &str, paths: &mut BTreeSet<String>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let path = format!("{path}.{name}");
        collect_served(property, &path, paths);
        paths.insert(path);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What an API server publishes for these definitions.
    fn document(crds: &[CustomResourceDefinition]) -> Value {
        let mut schemas = serde_json::Map::new();
        for crd in crds {
            let kind = &crd.spec.names.kind;
            let schema = crd.spec.versions[0].schema.as_ref().unwrap();
            let mut schema =
                serde_json::to_value(schema.open_api_v3_schema.as_ref().unwrap()).unwrap();
            schema["x-kubernetes-group-version-kind"] =
                json!([{"group": GROUP, "kind": kind, "version": VERSION}]);
            schemas.insert(format!("dev.orrery.{VERSION}.{kind}"), schema);
        }
        json!({"components": {"schemas": schemas}})
    }

    #[test]
    fn what_is_served_as_wanted_is_not_missing() {
        let wanted = crds::definition::all();
        assert_eq!(missing(&wanted, &document(&wanted)), None);
    }

    #[test]
    fn an_absent_definition_is_named() {
        let wanted = [crds::definition::checksum_schedule()];
        assert_eq!(
            missing(&wanted, &Value::Null).unwrap(),
            "checksumschedules.orrery.dev is not installed"
        );
    }

    #[test]
    fn an_old_definition_is_named_with_the_field_it_lacks() {
        let wanted = [crds::definition::checksum_schedule()];
        let mut old = document(&wanted);
        let schema = &mut old["components"]["schemas"]["dev.orrery.v1alpha1.ChecksumSchedule"];
        schema["properties"]["spec"]["properties"]
            .as_object_mut()
            .unwrap()
            .remove("timeZone");
        assert_eq!(
            missing(&wanted, &old).unwrap(),
            "checksumschedules.orrery.dev is too old, it lacks .spec.timeZone"
        );
    }
}
