//! A connection to the API server that counts requests, and fails or waits when a test says so.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context as TaskContext, Poll},
};

use anyhow::Result;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::{
    Client,
    client::{Body, ClientBuilder},
};
use testbed::Access;
use tokio::sync::watch;
use tower::{BoxError, Layer, Service};

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is not sent.
    Unsent,
    /// It is carried out, and the answer is lost.
    Unanswered,
}

/// What happens to all requests for a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Bar {
    /// They pass.
    #[default]
    Open,
    /// They wait.
    Held(String),
    /// They are not sent.
    Lost(String),
}

/// Counts the controller's requests, and spoils one of them or those for a path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    sent: Arc<AtomicUsize>,
    writes: Arc<AtomicUsize>,
    /// Which request is spoiled, counted from 1; 0 for none.
    spoiled: Arc<AtomicUsize>,
    unanswered: Arc<AtomicUsize>,
    bar: watch::Sender<Bar>,
    waiting: Arc<AtomicUsize>,
}

impl Line {
    pub(crate) fn spoil(&self, request: usize, fault: Fault) {
        self.sent.store(0, Ordering::SeqCst);
        self.spoiled.store(request, Ordering::SeqCst);
        self.unanswered
            .store(usize::from(fault == Fault::Unanswered), Ordering::SeqCst);
    }

    /// Lets requests wait whose path ends so, until all may pass again.
    pub(crate) fn hold(&self, path: &str) {
        self.bar.send_replace(Bar::Held(path.into()));
    }

    /// Loses requests whose path ends so, until all may pass again.
    pub(crate) fn lose(&self, path: &str) {
        self.bar.send_replace(Bar::Lost(path.into()));
    }

    /// All requests may pass.
    pub(crate) fn open(&self) {
        self.bar.send_replace(Bar::Open);
    }

    /// Whether a request waits.
    pub(crate) fn is_holding(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    fn loses(&self, path: &str) -> bool {
        matches!(&*self.bar.borrow(), Bar::Lost(lost) if path.ends_with(lost))
    }

    async fn pass(&self, path: &str) {
        let waits = |bar: &Bar| matches!(bar, Bar::Held(held) if path.ends_with(held));
        let mut bar = self.bar.subscribe();
        if !waits(&bar.borrow()) {
            return;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Whoever could open it again is gone only with the test.
        drop(bar.wait_for(|bar| !waits(bar)).await);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }
}

impl<S> Layer<S> for Line {
    type Service = Spoiler<S>;

    fn layer(&self, inner: S) -> Spoiler<S> {
        Spoiler {
            inner,
            line: self.clone(),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Spoiler<S> {
    inner: S,
    line: Line,
}

impl<S, B> Service<Request<Body>> for Spoiler<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let number = self.line.sent.fetch_add(1, Ordering::SeqCst) + 1;
        if request.method() != Method::GET {
            self.line.writes.fetch_add(1, Ordering::SeqCst);
        }
        let spoiled = self.line.spoiled.load(Ordering::SeqCst) == number;
        let unanswered = self.line.unanswered.load(Ordering::SeqCst) == 1;
        let path = request.uri().path().to_owned();
        if (spoiled && !unanswered) || self.line.loses(&path) {
            return Box::pin(async { Err("the line was cut before the request".into()) });
        }
        let (line, answer) = (self.line.clone(), self.inner.call(request));
        Box::pin(async move {
            // Nothing is sent before somebody waits for the answer.
            line.pass(&path).await;
            let answer = answer.await;
            if spoiled {
                return Err("the line was cut before the answer".into());
            }
            answer
        })
    }
}

/// A client on that line.
pub(crate) async fn spoiled_client(kubernetes: &Access, line: &Line) -> Result<Client> {
    let mut config = kubernetes.config().await?;
    config.default_retry = false;
    Ok(ClientBuilder::try_from(config)?.with_layer(line).build())
}
