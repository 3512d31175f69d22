use jiff::{Timestamp, tz::TimeZone};
use proptest::prelude::*;

use super::*;

fn cron(text: &str) -> Cron {
    text.parse().unwrap()
}

fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The slots of `text` in `(from, to]`, each as local time with offset.
fn slots(text: &str, name: &str, from: &str, to: &str) -> Vec<String> {
    let (cron, zone) = (cron(text), zone(name));
    std::iter::successors(cron.next_after(at(from), &zone), |s| {
        cron.next_after(*s, &zone)
    })
    .take_while(|s| *s <= at(to))
    .map(|s| {
        s.to_zoned(zone.clone())
            .strftime("%m-%d %H:%M%:z")
            .to_string()
    })
    .collect()
}

#[test]
fn plain_schedules_follow_their_table() {
    for (text, from, next) in [
        (
            "*/15 * * * *",
            "2026-11-16T10:00:00Z",
            "2026-11-16T10:15:00Z",
        ),
        (
            "*/15 * * * *",
            "2026-11-16T10:14:59Z",
            "2026-11-16T10:15:00Z",
        ),
        (
            "5/15 * * * *",
            "2026-11-16T10:50:00Z",
            "2026-11-16T11:05:00Z",
        ),
        ("0 3 * * *", "2026-11-16T03:00:00Z", "2026-11-17T03:00:00Z"),
        (
            "30 22 * * 1-5",
            "2026-11-13T22:30:00Z",
            "2026-11-16T22:30:00Z",
        ),
        (
            "0 0 1,15 * *",
            "2026-11-02T00:00:00Z",
            "2026-11-15T00:00:00Z",
        ),
        ("0 0 13 * 5", "2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"),
        ("0 0 13 * 5", "2026-12-11T00:00:00Z", "2026-12-13T00:00:00Z"),
        ("0 0 * * 7", "2026-11-16T00:00:00Z", "2026-11-22T00:00:00Z"),
        (
            "0 0 * * sun",
            "2026-11-16T00:00:00Z",
            "2026-11-22T00:00:00Z",
        ),
        ("0 0 31 * *", "2026-11-16T00:00:00Z", "2026-12-31T00:00:00Z"),
        (
            "15 10 ? jan,JUL *",
            "2026-11-16T00:00:00Z",
            "2027-01-01T10:15:00Z",
        ),
        (
            "59 23 31 12 *",
            "2026-12-31T23:59:00Z",
            "2027-12-31T23:59:00Z",
        ),
        ("@yearly", "2026-11-16T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("@monthly", "2026-11-16T00:00:00Z", "2026-12-01T00:00:00Z"),
        ("@weekly", "2026-11-16T00:00:00Z", "2026-11-22T00:00:00Z"),
        ("@midnight", "2026-11-16T00:00:01Z", "2026-11-17T00:00:00Z"),
        ("@hourly", "2026-11-16T00:00:01Z", "2026-11-16T01:00:00Z"),
    ] {
        let found = cron(text).next_after(at(from), &TimeZone::UTC);
        assert_eq!(found, Some(at(next)), "{text} after {from}");
    }
}

#[test]
fn rare_dates_are_found_across_a_century_without_leap_day() {
    let leap_day = cron("0 0 29 2 *");
    assert_eq!(
        leap_day.next_after(at("2096-02-29T00:00:00Z"), &TimeZone::UTC),
        Some(at("2104-02-29T00:00:00Z"))
    );
}

#[test]
fn a_leap_day_on_a_monday_is_found_although_forty_years_away() {
    // Day and weekday together mean "either" in cron; "both" can only be built, not written.
    let both = Cron {
        either_day: false,
        ..cron("0 0 29 2 1")
    };
    assert_eq!(
        both.next_after(at("2072-03-01T00:00:00Z"), &TimeZone::UTC),
        Some(at("2112-02-29T00:00:00Z"))
    );
    assert_eq!(
        cron("0 0 29 2 1").next_after(at("2027-03-01T00:00:00Z"), &TimeZone::UTC),
        Some(at("2028-02-07T00:00:00Z"))
    );
}

#[test]
fn a_skipped_time_fires_at_the_end_of_the_gap() {
    for (text, name, from, to, expected) in [
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00:00Z",
            "2026-03-30T12:00:00Z",
            vec![
                "03-28 02:30+01:00",
                "03-29 03:00+02:00",
                "03-30 02:30+02:00",
            ],
        ),
        (
            "0,30 2,3 * * *",
            "Europe/Berlin",
            "2026-03-28T22:00:00Z",
            "2026-03-29T12:00:00Z",
            vec!["03-29 03:00+02:00", "03-29 03:30+02:00"],
        ),
        (
            "30 2 * * *",
            "America/New_York",
            "2026-03-08T05:00:00Z",
            "2026-03-09T12:00:00Z",
            vec!["03-08 03:00-04:00", "03-09 02:30-04:00"],
        ),
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00:00Z",
            "2026-10-04T10:00:00Z",
            vec!["10-04 02:30+11:00"],
        ),
        (
            // Midnight itself is skipped in Beirut.
            "0 0 * * *",
            "Asia/Beirut",
            "2026-03-28T00:00:00Z",
            "2026-03-30T00:00:00Z",
            vec!["03-29 01:00+03:00", "03-30 00:00+03:00"],
        ),
    ] {
        assert_eq!(slots(text, name, from, to), expected, "{text} in {name}");
    }
}

#[test]
fn a_repeated_time_fires_at_its_first_occurrence_only() {
    for (text, name, from, to, expected) in [
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            "2026-10-26T12:00:00Z",
            vec!["10-25 02:30+02:00", "10-26 02:30+01:00"],
        ),
        (
            "*/30 1 * * *",
            "America/New_York",
            "2026-11-01T00:00:00Z",
            "2026-11-02T00:00:00Z",
            vec!["11-01 01:00-04:00", "11-01 01:30-04:00"],
        ),
        (
            // Asked from inside the second occurrence: nothing of that hour is left.
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-25T01:10:00Z",
            "2026-10-26T12:00:00Z",
            vec!["10-26 02:30+01:00"],
        ),
    ] {
        assert_eq!(slots(text, name, from, to), expected, "{text} in {name}");
    }
}

#[test]
fn a_schedule_for_every_hour_follows_real_time() {
    for (text, from, to, expected) in [
        (
            "30 * * * *",
            "2026-03-28T23:45:00Z",
            "2026-03-29T02:45:00Z",
            vec![
                "03-29 01:30+01:00",
                "03-29 03:30+02:00",
                "03-29 04:30+02:00",
            ],
        ),
        (
            "30 * * * *",
            "2026-10-24T23:45:00Z",
            "2026-10-25T02:45:00Z",
            vec![
                "10-25 02:30+02:00",
                "10-25 02:30+01:00",
                "10-25 03:30+01:00",
            ],
        ),
        (
            "0 * * * *",
            "2026-03-29T00:00:00Z",
            "2026-03-29T02:00:00Z",
            vec!["03-29 03:00+02:00", "03-29 04:00+02:00"],
        ),
    ] {
        assert_eq!(slots(text, "Europe/Berlin", from, to), expected, "{text}");
    }
}

#[test]
fn the_last_slot_of_a_long_outage_is_found_directly() {
    let every_minute = cron("* * * * *");
    let last = every_minute.last_between(
        at("2016-01-01T00:00:00Z"),
        at("2026-11-16T10:00:30Z"),
        &TimeZone::UTC,
    );
    assert_eq!(last, Some(at("2026-11-16T10:00:00Z")));
    let daily = cron("0 3 * * *");
    for (after, until, expected) in [
        ("2026-11-16T03:00:00Z", "2026-11-17T02:59:59Z", None),
        (
            "2026-11-16T03:00:00Z",
            "2026-11-17T03:00:00Z",
            Some("2026-11-17T03:00:00Z"),
        ),
        (
            "2026-11-16T02:59:59Z",
            "2026-11-20T00:00:00Z",
            Some("2026-11-19T03:00:00Z"),
        ),
    ] {
        let last = daily.last_between(at(after), at(until), &TimeZone::UTC);
        assert_eq!(last, expected.map(at));
    }
}

#[test]
fn counting_stops_at_its_limit() {
    let (from, to) = (at("2026-11-16T00:00:00Z"), at("2026-11-17T00:00:00Z"));
    assert_eq!(
        cron("0 * * * *").count_between(from, to, &TimeZone::UTC, 100),
        24
    );
    assert_eq!(
        cron("* * * * *").count_between(from, to, &TimeZone::UTC, 100),
        100
    );
}

#[test]
fn errors_name_the_field_and_the_fix() {
    for (text, message) in [
        (
            "",
            "a schedule has five fields (minute hour day month weekday), this one has 0",
        ),
        (
            "0 3 * *",
            "a schedule has five fields (minute hour day month weekday), this one has 4",
        ),
        (
            "60 * * * *",
            "minute \"60\" is not understood: values are 0 to 59",
        ),
        (
            "0 24 * * *",
            "hour \"24\" is not understood: values are 0 to 23",
        ),
        (
            "0 0 0 * *",
            "day \"0\" is not understood: values are 1 to 31",
        ),
        (
            "0 0 * FOO *",
            "month \"FOO\" is not understood: values are 1 to 12 or JAN to DEC",
        ),
        (
            "0 0 * * 8",
            "weekday \"8\" is not understood: values are 0 to 7 or SUN to SAT",
        ),
        (
            "30-10 * * * *",
            "minute \"30-10\" is not understood: the range 30-10 runs backwards",
        ),
        (
            "*/0 * * * *",
            "minute \"*/0\" is not understood: the step must be 1 to 59",
        ),
        (
            "1,,2 * * * *",
            "minute \"1,,2\" is not understood: values are 0 to 59",
        ),
        (
            "0 0 30 2 *",
            "this schedule never fires: no month it names has the days it names",
        ),
        (
            "@reboot",
            "@reboot is not a known macro; use @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually or five fields",
        ),
        (
            "TZ=UTC 0 3 * * *",
            "put the time zone into the field timeZone, not into the schedule",
        ),
    ] {
        assert_eq!(
            text.parse::<Cron>().unwrap_err().to_string(),
            message,
            "{text}"
        );
    }
}

/// The rule of cron, minute by minute: slow and obvious.
fn matches(cron: &Cron, local: DateTime) -> bool {
    holds(cron.minutes, local.minute().unsigned_abs())
        && holds(cron.hours, local.hour().unsigned_abs())
        && holds(cron.months, local.month().unsigned_abs())
        && holds(
            cron.days_of(local.date().first_of_month()),
            local.day().unsigned_abs(),
        )
}

fn field(low: u8, high: u8) -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("*".to_string()),
        1 => (low..=high).prop_map(|v| v.to_string()),
        1 => (2..=high).prop_map(|v| format!("*/{v}")),
        1 => (low..=high, low..=high).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
    ]
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,40}") {
        let _ = text.parse::<Cron>();
    }

    #[test]
    fn in_utc_the_next_slot_is_the_first_minute_that_matches(
        fields in (field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6)),
        start in 1_700_000_000_i64..1_800_000_000,
    ) {
        let (minute, hour, day, month, weekday) = fields;
        let cron = cron(&format!("{minute} {hour} {day} {month} {weekday}"));
        let start = Timestamp::from_second(start).unwrap();
        let found = cron.next_after(start, &TimeZone::UTC).unwrap();
        let mut minute = whole_minute(TimeZone::UTC.to_datetime(start));
        // Walking is slow: two weeks are enough to find a disagreement.
        for _ in 0..60 * 24 * 14 {
            minute = next_minute(minute).unwrap();
            if matches(&cron, minute) {
                break;
            }
        }
        let walked = TimeZone::UTC.to_timestamp(minute).unwrap();
        prop_assert!(found == walked || !matches(&cron, minute) && found > walked);
    }

    #[test]
    fn slots_only_ever_move_forward(
        fields in (field(0, 59), field(0, 23)),
        start in 1_774_600_000_i64..1_774_900_000,
        name in prop_oneof![Just("Europe/Berlin"), Just("America/New_York"), Just("Australia/Lord_Howe")],
    ) {
        let cron = cron(&format!("{} {} * * *", fields.0, fields.1));
        let zone = zone(name);
        let mut last = Timestamp::from_second(start).unwrap();
        for _ in 0..50 {
            let next = cron.next_after(last, &zone).unwrap();
            prop_assert!(next > last);
            last = next;
        }
    }
}
