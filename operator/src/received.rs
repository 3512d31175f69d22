//! Objects as they come from the API server. In: JSON. Out: an object, or the metadata of one that this release
//! cannot read. Pure.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    core::{PartialObjectMeta, error_boundary::InvalidObject},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;

/// An object without its managed fields, which nobody reads; also one that this release cannot read, so that it
/// can be told.
///
/// Does what kube's `DeserializeGuard` does without building a tree of every object first: decoding is most of what
/// an operator computes, and managed fields are most of what there is to decode.
#[derive(Clone, Debug)]
pub struct Received<K>(pub Result<K, InvalidObject>);

impl<'de, K> Deserialize<'de> for Received<K>
where
    K: Resource + DeserializeOwned,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        read(text.get()).map(Self).map_err(D::Error::custom)
    }
}

fn read<K>(text: &str) -> serde_json::Result<Result<K, InvalidObject>>
where
    K: Resource + DeserializeOwned,
{
    let text = without_managed_fields(text);
    let invalid = match serde_json::from_str(&text) {
        Ok(object) => return Ok(Ok(object)),
        Err(error) => error.to_string(),
    };
    let PartialObjectMeta { metadata, .. } = serde_json::from_str::<PartialObjectMeta<K>>(&text)?;
    // Nobody sees the text that has the line and the column.
    let error = match invalid.rsplit_once(" at line ") {
        Some((error, _)) => error.into(),
        None => invalid,
    };
    Ok(Err(InvalidObject { error, metadata }))
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    metadata: Managed<'a>,
}

#[derive(Deserialize)]
struct Managed<'a> {
    #[serde(borrow, rename = "managedFields")]
    fields: Option<&'a RawValue>,
}

fn without_managed_fields(text: &str) -> Cow<'_, str> {
    match serde_json::from_str::<Envelope>(text) {
        Ok(Envelope {
            metadata: Managed {
                fields: Some(fields),
            },
        }) => without(text, fields.get()).into(),
        _ => text.into(),
    }
}

/// `part` borrows from `text` and is a list in it, which becomes an empty one.
fn without(text: &str, part: &str) -> String {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    let (before, after) = (&text[..start], &text[start + part.len()..]);
    [before, "[]", after].concat()
}

impl<K: Resource> Resource for Received<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn api_version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::api_version(dynamic)
    }

    fn plural(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(invalid) => &mut invalid.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::WatchEvent;
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> String {
        let managed = json!([{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]);
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "a",
                "annotations": {"quoted": managed.to_string()},
                "managedFields": managed,
                "uid": "u",
            },
            "spec": spec,
        })
        .to_string()
    }

    #[test]
    fn managed_fields_are_left_out_and_nothing_else() {
        let text = pod(&json!({"containers": [{"name": "main"}], "nodeName": "n"}));
        let Received(read) = serde_json::from_str::<Received<Pod>>(&text).unwrap();
        let mut expected: Pod = serde_json::from_str(&text).unwrap();
        expected.metadata.managed_fields = Some(vec![]);
        assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn the_name_of_what_cannot_be_read_is_known() {
        let text = pod(&json!({"containers": "no list"}));
        let Received(read) = serde_json::from_str::<Received<Pod>>(&text).unwrap();
        let invalid = read.unwrap_err();
        assert_eq!(invalid.metadata.name.as_deref(), Some("a"));
        assert_eq!(
            invalid.error,
            "invalid type: string \"no list\", expected a sequence"
        );
    }

    #[test]
    fn events_of_a_watch_carry_it() {
        let text = format!(
            r#"{{"type":"MODIFIED","object":{}}}"#,
            pod(&json!({"containers": []}))
        );
        let event: WatchEvent<Received<Pod>> = serde_json::from_str(&text).unwrap();
        assert!(matches!(event, WatchEvent::Modified(Received(Ok(_)))));
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        for text in ["7", "[]", r#"{"metadata": 7}"#, "{"] {
            assert!(
                serde_json::from_str::<Received<Pod>>(text).is_err(),
                "{text}"
            );
        }
    }
}
