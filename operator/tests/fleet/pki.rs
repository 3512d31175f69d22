//! In: nothing. Out: certificate authorities and leaves for tests, as PEM.
//! Writes only into the folder it is given.

use std::{fs, path::Path, sync::Arc};

use crds::name::OPERATOR_TLS_NAME;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use runtime::tls::Identity;

/// The name all agents' certificates are made for.
pub(crate) const SERVER_NAME: &str = "agent.orrery.test";

/// A certificate authority. No two are alike.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate, its key, and whom its owner believes.
pub(crate) struct Leaf {
    certificate: String,
    key: String,
    trusted: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        Self {
            issuer: CertifiedIssuer::self_signed(params, key).unwrap(),
        }
    }

    /// What an agent has: a certificate that may only serve.
    pub(crate) fn agent(&self) -> Leaf {
        self.leaf(SERVER_NAME, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// What the operator has: a certificate that may only call.
    pub(crate) fn operator(&self) -> Leaf {
        self.leaf(OPERATOR_TLS_NAME, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn leaf(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> Leaf {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        Leaf {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
            trusted: self.issuer.pem(),
        }
    }
}

impl Leaf {
    pub(crate) fn identity(&self) -> Arc<Identity> {
        let (certificate, key) = (self.certificate.as_bytes(), self.key.as_bytes());
        let identity = Identity::from_pem(certificate, key, self.trusted.as_bytes());
        identity.unwrap().into()
    }

    /// Writes what a mounted Secret would hold.
    pub(crate) fn write(&self, folder: &Path) {
        fs::write(folder.join("tls.crt"), &self.certificate).unwrap();
        fs::write(folder.join("tls.key"), &self.key).unwrap();
        fs::write(folder.join("ca.crt"), &self.trusted).unwrap();
    }
}
