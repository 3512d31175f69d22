//! Time zones by their IANA name.
//! In: text. Out: a zone with its rules. Pure but for the time zone database.

use std::{borrow::Cow, fmt};

use jiff::{
    SignedDuration, Timestamp,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The name of a time zone, for example `Europe/Berlin`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct ZoneName(pub String);

/// No zone has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not in the IANA time zone database; use a name like Europe/Berlin or UTC")]
pub struct UnknownZoneError(String);

impl ZoneName {
    /// The zone of that name.
    pub fn parse(&self) -> Result<TimeZone, UnknownZoneError> {
        TimeZone::get(&self.0).map_err(|_| UnknownZoneError(self.0.clone()))
    }
}

impl Default for ZoneName {
    fn default() -> Self {
        Self("UTC".into())
    }
}

impl fmt::Display for ZoneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for ZoneName {
    fn schema_name() -> Cow<'static, str> {
        "ZoneName".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 64,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$') && self != 'Local'",
                "message": "must be a name of the IANA time zone database, like Europe/Berlin or UTC",
            }],
        })
    }
}

/// When the local time is first shown by a clock of that zone; for a time that is skipped, when it was skipped.
pub fn first_instant(local: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    skipped(local, zone).or_else(|| zone.to_ambiguous_timestamp(local).earlier().ok())
}

/// When the local time is last shown by a clock of that zone; for a time that is skipped, when it was skipped.
pub fn last_instant(local: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    skipped(local, zone).or_else(|| zone.to_ambiguous_timestamp(local).later().ok())
}

/// The instant at which the clocks skipped over a local time.
fn skipped(local: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let AmbiguousOffset::Gap { before, .. } = zone.to_ambiguous_timestamp(local).offset() else {
        return None;
    };
    let inside = before.to_timestamp(local).ok()?;
    let after = inside.checked_add(SignedDuration::from_secs(1)).ok()?;
    zone.preceding(after)
        .next()
        .map(|change| change.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_found_by_their_iana_name() {
        assert!(ZoneName("Europe/Berlin".into()).parse().is_ok());
        assert!(ZoneName::default().parse().is_ok());
    }

    #[test]
    fn an_unknown_zone_is_named() {
        let error = ZoneName("Europe/Atlantis".into()).parse().unwrap_err();
        assert!(error.to_string().contains("Europe/Atlantis"));
    }
}
