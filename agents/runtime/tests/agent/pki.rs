//! In: nothing. Out: certificate authorities and leaves for tests, as PEM.
//! Writes only into the folder it is given.

#![allow(
    dead_code,
    reason = "shared by unit tests and process tests, which each use a part"
)]

use std::path::Path;
use std::sync::Arc;

use crds::name::OPERATOR_TLS_NAME;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use runtime::tls::Identity;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The name all server certificates are made for.
pub(crate) const SERVER_NAME: &str = "agent.orrery.test";

/// A certificate authority.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        Self {
            issuer: CertifiedIssuer::self_signed(params, key).unwrap(),
        }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate that may only serve.
    pub(crate) fn server(&self) -> Leaf {
        self.leaf(SERVER_NAME, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate that may only call.
    pub(crate) fn client(&self) -> Leaf {
        self.leaf(OPERATOR_TLS_NAME, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A certificate that may call, and is not the operator's.
    pub(crate) fn stranger(&self) -> Leaf {
        self.leaf(SERVER_NAME, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn leaf(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> Leaf {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        Leaf {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Leaf {
    /// The identity of a process that has this certificate and trusts `authorities`.
    pub(crate) fn identity(&self, authorities: &str) -> Identity {
        let (certificate, key) = (self.certificate.as_bytes(), self.key.as_bytes());
        Identity::from_pem(certificate, key, authorities.as_bytes()).unwrap()
    }

    /// Writes what a mounted Secret would hold.
    pub(crate) fn write(&self, folder: &Path, authorities: &str) {
        replace(&folder.join("tls.crt"), &self.certificate);
        replace(&folder.join("tls.key"), &self.key);
        replace(&folder.join("ca.crt"), authorities);
    }
}

/// Changes a file so that nobody sees half of it.
pub(crate) fn replace(path: &Path, content: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, content).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// What a caller uses that trusts `authority` but has no certificate of its own.
pub(crate) fn without_certificate(authority: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}
