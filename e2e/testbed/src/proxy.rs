//! In: a TCP address. Out: a second address for it, with faults to switch on and off.
//! Touches: loopback sockets; every task ends when the [`Proxy`] is dropped.

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections beyond this many are closed at once.
pub const MAX_CONNECTIONS: usize = 128;

const CHUNK: usize = 16 * 1024;
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// A TCP proxy on a loopback address whose behaviour can be switched at any time.
///
/// Every switch says what happens to the connections that exist and to those that come after it; the
/// last switch counts. A silent connection loses nothing: its bytes go on when it may speak again, as
/// they would after a healed partition.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    rules: watch::Sender<Rules>,
    slots: Arc<Semaphore>,
    /// Owns the acceptor, which owns the connections: dropping it ends them all.
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Listens on a free port and passes everything on to `target`.
    pub async fn start(target: SocketAddr) -> Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), target).await
    }

    /// The same on a loopback address that must be free.
    pub async fn start_at(address: SocketAddr, target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("failed to listen on {address}"))?;
        let address = listener.local_addr()?;
        let (rules, reader) = watch::channel(Rules::default());
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target, reader, slots.clone()));
        Ok(Self {
            address,
            rules,
            slots,
            _tasks: tasks,
        })
    }

    /// Where the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections open now, silent ones included.
    pub fn connections(&self) -> usize {
        MAX_CONNECTIONS - self.slots.available_permits()
    }

    /// Forwards everything; what was silent speaks again.
    pub fn pass(&self) {
        self.switch(PASS, PASS);
    }

    /// Resets all connections, and every new one as soon as it is accepted.
    pub fn cut(&self) {
        self.switch(Fate::Closed, Fate::Closed);
    }

    /// Keeps all connections and accepts new ones, but forwards nothing.
    pub fn half_open(&self) {
        self.switch(Fate::Silent, Fate::Silent);
    }

    /// Keeps the connections of now without forwarding anything; new ones pass.
    pub fn half_open_existing(&self) {
        self.switch(Fate::Silent, PASS);
    }

    /// Forwards each chunk after `delay`, in both directions: a round trip takes twice as long.
    pub fn delay(&self, delay: Duration) {
        self.switch(Fate::Forward(delay), Fate::Forward(delay));
    }

    /// Resets the connections of now; new ones pass.
    pub fn drop_existing(&self) {
        self.switch(Fate::Closed, PASS);
    }

    fn switch(&self, existing: Fate, new: Fate) {
        self.rules.send_modify(|rules| {
            *rules = Rules {
                generation: rules.generation + 1,
                existing,
                new,
            };
        });
    }
}

const PASS: Fate = Fate::Forward(Duration::ZERO);

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Forward(Duration),
    Silent,
    Closed,
}

/// The last switch: `existing` is for connections older than it, `new` for the others.
#[derive(Clone, Copy, Debug)]
struct Rules {
    generation: u64,
    existing: Fate,
    new: Fate,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            generation: 0,
            existing: PASS,
            new: PASS,
        }
    }
}

impl Rules {
    fn fate(&self, born: u64) -> Fate {
        if born < self.generation {
            self.existing
        } else {
            self.new
        }
    }
}

/// The rules as one connection sees them.
#[derive(Clone)]
struct Link {
    rules: watch::Receiver<Rules>,
    born: u64,
}

impl Link {
    fn new(rules: &watch::Receiver<Rules>) -> Self {
        let born = rules.borrow().generation;
        let rules = rules.clone();
        Self { rules, born }
    }

    /// Returns when the connection is to be closed.
    async fn closed(mut self) {
        let born = self.born;
        let closed = self
            .rules
            .wait_for(|rules| rules.fate(born) == Fate::Closed);
        if closed.await.is_err() {
            pending::<()>().await; // the proxy is being dropped, and this task with it
        }
    }

    /// Returns when the next chunk may go.
    async fn clearance(&mut self) {
        let delay = self.forwarding().await;
        if !delay.is_zero() {
            sleep(delay).await;
            self.forwarding().await;
        }
    }

    /// Waits until chunks are forwarded, and says with which delay.
    async fn forwarding(&mut self) -> Duration {
        loop {
            if let Fate::Forward(delay) = self.rules.borrow_and_update().fate(self.born) {
                return delay;
            }
            if self.rules.changed().await.is_err() {
                pending::<()>().await; // as above
            }
        }
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    rules: watch::Receiver<Rules>,
    slots: Arc<Semaphore>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match (accepted, slots.clone().try_acquire_owned()) {
                (Ok((client, _)), Ok(slot)) => {
                    connections.spawn(serve(client, target, Link::new(&rules), slot));
                }
                (Ok(_), Err(_)) => {} // one too many: dropped, and so closed
                (Err(_), _) => sleep(ACCEPT_PAUSE).await, // out of file descriptors, most likely
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut client: TcpStream, target: SocketAddr, link: Link, _slot: OwnedSemaphorePermit) {
    tokio::select! {
        biased;
        () = link.clone().closed() => {
            // With no time to linger, closing sends a reset. If that is refused the client gets an orderly end.
            let _ = client.set_zero_linger();
        }
        // How a relay ends, both sides see for themselves.
        _ = relay(&mut client, target, link) => {}
    }
}

async fn relay(client: &mut TcpStream, target: SocketAddr, mut link: Link) -> io::Result<()> {
    link.forwarding().await;
    let mut server = timeout(CONNECT_DEADLINE, TcpStream::connect(target)).await??;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::try_join!(
        pump(from_client, to_server, link.clone()),
        pump(from_server, to_client, link)
    )?;
    Ok(())
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut link: Link,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = from.read(&mut chunk).await?;
        link.clearance().await;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&chunk[..length]).await?;
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "measures a delay")]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::wait::eventually;

    const SOON: Duration = Duration::from_secs(10);
    /// Long enough for a forwarded byte to arrive: only for waits in which nothing must happen.
    const QUIET: Duration = Duration::from_millis(100);

    struct Bed {
        proxy: Proxy,
        _echo: JoinSet<()>,
    }

    async fn bed() -> Bed {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let target = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(echo(listener));
        let proxy = Proxy::start(target).await.unwrap();
        Bed {
            proxy,
            _echo: tasks,
        }
    }

    async fn echo(listener: TcpListener) {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    }

    impl Bed {
        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.proxy.address()).await.unwrap()
        }

        async fn connections_become(&self, number: usize) {
            let what = format!("{number} connections");
            let check = async || {
                let seen = self.proxy.connections();
                anyhow::ensure!(seen == number, "{seen} connections");
                Ok(Some(()))
            };
            eventually(&what, SOON, check).await.unwrap();
        }
    }

    async fn answer(stream: &mut TcpStream) -> io::Result<u8> {
        timeout(SOON, stream.read_u8()).await.unwrap()
    }

    async fn answers(stream: &mut TcpStream) {
        stream.write_u8(7).await.unwrap();
        assert_eq!(answer(stream).await.unwrap(), 7);
    }

    async fn is_silent(stream: &mut TcpStream) {
        assert!(timeout(QUIET, stream.read_u8()).await.is_err());
    }

    async fn is_closed(stream: &mut TcpStream) {
        let error = answer(stream).await.unwrap_err().kind();
        let closed = [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof];
        assert!(closed.contains(&error), "{error}");
    }

    #[tokio::test]
    async fn bytes_and_the_end_of_the_stream_pass() {
        let bed = bed().await;
        let mut stream = bed.connect().await;
        answers(&mut stream).await;
        assert_eq!(bed.proxy.connections(), 1);
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        bed.connections_become(0).await;
    }

    #[tokio::test]
    async fn cut_closes_what_exists_and_refuses_what_comes() {
        let bed = bed().await;
        let mut old = bed.connect().await;
        answers(&mut old).await;
        bed.proxy.cut();
        is_closed(&mut old).await;
        is_closed(&mut bed.connect().await).await;
        bed.connections_become(0).await;
        bed.proxy.pass();
        answers(&mut bed.connect().await).await;
    }

    #[tokio::test]
    async fn half_open_is_silent_for_all_and_loses_nothing() {
        let bed = bed().await;
        let mut old = bed.connect().await;
        answers(&mut old).await;
        bed.proxy.half_open();
        let mut new = bed.connect().await;
        for stream in [&mut old, &mut new] {
            stream.write_u8(9).await.unwrap();
            is_silent(stream).await;
        }
        assert_eq!(bed.proxy.connections(), 2);
        bed.proxy.pass();
        assert_eq!(answer(&mut old).await.unwrap(), 9);
        assert_eq!(answer(&mut new).await.unwrap(), 9);
    }

    #[tokio::test]
    async fn half_open_existing_leaves_new_connections_alone() {
        let bed = bed().await;
        let mut old = bed.connect().await;
        answers(&mut old).await;
        bed.proxy.half_open_existing();
        old.write_u8(9).await.unwrap();
        answers(&mut bed.connect().await).await;
        is_silent(&mut old).await;
    }

    #[tokio::test]
    async fn a_delay_holds_up_each_chunk_both_ways() {
        let bed = bed().await;
        let mut stream = bed.connect().await;
        answers(&mut stream).await;
        bed.proxy.delay(QUIET);
        let began = Instant::now();
        answers(&mut stream).await;
        assert!(began.elapsed() >= 2 * QUIET);
    }

    #[tokio::test]
    async fn drop_existing_closes_what_exists_and_nothing_else() {
        let bed = bed().await;
        let mut old = bed.connect().await;
        answers(&mut old).await;
        bed.proxy.drop_existing();
        answers(&mut bed.connect().await).await;
        is_closed(&mut old).await;
    }

    #[tokio::test]
    async fn there_is_room_for_only_so_many() {
        let bed = bed().await;
        bed.proxy.half_open();
        let mut guests = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            guests.push(bed.connect().await);
        }
        bed.connections_become(MAX_CONNECTIONS).await;
        is_closed(&mut bed.connect().await).await;
        is_silent(&mut guests[0]).await;
    }

    #[tokio::test]
    async fn a_dropped_proxy_closes_its_connections_and_its_port() {
        let bed = bed().await;
        let mut stream = bed.connect().await;
        answers(&mut stream).await;
        let address = bed.proxy.address();
        drop(bed);
        is_closed(&mut stream).await;
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn a_target_that_is_not_there_ends_the_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let target = listener.local_addr().unwrap();
        drop(listener);
        let proxy = Proxy::start(target).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        is_closed(&mut stream).await;
    }
}
