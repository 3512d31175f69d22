//! In: small servers. Out: claims about what the client does with their answers.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::pki::{Authority, SERVER_NAME};
use crate::telemetry::chain;
use crate::tls::Identity;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

const LIMIT: Duration = Duration::from_secs(5);

fn limits() -> Limits {
    Limits {
        connect: Duration::from_secs(2),
        total: Duration::from_secs(4),
        body: 16,
        ..Limits::default()
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Answers one request on one connection, and returns the request.
async fn answer_once(listener: &TcpListener, answer: &str) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = vec![0; 4096];
    let count = stream.read(&mut request).await.unwrap();
    stream.write_all(answer.as_bytes()).await.unwrap();
    String::from_utf8_lossy(&request[..count]).into_owned()
}

fn uri(scheme: &str, address: SocketAddr) -> Uri {
    format!("{scheme}://{address}/status").parse().unwrap()
}

async fn get_from(answer: &str) -> Result<Response, Error> {
    let (listener, address) = listen().await;
    let client = Client::plain(limits());
    let uri = uri("http", address);
    let both = async { tokio::join!(client.get(&uri), answer_once(&listener, answer)) };
    timeout(LIMIT, both).await.unwrap().0
}

#[tokio::test]
async fn an_answer_of_any_status_is_an_answer() {
    let answer = get_from(OK).await.unwrap();
    assert_eq!(
        (answer.status, &answer.body[..]),
        (StatusCode::OK, &b"hi"[..])
    );
    let moved = "HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(get_from(moved).await.unwrap().status, StatusCode::FOUND);
}

#[tokio::test]
async fn a_put_carries_json() {
    let (listener, address) = listen().await;
    let client = Client::plain(limits());
    let uri = uri("http", address);
    let both = async { tokio::join!(client.put(&uri, &[1, 2]), answer_once(&listener, OK)) };
    let (answer, request) = timeout(LIMIT, both).await.unwrap();
    answer.unwrap();
    assert!(request.starts_with("PUT /status HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("content-type: application/json\r\n"));
    assert!(request.ends_with("\r\n\r\n[1,2]"), "{request}");
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_read() {
    let long = "HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n12345678901234567";
    let error = get_from(long).await.err().unwrap();
    assert!(matches!(error, Error::TooLarge { limit: 16 }), "{error}");
    let chunked =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n11\r\n12345678901234567\r\n0\r\n\r\n";
    let error = get_from(chunked).await.err().unwrap();
    assert!(matches!(error, Error::TooLarge { limit: 16 }), "{error}");
}

#[tokio::test]
async fn each_failing_step_has_its_name() {
    let client = Client::plain(limits());
    let relative = client.get(&Uri::from_static("/status")).await;
    assert!(matches!(relative, Err(Error::Address)));

    let (listener, closed) = listen().await;
    drop(listener);
    let refused = client.get(&uri("http", closed)).await;
    assert!(matches!(refused, Err(Error::Connect(_))));

    let nonsense = get_from("nonsense\r\n\r\n").await;
    assert!(matches!(nonsense, Err(Error::Exchange(_))));

    let cut = get_from("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi").await;
    assert!(matches!(cut, Err(Error::Read(_))));
}

#[tokio::test]
async fn a_server_that_stays_silent_is_given_up() {
    let (listener, address) = listen().await;
    let client = Client::plain(Limits {
        total: Duration::from_millis(50),
        ..limits()
    });
    let silent = async {
        let _connection = listener.accept().await;
        pending::<()>().await;
    };
    let uri = uri("http", address);
    tokio::select! {
        answer = client.get(&uri) => {
            assert!(matches!(answer, Err(Error::TimedOut { .. })));
        }
        () = silent => {}
    }
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_a_failure_to_connect() {
    // The system takes connections for a listener that never accepts.
    let (_listener, address) = listen().await;
    let authority = Authority::new("one");
    let identity = Arc::new(authority.client().identity(&authority.pem()));
    let (_sender, receiver) = watch::channel(Some(identity));
    let limits = Limits {
        connect: Duration::from_millis(50),
        ..limits()
    };
    let client = Client::mutual_tls(limits, receiver, SERVER_NAME).unwrap();
    let error = client.get(&uri("https", address)).await.err().unwrap();
    assert!(matches!(error, Error::Connect(_)), "{error}");
    assert!(chain(&error).ends_with("not connected within 50ms"));
}

#[tokio::test]
async fn errors_do_not_repeat_the_address() {
    let (listener, address) = listen().await;
    drop(listener);
    let uri: Uri = format!("http://user:s3cret@{address}/?token=s3cret")
        .parse()
        .unwrap();
    let error = Client::plain(limits()).get(&uri).await.err().unwrap();
    assert!(!format!("{error:?} {}", chain(&error)).contains("s3cret"));
}

/// Answers by mutual TLS, as often as it is asked.
async fn serve_tls(listener: &TcpListener, identity: &Identity) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        // Clients that are refused, or refuse, are part of the tests.
        let _ended = answer_tls(stream, identity).await;
    }
}

async fn answer_tls(stream: TcpStream, identity: &Identity) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(identity.server());
    let mut stream = acceptor.accept(stream).await?;
    let mut request = vec![0; 4096];
    let count = stream.read(&mut request).await?;
    request.truncate(count);
    let answer = OK.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

fn caller(
    identity: Option<Identity>,
    server_name: &str,
) -> (Client, watch::Sender<Option<Arc<Identity>>>) {
    let (sender, receiver) = watch::channel(identity.map(Arc::new));
    let client = Client::mutual_tls(limits(), receiver, server_name).unwrap();
    (client, sender)
}

#[tokio::test]
async fn a_server_is_known_by_its_name_whatever_its_address() {
    let authority = Authority::new("one");
    let trusted = authority.pem();
    let (listener, address) = listen().await;
    let server = authority.server().identity(&trusted);
    let uri = uri("https", address);
    let calls = async {
        let operator = || Some(authority.client().identity(&trusted));
        let (client, _sender) = caller(operator(), SERVER_NAME);
        assert_eq!(client.get(&uri).await.unwrap().status, StatusCode::OK);
        let (client, _sender) = caller(operator(), "other.orrery.test");
        assert!(matches!(client.get(&uri).await, Err(Error::Connect(_))));
    };
    tokio::select! {
        () = calls => {}
        () = serve_tls(&listener, &server) => {}
    }
}

#[tokio::test]
async fn a_new_identity_needs_no_new_client() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (listener, address) = listen().await;
    let server = new.server().identity(&new.pem());
    let uri = uri("https", address);
    let calls = async {
        let (client, sender) = caller(None, SERVER_NAME);
        let error = client.get(&uri).await.err().unwrap();
        assert!(chain(&error).contains("no TLS identity yet"), "{error}");
        sender.send_replace(Some(Arc::new(old.client().identity(&old.pem()))));
        assert!(client.get(&uri).await.is_err());
        sender.send_replace(Some(Arc::new(new.client().identity(&new.pem()))));
        assert_eq!(client.get(&uri).await.unwrap().status, StatusCode::OK);
    };
    tokio::select! {
        () = calls => {}
        () = serve_tls(&listener, &server) => {}
    }
}

#[tokio::test]
async fn a_client_does_not_mix_plain_and_tls() {
    let (_listener, address) = listen().await;
    let authority = Authority::new("one");
    let identity = authority.client().identity(&authority.pem());
    let (client, _sender) = caller(Some(identity), SERVER_NAME);
    assert!(client.get(&uri("http", address)).await.is_err());
    let plain = Client::plain(limits());
    assert!(plain.get(&uri("https", address)).await.is_err());
}

#[test]
fn an_address_is_not_a_server_name() {
    let (_sender, receiver) = watch::channel(None);
    let refused = Client::mutual_tls(limits(), receiver, "10.0.0.1");
    assert!(refused.unwrap_err().to_string().contains("10.0.0.1"));
}
