//! The child. In: a parent. Out: the ConfigMap it should have, and what is kept of the one it has.
//! Pure.

use std::collections::BTreeMap;

use crds::{checksum_schedule::ChecksumSchedule, name::MANAGED_BY_LABEL};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Resource, ResourceExt, api::ObjectMeta};
use operator::{
    object::{Key, owner_uid},
    received::Received,
    watch::{Cached, pod::version},
};

/// The field manager, and the label of every child.
pub(crate) const MANAGER: &str = "one-child";

/// The child that `parent` should have.
pub(crate) fn wanted(parent: &ChecksumSchedule) -> ConfigMap {
    let mut child = ConfigMap {
        metadata: ObjectMeta {
            name: parent.metadata.name.clone(),
            namespace: parent.metadata.namespace.clone(),
            owner_references: parent.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(content(parent)),
        ..ConfigMap::default()
    };
    child
        .labels_mut()
        .insert(MANAGED_BY_LABEL.into(), MANAGER.into());
    child
}

fn content(parent: &ChecksumSchedule) -> BTreeMap<String, String> {
    let spec = &parent.spec;
    let claim = &spec.template.spec.source.persistent_volume_claim;
    BTreeMap::from([
        ("schedule".into(), spec.schedule.to_string()),
        ("timeZone".into(), spec.time_zone.to_string()),
        ("claimName".into(), claim.claim_name.clone()),
    ])
}

/// What is kept of a child.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    key: Key,
    uid: Box<str>,
    owner: Option<Box<str>>,
    parent: Option<Box<str>>,
    version: u64,
    data: BTreeMap<String, String>,
}

impl Child {
    /// Drops what nobody reads.
    pub(crate) fn slim(wire: Received<ConfigMap>) -> Self {
        Self {
            key: Key::of(&wire),
            uid: wire.uid().unwrap_or_default().into(),
            owner: owner_uid(&wire).map(Into::into),
            parent: parent(&wire).map(Into::into),
            version: version(&wire),
            data: wire.0.ok().and_then(|it| it.data).unwrap_or_default(),
        }
    }

    /// The schedule that controls it.
    pub(crate) fn parent(&self) -> Option<Key> {
        Some(Key {
            namespace: self.key.namespace.clone(),
            name: self.parent.as_deref()?.into(),
        })
    }

    /// Whether nothing is to be done about it.
    pub(crate) fn is(&self, wanted: &ConfigMap) -> bool {
        self.owner.as_deref() == owner_uid(wanted) && Some(&self.data) == wanted.data.as_ref()
    }
}

fn parent(child: &impl Resource) -> Option<&str> {
    let kind = ChecksumSchedule::kind(&());
    let mut owners = child.meta().owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == kind)?;
    Some(&owner.name)
}

impl Cached for Child {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    fn version(&self) -> u64 {
        self.version
    }
}
