//! In: how many nodes in how many data centres. Out: each node's data centre and tokens.
//! Pure.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// Tokens of each node: enough for several ranges, few enough to read.
const TOKENS: i128 = 4;

/// More do not fit the memory of the machines tests run on.
const MOST_NODES: u8 = 6;

/// Nodes per data centre: `3` is three in one, `[2, 1]` two in `dc1` and one in `dc2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Topology(Vec<u8>);

impl From<u8> for Topology {
    fn from(nodes: u8) -> Self {
        Self(vec![nodes])
    }
}

impl<const N: usize> From<[u8; N]> for Topology {
    fn from(nodes: [u8; N]) -> Self {
        Self(nodes.into())
    }
}

impl Topology {
    pub(super) fn check(&self) -> Result<()> {
        let nodes: u8 = self
            .0
            .iter()
            .fold(0, |sum, nodes| sum.saturating_add(*nodes));
        let possible = !self.0.contains(&0) && (1..=MOST_NODES).contains(&nodes);
        ensure!(
            possible,
            "no cluster of {:?} nodes: at least one per data centre, at most {MOST_NODES} in all",
            self.0
        );
        Ok(())
    }

    /// The data centre of each node.
    pub(super) fn datacenters(&self) -> Vec<String> {
        let centres = self.0.iter().enumerate();
        let names = centres.flat_map(|(n, nodes)| {
            let name = format!("dc{}", n + 1);
            std::iter::repeat_n(name, usize::from(*nodes))
        });
        names.collect()
    }
}

/// The tokens of node `n` of `nodes`, evenly spaced over the ring, the nodes taking turns.
pub(super) fn tokens(n: usize, nodes: usize) -> Vec<String> {
    let (n, nodes) = (n as i128, nodes as i128);
    let token = |turn: i128| {
        let step = ((turn * nodes + n) << 64) / (nodes * TOKENS);
        i128::from(i64::MIN) + 1 + step
    };
    (0..TOKENS).map(|turn| token(turn).to_string()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nodes_are_counted_out_to_data_centres() {
        assert_eq!(Topology::from(2).datacenters(), ["dc1", "dc1"]);
        let two = Topology::from([2, 1]);
        assert_eq!(two.datacenters(), ["dc1", "dc1", "dc2"]);
    }

    #[test]
    fn clusters_that_cannot_be_are_refused() {
        for (topology, possible) in [
            (Topology::from(1), true),
            (Topology::from([2, 2, 2]), true),
            (Topology::from(0), false),
            (Topology::from([3, 0]), false),
            (Topology::from([]), false),
            (Topology::from(7), false),
            (Topology::from([255, 255]), false),
        ] {
            assert_eq!(topology.check().is_ok(), possible, "{topology:?}");
        }
    }

    #[test]
    fn tokens_are_many_different_and_within_the_ring() {
        for nodes in 1..=usize::from(MOST_NODES) {
            let all = (0..nodes).flat_map(|n| tokens(n, nodes));
            let all: BTreeSet<i64> = all.map(|token| token.parse().unwrap()).collect();
            assert_eq!(all.len(), nodes * 4);
        }
        assert_eq!(tokens(0, 3)[0], "-9223372036854775807");
    }
}
