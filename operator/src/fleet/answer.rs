//! In: how a request to an agent ended. Out: its report, what it makes of its configuration, or a failure in words.
//! Pure. The words never quote an answer, except what an agent says to people.

use crds::report::{Acknowledged, ConfigDocument, Problem, StatusReport};
use http::StatusCode;
use runtime::{
    http::{Error, Response},
    telemetry::chain,
};
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::known::{Cause, Failure, Offered, Stand};
use crate::leader::NotLeading;

/// The longest words of a failure that are kept, in bytes.
const WORDS_LIMIT: usize = 256;

/// The report of the pod with that UID.
pub fn report(answer: Result<Response, Error>, pod_uid: &str) -> Result<StatusReport, Failure> {
    let answer = answer.map_err(|error| unanswered(&error))?;
    if answer.status != StatusCode::OK {
        return Err(unreadable(&unexpected("/status", &answer)));
    }
    let report: StatusReport = parse("report", &answer)?;
    if report.pod_uid != pod_uid {
        let words = "another pod answered at this address";
        return Err(failure(Cause::WrongPod, words));
    }
    Ok(report)
}

/// What became of `config`, which was sent to the agent that had just written `last`.
///
/// An agent that says yes but puts something else in force has refused: to send it again would change nothing.
pub fn offered(
    answer: Result<Response, Error>,
    config: &ConfigDocument,
    last: &StatusReport,
) -> Offered {
    let refused = |words: &str| Offered::Refused {
        words: shortened(words),
        by: Stand::of(last),
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Offered::Failed(unanswered(&error)),
    };
    if is_final(answer.status) {
        return refused(&unexpected("/config", &answer));
    }
    if answer.status != StatusCode::OK {
        return Offered::Failed(unreadable(&unexpected("/config", &answer)));
    }
    match parse::<Acknowledged>("acknowledgement", &answer) {
        Ok(in_force) if in_force.uid == config.uid && in_force.generation >= config.generation => {
            Offered::Taken
        }
        Ok(_) => refused("the agent acknowledged another configuration than it was sent"),
        Err(failure) => Offered::Failed(failure),
    }
}

/// What became of a configuration that only a leader may send.
pub fn unsent(error: NotLeading) -> Offered {
    Offered::Failed(failure(Cause::Unreachable, &chain(&error)))
}

/// Whether the same request would be answered the same way again.
fn is_final(status: StatusCode) -> bool {
    let passes = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
    status.is_client_error() && !passes.contains(&status)
}

fn unanswered(error: &Error) -> Failure {
    let cause = match error {
        Error::TooLarge { .. } => Cause::Unreadable,
        Error::Address
        | Error::Encode(_)
        | Error::Connect(_)
        | Error::Exchange(_)
        | Error::Read(_)
        | Error::TimedOut { .. } => Cause::Unreachable,
    };
    failure(cause, &chain(error))
}

/// Newer documents have more fields; whatever this version does not know is skipped.
fn parse<T: DeserializeOwned>(what: &str, answer: &Response) -> Result<T, Failure> {
    serde_json::from_slice(&answer.body).map_err(|error| {
        let wrong = match error.classify() {
            Category::Data => "lacks a field or has one of another type",
            Category::Io | Category::Syntax | Category::Eof => "is not JSON",
        };
        let (line, column) = (error.line(), error.column());
        unreadable(&format!(
            "the {what} {wrong}, see line {line}, column {column}"
        ))
    })
}

fn unexpected(path: &str, answer: &Response) -> String {
    let status = answer.status.as_u16();
    match serde_json::from_slice::<Problem>(&answer.body) {
        Ok(problem) => format!("{path} answered {status}: {}", problem.detail),
        Err(_) => format!("{path} answered {status}"),
    }
}

fn unreadable(words: &str) -> Failure {
    failure(Cause::Unreadable, words)
}

fn failure(cause: Cause, words: &str) -> Failure {
    Failure {
        cause,
        words: shortened(words),
    }
}

/// What fits into a status.
pub(super) fn shortened(words: &str) -> String {
    if words.len() <= WORDS_LIMIT {
        return words.into();
    }
    let cut = words.floor_char_boundary(WORDS_LIMIT - '…'.len_utf8());
    format!("{}…", &words[..cut])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::fleet::plan::fixture::{config, report as good};

    fn answer(status: u16, body: impl Into<Vec<u8>>) -> Result<Response, Error> {
        Ok(Response {
            status: StatusCode::from_u16(status).map_err(|_| Error::Address)?,
            body: body.into().into(),
        })
    }

    fn problem(status: u16, detail: &str) -> Result<Response, Error> {
        let body = json!({"title": "t", "status": status, "detail": detail});
        answer(status, body.to_string())
    }

    #[test]
    fn a_report_of_the_right_pod_is_taken_as_it_is() {
        let expected = good("u", Some(1));
        let body = serde_json::to_vec(&expected).unwrap();
        assert_eq!(report(answer(200, body), "u"), Ok(expected));
    }

    #[test]
    fn a_report_of_another_pod_is_discarded() {
        let body = serde_json::to_vec(&good("u", Some(1))).unwrap();
        let failure = report(answer(200, body), "v").unwrap_err();
        assert_eq!(failure.cause, Cause::WrongPod);
    }

    #[test]
    fn a_newer_report_is_taken() {
        let body = json!({
            "version": 9, "agent": "x", "agentVersion": "9.0.0", "podUid": "u", "state": "Dancing",
            "time": "2026-11-16T12:00:00Z", "novelty": {"deep": [1, 2]},
        });
        let report = report(answer(200, body.to_string()), "u").unwrap();
        assert_eq!(report.version, 9);
    }

    #[test]
    fn what_is_no_report_is_told_without_quoting_it() {
        let secret = json!({"version": "s3cret"}).to_string();
        let deep = format!(r#"{{"detail":{}"#, "[".repeat(100_000));
        let cases = [
            (answer(200, "s3cret"), "is not JSON, see line 1"),
            (answer(200, ""), "is not JSON"),
            (answer(200, deep), "is not JSON"),
            (answer(200, "[]"), "lacks a field"),
            (answer(200, secret), "another type"),
            (answer(200, "{}"), "lacks a field"),
            (answer(500, "s3cret"), "/status answered 500"),
            (problem(500, "shorten it"), "answered 500: shorten it"),
            (answer(302, ""), "/status answered 302"),
            (answer(404, ""), "/status answered 404"),
            (Err(Error::TooLarge { limit: 7 }), "more than 7 bytes"),
        ];
        for (answer, words) in cases {
            let failure = report(answer, "u").unwrap_err();
            assert_eq!(failure.cause, Cause::Unreadable, "{failure:?}");
            assert!(failure.words.contains(words), "{failure:?}");
            assert!(!failure.words.contains("s3cret"), "{failure:?}");
        }
    }

    #[test]
    fn no_answer_is_unreachable() {
        let limit = Duration::from_secs(3);
        let failure = report(Err(Error::TimedOut { limit }), "u").unwrap_err();
        assert_eq!(failure.cause, Cause::Unreachable);
        assert_eq!(failure.words, "failed to get an answer within 3s");
    }

    #[test]
    fn an_acknowledged_configuration_is_taken() {
        for generation in [3, 4] {
            let body = json!({"uid": "a", "generation": generation, "novelty": 1});
            let outcome = offered(
                answer(200, body.to_string()),
                &config("a", 3),
                &good("u", None),
            );
            assert_eq!(outcome, Offered::Taken);
        }
    }

    #[test]
    fn what_the_agent_will_not_have_is_refused_in_its_own_words() {
        let other = json!({"uid": "a", "generation": 2}).to_string();
        let cases = [
            (problem(422, "no such table"), "422: no such table"),
            (problem(409, "older"), "409: older"),
            (answer(413, ""), "413"),
            (answer(404, ""), "404"),
            (answer(200, other), "another configuration"),
        ];
        let last = good("u", Some(1));
        for (answer, expected) in cases {
            let Offered::Refused { words, by } = offered(answer, &config("a", 3), &last) else {
                panic!("{expected} is refused");
            };
            assert!(words.contains(expected), "{words}");
            assert_eq!(by, Stand::of(&last));
        }
    }

    #[test]
    fn what_may_pass_is_a_failure() {
        let limit = Duration::from_secs(3);
        let cases = [
            (answer(500, ""), Cause::Unreadable),
            (answer(408, ""), Cause::Unreadable),
            (answer(429, ""), Cause::Unreadable),
            (answer(200, "null"), Cause::Unreadable),
            (Err(Error::TimedOut { limit }), Cause::Unreachable),
        ];
        for (answer, cause) in cases {
            let Offered::Failed(failure) = offered(answer, &config("a", 3), &good("u", None))
            else {
                panic!("{cause:?} is a failure");
            };
            assert_eq!(failure.cause, cause);
        }
    }

    #[test]
    fn long_words_are_cut_at_a_character() {
        let failure = report(problem(500, &"ä".repeat(5_000)), "u").unwrap_err();
        assert!(failure.words.len() <= WORDS_LIMIT && failure.words.ends_with('…'));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_without_a_panic(status in 100_u16..=599, body: Vec<u8>) {
            prop_assert!(report(answer(status, body.clone()), "u").is_err());
            let outcome = offered(answer(status, body), &config("a", 3), &good("u", None));
            prop_assert_ne!(outcome, Offered::Taken);
        }
    }
}
