//! In: the words of a command line. Out: what to run, or one line that says what is possible.
//! Pure.

use std::ops::RangeInclusive;

use anyhow::{Context, Result};

use crate::topic::Topic;

/// Long enough for every kind of fault to come by.
const MINUTES: u64 = 10;

/// A day: what real parts are given to authenticate with is not valid for longer.
const POSSIBLE_MINUTES: RangeInclusive<u64> = 1..=24 * 60;

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Wish {
    /// One after the other.
    pub topics: Vec<Topic>,
    /// None for a new one.
    pub seed: Option<u64>,
    /// For each topic.
    pub minutes: u64,
}

/// Reads the words; an empty one stands for the default.
pub fn parse(topic: &str, seed: &str, minutes: &str) -> Result<Wish> {
    Ok(Wish {
        topics: topics(topic)?,
        seed: given(seed)
            .map(|it| number("SEED", it, 0..=u64::MAX))
            .transpose()?,
        minutes: given(minutes)
            .map_or(Ok(MINUTES), |it| number("MINUTES", it, POSSIBLE_MINUTES))?,
    })
}

fn given(word: &str) -> Option<&str> {
    Some(word).filter(|word| !word.is_empty())
}

fn topics(word: &str) -> Result<Vec<Topic>> {
    let Some(name) = given(word) else {
        return Ok(Topic::ALL.into());
    };
    let topic = Topic::ALL.into_iter().find(|topic| topic.name() == name);
    let topic = topic.with_context(|| {
        let possible = Topic::ALL.map(Topic::name).join(", ");
        format!("ONLY={name}: there is no such topic, but there are {possible}")
    })?;
    Ok(vec![topic])
}

fn number(name: &str, word: &str, possible: RangeInclusive<u64>) -> Result<u64> {
    let number = word.parse().ok().filter(|number| possible.contains(number));
    number.with_context(|| {
        let (least, most) = possible.into_inner();
        format!("{name}={word}: must be a whole number from {least} to {most}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_asked_for_is_everything_for_ten_minutes() {
        let wish = parse("", "", "").unwrap();
        let all = Wish {
            topics: Topic::ALL.into(),
            seed: None,
            minutes: 10,
        };
        assert_eq!(wish, all);
    }

    #[test]
    fn a_run_can_be_asked_for_again() {
        let wish = parse("leader", "18446744073709551615", "3").unwrap();
        let one = Wish {
            topics: vec![Topic::Leader],
            seed: Some(u64::MAX),
            minutes: 3,
        };
        assert_eq!(wish, one);
    }

    #[test]
    fn what_is_impossible_is_answered_by_one_line_that_says_what_is_possible() {
        for (topic, seed, minutes, line) in [
            (
                "nonsense",
                "",
                "",
                "ONLY=nonsense: there is no such topic, but there are leader, cassandra",
            ),
            (
                "",
                "x",
                "",
                "SEED=x: must be a whole number from 0 to 18446744073709551615",
            ),
            (
                "",
                "",
                "1.5",
                "MINUTES=1.5: must be a whole number from 1 to 1440",
            ),
            (
                "",
                "",
                "0",
                "MINUTES=0: must be a whole number from 1 to 1440",
            ),
        ] {
            let error = parse(topic, seed, minutes).unwrap_err();
            assert_eq!(format!("{error:#}"), line);
        }
    }
}
