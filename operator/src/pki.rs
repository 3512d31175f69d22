//! The certificates of the agents' control port: when one is due. In: what is stored, and the time.
//! Out: what to make. Pure; `issue` makes certificates, `keep` reads and writes them.
//!
//! One authority signs everything. A new one is trusted for a day before it signs anything, and the old one is trusted
//! beside it until the next change, so that at no time an agent and the operator meet strangers in each other.

pub mod issue;
mod keep;

use std::fmt;

use jiff::{SignedDuration, Timestamp};

pub use keep::{Certificates, Error};

/// How long an authority lives.
pub const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(3 * 365 * 24);

/// How long a certificate lives.
pub const LEAF_LIFE: SignedDuration = SignedDuration::from_hours(90 * 24);

/// How long a new authority is trusted before it signs: the kubelet needs a minute or two to bring it to every agent.
pub const OVERLAP: SignedDuration = SignedDuration::from_hours(24);

/// From when to when a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// From.
    pub not_before: Timestamp,
    /// To.
    pub not_after: Timestamp,
}

impl Life {
    /// When it should be replaced: after two thirds.
    pub fn renewal(&self) -> Timestamp {
        let whole = self.not_after.duration_since(self.not_before);
        self.not_before
            .saturating_add(whole / 3 * 2)
            .unwrap_or(self.not_after)
    }

    fn is_due(&self, now: Timestamp) -> bool {
        now >= self.renewal() || now < self.not_before
    }
}

/// A certificate and its key, in PEM. The key is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// How long it is good.
    pub life: Life,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

/// The authority as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Signs.
    pub signing: Pair,
    /// Will sign, and is trusted already.
    pub next: Option<Pair>,
    /// Whom to trust: certificates in PEM, one after the other.
    pub trusted: String,
}

/// What to do about the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Make the first one, or one in place of what cannot be used any more.
    Begin,
    /// Make the next one, and let everybody trust it.
    Announce,
    /// Let the next one sign.
    Promote,
}

/// What to do about the authority now.
pub fn authority_due(stored: Option<&Authority>, now: Timestamp) -> Due {
    let Some(Authority { signing, next, .. }) = stored else {
        return Due::Begin;
    };
    if now >= signing.life.not_after || now < signing.life.not_before {
        return Due::Begin;
    }
    match next {
        None if signing.life.is_due(now) => Due::Announce,
        Some(next) if now.duration_since(next.life.not_before) >= OVERLAP => Due::Promote,
        Some(_) | None => Due::Nothing,
    }
}

/// The certificate of all agents of a namespace, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTls {
    /// The certificate.
    pub pair: Pair,
    /// Whom the agents trust.
    pub trusted: String,
}

/// Whether the agents of a namespace need another certificate.
pub fn leaf_due(stored: Option<&AgentTls>, authority: &Authority, now: Timestamp) -> bool {
    stored.is_none_or(|stored| stored.trusted != authority.trusted || stored.pair.life.is_due(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * day)
    }

    fn pair(from: i64, to: i64) -> Pair {
        Pair {
            certificate: "certificate".into(),
            key: "s3cret".into(),
            life: Life {
                not_before: at(from),
                not_after: at(to),
            },
        }
    }

    fn authority(signing: Pair, next: Option<Pair>) -> Authority {
        Authority {
            signing,
            next,
            trusted: "everybody".into(),
        }
    }

    #[test]
    fn an_authority_is_made_announced_and_promoted_in_time() {
        let fresh = authority(pair(0, 300), None);
        let announced = authority(pair(0, 300), Some(pair(200, 500)));
        for (stored, day, due) in [
            (None, 0, Due::Begin),
            (Some(&fresh), 0, Due::Nothing),
            (Some(&fresh), 199, Due::Nothing),
            (Some(&fresh), 200, Due::Announce),
            (Some(&fresh), 300, Due::Begin),
            (Some(&announced), 200, Due::Nothing),
            (Some(&announced), 201, Due::Promote),
            (Some(&fresh), -1, Due::Begin),
        ] {
            assert_eq!(authority_due(stored, at(day)), due, "day {day}");
        }
    }

    #[test]
    fn a_certificate_is_renewed_before_it_ends_and_when_trust_moves() {
        let authority = authority(pair(0, 300), None);
        let stored = |trusted: &str| AgentTls {
            pair: pair(10, 100),
            trusted: trusted.into(),
        };
        assert!(leaf_due(None, &authority, at(20)));
        assert!(!leaf_due(Some(&stored("everybody")), &authority, at(69)));
        assert!(leaf_due(Some(&stored("everybody")), &authority, at(70)));
        assert!(leaf_due(Some(&stored("nobody")), &authority, at(20)));
    }

    #[test]
    fn a_certificate_never_outlives_who_signed_it() {
        assert!(AUTHORITY_LIFE / 3 > LEAF_LIFE + OVERLAP);
    }

    #[test]
    fn nothing_shows_a_key() {
        let shown = format!("{:?}", authority(pair(0, 1), Some(pair(0, 1))));
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}
