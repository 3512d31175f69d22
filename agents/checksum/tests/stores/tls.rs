//! A database that is reached by TLS: its certificate must come from who is trusted.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use checksum::merge::Mode;
use checksum::store::{Error, Location, Store, Tls, Trouble};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::place::Place;

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// Adds to the configuration that a server reads when it starts.
fn configure(folder: &Path, issuer: &CertifiedIssuer<'static, KeyPair>) -> Result<()> {
    let key = KeyPair::generate()?;
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
    let certificate = params.signed_by(&key, issuer)?;
    fs::write(folder.join("server.pem"), certificate.pem())?;
    fs::write(folder.join("server.key"), key.serialize_pem())?;
    let options = folder.join("my.cnf");
    let folder = folder.display();
    let text = fs::read_to_string(&options)?;
    let text = format!("{text}ssl-cert={folder}/server.pem\nssl-key={folder}/server.key\n");
    Ok(fs::write(options, text)?)
}

/// Who trusts this authority and no other.
fn trusting(
    place: &Place,
    folder: &Path,
    name: &str,
    issuer: &CertifiedIssuer<'static, KeyPair>,
) -> Result<Location> {
    let authorities = folder.join(format!("{name}.pem"));
    fs::write(&authorities, issuer.pem())?;
    let tls = Tls {
        authorities: Some(authorities),
        identity: None,
    };
    Ok(place.changed(|server| server.tls = Some(tls)))
}

#[tokio::test]
async fn a_server_whose_certificate_nobody_trusted_has_signed_is_refused() -> Result<()> {
    let server = testbed::mariadb::start().await?;
    let place = Place::on(&server, "testbed")?;
    let data = place.data_folder().await?;
    let folder = data.parent().context("no folder")?;
    let (ours, strangers) = (authority("ours")?, authority("strangers")?);
    server.server().kill().await?;
    configure(folder, &ours)?;
    server.server().start().await?;

    let right = trusting(&place, folder, "ours", &ours)?;
    place.files(20)?;
    let run = place.run_into(&right, Mode::Full).await?;
    assert_eq!(run.counts.new, 20);
    let wrong = trusting(&place, folder, "strangers", &strangers)?;
    let refused = Store::open(&wrong, 1).await;
    let trouble = refused.as_ref().err().map(Error::trouble);
    assert_eq!(trouble, Some(Trouble::Refused), "{refused:?}");
    server.shutdown().await
}
