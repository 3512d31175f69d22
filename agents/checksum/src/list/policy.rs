//! A line that the policy engine of Spectrum Scale (GPFS) wrote for a list with
//! `SHOW('|' || VARCHAR(FILE_SIZE) || '|' || VARCHAR(MODIFICATION_TIME) || '|')` and `ESCAPE '%|/,:; @#'`.
//! In: its bytes. Out: a path and attributes, or why not. Pure.

use std::borrow::Cow;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::Offset;

use super::stat::saturated;
use crate::entry::{Attributes, UNKNOWN};

/// What a line tells of a file. The engine does not tell when anything but the content was changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// Not escaped any more.
    pub(super) path: Cow<'a, [u8]>,
    pub(super) attributes: Attributes,
}

/// `inode generation snapshot |size|YYYY-MM-DD hh:mm:ss.ffffff| -- path`
pub(super) fn parse(line: &[u8]) -> Result<Line<'_>, &'static str> {
    let mut rest = line;
    number(&mut rest, b' ').ok_or("no inode number")?;
    number(&mut rest, b' ').ok_or("no generation")?;
    number(&mut rest, b' ').ok_or("no snapshot number")?;
    rest = rest
        .trim_ascii_start()
        .strip_prefix(b"|")
        .ok_or("no size")?;
    let size = number(&mut rest, b'|').ok_or("no size")?;
    let mtime = field(&mut rest, b'|')
        .and_then(time)
        .ok_or("no time of modification")?;
    let escaped = rest
        .trim_ascii_start()
        .strip_prefix(b"-- ")
        .ok_or("no ` -- ` before the path")?;
    let path = unescaped(escaped).ok_or("a `%` in the path without two hexadecimal digits")?;
    Ok(Line {
        path,
        attributes: Attributes {
            size,
            mtime,
            ctime: UNKNOWN,
        },
    })
}

/// What is before `end`; `rest` goes on after it.
fn field<'a>(rest: &mut &'a [u8], end: u8) -> Option<&'a [u8]> {
    let length = rest.iter().position(|byte| *byte == end)?;
    let (field, after) = rest.split_at(length);
    *rest = &after[1..];
    Some(field)
}

fn number(rest: &mut &[u8], end: u8) -> Option<u64> {
    *rest = rest.trim_ascii_start();
    digits(field(rest, end)?)
}

/// Digits and nothing else. That they are text is not to be known, and takes longer than to read them.
fn digits<T: TryFrom<u64>>(text: &[u8]) -> Option<T> {
    let (first, rest) = text.split_first()?;
    let value = rest.iter().try_fold(digit(*first)?, |value, next| {
        value.checked_mul(10)?.checked_add(digit(*next)?)
    });
    T::try_from(value?).ok()
}

fn digit(byte: u8) -> Option<u64> {
    byte.is_ascii_digit().then(|| u64::from(byte - b'0'))
}

/// `YYYY-MM-DD hh:mm:ss`, with up to nine digits of a fraction or none, in UTC.
fn time(text: &[u8]) -> Option<i64> {
    let (whole, fraction) = text.split_at_checked(19)?;
    let [b'-', b'-', b' ', b':', b':'] = [4, 7, 10, 13, 16].map(|at| whole[at]) else {
        return None;
    };
    let date = Date::new(
        digits(&whole[..4])?,
        digits(&whole[5..7])?,
        digits(&whole[8..10])?,
    )
    .ok()?;
    let nanoseconds = match fraction {
        [] => 0,
        [b'.', fraction @ ..] => nanoseconds(fraction)?,
        _ => return None,
    };
    let time = Time::new(
        digits(&whole[11..13])?,
        digits(&whole[14..16])?,
        digits(&whole[17..])?,
        nanoseconds,
    )
    .ok()?;
    Some(saturated(
        Offset::UTC
            .to_timestamp(DateTime::from_parts(date, time))
            .ok()?
            .as_nanosecond(),
    ))
}

fn nanoseconds(fraction: &[u8]) -> Option<i32> {
    let missing = 9_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    Some(digits::<i32>(fraction)? * 10_i32.pow(missing))
}

fn unescaped(escaped: &[u8]) -> Option<Cow<'_, [u8]>> {
    if memchr::memchr(b'%', escaped).is_none() {
        return Some(escaped.into());
    }
    let mut path = Vec::with_capacity(escaped.len());
    let mut parts = escaped.split(|byte| *byte == b'%');
    path.extend_from_slice(parts.next()?);
    for part in parts {
        let ([high, low], rest) = part.split_first_chunk()?;
        path.push(hexadecimal(*high)? << 4 | hexadecimal(*low)?);
        path.extend_from_slice(rest);
    }
    Some(path.into())
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::*;

    fn written(line: &Line<'_>, time: &str) -> String {
        let mut text = format!("12 {} 0   |{}|{time}| -- ", u32::MAX, line.attributes.size);
        for byte in line.path.iter() {
            if byte.is_ascii_alphanumeric() || b"-._~|/,:; @#".contains(byte) {
                text.push(char::from(*byte));
            } else {
                write!(text, "%{byte:02X}").unwrap();
            }
        }
        text
    }

    #[test]
    fn a_line_tells_path_size_and_time() {
        let line =
            b"269826 65539 7   |1024|2026-01-02 03:04:05.678901| -- /fs/a b|c -- d/%25%FF%0A";
        let mtime = 1_767_323_045_678_901_000;
        let attributes = Attributes {
            size: 1024,
            mtime,
            ctime: UNKNOWN,
        };
        assert_eq!(
            parse(line),
            Ok(Line {
                path: b"/fs/a b|c -- d/%\xff\n".into(),
                attributes
            })
        );
    }

    #[test]
    fn a_time_before_1970_is_negative() {
        assert_eq!(time(b"1969-12-31 23:59:59.999999"), Some(-1000));
        assert_eq!(time(b"1970-01-01 00:00:00"), Some(0));
        assert_eq!(time(b"9999-12-30 00:00:00"), Some(i64::MAX));
    }

    #[test]
    fn what_is_wrong_with_a_line_is_told() {
        let wrong = |line: &str| parse(line.as_bytes()).unwrap_err();
        assert_eq!(wrong(""), "no inode number");
        assert_eq!(wrong("1 2 |3|"), "no snapshot number");
        assert_eq!(wrong("1 2 3 |x|2026-01-02 03:04:05| -- /a"), "no size");
        assert_eq!(wrong("1 2 3 |+1|2026-01-02 03:04:05| -- /a"), "no size");
        assert_eq!(
            wrong("1 2 3 |99999999999999999999|2026-01-02 03:04:05| -- /a"),
            "no size"
        );
        assert_eq!(
            wrong("1 2 3 |1|2026-02-30 03:04:05| -- /a"),
            "no time of modification"
        );
        assert_eq!(
            wrong("1 2 3 |1|2026-01-02 03:04:05.1234567890| -- /a"),
            "no time of modification"
        );
        assert_eq!(
            wrong("1 2 3 |1|2026-01-02 03:04:05|/a"),
            "no ` -- ` before the path"
        );
        assert_eq!(
            wrong("1 2 3 |1|2026-01-02 03:04:05| -- /a%4"),
            "a `%` in the path without two hexadecimal digits"
        );
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_again(path: Vec<u8>, size: u64, microseconds in -9_000_000_000_000_000_i64..9_000_000_000_000_000) {
            let at = jiff::Timestamp::from_microsecond(microseconds).unwrap();
            let mtime = microseconds * 1000;
            let line = Line { path: path.into(), attributes: Attributes { size, mtime, ctime: UNKNOWN } };
            let time = at.strftime("%Y-%m-%d %H:%M:%S.%6f").to_string();
            let written = written(&line, &time);
            prop_assert_eq!(parse(written.as_bytes()), Ok(line));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_line_that_is_almost_right_panics(line in r"[0-9]{0,3} 2 3 \|[0-9x]{0,21}\|[0-9:. -]{0,30}\|? -?- [%a-f0-9/]{0,9}") {
            let _ = parse(line.as_bytes());
        }
    }
}
