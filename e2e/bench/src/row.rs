//! In: samples of all repetitions. Out: the rows of a result file, `docs/benchmarks/<topic>.json`.
//! Pure.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{
    rounds::Side,
    stats::{Summary, met, ratio},
};

/// Something that is measured, always the same way.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// What it is, in words.
    pub name: &'static str,
    /// In what it is counted.
    pub unit: &'static str,
    /// The most it should be: as a share of the peer's where there is a peer, else as it stands.
    pub goal: Option<f64>,
}

/// What one turn found, by the name of the measure.
pub type Sample = BTreeMap<&'static str, f64>;

/// What is the same for all rows of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// What to type to measure it again.
    pub command: String,
    /// The day.
    pub date: String,
    /// On what.
    pub machine: String,
    /// With what it is compared.
    pub against: String,
}

impl Run {
    /// The same, compared with something else.
    #[must_use]
    pub fn beside(&self, against: &str) -> Self {
        Self {
            against: against.into(),
            ..self.clone()
        }
    }
}

/// One measure of a run.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Row {
    /// What was measured.
    pub measure: String,
    /// In what `ours` and `peer` are counted.
    pub unit: String,
    /// The median of ours.
    pub ours: f64,
    /// The least and the most of ours.
    pub ours_spread: [f64; 2],
    /// The median of the peer's; none if there is nothing to compare with.
    pub peer: Option<f64>,
    /// The least and the most of the peer's.
    pub peer_spread: Option<[f64; 2]>,
    /// Ours as a share of the peer's.
    pub ratio: Option<f64>,
    /// The most that `ratio` should be, or `ours` where there is no peer.
    pub goal: Option<f64>,
    /// Whether the goal is met.
    pub met: Option<bool>,
    /// How often each side was measured.
    pub repetitions: usize,
    /// What the peer is.
    pub against: Option<String>,
    /// What to type to measure it again.
    pub command: String,
    /// The day.
    pub date: String,
    /// On what.
    pub machine: String,
}

/// One row per measure. A measure that the peer's samples lack has no peer.
pub fn rows(measures: &[Measure], samples: &[(Side, Sample)], run: &Run) -> Result<Vec<Row>> {
    let row = |measure: &Measure| {
        let ours = values(samples, Side::Ours, measure.name);
        let peer = Summary::of(&values(samples, Side::Peer, measure.name));
        let (repetitions, name) = (ours.len(), measure.name);
        let ours = Summary::of(&ours).with_context(|| format!("{name} was not measured"))?;
        let peer_median = peer.map(|peer| peer.median);
        Ok(Row {
            measure: name.into(),
            unit: measure.unit.into(),
            ours: ours.median,
            ours_spread: [ours.least, ours.most],
            peer: peer_median,
            peer_spread: peer.map(|peer| [peer.least, peer.most]),
            ratio: peer_median.and_then(|peer| ratio(ours.median, peer)),
            goal: measure.goal,
            met: measure.goal.map(|goal| met(goal, ours.median, peer_median)),
            repetitions,
            against: peer.map(|_| run.against.clone()),
            command: run.command.clone(),
            date: run.date.clone(),
            machine: run.machine.clone(),
        })
    };
    measures.iter().map(row).collect()
}

fn values(samples: &[(Side, Sample)], side: Side, name: &str) -> Vec<f64> {
    let of_side = samples.iter().filter(|(whose, _)| *whose == side);
    of_side
        .filter_map(|(_, it)| it.get(name).copied())
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Side::*, *};

    pub(crate) const MEMORY: Measure = Measure {
        name: "memory",
        unit: "MB",
        goal: Some(0.4),
    };
    pub(crate) const IDLE: Measure = Measure {
        name: "idle <&>",
        unit: "MB",
        goal: Some(15.0),
    };
    pub(crate) const REQUESTS: Measure = Measure {
        name: "requests",
        unit: "requests",
        goal: None,
    };

    /// A goal that is met, one that is not, and a measure without a goal.
    pub(crate) fn example() -> Vec<Row> {
        let mut samples = Vec::new();
        for n in [1.0, 3.0, 2.0] {
            samples.push((
                Ours,
                Sample::from([(MEMORY.name, 18.0 + n), (REQUESTS.name, 2001.0)]),
            ));
            samples.push((
                Peer,
                Sample::from([(MEMORY.name, 50.0 + n), (REQUESTS.name, 4000.0)]),
            ));
            samples.push((Ours, Sample::from([(IDLE.name, 15.25)])));
        }
        let run = Run {
            command: "make bench ONLY=operator".into(),
            date: "2026-11-16".into(),
            machine: "2 cores".into(),
            against: "something v1".into(),
        };
        rows(&[MEMORY, REQUESTS, IDLE], &samples, &run).unwrap()
    }

    #[test]
    fn a_row_tells_both_sides_and_the_verdict() {
        insta::assert_json_snapshot!(example()[0]);
    }

    #[test]
    fn a_row_without_a_peer_has_neither_peer_nor_ratio() {
        let idle = &example()[2];
        assert_eq!((idle.peer, idle.ratio, &idle.against), (None, None, &None));
        assert_eq!((idle.goal, idle.met), (Some(15.0), Some(false)));
    }

    #[test]
    fn a_row_without_a_goal_has_no_verdict() {
        assert_eq!((example()[1].goal, example()[1].met), (None, None));
    }

    #[test]
    fn a_measure_that_nobody_took_is_named() {
        let run = Run {
            command: String::new(),
            date: String::new(),
            machine: String::new(),
            against: String::new(),
        };
        let error = rows(&[MEMORY], &[], &run).unwrap_err();
        assert_eq!(error.to_string(), "memory was not measured");
    }
}
