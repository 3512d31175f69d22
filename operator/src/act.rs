#![expect(
    clippy::disallowed_methods,
    reason = "the one file that writes objects"
)]
//! The one writer. In: what a plan asks for. Out: what became of it. Writes objects, but only while
//! this process leads, each with a precondition or under a name that makes doing it twice harmless.

use std::{fmt::Debug, time::Duration};

use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    class::{ApiError, Class},
    leader::{Leadership, Unanswered},
    object::{Key, owner_uid},
};

/// How long one write may take.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a write was not made, or is not known to be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It was not sent, or nobody answered.
    #[error("failed to {what}")]
    Unanswered {
        /// The write.
        what: String,
        /// Why.
        source: Unanswered,
    },
    /// The API server refused, or could not be reached.
    #[error("failed to {what}")]
    Request {
        /// The write.
        what: String,
        /// Why.
        source: ApiError,
    },
    /// An object of that name exists and is not ours.
    #[error("{kind} {key} exists already and does not belong to this object")]
    NameTaken {
        /// The kind of the object.
        kind: String,
        /// The name of the object.
        key: Key,
    },
}

impl Error {
    /// How the failure is to be treated.
    pub fn class(&self) -> Class {
        match self {
            Self::Unanswered { .. } => Class::Transient,
            Self::Request { source, .. } => source.class(),
            Self::NameTaken { .. } => Class::Blocked,
        }
    }
}

/// Kinds that are written: namespaced, and known at compile time.
pub trait Kind:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
{
}

impl<K> Kind for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
{
}

/// Writes objects.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    leadership: Leadership,
}

impl Writer {
    /// A writer for the time in which this process leads.
    pub fn new(client: Client, leadership: Leadership) -> Self {
        Self { client, leadership }
    }

    /// Creates a child; its name makes this idempotent, its owner tells ours from others'.
    ///
    /// Returns the object as it is stored, made now or by an earlier attempt of ours.
    pub async fn create<K: Kind>(&self, manager: &str, child: &K) -> Result<K, Error> {
        let api = self.api::<K>(child);
        let what = format!("create {} {}", K::kind(&()), Key::of(child));
        let params = PostParams {
            field_manager: Some(manager.into()),
            ..PostParams::default()
        };
        match self.send(what.clone(), api.create(&params, child)).await {
            Err(Error::Request { source, .. }) if source.is_name_taken() => {
                self.adopt(what, &api, child).await
            }
            result => result,
        }
    }

    /// Creates an object unless one of that name is there, which is then as good, whoever made it.
    pub async fn provide<K: Kind>(&self, manager: &str, object: &K) -> Result<(), Error> {
        let api = self.api::<K>(object);
        let what = format!("create {} {}", K::kind(&()), Key::of(object));
        let params = PostParams {
            field_manager: Some(manager.into()),
            ..PostParams::default()
        };
        match self.send(what, api.create(&params, object)).await {
            Err(Error::Request { source, .. }) if source.is_name_taken() => Ok(()),
            result => result.map(|_| ()),
        }
    }

    /// The name is taken: by an earlier attempt of ours, or by somebody else.
    async fn adopt<K: Kind>(&self, what: String, api: &Api<K>, child: &K) -> Result<K, Error> {
        let existing = self.send(what, api.get(&child.name_any())).await?;
        if owner_uid(&existing) == owner_uid(child) {
            return Ok(existing);
        }
        Err(Error::NameTaken {
            kind: K::kind(&()).into(),
            key: Key::of(child),
        })
    }

    /// Makes a child what it should be, by server-side apply. `known` is the UID of the one that is there; without
    /// one the server is asked first, so that what belongs to somebody else is never taken over.
    ///
    /// Returns the object as it is stored.
    pub async fn apply<K: Kind>(
        &self,
        manager: &str,
        child: &K,
        known: Option<&str>,
    ) -> Result<K, Error> {
        let api = self.api::<K>(child);
        let what = format!("apply {} {}", K::kind(&()), Key::of(child));
        let uid = match known {
            Some(uid) => Some(uid.to_owned()),
            None => self.existing(&what, &api, child).await?,
        };
        let mut child = child.clone();
        // A UID in what is applied is a precondition: nothing is changed that came after what was decided on.
        child.meta_mut().uid = uid;
        let params = PatchParams::apply(manager).force();
        let name = child.name_any();
        self.send(what, api.patch(&name, &params, &Patch::Apply(&child)))
            .await
    }

    /// The UID of a child that is there already and is ours.
    async fn existing<K: Kind>(
        &self,
        what: &str,
        api: &Api<K>,
        child: &K,
    ) -> Result<Option<String>, Error> {
        let name = child.name_any();
        let existing = self.send(what.to_owned(), api.get_opt(&name)).await?;
        match existing {
            Some(existing) if owner_uid(&existing) != owner_uid(child) => Err(Error::NameTaken {
                kind: K::kind(&()).into(),
                key: Key::of(child),
            }),
            existing => Ok(existing.and_then(|existing| existing.uid())),
        }
    }

    /// Deletes exactly the object of that UID; one that is gone already is fine.
    pub async fn delete<K: Kind>(&self, key: &Key, uid: &str) -> Result<(), Error> {
        let api = Api::<K>::namespaced(self.client.clone(), &key.namespace);
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: Some(uid.into()),
            ..Preconditions::default()
        });
        let what = format!("delete {} {key}", K::kind(&()));
        match self.send(what, api.delete(&key.name, &params)).await {
            Err(Error::Request { source, .. }) if source.is_gone() => Ok(()),
            result => result.map(|_| ()),
        }
    }

    fn api<K: Kind>(&self, object: &K) -> Api<K> {
        Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default())
    }

    async fn send<R>(
        &self,
        what: String,
        request: impl Future<Output = kube::Result<R>>,
    ) -> Result<R, Error> {
        match self.leadership.send(WRITE_TIMEOUT, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Error::Request {
                what,
                source: error.into(),
            }),
            Err(source) => Err(Error::Unanswered { what, source }),
        }
    }
}
