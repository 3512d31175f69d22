//! The first frames of CQL, by hand: whether a node lets somebody in over an encrypted connection.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const STARTUP: u8 = 1;
const AUTHENTICATE: u8 = 3;
const AUTH_RESPONSE: u8 = 15;
const AUTH_SUCCESS: u8 = 16;

/// Logs in over TLS, trusting one authority.
pub(crate) async fn over_tls(
    node: SocketAddr,
    authority: &str,
    (user, password): (&str, &str),
) -> Result<()> {
    let connector = TlsConnector::from(trusting(authority)?);
    let plain = TcpStream::connect(node).await?;
    let stream = connector
        .connect(ServerName::from(node.ip()), plain)
        .await
        .context("no TLS")?;
    log_in(stream, user, password).await
}

/// Logs in without TLS.
pub(crate) async fn in_the_clear(node: SocketAddr, (user, password): (&str, &str)) -> Result<()> {
    log_in(TcpStream::connect(node).await?, user, password).await
}

async fn log_in(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    user: &str,
    password: &str,
) -> Result<()> {
    // One option: the version of the language.
    let options = [&[0, 1, 0, 11][..], b"CQL_VERSION", &[0, 5], b"3.0.0"].concat();
    let (answer, text) = ask(&mut stream, STARTUP, &options).await?;
    if answer != AUTHENTICATE {
        bail!("not asked for a password: {text}");
    }
    let token = format!("\0{user}\0{password}");
    let length = u32::try_from(token.len())?;
    let token = [&length.to_be_bytes(), token.as_bytes()].concat();
    match ask(&mut stream, AUTH_RESPONSE, &token).await? {
        (AUTH_SUCCESS, _) => Ok(()),
        (_, text) => bail!("{text}"),
    }
}

/// One frame there, one frame back: its kind and its text.
async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    kind: u8,
    body: &[u8],
) -> Result<(u8, String)> {
    let mut frame = vec![4, 0, 0, 0, kind];
    frame.extend(u32::try_from(body.len())?.to_be_bytes());
    frame.extend(body);
    stream.write_all(&frame).await?;
    let mut header = [0; 9];
    stream.read_exact(&mut header).await.context("no answer")?;
    let [.., kind, a, b, c, d] = header;
    let mut body = vec![0; usize::try_from(u32::from_be_bytes([a, b, c, d]).min(65_536))?];
    stream.read_exact(&mut body).await?;
    Ok((kind, String::from_utf8_lossy(&body).into_owned()))
}

fn trusting(authority: &str) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
