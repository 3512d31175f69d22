//! In: an address. Out: a connection to it, plain or by mutual TLS.
//! Touches the network.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::Service;

use crate::tls::IdentityReceiver;

type BoxError = Box<dyn StdError + Send + Sync>;
type Connection = MaybeHttpsStream<TokioIo<TcpStream>>;

/// A name that no certificate can have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to use {0:?} as the name of a server: it is not a DNS name")]
pub struct InvalidServerName(String);

#[derive(Clone)]
pub(super) struct Connector {
    limit: Duration,
    tcp: HttpConnector,
    tls: Option<MutualTls>,
}

#[derive(Clone)]
struct MutualTls {
    identity: IdentityReceiver,
    server_name: ServerName<'static>,
}

impl Connector {
    pub(super) fn plain(limit: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        Self {
            limit,
            tcp,
            tls: None,
        }
    }

    pub(super) fn mutual_tls(
        limit: Duration,
        identity: IdentityReceiver,
        server_name: &str,
    ) -> Result<Self, InvalidServerName> {
        let Ok(name @ ServerName::DnsName(_)) = ServerName::try_from(server_name.to_owned()) else {
            return Err(InvalidServerName(server_name.into()));
        };
        let mut connector = Self::plain(limit);
        connector.tcp.enforce_http(false);
        connector.tls = Some(MutualTls {
            identity,
            server_name: name,
        });
        Ok(connector)
    }

    async fn connect(mut self, uri: Uri) -> Result<Connection, BoxError> {
        match self.tls {
            None => Ok(MaybeHttpsStream::Http(self.tcp.call(uri).await?)),
            Some(tls) => tls.over(self.tcp)?.call(uri).await,
        }
    }
}

impl MutualTls {
    /// The identity is looked up for each connection, so that a new one needs no new client.
    fn over(&self, tcp: HttpConnector) -> io::Result<HttpsConnector<HttpConnector>> {
        let identity = self.identity.borrow().clone();
        let identity = identity.ok_or_else(|| io::Error::other("no TLS identity yet"))?;
        let name = FixedServerNameResolver::new(self.server_name.clone());
        let is_https_only = true;
        Ok(HttpsConnector::new(
            tcp,
            identity.client(),
            is_https_only,
            Arc::new(name),
        ))
    }
}

impl Service<Uri> for Connector {
    type Response = Connection;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Connection, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let limit = self.limit;
        let connecting = self.clone().connect(uri);
        Box::pin(async move {
            let connected = timeout(limit, connecting).await;
            connected.map_err(|_| format!("not connected within {limit:?}"))?
        })
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server_name = self.tls.as_ref().map(|tls| &tls.server_name);
        f.debug_struct("Connector")
            .field("server_name", &server_name)
            .finish_non_exhaustive()
    }
}
