//! Reads cron expressions.
//! In: text. Out: a [`Cron`], or an error that names the field and the fix. Pure.

use super::Cron;

/// Why a text is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseCronError {
    /// A macro that is not known.
    #[error(
        "{0} is not a known macro; use @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually or five fields"
    )]
    Macro(String),
    /// A time zone inside the expression.
    #[error("put the time zone into the field timeZone, not into the schedule")]
    Zone,
    /// Not five fields.
    #[error("a schedule has five fields (minute hour day month weekday), this one has {0}")]
    Fields(usize),
    /// A field that cannot be read.
    #[error("{field} \"{text}\" is not understood: {why}")]
    Field {
        /// Which field.
        field: &'static str,
        /// What stands there.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A date that no calendar has.
    #[error("this schedule never fires: no month it names has the days it names")]
    Never,
}

struct Field {
    name: &'static str,
    low: u8,
    high: u8,
    names: &'static [&'static str],
}

const MINUTE: Field = field("minute", 0, 59, &[]);
const HOUR: Field = field("hour", 0, 23, &[]);
const DAY: Field = field("day", 1, 31, &[]);
const MONTH: Field = field(
    "month",
    1,
    12,
    &[
        "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
    ],
);
/// Sunday is 0 and 7.
const WEEKDAY: Field = field(
    "weekday",
    0,
    7,
    &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
);

const fn field(name: &'static str, low: u8, high: u8, names: &'static [&'static str]) -> Field {
    Field {
        name,
        low,
        high,
        names,
    }
}

/// The values of one field as bits, and whether the field is an unrestricted `*`.
struct Values {
    bits: u64,
    any: bool,
}

pub(super) fn cron(text: &str) -> Result<Cron, ParseCronError> {
    let text = text.trim();
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        return Err(ParseCronError::Zone);
    }
    if text.starts_with('@') {
        return five_fields(expand(text)?);
    }
    five_fields(text)
}

fn expand(text: &str) -> Result<&'static str, ParseCronError> {
    match text {
        "@yearly" | "@annually" => Ok("0 0 1 1 *"),
        "@monthly" => Ok("0 0 1 * *"),
        "@weekly" => Ok("0 0 * * 0"),
        "@daily" | "@midnight" => Ok("0 0 * * *"),
        "@hourly" => Ok("0 * * * *"),
        other => Err(ParseCronError::Macro(other.into())),
    }
}

fn five_fields(text: &str) -> Result<Cron, ParseCronError> {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields[..] else {
        return Err(ParseCronError::Fields(fields.len()));
    };
    let hours = HOUR.read(hour)?;
    let days = DAY.read(day)?;
    let weekdays = WEEKDAY.read(weekday)?;
    let cron = Cron {
        minutes: MINUTE.read(minute)?.bits,
        hours: hours.bits,
        days: days.bits,
        months: MONTH.read(month)?.bits,
        weekdays: weekdays.bits | (weekdays.bits >> 7 & 1),
        either_day: !days.any && !weekdays.any,
        every_hour: hours.any,
    };
    if weekdays.any && !has_a_date(&cron) {
        return Err(ParseCronError::Never);
    }
    Ok(cron)
}

/// Whether some month of the schedule is long enough for the first of its days.
fn has_a_date(cron: &Cron) -> bool {
    (1..=12u32).any(|month| {
        let longest = match month {
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        cron.months & 1 << month != 0 && cron.days.trailing_zeros() <= longest
    })
}

impl Field {
    fn read(&self, text: &str) -> Result<Values, ParseCronError> {
        let mut values = Values {
            bits: 0,
            any: false,
        };
        for part in text.split(',') {
            let Values { bits, any } = self.part(part).map_err(|why| ParseCronError::Field {
                field: self.name,
                text: text.into(),
                why,
            })?;
            values.bits |= bits;
            values.any |= any;
        }
        Ok(values)
    }

    fn part(&self, part: &str) -> Result<Values, String> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (part, None),
        };
        let star = matches!(range, "*" | "?");
        let (from, to) = match range.split_once('-') {
            _ if star => (self.low, self.high),
            Some((from, to)) => (self.value(from)?, self.value(to)?),
            // As in Kubernetes, `5/15` means from 5 to the end in steps of 15.
            None if step.is_some() => (self.value(range)?, self.high),
            None => (self.value(range)?, self.value(range)?),
        };
        if from > to {
            return Err(format!("the range {range} runs backwards"));
        }
        let step = step.unwrap_or(1);
        let bits = (from..=to)
            .step_by(step.into())
            .fold(0, |bits, value| bits | 1 << value);
        // As in Kubernetes, a step makes even `*` a restriction.
        Ok(Values {
            bits,
            any: star && step == 1,
        })
    }

    fn step(&self, text: &str) -> Result<u8, String> {
        text.parse()
            .ok()
            .filter(|step| (1..=self.high).contains(step))
            .ok_or_else(|| format!("the step must be 1 to {}", self.high))
    }

    fn value(&self, text: &str) -> Result<u8, String> {
        if let Some(index) = self.names.iter().position(|n| n.eq_ignore_ascii_case(text)) {
            return u8::try_from(index)
                .map(|index| index + self.low)
                .map_err(|e| e.to_string());
        }
        let digits = text.len() <= 2 && text.bytes().all(|b| b.is_ascii_digit());
        digits
            .then(|| text.parse().ok())
            .flatten()
            .filter(|value| (self.low..=self.high).contains(value))
            .ok_or_else(|| match self.names {
                [] => format!("values are {} to {}", self.low, self.high),
                [first, .., last] => {
                    format!(
                        "values are {} to {} or {first} to {last}",
                        self.low, self.high
                    )
                }
                [only] => format!("the value is {only}"),
            })
    }

    /// A regular expression for the field, as strict as one can be without comparing numbers.
    fn pattern(&self) -> String {
        let number = match self.high {
            59 => "[0-5]?[0-9]",
            23 => "([01]?[0-9]|2[0-3])",
            31 => "(0?[1-9]|[12][0-9]|3[01])",
            12 => "(0?[1-9]|1[0-2])",
            _ => "0?[0-7]",
        };
        let mut names = String::new();
        for name in self.names {
            names.push('|');
            for letter in name.chars() {
                names.extend(['[', letter, letter.to_ascii_lowercase(), ']']);
            }
        }
        let value = format!("({number}{names})");
        let part = format!("([*?]|{value}(-{value})?)(/0?[1-9][0-9]?)?");
        format!("{part}(,{part})*")
    }
}

/// The regular expression of the schema.
pub(super) fn pattern() -> String {
    let fields: Vec<String> = [&MINUTE, &HOUR, &DAY, &MONTH, &WEEKDAY]
        .iter()
        .map(|field| field.pattern())
        .collect();
    let macros = "@(yearly|annually|monthly|weekly|daily|midnight|hourly)";
    format!("^ *({macros}|{}) *$", fields.join(" +"))
}
