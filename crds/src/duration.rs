//! Durations as users write them: `30s`, `10m`, `7d`, `1h30m`.
//! In: text. Out: [`std::time::Duration`]. Pure.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Up to four pairs of number and unit; six digits keep every sum far below overflow.
const PATTERN: &str = "^([0-9]{1,6}(ms|s|m|h|d)){1,4}$";

/// A length of time as text, kept as it was written so that re-applying it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Duration(String);

/// The text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a duration; write it like 30s, 10m, 7d or 1h30m")]
pub struct ParseDurationError(String);

impl Duration {
    /// The length of time, or what is wrong with the text.
    pub fn parse(&self) -> Result<std::time::Duration, ParseDurationError> {
        parse(&self.0).ok_or_else(|| ParseDurationError(self.0.clone()))
    }
}

impl FromStr for Duration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let duration = Self(text.into());
        duration.parse()?;
        Ok(duration)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": 32, "pattern": PATTERN})
    }
}

fn parse(text: &str) -> Option<std::time::Duration> {
    let mut rest = text;
    let mut total = std::time::Duration::ZERO;
    let mut pairs = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        let letters = rest[digits..]
            .bytes()
            .take_while(u8::is_ascii_alphabetic)
            .count();
        let unit = &rest[digits..digits + letters];
        if digits > 6 || pairs == 4 {
            return None;
        }
        total += std::time::Duration::from_millis(number * milliseconds(unit)?);
        rest = &rest[digits + letters..];
        pairs += 1;
    }
    (pairs > 0).then_some(total)
}

fn milliseconds(unit: &str) -> Option<u64> {
    match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_read_as_written() {
        for (text, seconds) in [
            ("0s", 0.0),
            ("250ms", 0.25),
            ("30s", 30.0),
            ("10m", 600.0),
            ("1h30m", 5400.0),
            ("7d", 604_800.0),
            ("999999d", 86_399_913_600.0),
        ] {
            let parsed = text.parse::<Duration>().unwrap().parse().unwrap();
            assert!((parsed.as_secs_f64() - seconds).abs() < 1e-9, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_named() {
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "1.5h",
            "5 m",
            "5w",
            "1234567s",
            "1s1s1s1s1s",
            "５s",
        ] {
            let error = text.parse::<Duration>().unwrap_err();
            assert_eq!(error, ParseDurationError(text.into()));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = text.parse::<Duration>();
        }

        #[test]
        fn whatever_the_schema_accepts_is_read(text in "([0-9]{1,6}(ms|s|m|h|d)){1,4}") {
            prop_assert!(text.parse::<Duration>().is_ok());
        }
    }
}
