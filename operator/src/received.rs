//! Objects as they come from the API server. In: JSON. Out: an object, or the metadata of one that this release
//! cannot read. Pure.
//!
//! Of the managed fields one thing is kept: whether an operator has told that it cannot read the object. That must be known
//! wherever it was told, by whatever release.

use std::borrow::Cow;

use crds::name::UNREADABLE_MANAGER;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::{
    Resource,
    core::{PartialObjectMeta, error_boundary::InvalidObject},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;

/// An object without its managed fields, of which hardly any is read; also one that this release cannot read, so that it
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

/// `part` borrows from `text` and is a list in it, of which the one manager stays that somebody asks for.
fn without(text: &str, part: &str) -> String {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    let (before, after) = (&text[..start], &text[start + part.len()..]);
    let name = format!("\"{UNREADABLE_MANAGER}\"");
    if part.contains(&name) {
        [before, r#"[{"manager":"#, &name, "}]", after].concat()
    } else {
        [before, "[]", after].concat()
    }
}

/// Whether an operator has told of this object that it cannot read it, and nobody has taken that back.
pub fn is_told_unreadable(meta: &ObjectMeta) -> bool {
    let managers = meta.managed_fields.iter().flatten();
    managers.into_iter().any(is_of_unreadable)
}

/// Leaves out managed fields, but for those that [`is_told_unreadable`] looks for.
pub fn drop_managed_fields(meta: &mut ObjectMeta) {
    let kept = meta.managed_fields.take().map(|mut all| {
        all.retain(is_of_unreadable);
        all
    });
    meta.managed_fields = kept.filter(|all| !all.is_empty());
}

fn is_of_unreadable(fields: &ManagedFieldsEntry) -> bool {
    fields.manager.as_deref() == Some(UNREADABLE_MANAGER)
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
    fn who_told_that_it_cannot_read_an_object_is_known_however_it_is_written() {
        for (manager, is_told) in [("orrery.dev/unreadable", true), ("orrery.dev/pki", false)] {
            let managed =
                json!([{"manager": "kubelet"}, {"manager": manager, "operation": "Apply"}]);
            let object = json!({"metadata": {"name": "a", "managedFields": managed}});
            for text in [object.to_string(), format!("{object:#}")] {
                let Received(read) = serde_json::from_str::<Received<Pod>>(&text).unwrap();
                let mut meta = read.unwrap().metadata;
                assert_eq!(is_told_unreadable(&meta), is_told, "{text}");
                drop_managed_fields(&mut meta);
                assert_eq!(is_told_unreadable(&meta), is_told);
                assert_eq!(meta.managed_fields.is_some(), is_told);
            }
        }
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
