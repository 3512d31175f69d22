//! Sizes as Kubernetes quantities: `10Gi`, `500M`, `1048576`.
//! In: text or a whole number. Out: bytes. Pure.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

/// Three digits fewer with each larger unit: whatever the server accepts is a number of bytes that fits into 64 bits.
const PATTERN: &str = concat!(
    "^([0-9]{1,15}(\\.[0-9]{1,3})?(Ki|k)?",
    "|[0-9]{1,12}(\\.[0-9]{1,3})?(Mi|M)",
    "|[0-9]{1,9}(\\.[0-9]{1,3})?(Gi|G)",
    "|[0-9]{1,6}(\\.[0-9]{1,3})?(Ti|T)",
    "|[0-9]{1,3}(\\.[0-9]{1,3})?(Pi|P))$",
);

/// The same for a size that is written as a number: a pattern is only about text.
const MAXIMUM: u64 = 999_999_999_999_999;

/// A number of bytes as text, kept as it was written so that re-applying it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Size(String);

/// The text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a size; write it like 10Gi, 500M or 1048576")]
pub struct ParseSizeError(String);

impl Size {
    /// The number of bytes, rounded down, or what is wrong with the text.
    pub fn bytes(&self) -> Result<u64, ParseSizeError> {
        bytes(&self.0).ok_or_else(|| ParseSizeError(self.0.clone()))
    }
}

impl FromStr for Size {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let size = Self(text.into());
        size.bytes()?;
        Ok(size)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntOrString;

        impl de::Visitor<'_> for IntOrString {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 10Gi or a whole number of bytes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                Ok(Size(text.into()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Size, E> {
                Ok(Size(number.to_string()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Size, E> {
                Ok(Size(number.to_string()))
            }
        }

        deserializer.deserialize_any(IntOrString)
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true, "maxLength": 24, "pattern": PATTERN, "minimum": 0, "maximum": MAXIMUM})
    }
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = u128::from(factor(unit)?);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || whole.len() > 15 || fraction.is_empty() || fraction.len() > 3 {
        return None;
    }
    let thousandths: u128 = format!("{whole}{fraction:0<3}").parse().ok()?;
    u64::try_from(thousandths * factor / 1000).ok()
}

fn factor(unit: &str) -> Option<u64> {
    let power = |base: u64, exponent| Some(base.pow(exponent));
    match unit {
        "" => Some(1),
        "k" => power(1000, 1),
        "M" => power(1000, 2),
        "G" => power(1000, 3),
        "T" => power(1000, 4),
        "P" => power(1000, 5),
        "Ki" => power(1024, 1),
        "Mi" => power(1024, 2),
        "Gi" => power(1024, 3),
        "Ti" => power(1024, 4),
        "Pi" => power(1024, 5),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_read_as_kubernetes_reads_them() {
        for (text, expected) in [
            ("0", 0),
            ("1048576", 1_048_576),
            ("10Gi", 10_737_418_240),
            ("500M", 500_000_000),
            ("1.5Ki", 1536),
            ("0.1k", 100),
        ] {
            assert_eq!(
                text.parse::<Size>().unwrap().bytes(),
                Ok(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_a_size_is_named() {
        for text in [
            "",
            "Gi",
            "-1Gi",
            "10gb",
            "1e3",
            "1.",
            ".5Gi",
            "10 Gi",
            "999999999999999P",
        ] {
            let error = text.parse::<Size>().unwrap_err();
            assert_eq!(error, ParseSizeError(text.into()));
        }
    }

    #[test]
    fn a_plain_number_is_a_number_of_bytes() {
        let size: Size = serde_json::from_str("4096").unwrap();
        assert_eq!(size.bytes(), Ok(4096));
        let size: Size = serde_json::from_str("-4096").unwrap();
        assert!(size.bytes().is_err());
    }

    #[test]
    fn the_largest_size_of_each_unit_that_the_schema_accepts_is_read() {
        let nines = |digits: usize| format!("{}.999", "9".repeat(digits));
        for (digits, units) in [
            (15, ["", "k", "Ki"].as_slice()),
            (12, &["M", "Mi"]),
            (9, &["G", "Gi"]),
            (6, &["T", "Ti"]),
            (3, &["P", "Pi"]),
        ] {
            for unit in units {
                let text = format!("{}{unit}", nines(digits));
                assert!(text.parse::<Size>().is_ok(), "{text}");
                assert!(text.len() <= 24, "{text}");
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_the_schema_accepts_is_read(text in &PATTERN[1..PATTERN.len() - 1], number in 0..=MAXIMUM) {
            prop_assert!(text.parse::<Size>().is_ok());
            let size: Size = serde_json::from_str(&number.to_string()).unwrap();
            prop_assert_eq!(size.bytes(), Ok(number));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = text.parse::<Size>();
        }
    }
}
