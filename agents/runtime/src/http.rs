//! In: a URI and perhaps a JSON body. Out: a status and a bounded body, or the step that failed.
//! Touches the network.

mod connect;

use std::error::Error as StdError;
use std::time::Duration;

use crds::report::DOCUMENT_LIMIT;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use tokio::time::timeout;

use crate::tls::IdentityReceiver;
use connect::Connector;

pub use connect::InvalidServerName;

const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("orrery/", env!("CARGO_PKG_VERSION")));

type BoxError = Box<dyn StdError + Send + Sync>;

/// What one request may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connecting, including the TLS handshake.
    pub connect: Duration,
    /// All of it: connecting, sending, and reading the answer to its end.
    pub total: Duration,
    /// The longest body that is read, in bytes.
    pub body: usize,
    /// How long a connection is kept for the next request.
    pub idle: Duration,
    /// How many idle connections are kept to one address.
    pub idle_per_address: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            total: Duration::from_secs(10),
            body: DOCUMENT_LIMIT,
            // Less than the control port's patience with a silent client, so that it is rarely the one to hang up.
            idle: Duration::from_secs(8),
            idle_per_address: 1,
        }
    }
}

/// An answer of any status; redirects are answers too, and are not followed.
#[derive(Clone)]
pub struct Response {
    /// The status code.
    pub status: StatusCode,
    /// The whole body.
    pub body: Bytes,
}

/// Why there is no answer. Names the step, never the URI, which may hold credentials.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URI has no scheme or host.
    #[error("failed to use the address: it needs a scheme and a host")]
    Address,
    /// The body does not serialise.
    #[error("failed to write the request body as JSON")]
    Encode(#[source] serde_json::Error),
    /// There is no connection, or no TLS session.
    #[error("failed to connect")]
    Connect(#[source] legacy::Error),
    /// The connection broke before the answer began, or the answer was not HTTP.
    #[error("failed to exchange the request for an answer")]
    Exchange(#[source] legacy::Error),
    /// The connection broke within the answer.
    #[error("failed to read the answer")]
    Read(#[source] BoxError),
    /// The answer is too long.
    #[error("failed to read the answer: it has more than {limit} bytes")]
    TooLarge {
        /// The longest that is read.
        limit: usize,
    },
    /// It took too long.
    #[error("failed to get an answer within {limit:?}")]
    TimedOut {
        /// The time that all of it may take.
        limit: Duration,
    },
}

/// A client with time-outs, shared by cloning.
#[derive(Clone, Debug)]
pub struct Client {
    limits: Limits,
    inner: legacy::Client<Connector, Full<Bytes>>,
}

impl Client {
    /// A client for `http` addresses.
    pub fn plain(limits: Limits) -> Self {
        Self::new(limits, Connector::plain(limits.connect))
    }

    /// A client for `https` addresses that shows the newest identity, and expects every server to be `server_name`,
    /// whatever address it has.
    pub fn mutual_tls(
        limits: Limits,
        identity: IdentityReceiver,
        server_name: &str,
    ) -> Result<Self, InvalidServerName> {
        let connector = Connector::mutual_tls(limits.connect, identity, server_name)?;
        Ok(Self::new(limits, connector))
    }

    fn new(limits: Limits, connector: Connector) -> Self {
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(limits.idle)
            .pool_max_idle_per_host(limits.idle_per_address)
            .build(connector);
        Self { limits, inner }
    }

    /// Reads a resource.
    pub async fn get(&self, uri: &Uri) -> Result<Response, Error> {
        let request = Request::get(uri).body(Full::default());
        self.send(request).await
    }

    /// Replaces a resource by `body`, written as JSON.
    pub async fn put<T: Serialize + ?Sized>(&self, uri: &Uri, body: &T) -> Result<Response, Error> {
        let body = serde_json::to_vec(body).map_err(Error::Encode)?;
        let request = Request::put(uri)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body));
        self.send(request).await
    }

    async fn send(&self, request: http::Result<Request<Full<Bytes>>>) -> Result<Response, Error> {
        let mut request = request.map_err(|_| Error::Address)?;
        if request.uri().scheme().is_none() || request.uri().host().is_none() {
            return Err(Error::Address);
        }
        request.headers_mut().insert(header::USER_AGENT, USER_AGENT);
        let limit = self.limits.total;
        let answer = timeout(limit, self.exchange(request)).await;
        answer.unwrap_or(Err(Error::TimedOut { limit }))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response, Error> {
        let answer = self.inner.request(request).await.map_err(failed_step)?;
        let status = answer.status();
        let body = self.read(answer.into_body()).await?;
        Ok(Response { status, body })
    }

    async fn read(&self, body: Incoming) -> Result<Bytes, Error> {
        let limit = self.limits.body;
        let collected = Limited::new(body, limit).collect().await;
        let collected = collected.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Error::TooLarge { limit }
            } else {
                Error::Read(error)
            }
        })?;
        Ok(collected.to_bytes())
    }
}

fn failed_step(error: legacy::Error) -> Error {
    if error.is_connect() {
        Error::Connect(error)
    } else {
        Error::Exchange(error)
    }
}

#[cfg(test)]
mod tests;
