//! In: a state folder. Out: keys and certificates of a cluster in it.
//! Touches: writes those files.

use std::fs;
use std::net::Ipv4Addr;
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
pub(crate) const API_SERVER_CLIENT: &str = "api-server-client";
pub(crate) const SERVICE_PROXY: &str = "service-proxy";

/// File name, user and group of the clients.
const CLIENTS: [(&str, &str, &str); 5] = [
    (ADMIN, "admin", "system:masters"),
    (CONTROLLER_MANAGER, "system:kube-controller-manager", ""),
    (SCHEDULER, "system:kube-scheduler", ""),
    (API_SERVER_CLIENT, "kube-apiserver", "system:masters"),
    (SERVICE_PROXY, "system:kube-proxy", ""),
];

/// The address is what matters: clients come by 127.0.0.1, whatever the port, also through a proxy; pods come by the
/// address of the service.
const SERVER_NAMES: [&str; 7] = [
    "127.0.0.1",
    "10.96.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

type Authority = CertifiedIssuer<'static, KeyPair>;

/// Writes all of it: one authority, the server, one certificate per client, and the key that signs the
/// tokens of service accounts. All on the curve P-256, and valid for ever: tests jump in time.
///
/// `address` is where the API server is reached, `nodes` are the names and addresses of machines.
pub(crate) fn write(
    layout: &Layout,
    address: Ipv4Addr,
    nodes: &[(String, Ipv4Addr)],
) -> Result<()> {
    let authority = authority()?;
    save(&layout.certificate(AUTHORITY), &authority.pem())?;
    api_server(&authority, layout, address)?;
    for (name, address) in nodes {
        node(&authority, layout, name, *address)?;
    }
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
pub fn server(names: Vec<String>) -> Result<(String, String)> {
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

fn api_server(authority: &Authority, layout: &Layout, address: Ipv4Addr) -> Result<()> {
    let mut names: Vec<_> = SERVER_NAMES.map(String::from).into();
    names.push(address.to_string());
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = subject("kube-apiserver", "");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    issue(authority, layout, SERVER, params)
}

/// A kubelet is a client of the API server, and a server for it.
fn node(authority: &Authority, layout: &Layout, name: &str, address: Ipv4Addr) -> Result<()> {
    let user = format!("system:node:{name}");
    client(authority, layout, name, &user, "system:nodes")?;
    let mut params = CertificateParams::new([name.into(), address.to_string()])?;
    params.distinguished_name = subject(&user, "");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    issue(authority, layout, &serving(name), params)
}

/// The certificate a kubelet serves with.
pub(crate) fn serving(node: &str) -> String {
    format!("{node}-serving")
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
