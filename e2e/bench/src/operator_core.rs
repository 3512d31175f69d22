//! The topic `operator`: the operator's core beside the same reconcile on controller-runtime, and its figures at rest.
//! In: nothing. Out: rows. Touches: control planes, controllers and load generators, all of which it starts itself.

mod contender;
mod figures;
mod load;
mod noop;
mod seed;
mod turn;
pub mod watchers;

use anyhow::{Context, Result};

use crate::{
    peers,
    rounds::{self, Side},
    row::{self, Measure, Row, Run},
};

/// How many objects there are of each kind.
pub(crate) const PARENTS: usize = 1000;

const RESIDENT: Measure = Measure {
    name: "memory with 1,000 parents and their children, at rest",
    unit: "MB",
    goal: Some(0.4),
};
const PEAK: Measure = Measure {
    name: "peak of memory",
    unit: "MB",
    goal: Some(0.4),
};
const CPU_PER_RECONCILES: Measure = Measure {
    name: "CPU per 1,000 reconciles",
    unit: "s",
    goal: Some(0.5),
};
const CPU_PER_CHANGES: Measure = Measure {
    name: "CPU per 1,000 changes carried out",
    unit: "s",
    goal: Some(0.5),
};
const RECONCILES: Measure = Measure {
    name: "reconciles per 1,000 changes",
    unit: "",
    goal: None,
};
const REQUESTS: Measure = Measure {
    name: "requests per 1,000 changes",
    unit: "",
    goal: None,
};
const CLUSTER_CPU: Measure = Measure {
    name: "CPU of the control plane per 1,000 changes",
    unit: "s",
    goal: None,
};
const CLUSTER_PEAK: Measure = Measure {
    name: "peak of the control plane's memory",
    unit: "MB",
    goal: None,
};

const COMPARED: [Measure; 8] = [
    RESIDENT,
    PEAK,
    CPU_PER_RECONCILES,
    CPU_PER_CHANGES,
    RECONCILES,
    REQUESTS,
    CLUSTER_CPU,
    CLUSTER_PEAK,
];

/// Measures all of it.
pub async fn measure(run: &Run) -> Result<Vec<Row>> {
    let peer = peers::folder("operator").await?.join("controller-runtime");
    let sides = [Side::Ours, Side::Peer];
    let turns = rounds::run("reconciles", &sides, async |side| {
        turn::take(side, &peer).await
    });
    let mut rows = row::rows(&COMPARED, &turns.await?, run)?;
    rows.extend(row::rows(
        &figures::MEASURES,
        &figures::samples().await?,
        run,
    )?);
    Ok(rows)
}

/// What the peer is, in the words of its module.
pub fn against() -> Result<String> {
    let version = required("sigs.k8s.io/controller-runtime").context("go.mod lacks the peer")?;
    Ok(format!("controller-runtime {version}"))
}

fn required(module: &str) -> Option<&'static str> {
    let lines = include_str!("../peers/controller-runtime/go.mod").lines();
    lines
        .filter_map(|line| line.trim().strip_prefix(module))
        .find_map(|rest| rest.strip_prefix(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_built_from_the_version_that_is_named() {
        let mut versions = include_str!("../../tools/versions.env").lines();
        let named = versions.find_map(|line| line.strip_prefix("CONTROLLER_RUNTIME_VERSION="));
        assert_eq!(required("sigs.k8s.io/controller-runtime"), named);
    }
}
