//! Secrets by name. In: a key. Out: its content, at most half a minute old.
//! Reads from the API server; nothing of it is ever shown.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use runtime::clock::Clock;
use tokio::time::{Instant, timeout};

use crate::{
    class::{ApiError, Class},
    object::Key,
};

/// How long an answer is good for.
pub const FRESH: Duration = Duration::from_secs(30);

/// How long one read may take.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// How many answers are kept; beyond that the memory starts anew.
const REMEMBERED: usize = 10_000;

/// Why a Secret was not read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused, or could not be reached.
    #[error("failed to read Secret {key}")]
    Request {
        /// Its name.
        key: Key,
        /// Why.
        source: ApiError,
    },
    /// Nobody answered.
    #[error("failed to read Secret {key}: no answer within {} s", READ_TIMEOUT.as_secs())]
    Late {
        /// Its name.
        key: Key,
    },
}

impl Error {
    /// How the failure is to be treated.
    pub fn class(&self) -> Class {
        match self {
            Self::Request { source, .. } => source.class(),
            Self::Late { .. } => Class::Transient,
        }
    }
}

/// The content of a Secret. Its values are never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// The UID of the Secret.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// The UID of its controlling owner.
    pub owner: Option<String>,
    /// Its values.
    pub data: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content")
            .field("uid", &self.uid)
            .field("keys", &self.data.keys())
            .finish_non_exhaustive()
    }
}

impl From<Secret> for Content {
    fn from(secret: Secret) -> Self {
        Self {
            uid: secret.uid().unwrap_or_default(),
            version: secret.resource_version().unwrap_or_default(),
            owner: crate::object::owner_uid(&secret).map(Into::into),
            data: secret
                .data
                .unwrap_or_default()
                .into_iter()
                .map(|(name, value)| (name, value.0))
                .collect(),
        }
    }
}

/// Reads Secrets. Clones share what was read.
#[derive(Clone)]
pub struct Secrets {
    client: Client,
    clock: Arc<dyn Clock>,
    memory: Arc<Mutex<HashMap<Key, Remembered>>>,
}

#[derive(Clone)]
struct Remembered {
    until: Instant,
    content: Option<Arc<Content>>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

impl Secrets {
    /// Nothing was read yet.
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self {
            client,
            clock,
            memory: Arc::default(),
        }
    }

    /// The same reader without memory, as a new process would have it.
    #[must_use]
    pub fn forgetful(&self) -> Self {
        Self::new(self.client.clone(), Arc::clone(&self.clock))
    }

    /// The Secret of that name, if there is one, as it was less than [`FRESH`] ago.
    pub async fn get(&self, key: &Key) -> Result<Option<Arc<Content>>, Error> {
        match self.remembered(key) {
            Some(known) => Ok(known.content),
            None => self.read(key).await,
        }
    }

    /// The Secret of that name as it is now.
    pub async fn read(&self, key: &Key) -> Result<Option<Arc<Content>>, Error> {
        let api = Api::<Secret>::namespaced(self.client.clone(), &key.namespace);
        let read = timeout(READ_TIMEOUT, api.get_opt(&key.name)).await;
        let secret = read
            .map_err(|_| Error::Late { key: key.clone() })?
            .map_err(|error| Error::Request {
                key: key.clone(),
                source: error.into(),
            })?;
        let content = secret.map(|secret| Arc::new(secret.into()));
        self.remember(key, content.clone());
        Ok(content)
    }

    /// What was written is what is there.
    pub fn written(&self, secret: Secret) {
        let key = Key::of(&secret);
        self.remember(&key, Some(Arc::new(secret.into())));
    }

    fn remembered(&self, key: &Key) -> Option<Remembered> {
        let now = self.clock.monotonic();
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.get(key).filter(|known| known.until > now).cloned()
    }

    fn remember(&self, key: &Key, content: Option<Arc<Content>>) {
        let until = self.clock.monotonic() + FRESH;
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() >= REMEMBERED {
            memory.clear();
        }
        memory.insert(key.clone(), Remembered { until, content });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_shows_a_value() {
        let content = Content {
            data: [("password".to_owned(), b"s3cret".to_vec())].into(),
            ..Content::default()
        };
        let shown = format!("{content:?}");
        assert!(
            shown.contains("password") && !shown.contains("s3cret"),
            "{shown}"
        );
        assert!(!shown.contains("115, 51"), "{shown}");
    }
}
