//! In: the operator's `GET /status` and `PUT /config`, by mutual TLS. Out: a report, an acknowledgement, or a problem.
//! Touches the network; every answer that is not a success is `application/problem+json`.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use crds::name::OPERATOR_TLS_NAME;
use crds::report::{
    Acknowledged, AgentState, DOCUMENT_LIMIT, DOCUMENT_VERSION, Problem, StatusReport,
};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use prometheus_client::metrics::counter::Counter;
use rustls::client::verify_server_name;
use rustls::pki_types::ServerName;
use rustls::server::ParsedCertificate;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::VERSION;
use crate::clock::Clock;
use crate::config::{ConfigStore, Plan, Refusal, Source};
use crate::metrics::Metrics;
use crate::server::{self, BindError, Limits};
use crate::tls::{Identity, IdentityReceiver};

const FLAG: &str = "--control-address or ORRERY_CONTROL_ADDRESS";

/// How long a request may take, most of which is the client sending it.
const REQUEST: Duration = Duration::from_secs(10);

/// The control port, open but not yet served.
#[derive(Debug)]
pub(crate) struct Control {
    listener: TcpListener,
    address: SocketAddr,
}

impl Control {
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let (listener, address) = server::bind(address, "control", FLAG).await?;
        Ok(Self { listener, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `token` is cancelled. Without an identity every connection is closed without an answer.
    pub(crate) async fn serve(
        self,
        subject: Arc<Subject>,
        identity: IdentityReceiver,
        metrics: Metrics,
        token: CancellationToken,
    ) -> Result<(), Infallible> {
        let refused = refused_handshakes(&metrics);
        let accept = move |stream| handshake(stream, identity.borrow().clone(), refused.clone());
        let app = router(subject, REQUEST);
        server::serve(self.listener, accept, app, Limits::default(), token).await;
        Ok(())
    }
}

fn refused_handshakes(metrics: &Metrics) -> Counter {
    let refused = Counter::default();
    metrics.with(|registry| {
        registry.register(
            "orrery_control_refused_handshakes",
            "Connections to the control port without an acceptable client certificate",
            refused.clone(),
        );
    });
    refused
}

async fn handshake(
    stream: TcpStream,
    identity: Option<Arc<Identity>>,
    refused: Counter,
) -> io::Result<TlsStream<TcpStream>> {
    let identity = identity.ok_or_else(|| io::Error::other("no identity yet"))?;
    let accepted = TlsAcceptor::from(identity.server()).accept(stream).await;
    let operator = accepted.and_then(|stream| {
        let known = is_operator(&stream);
        known
            .then_some(stream)
            .ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    });
    operator.inspect_err(|_| {
        refused.inc();
    })
}

/// Whether the client's certificate is made for the operator. The authority alone does not tell: it
/// signs the certificates of agents, too.
fn is_operator(stream: &TlsStream<TcpStream>) -> bool {
    let Ok(operator) = ServerName::try_from(OPERATOR_TLS_NAME) else {
        return false;
    };
    let chain = stream.get_ref().1.peer_certificates();
    let leaf = chain.and_then(|chain| ParsedCertificate::try_from(chain.first()?).ok());
    leaf.is_some_and(|leaf| verify_server_name(&leaf, &operator).is_ok())
}

/// What `/status` tells about, and `/config` changes.
pub(crate) struct Subject {
    pub(crate) agent: &'static str,
    pub(crate) pod_uid: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Arc<ConfigStore>,
    pub(crate) detail: watch::Receiver<Value>,
    /// Cancelled when the agent was asked to end.
    pub(crate) draining: CancellationToken,
}

impl Subject {
    fn report(&self) -> StatusReport {
        // First: what the work says of a configuration is never told beside the one before it.
        let detail = self.detail.borrow().clone();
        let config = self.config.current();
        StatusReport {
            version: DOCUMENT_VERSION,
            agent: self.agent.into(),
            agent_version: VERSION.into(),
            pod_uid: self.pod_uid.clone(),
            state: state(self.draining.is_cancelled(), config.is_some()),
            config_uid: config.as_ref().map(|document| document.uid.clone()),
            config_generation: config.as_ref().map(|document| document.generation),
            config_error: self.config.error(),
            time: self.clock.wall(),
            detail,
        }
    }

    fn acknowledged(&self) -> Option<Acknowledged> {
        let document = self.config.current()?;
        Some(Acknowledged {
            uid: document.uid.clone(),
            generation: document.generation,
        })
    }
}

fn state(is_draining: bool, is_configured: bool) -> AgentState {
    match (is_draining, is_configured) {
        (true, _) => AgentState::Draining,
        (false, true) => AgentState::Running,
        (false, false) => AgentState::WaitingForConfig,
    }
}

fn router(subject: Arc<Subject>, request: Duration) -> Router {
    Router::new()
        .route("/status", get(status))
        .route("/config", put(configure))
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        .layer(middleware::from_fn_with_state(request, within))
        .with_state(subject)
}

async fn within(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    let answer = timeout(limit, next.run(request)).await;
    answer.unwrap_or_else(|_| {
        let detail = format!("the request was not complete within {limit:?}; send it again");
        problem(StatusCode::REQUEST_TIMEOUT, "request too slow", detail)
    })
}

async fn status(State(subject): State<Arc<Subject>>) -> Response {
    match serde_json::to_vec(&subject.report()) {
        Ok(body) if body.len() <= DOCUMENT_LIMIT => {
            ([(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        Ok(_) => without_detail(&subject),
        Err(error) => report_failed(error),
    }
}

/// An agent whose detail has grown too long must still be seen, and configured.
fn without_detail(subject: &Subject) -> Response {
    let omitted = format!("longer than {DOCUMENT_LIMIT} bytes");
    Json(StatusReport {
        detail: json!({ "omitted": omitted }),
        ..subject.report()
    })
    .into_response()
}

fn report_failed(detail: impl fmt::Display) -> Response {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    problem(status, "no report", detail)
}

async fn configure(
    State(subject): State<Arc<Subject>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Ok(document) = read(body).await else {
        let detail = "the connection broke before the document was complete; send it again";
        return problem(StatusCode::BAD_REQUEST, "incomplete document", detail);
    };
    if !is_json(&headers) {
        let detail = "the header content-type must be application/json";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return problem(status, "unsupported content type", detail);
    }
    match subject.config.offer(Source::Push, &document) {
        Plan::Take(_) | Plan::Keep => Json(subject.acknowledged()).into_response(),
        Plan::Older { offered, in_force } => {
            let detail = format!(
                "generation {offered} is older than generation {in_force} of the same uid, which is in force; \
                 send the resource's current generation"
            );
            problem(StatusCode::CONFLICT, "older configuration", detail)
        }
        Plan::Refuse(refusal) => refused(&refusal),
    }
}

/// Reads all of the body, so that the answer also reaches a client that sends too much, but keeps only what shows that it does.
async fn read(mut body: Body) -> Result<Vec<u8>, axum::Error> {
    let mut kept = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            let room = (DOCUMENT_LIMIT + 1).saturating_sub(kept.len());
            kept.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    Ok(kept)
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let value = value.and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

fn refused(refusal: &Refusal) -> Response {
    let (status, title) = match refusal {
        Refusal::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "document too large"),
        Refusal::NotJson { .. } => (StatusCode::BAD_REQUEST, "malformed document"),
        Refusal::Shape { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "unknown document shape"),
        Refusal::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid configuration"),
    };
    problem(status, title, refusal)
}

async fn unknown_path() -> Response {
    let detail = "the paths are /status and /config";
    problem(StatusCode::NOT_FOUND, "unknown path", detail)
}

async fn wrong_method() -> Response {
    let detail = "use GET /status or PUT /config";
    problem(StatusCode::METHOD_NOT_ALLOWED, "unsupported method", detail)
}

fn problem(status: StatusCode, title: &str, detail: impl fmt::Display) -> Response {
    let problem = Problem {
        title: title.into(),
        status: status.as_u16(),
        detail: detail.to_string(),
    };
    let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
    (status, content_type, Json(problem)).into_response()
}

#[cfg(test)]
mod tests;
