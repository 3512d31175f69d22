//! Resources of our own kinds as they are cached. In: the API server's JSON. Out: the whole object, or the
//! metadata of one that this release cannot read. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt, core::error_boundary::InvalidObject};

use super::{Cached, pod::version_of};
use crate::{
    object::{Key, owner_of},
    received::{Received, drop_managed_fields},
};

/// A resource as it is cached: also one that this release cannot read, so that it can be told.
#[derive(Clone, Debug)]
pub struct Custom<K>(pub Result<K, InvalidObject>);

impl<K: Resource> Custom<K> {
    /// Drops what nobody reads.
    pub fn slim(mut wire: Received<K>) -> Self {
        drop_managed_fields(wire.meta_mut());
        wire.annotations_mut()
            .remove("kubectl.kubernetes.io/last-applied-configuration");
        Self(wire.0)
    }

    /// Its metadata, which can always be read.
    pub fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        }
    }
}

impl<K: Resource> Cached for Custom<K> {
    fn key(&self) -> Key {
        let meta = self.meta();
        Key {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn owner(&self) -> Option<&str> {
        owner_of(self.meta())
    }

    fn version(&self) -> u64 {
        version_of(self.meta())
    }
}

#[cfg(test)]
mod tests {
    use crds::checksum_schedule::ChecksumSchedule;

    use super::*;

    #[test]
    fn an_object_that_cannot_be_read_keeps_its_name() {
        let wire = r#"{"metadata": {"namespace": "ns", "name": "s", "uid": "u", "resourceVersion": "7"}, "spec": {"schedule": 3}}"#;
        let cached = Custom::<ChecksumSchedule>::slim(serde_json::from_str(wire).unwrap());
        assert!(cached.0.is_err());
        assert_eq!(
            (cached.key().to_string().as_str(), cached.version()),
            ("ns/s", 7)
        );
    }
}
