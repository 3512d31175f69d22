//! What answers at the address of a pod without being an agent: listeners that keep silent, and liars.
//! Opens local ports, which close when it is dropped.

use std::{
    io::{ErrorKind, Read},
    net::{SocketAddr, TcpStream as StdStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use crds::report::StatusReport;
use runtime::clock::{Clock, SystemClock};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::{pki::Leaf, support::eventually};

/// Listeners that accept every connection and never say a word.
pub(crate) struct Silence {
    /// The most connections that were open at once.
    most: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Silence {
    pub(crate) async fn at(addresses: &[SocketAddr]) -> Self {
        let (most, mut tasks) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        let open = Arc::new(Mutex::new(Vec::new()));
        for address in addresses {
            // Whoever was here a moment ago may not have let go of the port yet.
            let bind = async || TcpListener::bind(address).await.ok();
            let listener = eventually("port is free", bind).await;
            tasks.spawn(keep(listener, open.clone(), most.clone()));
        }
        Self {
            most,
            _tasks: tasks,
        }
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

async fn keep(listener: TcpListener, open: Arc<Mutex<Vec<StdStream>>>, most: Arc<AtomicUsize>) {
    while let Ok((stream, _)) = listener.accept().await {
        let mut open = open.lock().unwrap();
        open.retain(is_open);
        open.push(stream.into_std().unwrap());
        most.fetch_max(open.len(), Ordering::SeqCst);
    }
}

/// Asks the kernel itself: the runtime may not have noticed yet that the other side has hung up.
fn is_open(mut stream: &StdStream) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// Something with a certificate that gives each request line an answer, and remembers the lines.
pub(crate) struct Impostor {
    heard: Arc<Mutex<Vec<String>>>,
    handshakes: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Impostor {
    pub(crate) async fn at<F>(address: SocketAddr, leaf: &Leaf, answer: F) -> Self
    where
        F: Fn(&str) -> (u16, Vec<u8>) + Send + Sync + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let acceptor = TlsAcceptor::from(leaf.identity().server());
        let (heard, handshakes) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        let (lines, count) = (Arc::clone(&heard), Arc::clone(&handshakes));
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stream = acceptor.accept(stream).await;
                count.fetch_add(1, Ordering::SeqCst);
                if let Ok(stream) = stream {
                    serve_one(BufReader::new(stream), &lines, &answer).await;
                }
            }
        });
        Self {
            heard,
            handshakes,
            _tasks: tasks,
        }
    }

    /// The first lines of all requests.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// How many handshakes came to an end, good or bad.
    pub(crate) fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::SeqCst)
    }
}

/// One request, one answer; the connection may break at any time.
async fn serve_one<S>(
    mut stream: BufReader<S>,
    heard: &Mutex<Vec<String>>,
    answer: &impl Fn(&str) -> (u16, Vec<u8>),
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let (mut first, mut length) = (String::new(), 0);
    let mut line = String::new();
    while stream.read_line(&mut line).await.is_ok_and(|n| n > 2) {
        if first.is_empty() {
            first = line.trim_end().to_owned();
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim_end().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    if first.is_empty() || stream.read_exact(&mut body).await.is_err() {
        return;
    }
    heard.lock().unwrap().push(first.clone());
    let (status, body) = answer(&first);
    let start = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    // The client hangs up on what is too long.
    let _sent = stream.write_all(&[start.as_bytes(), &body].concat()).await;
    let _closed = stream.shutdown().await;
}

/// A report as the real agent in that pod would write it.
pub(crate) fn report(uid: &str, generation: Option<i64>) -> StatusReport {
    let time = SystemClock.wall();
    let report = json!({
        "version": 1, "agent": "test-agent", "agentVersion": "1.0.0", "podUid": uid, "state": "Running",
        "configUid": generation.map(|_| "resource"), "configGeneration": generation, "time": time,
    });
    serde_json::from_value(report).unwrap()
}
