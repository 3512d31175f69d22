//! In: a listener, a way to accept, a router. Out: served connections, few and short-lived.
//! Touches the network; shared by the admin port and the control port.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use futures::stream::{FuturesUnordered, StreamExt};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// Breathing space after a failed `accept`, which fails again at once when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// No request to these ports has headers anywhere near this size.
const HEADER_BYTES: usize = 64 * 1024;

/// What one client may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at a time; one more ends the oldest, so that idle clients cannot lock others out.
    pub(crate) connections: usize,
    /// From connected to ready to read: the TLS handshake.
    pub(crate) handshake: Duration,
    /// Waiting for a request, and reading its headers.
    pub(crate) header: Duration,
    /// From here on a connection takes no new request: its peer must show its certificate again.
    pub(crate) lifetime: Duration,
    /// Finishing the request in progress, at the end of the lifetime or at shutdown.
    pub(crate) finish: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            handshake: Duration::from_secs(5),
            header: Duration::from_secs(10),
            lifetime: Duration::from_mins(5),
            finish: Duration::from_secs(10),
        }
    }
}

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("failed to listen on {address}, the address given by {flag}")]
pub struct BindError {
    address: SocketAddr,
    flag: &'static str,
    source: io::Error,
}

/// Opens a port; `flag` is what a person has to change if that fails, `port` what to call it in logs.
pub(crate) async fn bind(
    address: SocketAddr,
    port: &'static str,
    flag: &'static str,
) -> Result<(TcpListener, SocketAddr), BindError> {
    let failed = |source| BindError {
        address,
        flag,
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let chosen = listener.local_addr().map_err(failed)?;
    info!(port, address = %chosen, "listening");
    Ok((listener, chosen))
}

/// Serves `app` on `listener` until `token` is cancelled, then lets requests in progress finish.
pub(crate) async fn serve<Accept, Accepting, Stream>(
    listener: TcpListener,
    accept: Accept,
    app: Router,
    limits: Limits,
    token: CancellationToken,
) where
    Accept: Fn(TcpStream) -> Accepting,
    Accepting: Future<Output = io::Result<Stream>> + Send + 'static,
    Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut connections = Connections::new(limits.connections);
    loop {
        tokio::select! {
            () = token.cancelled() => break,
            () = connections.ended() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let accepting = accept(stream);
                    let connection = serve_one(accepting, app.clone(), limits, token.clone());
                    connections.add(Box::pin(connection));
                }
                Err(error) => {
                    warn!(%error, "failed to accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    connections.all_ended().await;
}

async fn serve_one<Stream>(
    accepting: impl Future<Output = io::Result<Stream>>,
    app: Router,
    limits: Limits,
    token: CancellationToken,
) where
    Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match timeout(limits.handshake, accepting).await {
        Ok(Ok(stream)) => speak(stream, app, limits, token).await,
        Ok(Err(error)) => debug!(%error, "connection refused"),
        Err(_) => debug!("connection refused, the handshake took too long"),
    }
}

async fn speak<Stream>(stream: Stream, app: Router, limits: Limits, token: CancellationToken)
where
    Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Ok(ended),
        () = expired(limits.lifetime, &token) => {
            connection.as_mut().graceful_shutdown();
            timeout(limits.finish, connection).await
        }
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "connection ended"),
        Err(_) => debug!("connection cut, its last request took too long"),
    }
}

async fn expired(lifetime: Duration, token: &CancellationToken) {
    tokio::select! {
        () = sleep(lifetime) => {}
        () = token.cancelled() => {}
    }
}

/// The open connections, all driven by the task that owns this: none can outlive it.
struct Connections {
    limit: usize,
    next: u64,
    running: FuturesUnordered<Abortable<BoxFuture<'static, u64>>>,
    oldest_first: VecDeque<(u64, AbortHandle)>,
}

impl Connections {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            next: 0,
            running: FuturesUnordered::new(),
            oldest_first: VecDeque::with_capacity(limit),
        }
    }

    fn add(&mut self, connection: BoxFuture<'static, ()>) {
        while self.oldest_first.len() >= self.limit {
            if let Some((_, oldest)) = self.oldest_first.pop_front() {
                debug!("connection cut to make room for another");
                oldest.abort();
            }
        }
        let id = self.next;
        self.next += 1;
        let (handle, registration) = AbortHandle::new_pair();
        let numbered: BoxFuture<'static, u64> = Box::pin(async move {
            connection.await;
            id
        });
        self.running.push(Abortable::new(numbered, registration));
        self.oldest_first.push_back((id, handle));
    }

    /// Drives the connections until one ends; waits for ever if there is none.
    async fn ended(&mut self) {
        match self.running.next().await {
            Some(Ok(id)) => self.oldest_first.retain(|(other, _)| *other != id),
            Some(Err(_aborted)) => {}
            None => std::future::pending().await,
        }
    }

    async fn all_ended(mut self) {
        while self.running.next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Arc;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);
    const SHORT: Duration = Duration::from_millis(50);

    fn limits() -> Limits {
        Limits {
            connections: 4,
            ..Limits::default()
        }
    }

    /// Serves `app` while `client` runs.
    async fn with_server<T>(
        app: Router,
        limits: Limits,
        client: impl AsyncFnOnce(SocketAddr, CancellationToken) -> T,
    ) -> T {
        let any = "127.0.0.1:0".parse().unwrap();
        let (listener, address) = bind(any, "test", "--test").await.unwrap();
        let token = CancellationToken::new();
        let accept = |stream| ready(Ok::<TcpStream, io::Error>(stream));
        let server = serve(listener, accept, app, limits, token.clone());
        let client = async {
            let result = client(address, token.clone()).await;
            token.cancel();
            result
        };
        let both = async { tokio::join!(server, client).1 };
        timeout(LIMIT, both).await.unwrap()
    }

    fn hello() -> Router {
        Router::new().route("/", get(|| ready("hello")))
    }

    async fn ask(stream: &mut TcpStream) -> io::Result<String> {
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await?;
        let mut answer = vec![0; 4096];
        let count = stream.read(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer[..count]).into_owned())
    }

    async fn is_closed(stream: &mut TcpStream) -> bool {
        !matches!(stream.read(&mut [0; 1]).await, Ok(1))
    }

    #[tokio::test]
    async fn idle_clients_cannot_lock_others_out() {
        with_server(hello(), limits(), async |address, _| {
            let mut idle = Vec::new();
            for _ in 0..20 {
                idle.push(TcpStream::connect(address).await.unwrap());
            }
            let mut late = TcpStream::connect(address).await.unwrap();
            assert!(ask(&mut late).await.unwrap().ends_with("hello"));
            assert!(is_closed(&mut idle[0]).await);
        })
        .await;
    }

    #[tokio::test]
    async fn a_client_that_never_finishes_its_headers_is_cut() {
        let limits = Limits {
            header: SHORT,
            ..limits()
        };
        with_server(hello(), limits, async |address, _| {
            let mut slow = TcpStream::connect(address).await.unwrap();
            slow.write_all(b"GET / HTTP/1.1\r\nx-slow: ").await.unwrap();
            let mut rest = Vec::new();
            slow.read_to_end(&mut rest).await.unwrap();
        })
        .await;
    }

    #[tokio::test]
    async fn a_connection_ends_with_its_lifetime() {
        let limits = Limits {
            lifetime: SHORT,
            ..limits()
        };
        with_server(hello(), limits, async |address, _| {
            let mut client = TcpStream::connect(address).await.unwrap();
            assert!(ask(&mut client).await.unwrap().ends_with("hello"));
            assert!(is_closed(&mut client).await);
        })
        .await;
    }

    #[tokio::test]
    async fn a_handshake_that_never_ends_is_cut() {
        let any = "127.0.0.1:0".parse().unwrap();
        let (listener, address) = bind(any, "test", "--test").await.unwrap();
        let limits = Limits {
            handshake: SHORT,
            ..limits()
        };
        let accept = |stream: TcpStream| async move {
            let _held = stream;
            std::future::pending::<io::Result<TcpStream>>().await
        };
        let server = serve(listener, accept, hello(), limits, CancellationToken::new());
        let client = async {
            let mut client = TcpStream::connect(address).await.unwrap();
            assert!(is_closed(&mut client).await);
        };
        tokio::select! {
            () = server => unreachable!("the server ends only when it is cancelled"),
            done = timeout(LIMIT, client) => done.unwrap(),
        }
    }

    #[tokio::test]
    async fn a_request_in_progress_is_finished_at_shutdown() {
        let entered = Arc::new(Notify::new());
        let go_on = Arc::new(Notify::new());
        let handler = {
            let (entered, go_on) = (entered.clone(), go_on.clone());
            async move || {
                entered.notify_one();
                go_on.notified().await;
                "finished"
            }
        };
        let app = Router::new().route("/", get(handler));
        with_server(app, limits(), async |address, token| {
            let mut client = TcpStream::connect(address).await.unwrap();
            let shutdown = async {
                entered.notified().await;
                token.cancel();
                while TcpStream::connect(address).await.is_ok() {}
                go_on.notify_one();
            };
            let (answer, ()) = tokio::join!(ask(&mut client), shutdown);
            assert!(answer.unwrap().ends_with("finished"));
        })
        .await;
    }

    #[tokio::test]
    async fn a_taken_port_is_told_by_the_flag_that_chose_it() {
        let any = "127.0.0.1:0".parse().unwrap();
        let (_listener, taken) = bind(any, "test", "--test").await.unwrap();
        let error = bind(taken, "test", "--test or ORRERY_TEST")
            .await
            .unwrap_err();
        let text = crate::telemetry::chain(&error);
        assert!(text.contains("--test or ORRERY_TEST"), "{text}");
        assert!(text.contains("in use"), "{text}");
    }
}
