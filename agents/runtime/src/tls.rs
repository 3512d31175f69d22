//! In: PEM of a certificate, its key, and the authorities to trust. Out: what rustls needs to serve and to call.
//! Pure but for the process-wide crypto provider; files are read in `reload`.

mod reload;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::sync::watch;
use x509_parser::parse_x509_certificate;

pub use reload::{RELOAD_INTERVAL, Reloader};

/// The newest identity, `None` until there is one.
pub type IdentityReceiver = watch::Receiver<Option<Arc<Identity>>>;

const HTTP_1_1: &[u8] = b"http/1.1";

/// Makes ring the crypto provider of this process: the first thing in `main`. Calling it again does nothing.
pub fn install_crypto_provider() {
    // The error is the provider that is already there.
    let _already = ring::default_provider().install_default();
}

/// Who this process is to its peers, and whom it believes.
///
/// Every handshake is a full one: a resumed session would outlive the authority that vouched for it.
pub struct Identity {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    not_after: Timestamp,
}

impl Identity {
    /// Reads a certificate chain, its key, and one or more authorities: several while one replaces another.
    pub fn from_pem(certificate: &[u8], key: &[u8], authorities: &[u8]) -> Result<Self, Error> {
        let chain = certificates(certificate).ok_or(Error::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Error::Key)?;
        let roots = Arc::new(roots(authorities)?);
        let provider = Arc::new(ring::default_provider());
        Ok(Self {
            not_after: not_after(&chain).ok_or(Error::Certificate)?,
            server: server(&provider, &roots, chain.clone(), key.clone_key())?,
            client: client(&provider, &roots, chain, key)?,
        })
    }

    /// To serve: a client must show a certificate for client authentication, signed by one of the authorities.
    pub fn server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    /// To call: shows the certificate, and believes servers whose certificate one of the authorities signed.
    pub fn client(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// When the certificate ends.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// What is wrong with the material. The readers' own errors quote what they read, so they are not passed on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `tls.crt` is not a chain of certificates.
    #[error("tls.crt holds no complete certificate in PEM")]
    Certificate,
    /// `tls.key` is not a key.
    #[error("tls.key holds no complete private key in PEM")]
    Key,
    /// `ca.crt` is not a bundle of certificates.
    #[error("ca.crt holds no complete certificate in PEM")]
    Authorities,
    /// Clients cannot be checked against `ca.crt`.
    #[error("failed to trust the authorities in ca.crt")]
    Trust(#[source] VerifierBuilderError),
    /// The certificate and the key are not a pair, or of a kind that is not supported.
    #[error("failed to use tls.crt together with tls.key")]
    Pair(#[source] rustls::Error),
}

/// All certificates in `pem`, or `None` if there is none or one is damaged.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|chain| !chain.is_empty())
}

fn roots(pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(pem).ok_or(Error::Authorities)? {
        roots.add(authority).map_err(|_| Error::Authorities)?;
    }
    Ok(roots)
}

fn not_after(chain: &[CertificateDer<'_>]) -> Option<Timestamp> {
    let (_, leaf) = parse_x509_certificate(chain.first()?).ok()?;
    Timestamp::from_second(leaf.validity().not_after.timestamp()).ok()
}

fn server(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, Error> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(Error::Trust)?;
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(Error::Pair)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(Error::Pair)?;
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn client(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ClientConfig>, Error> {
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(Error::Pair)?
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain, key)
        .map_err(Error::Pair)?;
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pki::{Authority, Leaf};

    fn parse(leaf: &Leaf, authorities: &str) -> Result<Identity, Error> {
        let (certificate, key) = (leaf.certificate.as_bytes(), leaf.key.as_bytes());
        Identity::from_pem(certificate, key, authorities.as_bytes())
    }

    #[test]
    fn a_complete_set_is_taken_and_its_end_is_known() {
        let authority = Authority::new("one");
        let identity = parse(&authority.server(), &authority.pem()).unwrap();
        assert!(identity.not_after() > Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn a_certificate_with_the_key_of_another_is_refused() {
        let authority = Authority::new("one");
        let mixed = Leaf {
            certificate: authority.server().certificate,
            key: authority.server().key,
        };
        let error = parse(&mixed, &authority.pem()).unwrap_err();
        assert!(matches!(error, Error::Pair(_)), "{error}");
    }

    #[test]
    fn missing_and_damaged_parts_are_named() {
        let authority = Authority::new("one");
        let good = authority.server();
        let pem = authority.pem();
        let without = |certificate: &str, key: &str| Leaf {
            certificate: certificate.into(),
            key: key.into(),
        };
        let cut = &good.certificate[..good.certificate.len() / 2];
        let cases = [
            (without("", &good.key), pem.as_str(), "tls.crt"),
            (without(cut, &good.key), &pem, "tls.crt"),
            (without(&good.key, &good.key), &pem, "tls.crt"),
            (without(&good.certificate, ""), &pem, "tls.key"),
            (without(&good.certificate, &pem), &pem, "tls.key"),
            (good.clone(), "", "ca.crt"),
            (good.clone(), &pem[..pem.len() / 2], "ca.crt"),
        ];
        for (leaf, authorities, file) in cases {
            let error = parse(&leaf, authorities).unwrap_err().to_string();
            assert!(error.starts_with(file), "{error} should name {file}");
        }
    }

    #[test]
    fn nothing_shows_the_key() {
        let authority = Authority::new("one");
        let leaf = authority.server();
        let identity = parse(&leaf, &authority.pem()).unwrap();
        let secret = leaf.key.lines().nth(1).unwrap();
        assert!(!format!("{identity:?}").contains(secret));
        let garbled = Leaf {
            key: leaf.key.replace("-----\n", ""),
            ..leaf.clone()
        };
        let error = parse(&garbled, &authority.pem()).unwrap_err();
        assert!(!format!("{error:?} {error}").contains(secret));
    }

    #[test]
    fn installing_the_provider_twice_is_fine() {
        install_crypto_provider();
        install_crypto_provider();
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_without_a_panic(bytes: Vec<u8>) {
            prop_assert!(Identity::from_pem(&bytes, &bytes, &bytes).is_err());
        }
    }
}
