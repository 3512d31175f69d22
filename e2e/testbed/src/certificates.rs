//! In: a state folder. Out: keys and certificates of a cluster in it.
//! Touches: writes those files.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

use crate::layout::Layout;

pub(crate) const AUTHORITY: &str = "authority";
pub(crate) const SERVER: &str = "server";
pub(crate) const SERVICE_ACCOUNTS: &str = "service-accounts";
pub(crate) const ADMIN: &str = "admin";
pub(crate) const CONTROLLER_MANAGER: &str = "controller-manager";
pub(crate) const SCHEDULER: &str = "scheduler";

/// File name, user and group of the clients.
const CLIENTS: [(&str, &str, &str); 3] = [
    (ADMIN, "admin", "system:masters"),
    (CONTROLLER_MANAGER, "system:kube-controller-manager", ""),
    (SCHEDULER, "system:kube-scheduler", ""),
];

/// The address is what matters: clients come by 127.0.0.1, whatever the port, also through a proxy.
const SERVER_NAMES: [&str; 5] = [
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
];

type Authority = CertifiedIssuer<'static, KeyPair>;

/// Writes all of it: one authority, the server, one certificate per client, and the key that signs the
/// tokens of service accounts. All on the curve P-256, and valid for ever: tests jump in time.
pub(crate) fn write(layout: &Layout) -> Result<()> {
    let authority = authority()?;
    save(&layout.certificate(AUTHORITY), &authority.pem())?;
    api_server(&authority, layout)?;
    for (file, user, group) in CLIENTS {
        client(&authority, layout, file, user, group)?;
    }
    let signing = KeyPair::generate()?;
    save(
        &layout.public_key(SERVICE_ACCOUNTS),
        &signing.public_key_pem(),
    )?;
    save(&layout.key(SERVICE_ACCOUNTS), &signing.serialize_pem())
}

/// A server that has nothing to do with Kubernetes: the certificate to trust, and the server's key and
/// certificate in one text.
pub(crate) fn server(names: Vec<String>) -> Result<(String, String)> {
    let authority = authority()?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = subject("testbed-server", "");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority)?;
    let both = format!("{}{}", key.serialize_pem(), certificate.pem());
    Ok((authority.pem(), both))
}

fn authority() -> Result<Authority> {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject("testbed", "");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

fn api_server(authority: &Authority, layout: &Layout) -> Result<()> {
    let mut params = CertificateParams::new(SERVER_NAMES.map(String::from))?;
    params.distinguished_name = subject("kube-apiserver", "");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    issue(authority, layout, SERVER, params)
}

fn client(
    authority: &Authority,
    layout: &Layout,
    file: &str,
    user: &str,
    group: &str,
) -> Result<()> {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(user, group);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    issue(authority, layout, file, params)
}

fn issue(
    authority: &Authority,
    layout: &Layout,
    file: &str,
    mut params: CertificateParams,
) -> Result<()> {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    save(&layout.certificate(file), &certificate.pem())?;
    save(&layout.key(file), &key.serialize_pem())
}

/// Kubernetes takes the common name for the user and the organisation for the group.
fn subject(user: &str, group: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, user);
    if !group.is_empty() {
        name.push(DnType::OrganizationName, group);
    }
    name
}

fn save(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}
