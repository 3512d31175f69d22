//! In: the document in force and the bytes of another. Out: what to do with the other.
//! Pure.

use std::sync::Arc;

use crds::report::{ConfigDocument, DOCUMENT_LIMIT};
use serde::Deserialize;
use serde_json::Value;

/// What to do with a document that was offered.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// It is good and new: put it into force.
    Take(Arc<ConfigDocument>),
    /// It is the one in force.
    Keep,
    /// One of a higher generation is in force.
    Older {
        /// The generation that was offered.
        offered: i64,
        /// The generation in force.
        in_force: i64,
    },
    /// It is bad.
    Refuse(Refusal),
}

/// Why a document is bad. Says where and what to do, and quotes nothing of the document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is too long.
    #[error("it has more than {DOCUMENT_LIMIT} bytes; shorten it")]
    TooLarge,
    /// It is not JSON.
    #[error("it is not JSON, see line {line}, column {column}")]
    NotJson {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// It is JSON of another shape.
    #[error("{field} must be {expected}")]
    Shape {
        /// The field to correct.
        field: &'static str,
        /// What the field should hold.
        expected: &'static str,
    },
    /// The agent's own check refuses it.
    #[error("the agent refuses it: {0}")]
    Invalid(String),
}

/// Decides about `offered`. A document that would not replace the current one is not judged any further.
pub(super) fn plan<V>(current: Option<&ConfigDocument>, offered: &[u8], validate: &V) -> Plan
where
    V: Fn(&ConfigDocument) -> Result<(), String> + ?Sized,
{
    let document = match parse(offered) {
        Ok(document) => document,
        Err(refusal) => return Plan::Refuse(refusal),
    };
    match current {
        Some(current) if !document.replaces(Some(current)) => keep(current, &document),
        _ => match validate(&document) {
            Ok(()) => Plan::Take(Arc::new(document)),
            Err(reason) => Plan::Refuse(Refusal::Invalid(reason)),
        },
    }
}

fn keep(current: &ConfigDocument, offered: &ConfigDocument) -> Plan {
    if offered.generation == current.generation {
        Plan::Keep
    } else {
        Plan::Older {
            offered: offered.generation,
            in_force: current.generation,
        }
    }
}

fn parse(bytes: &[u8]) -> Result<ConfigDocument, Refusal> {
    if bytes.len() > DOCUMENT_LIMIT {
        return Err(Refusal::TooLarge);
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| Refusal::NotJson {
        line: error.line(),
        column: error.column(),
    })?;
    let document = ConfigDocument::deserialize(&value).map_err(|_| shape(&value))?;
    if document.uid.is_empty() {
        return Err(wrong("uid", "the UID of the resource, not empty"));
    }
    Ok(document)
}

/// The first field that is wrong. Serde's own message would quote its content.
fn shape(value: &Value) -> Refusal {
    let is_u32 = |value: &Value| value.as_u64().is_some_and(|n| u32::try_from(n).is_ok());
    if !value.is_object() {
        wrong("the document", "a JSON object")
    } else if !is_u32(&value["version"]) {
        wrong("version", "a whole number from 0 to 4294967295")
    } else if !value["uid"].is_string() {
        wrong("uid", "a string, the UID of the resource")
    } else {
        wrong(
            "generation",
            "a whole number, the generation of the resource",
        )
    }
}

fn wrong(field: &'static str, expected: &'static str) -> Refusal {
    Refusal::Shape { field, expected }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn bytes(uid: &str, generation: i64) -> Vec<u8> {
        json!({"version": 1, "uid": uid, "generation": generation, "spec": {}})
            .to_string()
            .into_bytes()
    }

    const GOOD: fn(&ConfigDocument) -> Result<(), String> = |_| Ok(());

    fn in_force(uid: &str, generation: i64) -> ConfigDocument {
        parse(&bytes(uid, generation)).unwrap()
    }

    fn refusal(offered: &[u8]) -> Refusal {
        let plan = plan(None, offered, &GOOD);
        let Plan::Refuse(refusal) = plan else {
            panic!("{plan:?} instead of a refusal");
        };
        refusal
    }

    #[test]
    fn the_higher_generation_wins_and_a_new_uid_always_does() {
        let current = in_force("a", 5);
        let plan = |uid, generation| plan(Some(&current), &bytes(uid, generation), &GOOD);
        assert!(matches!(plan("a", 6), Plan::Take(_)));
        assert!(matches!(plan("b", 1), Plan::Take(_)));
        assert_eq!(plan("a", 5), Plan::Keep);
        let older = Plan::Older {
            offered: 4,
            in_force: 5,
        };
        assert_eq!(plan("a", 4), older);
    }

    #[test]
    fn a_document_of_a_newer_release_is_taken() {
        let offered = br#"{"version":99,"uid":"a","generation":1,"spec":{},"novelty":[1]}"#;
        assert!(matches!(plan(None, offered, &GOOD), Plan::Take(_)));
    }

    #[test]
    fn the_agents_own_check_has_the_last_word() {
        let refused = plan(None, &bytes("a", 1), &|_: &ConfigDocument| {
            Err("spec.size is too large".into())
        });
        let expected = Refusal::Invalid("spec.size is too large".into());
        assert_eq!(refused, Plan::Refuse(expected));
    }

    #[test]
    fn each_refusal_names_the_field_and_the_fix() {
        let cases: [(&str, &str); 10] = [
            ("", "it is not JSON, see line 1, column 0"),
            ("{\"uid\":\n", "it is not JSON, see line 2, column 0"),
            ("[]", "the document must be a JSON object"),
            ("{}", "version must be a whole number from 0 to 4294967295"),
            (
                r#"{"version":"s3cret","uid":"a","generation":1}"#,
                "version must be a whole number from 0 to 4294967295",
            ),
            (
                r#"{"version":4294967296,"uid":"a","generation":1}"#,
                "version must be a whole number from 0 to 4294967295",
            ),
            (
                r#"{"version":1,"uid":7,"generation":1}"#,
                "uid must be a string, the UID of the resource",
            ),
            (
                r#"{"version":1,"uid":"","generation":1}"#,
                "uid must be the UID of the resource, not empty",
            ),
            (
                r#"{"version":1,"uid":"a"}"#,
                "generation must be a whole number, the generation of the resource",
            ),
            (
                r#"{"version":1,"uid":"a","generation":1.5}"#,
                "generation must be a whole number, the generation of the resource",
            ),
        ];
        for (offered, expected) in cases {
            assert_eq!(refusal(offered.as_bytes()).to_string(), expected);
        }
    }

    #[test]
    fn the_limit_is_the_last_length_that_is_read() {
        let mut offered = bytes("a", 1);
        offered.resize(DOCUMENT_LIMIT, b' ');
        assert!(matches!(plan(None, &offered, &GOOD), Plan::Take(_)));
        offered.push(b' ');
        assert_eq!(refusal(&offered), Refusal::TooLarge);
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged_without_a_panic(offered: Vec<u8>) {
            prop_assert!(matches!(plan(None, &offered, &GOOD), Plan::Refuse(_)));
        }

        /// Stated without `replaces`: the last uid wins, with the highest generation since it came.
        #[test]
        fn any_sequence_ends_at_the_right_document(
            offers in vec((0..3_u8, 0..6_i64, any::<bool>()), 1..30)
        ) {
            let is_good = |document: &ConfigDocument| {
                let good = document.version == 1;
                good.then_some(()).ok_or_else(String::new)
            };
            let mut current: Option<Arc<ConfigDocument>> = None;
            for (uid, generation, good) in &offers {
                let offered = json!({
                    "version": u8::from(*good),
                    "uid": uid.to_string(),
                    "generation": generation,
                });
                let offered = offered.to_string();
                if let Plan::Take(document) = plan(current.as_deref(), offered.as_bytes(), &is_good) {
                    current = Some(document);
                }
            }
            let good: Vec<_> = offers.iter().filter(|(.., good)| *good).collect();
            let last = good.last().map(|(uid, ..)| uid);
            let highest = good.iter().rev()
                .take_while(|(uid, ..)| Some(uid) == last)
                .map(|(_, generation, _)| *generation)
                .max();
            prop_assert_eq!(
                current.map(|document| (document.uid.clone(), document.generation)),
                last.map(ToString::to_string).zip(highest)
            );
        }
    }
}
