//! Cron expressions: five fields or a macro, evaluated in a time zone.
//! In: text, an instant, a zone. Out: the next or the last slot. Pure.
//!
//! Daylight saving: a schedule that names its hours fires once per local time. A time that the
//! clocks skip fires at the first instant after the gap, a time that occurs twice fires at its
//! first occurrence. A schedule for every hour (`*` in the hour field) follows real time instead:
//! it skips hours that do not exist and fires in both of the hours that occur twice.

mod parse;

use std::{borrow::Cow, fmt, str::FromStr};

use jiff::{
    SignedDuration, Timestamp,
    civil::{Date, DateTime},
    tz::TimeZone,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::zone;
pub use parse::ParseCronError;

/// How far ahead a slot is looked for. The rarest dates there are, 29 February on a given
/// weekday, are at most forty years apart.
const HORIZON_YEARS: i16 = 41;

/// A cron expression as text, kept as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct CronText(pub String);

impl CronText {
    /// The schedule, or what is wrong with the text.
    pub fn parse(&self) -> Result<Cron, ParseCronError> {
        self.0.parse()
    }
}

impl fmt::Display for CronText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for CronText {
    fn schema_name() -> Cow<'static, str> {
        "CronText".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 128,
            "x-kubernetes-validations": [
                {
                    "rule": "!self.matches('TZ=')",
                    "message": "put the time zone into the field timeZone, not into the schedule",
                },
                {
                    "rule": format!("self.matches('TZ=') || self.matches({:?})", parse::pattern()),
                    "message": "must be five fields, minute (0-59) hour (0-23) day (1-31) month (1-12 or JAN-DEC) \
                        weekday (0-7 or SUN-SAT), each *, a value, a range, a list or with a /step; or @hourly, @daily, \
                        @midnight, @weekly, @monthly, @yearly or @annually",
                },
            ],
        })
    }
}

/// A parsed schedule: for each field the set of its values, as bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Day and weekday both name values, so that either of them is enough (as in every cron).
    either_day: bool,
    /// The hour field is `*`: the schedule follows real time through clock changes.
    every_hour: bool,
}

impl FromStr for Cron {
    type Err = ParseCronError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse::cron(text)
    }
}

impl Cron {
    /// The first slot strictly after `after`; `None` when there is none within forty years.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.every_hour {
            self.next_in_real_time(after, zone)
        } else {
            self.next_in_local_time(after, zone)
        }
    }

    /// The last slot in `(after, until]`, found without walking over the slots before it.
    pub fn last_between(
        &self,
        after: Timestamp,
        until: Timestamp,
        zone: &TimeZone,
    ) -> Option<Timestamp> {
        let mut slot = self.next_after(after, zone).filter(|s| *s <= until)?;
        let mut beyond = until;
        // Bisect: `slot` is a slot, and no slot follows `beyond` within the range.
        while let Some(middle) = midpoint(slot, beyond) {
            match self.next_after(middle, zone).filter(|s| *s <= until) {
                Some(later) => slot = later,
                None => beyond = middle,
            }
        }
        Some(slot)
    }

    /// How many slots lie in `(after, until]`, counted up to `limit`.
    pub fn count_between(
        &self,
        after: Timestamp,
        until: Timestamp,
        zone: &TimeZone,
        limit: usize,
    ) -> usize {
        std::iter::successors(self.next_after(after, zone), |s| self.next_after(*s, zone))
            .take_while(|s| *s <= until)
            .take(limit)
            .count()
    }

    fn next_in_local_time(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut local = whole_minute(zone.to_datetime(after));
        // At most the slots of one repeated hour are passed over: they map to its first occurrence.
        loop {
            let slot = self.next_local(local)?;
            let instant = zone::first_instant(slot, zone)?;
            if instant > after {
                return Some(instant);
            }
            local = next_minute(slot)?;
        }
    }

    fn next_in_real_time(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut from = zone.to_datetime(after);
        let mut offset = zone.to_offset(after);
        let mut since = after;
        from = next_minute(whole_minute(from))?;
        // One round per clock change between here and the slot.
        loop {
            let slot = offset.to_timestamp(self.next_local(from)?).ok()?;
            let change = zone.following(since).next();
            match change.filter(|c| c.timestamp() <= slot) {
                None => return Some(slot),
                Some(change) => {
                    since = change.timestamp();
                    offset = change.offset();
                    from = offset.to_datetime(since);
                }
            }
        }
    }

    /// The first matching local time at or after `from`.
    fn next_local(&self, from: DateTime) -> Option<DateTime> {
        let today = self.next_date(from.date())?;
        if today > from.date() {
            return self.first_time(today, 0, 0);
        }
        let (hour, minute) = (from.hour().unsigned_abs(), from.minute().unsigned_abs());
        self.first_time(today, hour, minute).or_else(|| {
            let later = self.next_date(today.tomorrow().ok()?)?;
            self.first_time(later, 0, 0)
        })
    }

    fn first_time(&self, date: Date, hour: u8, minute: u8) -> Option<DateTime> {
        if holds(self.hours, hour)
            && let Some(minute) = lowest_from(self.minutes, minute)
        {
            return Some(date.at(hour.cast_signed(), minute, 0, 0));
        }
        let hour = lowest_from(self.hours, hour + 1)?;
        Some(date.at(hour, lowest_from(self.minutes, 0)?, 0, 0))
    }

    /// The first matching date at or after `from`, a month at a time.
    fn next_date(&self, from: Date) -> Option<Date> {
        let mut month = from.first_of_month();
        let mut day = from.day();
        let last_year = from.year() + HORIZON_YEARS;
        while month.year() <= last_year {
            if holds(self.months, month.month().unsigned_abs())
                && let Some(day) = lowest_from(self.days_of(month), day.unsigned_abs())
            {
                return Date::new(month.year(), month.month(), day).ok();
            }
            month = month.last_of_month().tomorrow().ok()?;
            day = 1;
        }
        None
    }

    /// The matching days of the month that starts at `first`, as bits 1 to 31.
    fn days_of(&self, first: Date) -> u64 {
        let first_weekday = first.weekday().to_sunday_zero_offset().unsigned_abs();
        let length = first.days_in_month().unsigned_abs();
        (1..=length)
            .filter(|day| {
                let by_day = holds(self.days, *day);
                let by_weekday = holds(self.weekdays, (first_weekday + day - 1) % 7);
                if self.either_day {
                    by_day || by_weekday
                } else {
                    by_day && by_weekday
                }
            })
            .fold(0, |bits, day| bits | 1 << day)
    }
}

fn holds(bits: u64, value: u8) -> bool {
    value < 64 && bits & (1 << value) != 0
}

fn lowest_from(bits: u64, value: u8) -> Option<i8> {
    let rest = bits.checked_shr(value.into())? << value;
    (rest != 0).then(|| i8::try_from(rest.trailing_zeros()).ok())?
}

fn whole_minute(at: DateTime) -> DateTime {
    at.date().at(at.hour(), at.minute(), 0, 0)
}

fn next_minute(at: DateTime) -> Option<DateTime> {
    at.checked_add(SignedDuration::from_mins(1)).ok()
}

/// The whole second halfway, `None` when the two are neighbours.
fn midpoint(low: Timestamp, high: Timestamp) -> Option<Timestamp> {
    let gap = high.as_second() - low.as_second();
    (gap > 1).then(|| Timestamp::from_second(low.as_second() + gap / 2).ok())?
}

#[cfg(test)]
mod tests;
