//! Recurring windows of time in which work may, or may not, be started.
//! In: windows and an instant. Out: whether it is open, and when that changes. Pure.

use jiff::{
    SignedDuration, Timestamp,
    civil::{Time, Weekday},
    tz::TimeZone,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::zone::{UnknownZoneError, ZoneName, first_instant, last_instant};

/// What a window does to the time it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum WindowAction {
    /// Work may start; where any Allow window exists, nowhere else.
    Allow,
    /// Work may not start, whatever the Allow windows say.
    Deny,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names of the days say it all")]
pub enum Day {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl From<Day> for Weekday {
    fn from(day: Day) -> Self {
        match day {
            Day::Monday => Self::Monday,
            Day::Tuesday => Self::Tuesday,
            Day::Wednesday => Self::Wednesday,
            Day::Thursday => Self::Thursday,
            Day::Friday => Self::Friday,
            Day::Saturday => Self::Saturday,
            Day::Sunday => Self::Sunday,
        }
    }
}

/// A recurring stretch of time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Whether work may start in it.
    pub action: WindowAction,
    /// The days on which it begins; absent means every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    pub days: Vec<Day>,
    /// When it begins, `HH:MM`, local time.
    #[schemars(length(max = 5), regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub from: String,
    /// When it ends, `HH:MM` or `24:00`; not later than `from` means on the next day.
    #[schemars(
        length(max = 5),
        regex(pattern = r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$")
    )]
    pub to: String,
    /// The zone of `from` and `to`.
    #[serde(default)]
    pub time_zone: ZoneName,
}

/// Why a window cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseWindowError {
    /// A time that is none.
    #[error("{field} \"{text}\" is not a time of day; write it like 22:30")]
    Time {
        /// Which field.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// A zone that is none.
    #[error(transparent)]
    Zone(#[from] UnknownZoneError),
}

impl Window {
    /// The window with its times and zone read.
    pub fn parse(&self) -> Result<ParsedWindow, ParseWindowError> {
        Ok(ParsedWindow {
            action: self.action,
            days: self.days.iter().map(|day| Weekday::from(*day)).collect(),
            from: time("from", &self.from)?,
            to: time(
                "to",
                if self.to == "24:00" {
                    "00:00"
                } else {
                    &self.to
                },
            )?,
            zone: self.time_zone.parse()?,
        })
    }
}

fn time(field: &'static str, text: &str) -> Result<Time, ParseWindowError> {
    let error = || ParseWindowError::Time {
        field,
        text: text.into(),
    };
    let (hour, minute) = text.split_once(':').ok_or_else(error)?;
    let number = |text: &str| text.parse().map_err(|_| error());
    Time::new(number(hour)?, number(minute)?, 0, 0).map_err(|_| error())
}

/// A window that can be asked about instants.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedWindow {
    action: WindowAction,
    days: Vec<Weekday>,
    from: Time,
    to: Time,
    zone: TimeZone,
}

impl ParsedWindow {
    /// The stretches of this window that begin from the day before `now` to eight days after, in order.
    fn stretches(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> + '_ {
        let today = self.zone.to_datetime(now).date();
        (-1..=8).filter_map(move |offset| {
            let day = today
                .checked_add(SignedDuration::from_hours(24 * offset))
                .ok()?;
            if !self.days.is_empty() && !self.days.contains(&day.weekday()) {
                return None;
            }
            let last = if self.to <= self.from {
                day.tomorrow().ok()?
            } else {
                day
            };
            let start = first_instant(day.to_datetime(self.from), &self.zone)?;
            let end = last_instant(last.to_datetime(self.to), &self.zone)?;
            (start < end).then_some((start, end))
        })
    }

    fn covers(&self, now: Timestamp) -> bool {
        self.stretches(now)
            .any(|(start, end)| start <= now && now < end)
    }
}

/// Whether work may start at `now`: inside some Allow window if there are any, and inside no Deny window.
pub fn is_open(windows: &[ParsedWindow], now: Timestamp) -> bool {
    let of = |action| windows.iter().filter(move |w| w.action == action);
    let allowed = of(WindowAction::Allow).next().is_none()
        || of(WindowAction::Allow).any(|window| window.covers(now));
    allowed && !of(WindowAction::Deny).any(|window| window.covers(now))
}

/// The next instant after `now` at which [`is_open`] changes; `None` when it does not within a week.
pub fn next_change(windows: &[ParsedWindow], now: Timestamp) -> Option<Timestamp> {
    let open = is_open(windows, now);
    let mut edges: Vec<Timestamp> = windows
        .iter()
        .flat_map(|window| window.stretches(now))
        .flat_map(|(start, end)| [start, end])
        .filter(|edge| *edge > now)
        .collect();
    edges.sort_unstable();
    edges
        .into_iter()
        .find(|edge| is_open(windows, *edge) != open)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(action: WindowAction, days: &[Day], from: &str, to: &str) -> ParsedWindow {
        Window {
            action,
            days: days.to_vec(),
            from: from.into(),
            to: to.into(),
            time_zone: ZoneName("Europe/Berlin".into()),
        }
        .parse()
        .unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn without_windows_work_may_always_start() {
        assert!(is_open(&[], at("2026-11-16T12:00:00Z")));
        assert_eq!(next_change(&[], at("2026-11-16T12:00:00Z")), None);
    }

    #[test]
    fn a_night_window_runs_past_midnight() {
        let night = [window(
            WindowAction::Allow,
            &[Day::Friday],
            "22:00",
            "04:00",
        )];
        for (instant, open) in [
            ("2026-11-13T20:59:59Z", false),
            ("2026-11-13T21:00:00Z", true),
            ("2026-11-14T02:59:59Z", true),
            ("2026-11-14T03:00:00Z", false),
            ("2026-11-14T21:00:00Z", false),
        ] {
            assert_eq!(is_open(&night, at(instant)), open, "{instant}");
        }
        assert_eq!(
            next_change(&night, at("2026-11-14T03:00:00Z")),
            Some(at("2026-11-20T21:00:00Z"))
        );
    }

    #[test]
    fn deny_wins_over_allow() {
        let windows = [
            window(WindowAction::Allow, &[], "00:00", "24:00"),
            window(WindowAction::Deny, &[], "08:00", "18:00"),
        ];
        assert!(!is_open(&windows, at("2026-11-16T12:00:00Z")));
        assert!(is_open(&windows, at("2026-11-16T17:00:00Z")));
        assert_eq!(
            next_change(&windows, at("2026-11-16T12:00:00Z")),
            Some(at("2026-11-16T17:00:00Z"))
        );
    }

    #[test]
    fn a_window_over_a_clock_change_keeps_its_local_times() {
        let night = [window(WindowAction::Allow, &[], "01:00", "04:00")];
        assert!(is_open(&night, at("2026-03-29T01:30:00Z")));
        assert!(!is_open(&night, at("2026-03-29T02:00:00Z")));
    }

    #[test]
    fn a_window_whose_edges_are_skipped_or_repeated_leaves_no_hole() {
        let spring = [window(WindowAction::Deny, &[], "02:30", "03:15")];
        assert!(!is_open(&spring, at("2026-03-29T01:00:00Z")), "03:00 CEST");
        assert!(is_open(&spring, at("2026-03-29T01:15:00Z")), "03:15 CEST");
        let autumn = [window(WindowAction::Deny, &[], "01:00", "02:30")];
        assert!(
            !is_open(&autumn, at("2026-10-25T01:29:00Z")),
            "second 02:29"
        );
        assert!(is_open(&autumn, at("2026-10-25T01:30:00Z")), "second 02:30");
    }

    #[test]
    fn a_bad_time_is_named() {
        let bad = Window {
            action: WindowAction::Deny,
            days: vec![],
            from: "25:00".into(),
            to: "04:00".into(),
            time_zone: ZoneName::default(),
        };
        assert_eq!(
            bad.parse().unwrap_err().to_string(),
            "from \"25:00\" is not a time of day; write it like 22:30"
        );
    }
}
