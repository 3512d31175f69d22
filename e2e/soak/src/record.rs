//! In: the counts of a run and how it ended. Out: the record that is kept of it.
//! Pure.

use std::collections::BTreeMap;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::journal::{Claim, Counts};

/// How many runs of a topic are kept.
pub const KEPT: usize = 50;

/// The outcome of a run in which every claim held.
const HELD: &str = "held";

/// The most of a failure that is kept, in characters; the rest is in the logs.
const LONGEST: usize = 300;

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Record {
    /// What decided the faults.
    pub seed: u64,
    /// How long it was to run.
    pub minutes: u64,
    /// When.
    pub date: Date,
    /// What was done, how often.
    pub done: BTreeMap<String, u64>,
    /// What held, how often.
    pub held: Vec<Held>,
    /// `held`, or what did not.
    pub outcome: String,
}

/// A claim that held.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Held {
    /// Its name.
    pub claim: String,
    /// How often.
    pub times: u64,
}

/// What a run was.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// What decided the faults.
    pub seed: u64,
    /// How long it was to run.
    pub minutes: u64,
    /// When.
    pub date: Date,
}

impl Record {
    /// The record of a run; `failure` is the whole story of what did not hold.
    pub fn new(setting: Setting, claims: &[Claim], counts: &Counts, failure: Option<&str>) -> Self {
        let done = counts.done.iter();
        let held = claims.iter().map(|claim| Held {
            claim: claim.name.into(),
            times: counts.times(claim),
        });
        Self {
            seed: setting.seed,
            minutes: setting.minutes,
            date: setting.date,
            done: done.map(|(name, times)| ((*name).into(), *times)).collect(),
            held: held.collect(),
            outcome: failure.map_or_else(|| HELD.into(), shortened),
        }
    }

    /// Whether every claim held.
    pub fn is_good(&self) -> bool {
        self.outcome == HELD
    }
}

/// Adds a record, and forgets the oldest beyond [`KEPT`].
pub fn add(records: &mut Vec<Record>, new: Record) {
    records.push(new);
    let excess = records.len().saturating_sub(KEPT);
    records.drain(..excess);
}

/// The claims that were never looked at: a run with one of these has shown too little.
pub fn unchecked(claims: &[Claim], counts: &Counts) -> Vec<&'static str> {
    let unchecked = claims.iter().filter(|claim| counts.times(claim) == 0);
    unchecked.map(|claim| claim.name).collect()
}

fn shortened(failure: &str) -> String {
    let line = failure.lines().next().unwrap_or_default();
    format!("failed: {}", line.chars().take(LONGEST).collect::<String>())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::journal::Journal;

    pub(crate) const CLAIMS: [Claim; 2] = [
        Claim {
            name: "nothing was lost",
            meaning: "…",
        },
        Claim {
            name: "nothing was done twice",
            meaning: "…",
        },
    ];

    fn counts() -> Counts {
        let journal = Journal::default();
        journal.did("kill");
        journal.held(&CLAIMS[1], 12_345);
        journal.so_far()
    }

    pub(crate) fn record(seed: u64, failure: Option<&str>) -> Record {
        let setting = Setting {
            seed,
            minutes: 10,
            date: jiff::civil::date(2026, 1, 2),
        };
        Record::new(setting, &CLAIMS, &counts(), failure)
    }

    #[test]
    fn a_record_has_the_claims_in_order_and_the_outcome() {
        let good = record(7, None);
        assert!(good.is_good());
        let held: Vec<_> = good.held.iter().map(|it| (&*it.claim, it.times)).collect();
        assert_eq!(
            held,
            [("nothing was lost", 0), ("nothing was done twice", 12_345)]
        );
        assert_eq!(good.done, BTreeMap::from([("kill".into(), 1)]));
    }

    #[test]
    fn a_failure_is_kept_as_one_short_line() {
        let long = format!("{}\nsecond line", "ä".repeat(1000));
        let bad = record(7, Some(&long));
        assert!(!bad.is_good());
        assert_eq!(bad.outcome, format!("failed: {}", "ä".repeat(LONGEST)));
    }

    #[test]
    fn only_the_newest_runs_are_kept() {
        let mut records = Vec::new();
        for seed in 0..60 {
            add(&mut records, record(seed, None));
        }
        let seeds: Vec<_> = records.iter().map(|record| record.seed).collect();
        assert!(seeds.into_iter().eq(10..60));
    }

    #[test]
    fn a_claim_nobody_looked_at_is_named() {
        assert_eq!(unchecked(&CLAIMS, &counts()), ["nothing was lost"]);
    }
}
