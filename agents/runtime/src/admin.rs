//! In: health checks and metrics of this process. Out: `/livez`, `/readyz` and `/metrics` on the plain port.
//! Touches the network.

use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::metrics::{self, Metrics};
use crate::server::{self, Limits};

pub use crate::server::BindError;

const FLAG: &str = "--admin-address or ORRERY_ADMIN_ADDRESS";

/// Where the plain port is.
#[derive(Clone, Debug, clap::Args)]
pub struct AdminArgs {
    /// Where /livez, /readyz and /metrics are served, without TLS
    #[arg(
        long,
        env = "ORRERY_ADMIN_ADDRESS",
        default_value = "0.0.0.0:8081",
        value_name = "IP:PORT"
    )]
    pub admin_address: SocketAddr,
}

/// The plain port, open but not yet served.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    address: SocketAddr,
}

impl Admin {
    /// Opens the port. To be done before anything else starts: a taken port should be the only message.
    pub async fn bind(args: &AdminArgs) -> Result<Self, BindError> {
        let (listener, address) = server::bind(args.admin_address, "admin", FLAG).await?;
        Ok(Self { listener, address })
    }

    /// The address, with the port that the system chose if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `token` is cancelled.
    pub async fn serve(
        self,
        health: Health,
        metrics: Metrics,
        token: CancellationToken,
    ) -> Result<(), Infallible> {
        let accept = |stream| ready(Ok::<TcpStream, io::Error>(stream));
        let app = router(health, metrics);
        server::serve(self.listener, accept, app, Limits::default(), token).await;
        Ok(())
    }
}

fn router(health: Health, metrics: Metrics) -> Router {
    let live = health.clone();
    Router::new()
        .route("/livez", get(move || ready(live.answer(Probe::Live))))
        .route("/readyz", get(move || ready(health.answer(Probe::Ready))))
        .route("/metrics", get(move || ready(scrape(&metrics))))
}

fn scrape(metrics: &Metrics) -> Response {
    match metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// What the process says about itself to the kubelet, shared by cloning.
///
/// Checks run at every probe, on the server's task: they look at something already known, and do not wait.
/// What they return is public: it must not contain a credential.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<Mutex<Vec<NamedCheck>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Probe {
    Live,
    Ready,
}

struct NamedCheck {
    probe: Probe,
    name: &'static str,
    check: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl Health {
    /// Adds a check to `/livez`. Failing it restarts the container, so it is for what only a restart mends.
    pub fn live<C>(&self, name: &'static str, check: C)
    where
        C: Fn() -> Result<(), String> + Send + Sync + 'static,
    {
        self.add(Probe::Live, name, Box::new(check));
    }

    /// Adds a check to `/readyz`.
    pub fn ready<C>(&self, name: &'static str, check: C)
    where
        C: Fn() -> Result<(), String> + Send + Sync + 'static,
    {
        self.add(Probe::Ready, name, Box::new(check));
    }

    fn add(
        &self,
        probe: Probe,
        name: &'static str,
        check: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
    ) {
        let mut checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        checks.push(NamedCheck { probe, name, check });
    }

    fn answer(&self, probe: Probe) -> Response {
        let failing = self.failing(probe);
        if failing.is_empty() {
            "ok\n".into_response()
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, failing).into_response()
        }
    }

    /// One line for each check that fails.
    fn failing(&self, probe: Probe) -> String {
        let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = String::new();
        for named in checks.iter().filter(|named| named.probe == probe) {
            if let Err(reason) = (named.check)() {
                lines.extend([named.name, ": ", &reason, "\n"]);
            }
        }
        lines
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_list()
            .entries(checks.iter().map(|named| named.name))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(health: &Health, path: &str) -> (StatusCode, String, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let app = router(health.clone(), Metrics::new());
        let response = app.oneshot(request).await.unwrap();
        let status = response.status();
        let content_type = response.headers()[header::CONTENT_TYPE].to_str().unwrap();
        let content_type = content_type.to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (
            status,
            content_type,
            String::from_utf8(body.to_vec()).unwrap(),
        )
    }

    #[tokio::test]
    async fn each_failing_check_is_listed_with_its_reason() {
        let health = Health::default();
        health.ready("cassandra", || Err("connection refused".into()));
        health.ready("disk", || Ok(()));
        health.ready("lease", || Err("held by node 2".into()));
        let (status, content_type, body) = ask(&health, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(content_type, "text/plain; charset=utf-8");
        assert_eq!(
            body,
            "cassandra: connection refused\nlease: held by node 2\n"
        );
    }

    #[tokio::test]
    async fn checks_are_asked_anew_each_time() {
        let health = Health::default();
        let well = Arc::new(AtomicBool::new(false));
        let seen = well.clone();
        health.live("loop", move || {
            let well = seen.load(Ordering::Relaxed);
            well.then_some(()).ok_or_else(|| "stuck".into())
        });
        assert_eq!(ask(&health, "/livez").await.2, "loop: stuck\n");
        well.store(true, Ordering::Relaxed);
        assert_eq!(ask(&health, "/livez").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn being_unready_does_not_kill() {
        let health = Health::default();
        health.ready("config", || Err("none yet".into()));
        assert_eq!(ask(&health, "/livez").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_say_what_they_are() {
        let (status, content_type, body) = ask(&Health::default(), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(content_type.starts_with("application/openmetrics-text; version=1.0.0"));
        assert!(body.ends_with("# EOF\n"));
    }
}
