//! How a failure is to be treated. In: errors of the API client. Out: a class and plain words. Pure.

use prometheus_client::encoding::EncodeLabelValue;
use runtime::telemetry::chain;

/// The class of a failure decides when the next attempt is made; it is also its metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Class {
    /// Likely to pass: back off.
    Transient,
    /// Somebody else was faster: look again soon.
    Conflict,
    /// Will fail until the object changes: wait for the change.
    Invalid,
    /// Waits for something that a person or another controller must do: back off, slower.
    Blocked,
}

/// An error of the API client in the words that users should read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct ApiError {
    /// The HTTP status code, when the API server answered.
    pub code: Option<u16>,
    reason: String,
    words: String,
}

impl ApiError {
    /// How the failure is to be treated.
    pub fn class(&self) -> Class {
        match self.code {
            Some(409) => Class::Conflict,
            // A quota, a policy or a schema refuses what we send; the words say which.
            Some(400 | 403 | 422) => Class::Blocked,
            _ => Class::Transient,
        }
    }

    /// Whether a creation failed because the name is taken.
    pub fn is_name_taken(&self) -> bool {
        self.code == Some(409) && self.reason == "AlreadyExists"
    }

    /// Whether a deletion failed because the object is gone, or another of the same name is there.
    pub fn is_gone(&self) -> bool {
        matches!(self.code, Some(404 | 409))
    }
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self {
                code: None,
                reason: String::new(),
                words: chain(&error),
            };
        };
        Self {
            code: Some(status.code),
            reason: status.reason,
            words: status.message,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answered(code: u16, reason: &str) -> ApiError {
        let status = Status {
            code,
            reason: reason.into(),
            message: "no".into(),
            ..Status::default()
        };
        kube::Error::Api(Box::new(status)).into()
    }

    #[test]
    fn the_status_code_decides() {
        for (code, class) in [
            (403, Class::Blocked),
            (409, Class::Conflict),
            (422, Class::Blocked),
            (429, Class::Transient),
            (500, Class::Transient),
        ] {
            assert_eq!(answered(code, "").class(), class, "{code}");
        }
        let unanswered: ApiError = kube::Error::LinesCodecMaxLineLengthExceeded.into();
        assert_eq!(unanswered.class(), Class::Transient);
    }

    #[test]
    fn users_read_the_servers_words_and_nothing_else() {
        assert_eq!(answered(422, "Invalid").to_string(), "no");
    }

    #[test]
    fn a_taken_name_is_told_from_a_stale_write() {
        assert!(answered(409, "AlreadyExists").is_name_taken());
        assert!(!answered(409, "Conflict").is_name_taken());
    }
}
