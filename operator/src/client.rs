//! The connection to the API server. In: a kubeconfig or the pod's own account. Out: a client whose
//! requests are counted, identified and bounded. Touches the network only when used.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Request, Response, header::USER_AGENT};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use tokio::time::timeout;
use tower::{BoxError, Layer, Service, ServiceBuilder};

use crate::{
    controller::CONCURRENCY,
    metrics::Metrics,
    watch::{WATCH_TIMEOUT, freshness::Watches},
};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// How long the head of an answer may take. A watch is answered at once, a page of a list nearly so.
const ANSWER: Duration = Duration::from_secs(10);

/// How long a connection may be silent while an answer is read: a little longer than a watch.
const SILENCE: Duration = WATCH_TIMEOUT.saturating_add(Duration::from_secs(10));

/// How long unused connections are kept. Not long: when a path to the server dies without a word, each of them costs
/// one request its time-out.
const IDLE: Duration = Duration::from_secs(20);

/// How many: one for each pass that may run at once. A connection that is not kept costs a handshake later.
const IDLE_CONNECTIONS: usize = CONCURRENCY;

/// A client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No usable configuration.
    #[error(
        "failed to find out how to reach the API server: mount a service account or set KUBECONFIG"
    )]
    Infer(#[source] kube::config::InferConfigError),
    /// The configuration cannot be used.
    #[error("failed to set up the connection to the API server")]
    Build(#[source] kube::Error),
    /// The identity is not a header value.
    #[error("the identity {0:?} has characters that HTTP does not allow")]
    Identity(String),
}

/// How to reach the API server, as `identity`.
pub async fn configuration(identity: &str) -> Result<Config, Error> {
    let mut config = Config::infer().await.map_err(Error::Infer)?;
    let agent = format!("orrery-operator/{} ({identity})", env!("CARGO_PKG_VERSION"));
    let agent = HeaderValue::from_str(&agent).map_err(|_| Error::Identity(identity.into()))?;
    config.headers.push((USER_AGENT, agent));
    Ok(config)
}

/// A client with connections of its own.
///
/// Unlike the default one it never repeats a request by itself: the next pass is the retry, and it asks
/// again whether this process leads.
pub fn connect(config: &Config, metrics: Metrics, watches: Watches) -> Result<Client, Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let tls = config
        .rustls_https_connector_with_connector(tcp)
        .map_err(Error::Build)?;
    let mut connector = TimeoutConnector::new(tls);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_read_timeout(Some(SILENCE));
    connector.set_write_timeout(Some(SILENCE));
    connector.set_reset_reader_on_write(true);
    let http: HyperClient<_, Body> = HyperClient::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(Observe { metrics, watches })
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(Error::Build)?)
        .layer(config.extra_headers_layer().map_err(Error::Build)?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Counts requests and notes signs of life of watches.
#[derive(Clone, Debug)]
struct Observe {
    metrics: Metrics,
    watches: Watches,
}

impl<S> Layer<S> for Observe {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed {
            inner,
            observe: self.clone(),
        }
    }
}

#[derive(Clone, Debug)]
struct Observed<S> {
    inner: S,
    observe: Observe,
}

impl<S, B> Service<Request<Body>> for Observed<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        let observe = self.observe.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = match timeout(ANSWER, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(format!("no answer within {} s", ANSWER.as_secs()).into()),
            };
            match &answer {
                Ok(response) => {
                    observe
                        .metrics
                        .request(method.as_str(), response.status().as_str());
                    observe.watches.answered(&path, response.status());
                }
                Err(_) => observe.metrics.request(method.as_str(), "error"),
            }
            answer
        })
    }
}
