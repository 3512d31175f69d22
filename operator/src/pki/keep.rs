//! Keeps certificates. In: a namespace with agents. Out: nothing but that its agents and the operator can talk.
//! Reads and writes Secrets, at most every ten minutes; only a leader does.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use crds::name::{
    AGENT_TLS_SECRET, CA_SECRET, MANAGED_BY, MANAGED_BY_LABEL, PKI_MANAGER as MANAGER,
};
use jiff::Timestamp;
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use runtime::{
    clock::Clock,
    tls::{self, Identity, IdentityReceiver},
};
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};
use tracing::info;

use super::{AgentTls, Authority, Due, Pair, authority_due, issue, leaf_due};
use crate::{
    act::{self, Writer},
    class::Class,
    object::Key,
    secrets::{self, Content, Secrets},
};

/// How long what was looked at is taken for granted.
const LOOK_AGAIN: Duration = Duration::from_mins(10);

/// Why agents and operator may not be able to talk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A Secret was not read.
    #[error(transparent)]
    Read(#[from] secrets::Error),
    /// A Secret was not written.
    #[error(transparent)]
    Write(#[from] act::Error),
    /// A certificate was not made.
    #[error(transparent)]
    Issue(#[from] issue::Error),
    /// A certificate cannot be used.
    #[error("failed to use the operator's own certificate")]
    Use(#[from] tls::Error),
}

impl Error {
    /// How the failure is to be treated.
    pub fn class(&self) -> Class {
        match self {
            Self::Read(error) => error.class(),
            Self::Write(error) => error.class(),
            Self::Issue(_) | Self::Use(_) => Class::Transient,
        }
    }
}

/// The certificates of the control port. One per process.
pub struct Certificates {
    namespace: String,
    secrets: Secrets,
    writer: Writer,
    clock: Arc<dyn Clock>,
    identity: watch::Sender<Option<Arc<Identity>>>,
    memory: Mutex<Memory>,
}

/// What was found or made, and until when it need not be looked at.
#[derive(Default)]
struct Memory {
    authority: Option<(Authority, Instant)>,
    operator: Option<(Pair, String)>,
    namespaces: HashMap<String, Instant>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl Certificates {
    /// Nothing was looked at yet. The authority is kept in `namespace`.
    pub fn new(namespace: String, secrets: Secrets, writer: Writer, clock: Arc<dyn Clock>) -> Self {
        Self {
            namespace,
            secrets,
            writer,
            clock,
            identity: watch::Sender::new(None),
            memory: Mutex::default(),
        }
    }

    /// Who the operator is to agents; `None` until there were some.
    pub fn identity(&self) -> IdentityReceiver {
        self.identity.subscribe()
    }

    /// Sees to it that agents of that namespace have a certificate, and the operator one that they believe.
    pub async fn ensure(&self, namespace: &str) -> Result<(), Error> {
        let mut memory = self.memory.lock().await;
        let (now, again) = (self.clock.monotonic(), self.clock.monotonic() + LOOK_AGAIN);
        let authority = match &memory.authority {
            Some((authority, until)) if now < *until => authority.clone(),
            Some(_) | None => {
                let authority = self.authority().await?;
                // Agents must hear of a change of trust.
                memory.namespaces.clear();
                memory.authority = Some((authority.clone(), again));
                authority
            }
        };
        self.be_known(&mut memory.operator, &authority)?;
        if memory
            .namespaces
            .get(namespace)
            .is_none_or(|until| now >= *until)
        {
            self.agent_tls(namespace, &authority).await?;
            memory.namespaces.insert(namespace.into(), again);
        }
        Ok(())
    }

    /// The authority as it should be now, stored.
    async fn authority(&self) -> Result<Authority, Error> {
        let key = key(&self.namespace, CA_SECRET);
        let stored = self.secrets.read(&key).await?;
        let found = stored.as_deref().and_then(read_authority);
        let now = self.clock.wall();
        let due = authority_due(found.as_ref(), now);
        let wanted = match (due, found) {
            (Due::Nothing, Some(found)) => return Ok(found),
            (Due::Announce, Some(found)) => issue::announce(&found, now)?,
            (Due::Promote, Some(found)) => issue::promote(&found, now),
            (_, _) => issue::begin(now)?,
        };
        let secret = secret(&key, stored.as_deref(), authority_data(&wanted));
        let written = match stored.as_deref() {
            // Whoever is first decides, and the others take what is there.
            None => self.writer.create(MANAGER, &secret).await?,
            Some(stored) => {
                self.writer
                    .apply(MANAGER, &secret, Some(&stored.uid))
                    .await?
            }
        };
        info!(?due, "the authority of the control port was written");
        Ok(read_authority(&written.into()).unwrap_or(wanted))
    }

    /// Shows agents a certificate that they believe.
    fn be_known(
        &self,
        own: &mut Option<(Pair, String)>,
        authority: &Authority,
    ) -> Result<(), Error> {
        let now = self.clock.wall();
        let signer = &authority.signing.certificate;
        let good = own
            .as_ref()
            .is_some_and(|(pair, signed_by)| signed_by == signer && !pair.life.is_due(now));
        if good {
            return Ok(());
        }
        let pair = issue::operator(authority, now)?;
        let (certificate, key) = (pair.certificate.as_bytes(), pair.key.as_bytes());
        let identity = Identity::from_pem(certificate, key, authority.trusted.as_bytes())?;
        self.identity.send_replace(Some(Arc::new(identity)));
        *own = Some((pair, signer.clone()));
        Ok(())
    }

    async fn agent_tls(&self, namespace: &str, authority: &Authority) -> Result<(), Error> {
        let key = key(namespace, AGENT_TLS_SECRET);
        let stored = self.secrets.read(&key).await?;
        let found = stored.as_deref().and_then(read_agent_tls);
        let now: Timestamp = self.clock.wall();
        if !leaf_due(found.as_ref(), authority, now) {
            return Ok(());
        }
        let pair = issue::agent(authority, now)?;
        let data = agent_data(&pair, &authority.trusted);
        let secret = secret(&key, stored.as_deref(), data);
        let known = stored.as_deref().map(|stored| stored.uid.as_str());
        self.writer.apply(MANAGER, &secret, known).await?;
        info!(namespace, "the certificate of agents was written");
        Ok(())
    }
}

fn key(namespace: &str, name: &str) -> Key {
    Key {
        namespace: namespace.into(),
        name: name.into(),
    }
}

/// What was decided on is the precondition: of two writers one has to look again.
fn secret(key: &Key, stored: Option<&Content>, data: BTreeMap<String, ByteString>) -> Secret {
    let labels = [(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())];
    Secret {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            labels: Some(labels.into()),
            resource_version: stored.map(|stored| stored.version.clone()),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..Secret::default()
    }
}

fn authority_data(authority: &Authority) -> BTreeMap<String, ByteString> {
    let mut data = agent_data(&authority.signing, &authority.trusted);
    if let Some(next) = &authority.next {
        data.insert("next.crt".into(), bytes(&next.certificate));
        data.insert("next.key".into(), bytes(&next.key));
    }
    data
}

fn agent_data(pair: &Pair, trusted: &str) -> BTreeMap<String, ByteString> {
    [
        ("tls.crt".into(), bytes(&pair.certificate)),
        ("tls.key".into(), bytes(&pair.key)),
        ("ca.crt".into(), bytes(trusted)),
    ]
    .into()
}

fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

fn read_authority(content: &Content) -> Option<Authority> {
    Some(Authority {
        signing: read_pair(content, "tls")?,
        next: read_pair(content, "next"),
        trusted: text(content, "ca.crt")?,
    })
}

fn read_agent_tls(content: &Content) -> Option<AgentTls> {
    Some(AgentTls {
        pair: read_pair(content, "tls")?,
        trusted: text(content, "ca.crt")?,
    })
}

fn read_pair(content: &Content, name: &str) -> Option<Pair> {
    let certificate = text(content, &format!("{name}.crt"))?;
    Some(Pair {
        life: issue::read_life(certificate.as_bytes())?,
        key: text(content, &format!("{name}.key"))?,
        certificate,
    })
}

fn text(content: &Content, name: &str) -> Option<String> {
    String::from_utf8(content.data.get(name)?.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        let now = "2026-11-16T03:00:00Z".parse().unwrap();
        let first = issue::begin(now).unwrap();
        for authority in [issue::announce(&first, now).unwrap(), first] {
            let stored = secret(&key("ns", "s"), None, authority_data(&authority));
            assert_eq!(read_authority(&stored.into()), Some(authority));
        }
    }

    #[test]
    fn what_cannot_be_read_is_made_anew() {
        let garbage = [
            ("tls.crt".to_owned(), b"x".to_vec()),
            ("tls.key".to_owned(), b"y".to_vec()),
        ];
        let content = Content {
            data: garbage.into(),
            ..Content::default()
        };
        assert_eq!(read_authority(&content), None);
        assert_eq!(read_agent_tls(&content), None);
    }
}
