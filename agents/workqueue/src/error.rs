//! In: what went wrong between us and Redis. Out: one of four classes, which tell the caller what to do.
//! Pure.

use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why a call did not do what it was asked to.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Redis is not there, or cannot serve now: it loads its data, is a replica, or has no memory left.
    ///
    /// The call may or may not have had its effect. Try again after a pause.
    #[error("redis cannot be reached: {reason}")]
    Unreachable {
        /// What was seen.
        reason: Arc<str>,
    },
    /// Redis does not accept our name or password, or does not let us do this.
    #[error("redis refuses us: {reason}")]
    Refused {
        /// What it said.
        reason: Arc<str>,
    },
    /// Redis answered, but not with what was asked for: a key of another type, or a server that is no Redis.
    #[error("redis gave an answer that makes no sense here: {reason}")]
    Protocol {
        /// What it said.
        reason: Arc<str>,
    },
    /// The caller asked for something that cannot be.
    #[error("{what}")]
    Invalid {
        /// Which rule was broken.
        what: String,
    },
}

impl Error {
    /// Whether the same call may well succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    #[cfg(test)]
    pub(crate) fn unreachable(reason: &str) -> Self {
        Self::Unreachable {
            reason: reason.into(),
        }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }
}

/// Codes by which Redis says that it is not our request that is at fault.
const NOT_NOW: [&str; 10] = [
    "LOADING",
    "BUSY",
    "MASTERDOWN",
    "READONLY",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "UNKILLABLE",
];

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        let reason: Arc<str> = error.to_string().into();
        match class(error.kind(), error.code(), &reason) {
            Class::Unreachable => Self::Unreachable { reason },
            Class::Refused => Self::Refused { reason },
            Class::Protocol => Self::Protocol { reason },
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Class {
    Unreachable,
    Refused,
    Protocol,
}

fn class(kind: ErrorKind, code: Option<&str>, text: &str) -> Class {
    let code = code.unwrap_or_default();
    let asks_for_password = ["NOAUTH", "WRONGPASS", "NOPERM"].contains(&code)
        || kind == ErrorKind::Server(ServerErrorKind::NoPerm)
        || kind == ErrorKind::AuthenticationFailed
        // A password was given, and none is set.
        || text.contains("without any password configured")
        || text.contains("invalid password");
    if asks_for_password {
        return Class::Refused;
    }
    let is_busy = NOT_NOW.contains(&code) || text.contains("max number of clients");
    if is_busy || kind == ErrorKind::Io {
        Class::Unreachable
    } else {
        Class::Protocol
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_tell_what_to_do() {
        let extension = ErrorKind::Extension;
        let plain = ErrorKind::Server(ServerErrorKind::ResponseError);
        for (kind, code, text, expected) in [
            (ErrorKind::Io, None, "broken pipe", Class::Unreachable),
            (extension, Some("WRONGPASS"), "", Class::Refused),
            (extension, Some("NOAUTH"), "", Class::Refused),
            (
                ErrorKind::Server(ServerErrorKind::NoPerm),
                Some("NOPERM"),
                "",
                Class::Refused,
            ),
            (
                plain,
                Some("ERR"),
                "ERR AUTH <password> called without any password configured for the default user",
                Class::Refused,
            ),
            (extension, Some("LOADING"), "", Class::Unreachable),
            (extension, Some("OOM"), "", Class::Unreachable),
            (
                plain,
                Some("ERR"),
                "ERR max number of clients reached",
                Class::Unreachable,
            ),
            (extension, Some("WRONGTYPE"), "", Class::Protocol),
            (ErrorKind::Parse, None, "", Class::Protocol),
        ] {
            assert_eq!(class(kind, code, text), expected, "{kind:?} {code:?}");
        }
    }

    #[test]
    fn only_what_may_pass_by_itself_is_transient() {
        assert!(Error::unreachable("away").is_transient());
        assert!(!Error::invalid("no").is_transient());
        let refused = Error::Refused {
            reason: "no".into(),
        };
        assert!(!refused.is_transient());
    }
}
