//! In: values. Out: the text that Go's encoding/json makes of them, byte for byte.
//! Pure. Others look for an element of a list by its bytes, so equal jobs must be written equally.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Number, Value};

/// Writes a string. `<`, `>`, `&` and two line separators are escaped, as Go does for the sake of web pages.
pub(crate) fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Since Go 1.22; older ones write a number, which reads the same.
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// Writes an object, its keys in the order of their bytes.
pub(crate) fn object(out: &mut String, fields: &BTreeMap<String, Value>) {
    sorted(out, fields.iter());
}

fn value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(found) => number(out, found),
        Value::String(text) => string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                self::value(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            // Sorted here: whether the map itself is, depends on what else is compiled in.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|field| field.0);
            sorted(out, fields.into_iter());
        }
    }
}

fn sorted<'a>(out: &mut String, fields: impl Iterator<Item = (&'a String, &'a Value)>) {
    out.push('{');
    for (index, (key, field)) in fields.enumerate() {
        if index > 0 {
            out.push(',');
        }
        string(out, key);
        out.push(':');
        value(out, field);
    }
    out.push('}');
}

fn number(out: &mut String, number: &Number) {
    let written = match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(whole), _, _) => write!(out, "{whole}"),
        (_, Some(whole), _) => write!(out, "{whole}"),
        (_, _, Some(float)) => {
            out.push_str(&fraction(float));
            Ok(())
        }
        (None, None, None) => write!(out, "0"),
    };
    debug_assert!(written.is_ok(), "a string takes every text");
}

/// As in ECMAScript: with an exponent only where the number is very small or very large.
fn fraction(float: f64) -> String {
    let size = float.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{float:e}");
        if text.contains("e-") {
            return text;
        }
        return text.replace('e', "e+");
    }
    format!("{float}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn written(found: &Value) -> String {
        let mut out = String::new();
        value(&mut out, found);
        out
    }

    #[test]
    fn strings_are_escaped_as_go_does() {
        let text = "<a href=\"x\">&\\/\u{8}\u{c}\n\r\t\u{1}\u{7f}é\u{2028}\u{2029}";
        let expected = "\"\\u003ca href=\\\"x\\\"\\u003e\\u0026\\\\/\\b\\f\\n\\r\\t\\u0001\u{7f}é\\u2028\\u2029\"";
        assert_eq!(written(&json!(text)), expected);
    }

    #[test]
    fn keys_are_sorted_at_every_depth() {
        let nested = json!({"b": {"z": 1, "a": [true, null, {"y": 2, "x": 1}]}, "a": ""});
        let expected = r#"{"a":"","b":{"a":[true,null,{"x":1,"y":2}],"z":1}}"#;
        assert_eq!(written(&nested), expected);
    }

    #[test]
    fn numbers_are_written_as_go_does() {
        for (number, expected) in [
            (json!(0), "0"),
            (json!(-7), "-7"),
            (json!(u64::MAX), "18446744073709551615"),
            (json!(1.0), "1"),
            (json!(0.1), "0.1"),
            (json!(-0.0), "-0"),
            (json!(1e20), "100000000000000000000"),
            (json!(1e21), "1e+21"),
            (json!(1.5e300), "1.5e+300"),
            (json!(0.000_001), "0.000001"),
            (json!(1e-7), "1e-7"),
            (json!(1.25e-10), "1.25e-10"),
        ] {
            assert_eq!(written(&number), expected);
        }
    }

    pub(crate) fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_filter_map("JSON has no infinity", |float| {
                // What is written without a fraction reads as a whole number.
                let value = Value::from(float);
                (value.is_f64() && float.fract() != 0.0).then_some(value)
            }),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".*", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(found in any_value()) {
            let read: Value = serde_json::from_str(&written(&found)).unwrap();
            prop_assert_eq!(read, found);
        }
    }
}
