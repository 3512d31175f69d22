//! In: jobs, or the bytes of one as Go, we or Lua wrote them. Out: the bytes, or the job.
//! Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::json;

/// What a job is given to work with. Written with its keys sorted.
///
/// Whole numbers of more than 15 digits do not survive a retry by a Go pool: put them into text.
pub type Args = BTreeMap<String, Value>;

/// Whole numbers beyond this are not exact in a double, which is what Go and Lua read numbers into.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// One job as it stands in Redis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// Which queue it belongs to.
    pub name: String,
    /// 24 hexadecimal digits; periodic jobs of Go have longer ones.
    pub id: String,
    /// When it was pushed to its queue last, in seconds since 1970 by the clock of who did.
    pub enqueued_at: i64,
    /// What to work with.
    pub args: Option<Args>,
    /// Whether a marker keeps equal jobs from being enqueued.
    pub unique: bool,
    /// The name of that marker, if not made of the arguments. Only newer versions than v0.5.1 write it.
    pub unique_key: Option<String>,
    /// How often it has failed.
    pub fails: i64,
    /// Why it failed last.
    pub error: String,
    /// When it failed last, in seconds since 1970.
    pub failed_at: i64,
}

/// Why bytes are no job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Undecodable(String);

impl Job {
    /// A text among the arguments.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.args.as_ref()?.get(key)?.as_str()
    }

    /// A whole number among the arguments, also if it was written as 7.0 or 7e0.
    pub fn integer(&self, key: &str) -> Option<i64> {
        whole(self.args.as_ref()?.get(key)?)
    }

    /// Reads a job, also one that Lua has written: other order of keys, `\/`, `{}` for an empty list, floats.
    pub fn decode(bytes: &[u8]) -> Result<Self, Undecodable> {
        // Bytes that are no text become U+FFFD, as in Go.
        let text = String::from_utf8_lossy(bytes);
        let fields: Map<String, Value> = serde_json::from_str(&text)
            .map_err(|error| Undecodable(format!("not a JSON object: {error}")))?;
        let fields = Fields(fields);
        Ok(Self {
            name: fields.text("name")?,
            id: fields.text("id")?,
            enqueued_at: fields.integer("t")?,
            args: fields.args()?,
            unique: fields.flag("unique")?,
            unique_key: Some(fields.text("unique_key")?).filter(|key| !key.is_empty()),
            fails: fields.integer("fails")?,
            error: fields.text("err")?,
            failed_at: fields.integer("failed_at")?,
        })
    }

    /// Exactly what Go's `json.Marshal` makes of it.
    pub fn encode(&self) -> String {
        let (mut out, rest) = self.around_enqueued_at();
        let _ = write!(out, "{}", self.enqueued_at);
        out.push_str(&rest);
        out
    }

    /// The text before and after the time of the push, which Redis fills in.
    pub(crate) fn around_enqueued_at(&self) -> (String, String) {
        let mut head = String::from("{");
        if !self.name.is_empty() {
            head.push_str("\"name\":");
            json::string(&mut head, &self.name);
            head.push(',');
        }
        head.push_str("\"id\":");
        json::string(&mut head, &self.id);
        head.push_str(",\"t\":");

        let mut tail = String::from(",\"args\":");
        match &self.args {
            Some(args) => json::object(&mut tail, args),
            None => tail.push_str("null"),
        }
        self.push_optional(&mut tail);
        tail.push('}');
        (head, tail)
    }

    /// The text before and after the time of the last failure, which Redis fills in.
    pub(crate) fn around_failed_at(&self) -> (String, String) {
        let timeless = Self {
            failed_at: 0,
            ..self.clone()
        };
        let mut head = timeless.encode();
        head.pop();
        head.push_str(",\"failed_at\":");
        (head, "}".into())
    }

    /// What Go leaves out when it is empty.
    fn push_optional(&self, out: &mut String) {
        if self.unique {
            out.push_str(",\"unique\":true");
        }
        if let Some(key) = &self.unique_key {
            out.push_str(",\"unique_key\":");
            json::string(out, key);
        }
        if self.fails != 0 {
            let _ = write!(out, ",\"fails\":{}", self.fails);
        }
        if !self.error.is_empty() {
            out.push_str(",\"err\":");
            json::string(out, &self.error);
        }
        if self.failed_at != 0 {
            let _ = write!(out, ",\"failed_at\":{}", self.failed_at);
        }
    }

    /// What follows the name in the key of the marker that makes it unique.
    pub(crate) fn unique_args(&self) -> String {
        let mut out = String::new();
        if let Some(args) = &self.args {
            json::object(&mut out, args);
            out.push('\n');
        }
        out
    }
}

/// The members of the object; one that is missing or null is empty, as in Go.
struct Fields(Map<String, Value>);

impl Fields {
    fn text(&self, key: &str) -> Result<String, Undecodable> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(Undecodable(format!("{key} is not a text"))),
        }
    }

    fn integer(&self, key: &str) -> Result<i64, Undecodable> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(0),
            Some(found) => {
                whole(found).ok_or_else(|| Undecodable(format!("{key} is not a whole number")))
            }
        }
    }

    fn flag(&self, key: &str) -> Result<bool, Undecodable> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(Undecodable(format!("{key} is neither true nor false"))),
        }
    }

    fn args(&self) -> Result<Option<Args>, Undecodable> {
        match self.0.get("args") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(args)) => {
                let args = args.iter().map(|(key, arg)| (key.clone(), arg.clone()));
                Ok(Some(args.collect()))
            }
            Some(Value::Array(items)) if items.is_empty() => Ok(Some(Args::new())),
            Some(_) => Err(Undecodable("args is not an object".into())),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "checked to be whole and small enough"
)]
fn whole(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let float = value.as_f64()?;
        (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i64)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn args(value: Value) -> Option<Args> {
        serde_json::from_value(value).unwrap()
    }

    fn job() -> Job {
        Job {
            name: "ComputeChecksum".into(),
            id: "0123456789abcdef01234567".into(),
            enqueued_at: 1_700_000_000,
            args: args(json!({"pl": "x/y<z>", "n": 3})),
            ..Job::default()
        }
    }

    #[test]
    fn a_new_job_has_only_what_go_writes() {
        let expected = r#"{"name":"ComputeChecksum","id":"0123456789abcdef01234567","t":1700000000,"args":{"n":3,"pl":"x/y\u003cz\u003e"}}"#;
        assert_eq!(job().encode(), expected);
        let bare = Job::default().encode();
        assert_eq!(bare, r#"{"id":"","t":0,"args":null}"#);
    }

    #[test]
    fn a_failed_job_has_its_fields_in_the_order_of_go() {
        let failed = Job {
            unique: true,
            unique_key: Some("k".into()),
            fails: 2,
            error: "no & no".into(),
            failed_at: 1_700_000_009,
            args: None,
            ..job()
        };
        let expected = r#"{"name":"ComputeChecksum","id":"0123456789abcdef01234567","t":1700000000,"args":null,"unique":true,"unique_key":"k","fails":2,"err":"no \u0026 no","failed_at":1700000009}"#;
        assert_eq!(failed.encode(), expected);
    }

    #[test]
    fn the_times_can_be_filled_in_by_redis() {
        let (head, tail) = job().around_enqueued_at();
        assert_eq!(format!("{head}1700000000{tail}"), job().encode());
        let failed = Job {
            fails: 1,
            error: "e".into(),
            failed_at: 5,
            ..job()
        };
        let (head, tail) = failed.around_failed_at();
        assert_eq!(format!("{head}5{tail}"), failed.encode());
    }

    #[test]
    fn what_lua_has_written_again_is_the_same_job() {
        let rewritten = br#"{"t":1.7e9,"args":{"pl":"x\/y<z>","n":3.0},"id":"0123456789abcdef01234567","name":"ComputeChecksum","fails":0}"#;
        let read = Job::decode(rewritten).unwrap();
        assert_eq!(read.enqueued_at, 1_700_000_000);
        assert_eq!(read.text("pl"), Some("x/y<z>"));
        assert_eq!(read.integer("n"), Some(3));
        let empty = Job::decode(br#"{"name":"N","args":[],"extra":{}}"#).unwrap();
        assert_eq!(empty.args, Some(Args::new()));
    }

    #[test]
    fn what_is_missing_is_empty_and_what_is_wrong_is_named() {
        assert_eq!(Job::decode(b"{}").unwrap(), Job::default());
        for (bytes, reason) in [
            (&b"nonsense"[..], "not a JSON object"),
            (b"[]", "not a JSON object"),
            (br#"{"name":7}"#, "name is not a text"),
            (br#"{"t":1.5}"#, "t is not a whole number"),
            (br#"{"t":1e300}"#, "t is not a whole number"),
            (br#"{"args":"x"}"#, "args is not an object"),
            (br#"{"unique":1}"#, "unique is neither"),
        ] {
            let error = Job::decode(bytes).unwrap_err().to_string();
            assert!(error.starts_with(reason), "{error}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_read_as_go_does() {
        let read = Job::decode(b"{\"name\":\"a\xff\"}").unwrap();
        assert_eq!(read.name, "a\u{fffd}");
    }

    #[test]
    fn the_marker_of_a_unique_job_ends_with_a_line_feed() {
        assert_eq!(
            job().unique_args(),
            "{\"n\":3,\"pl\":\"x/y\\u003cz\\u003e\"}\n"
        );
        assert_eq!(Job::default().unique_args(), "");
    }

    prop_compose! {
        fn any_job()(
            name in ".*", id in ".*", enqueued_at: i64, fails: i64, failed_at: i64, unique: bool, error in ".*",
            unique_key in prop::option::of(".+"),
            args in prop::option::of(prop::collection::btree_map(".*", leaf(), 0..4)),
        ) -> Job {
            Job { name, id, enqueued_at, args, unique, unique_key, fails, error, failed_at }
        }
    }

    fn leaf() -> impl Strategy<Value = Value> {
        prop_oneof![
            ".*".prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            prop::collection::vec(".*".prop_map(Value::from), 0..3).prop_map(Value::from),
        ]
    }

    proptest! {
        #[test]
        fn a_job_survives_being_written_and_read(job in any_job()) {
            let encoded = job.encode();
            prop_assert_eq!(Job::decode(encoded.as_bytes()).unwrap(), job);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes: Vec<u8>) {
            let _ = Job::decode(&bytes);
        }

        #[test]
        fn no_almost_job_makes_the_decoder_panic(job in any_job(), at: prop::sample::Index, byte: u8) {
            let mut bytes = job.encode().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(read) = Job::decode(&bytes) {
                prop_assert_eq!(Job::decode(read.encode().as_bytes()).unwrap(), read);
            }
        }
    }
}
