//! Makes certificates. In: who, how long, and who signs. Out: PEM. Touches nothing but the source of randomness.

use std::time::Duration;

use crds::name::{AGENT_TLS_NAME, OPERATOR_TLS_NAME};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use x509_parser::{parse_x509_certificate, pem::Pem};

use super::{AUTHORITY_LIFE, Authority, LEAF_LIFE, Life, Pair};

/// Clocks differ: what is made now is good a little earlier.
const LENIENCE: SignedDuration = SignedDuration::from_mins(10);

/// The name of the authority.
const NAME: &str = "orrery-ca";

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
#[error("failed to make a certificate")]
pub struct Error(#[from] rcgen::Error);

/// The first authority.
pub fn begin(now: Timestamp) -> Result<Authority, Error> {
    let signing = authority(now)?;
    Ok(Authority {
        trusted: signing.certificate.clone(),
        signing,
        next: None,
    })
}

/// The same authority, and one that will take its place.
pub fn announce(current: &Authority, now: Timestamp) -> Result<Authority, Error> {
    let next = authority(now)?;
    Ok(Authority {
        signing: current.signing.clone(),
        trusted: trusted([&current.signing, &next], now),
        next: Some(next),
    })
}

/// The next authority signs; the one before is trusted beside it, unless it has ended.
pub fn promote(current: &Authority, now: Timestamp) -> Authority {
    let Some(next) = &current.next else {
        return current.clone();
    };
    Authority {
        trusted: trusted([&current.signing, next], now),
        signing: next.clone(),
        next: None,
    }
}

fn trusted(pairs: [&Pair; 2], now: Timestamp) -> String {
    let good = pairs.into_iter().filter(|pair| now < pair.life.not_after);
    good.map(|pair| pair.certificate.as_str()).collect()
}

/// The certificate of agents: it may only serve.
pub fn agent(authority: &Authority, now: Timestamp) -> Result<Pair, Error> {
    leaf(
        authority,
        AGENT_TLS_NAME,
        ExtendedKeyUsagePurpose::ServerAuth,
        now,
    )
}

/// The certificate of the operator: it may only call.
pub fn operator(authority: &Authority, now: Timestamp) -> Result<Pair, Error> {
    leaf(
        authority,
        OPERATOR_TLS_NAME,
        ExtendedKeyUsagePurpose::ClientAuth,
        now,
    )
}

fn authority(now: Timestamp) -> Result<Pair, Error> {
    let life = life(now, AUTHORITY_LIFE);
    let key = KeyPair::generate()?;
    let certificate = authority_params(&life)?.self_signed(&key)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        life,
    })
}

fn authority_params(life: &Life) -> Result<CertificateParams, Error> {
    let mut params = params(NAME, life)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

fn leaf(
    authority: &Authority,
    name: &str,
    usage: ExtendedKeyUsagePurpose,
    now: Timestamp,
) -> Result<Pair, Error> {
    let Pair { key, life, .. } = &authority.signing;
    let issuer = Issuer::new(authority_params(life)?, KeyPair::from_pem(key)?);
    let life = self::life(now, LEAF_LIFE);
    let mut params = params(name, &life)?;
    params.subject_alt_names = vec![rcgen::SanType::DnsName(name.try_into()?)];
    params.extended_key_usages = vec![usage];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    Ok(Pair {
        certificate: params.signed_by(&key, &issuer)?.pem(),
        key: key.serialize_pem(),
        life,
    })
}

fn params(name: &str, life: &Life) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let epoch = date_time_ymd(1970, 1, 1);
    let time = |at: Timestamp| {
        epoch + Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default())
    };
    params.not_before = time(life.not_before);
    params.not_after = time(life.not_after);
    Ok(params)
}

fn life(now: Timestamp, length: SignedDuration) -> Life {
    let now = crds::condition::whole_seconds(now);
    Life {
        not_before: now.saturating_sub(LENIENCE).unwrap_or(now),
        not_after: now.saturating_add(length).unwrap_or(now),
    }
}

/// The life of the first certificate in `pem`, if there is one.
pub fn read_life(pem: &[u8]) -> Option<Life> {
    let block = Pem::iter_from_buffer(pem).next()?.ok()?;
    let (_, certificate) = parse_x509_certificate(&block.contents).ok()?;
    let validity = certificate.validity();
    let time = |at: i64| Timestamp::from_second(at).ok();
    Some(Life {
        not_before: time(validity.not_before.timestamp())?,
        not_after: time(validity.not_after.timestamp())?,
    })
}

#[cfg(test)]
mod tests {
    use runtime::tls::Identity;

    use super::*;
    use crate::pki::{Due, OVERLAP, authority_due};

    fn now() -> Timestamp {
        "2026-11-16T03:00:00.5Z".parse().unwrap()
    }

    fn identity(pair: &Pair, authority: &Authority) -> bool {
        let (certificate, key) = (pair.certificate.as_bytes(), pair.key.as_bytes());
        Identity::from_pem(certificate, key, authority.trusted.as_bytes()).is_ok()
    }

    #[test]
    fn what_is_made_can_be_used_and_its_life_is_read_as_it_was_meant() {
        let authority = begin(now()).unwrap();
        for pair in [
            agent(&authority, now()).unwrap(),
            operator(&authority, now()).unwrap(),
        ] {
            assert!(identity(&pair, &authority));
            assert_eq!(read_life(pair.certificate.as_bytes()), Some(pair.life));
            assert!(pair.life.not_after < authority.signing.life.not_after);
        }
        assert_eq!(read_life(b"garbage"), None);
    }

    #[test]
    fn while_authorities_change_both_are_trusted() {
        let first = begin(now()).unwrap();
        let later = first.signing.life.renewal();
        assert_eq!(authority_due(Some(&first), later), Due::Announce);
        let announced = announce(&first, later).unwrap();
        assert_eq!(announced.signing, first.signing);
        assert_eq!(announced.trusted.matches("BEGIN CERTIFICATE").count(), 2);
        let promoted = promote(&announced, later + OVERLAP);
        assert_eq!(Some(&promoted.signing), announced.next.as_ref());
        assert_eq!(promoted.trusted, announced.trusted, "no agent needs news");
        let leaf = agent(&promoted, later + OVERLAP).unwrap();
        assert!(identity(&leaf, &promoted));
    }

    #[test]
    fn an_authority_that_has_ended_is_trusted_no_longer() {
        let first = begin(now()).unwrap();
        let announced = announce(&first, first.signing.life.renewal()).unwrap();
        let promoted = promote(&announced, first.signing.life.not_after);
        assert_eq!(promoted.trusted, promoted.signing.certificate);
    }
}
