//! Names of objects. In: metadata. Out: keys and references. Pure.

use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};

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
    let owners = object.meta().owner_references.as_ref()?;
    let controller = owners.iter().find(|owner| owner.controller == Some(true))?;
    Some(&controller.uid)
}
