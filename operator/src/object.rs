//! Names of objects. In: metadata. Out: keys and references. Pure.

use std::fmt;

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Resource, ResourceExt};
use serde::Serialize;

/// Names one namespaced object of a kind that the context tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// The key of `object`.
    pub fn of(object: &impl Resource) -> Self {
        Self {
            namespace: object.meta().namespace.clone().unwrap_or_default(),
            name: object.name_any(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What an event points at.
pub fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    // An event about an old revision of an object is an event about the object.
    ObjectReference {
        resource_version: None,
        ..object.object_ref(&())
    }
}

/// The UID of the controlling owner.
pub fn owner_uid(object: &impl Resource) -> Option<&str> {
    owner_of(object.meta())
}

/// The UID of the controlling owner of the object with that metadata.
pub fn owner_of(meta: &ObjectMeta) -> Option<&str> {
    let owners = meta.owner_references.as_ref()?;
    let controller = owners.iter().find(|owner| owner.controller == Some(true))?;
    Some(&controller.uid)
}

/// A few letters that are the same for the same content, in every release.
pub fn digest(content: &impl Serialize) -> String {
    let text = serde_json::to_vec(content).unwrap_or_default();
    crds::name::digest(&text, 8)
}
