//! In: actions. Out: nodes and a network that are broken, then mended.
//! Touches: the nodes' processes, the rules of their network.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use testbed::Cassandra;

use super::plan::{Action, Fault, NODES};

/// A cluster, and what is broken about it.
pub(super) struct Stage<'a> {
    cassandra: &'a Cassandra,
    /// Faults of the network, each with the node that it is about.
    cuts: Vec<(usize, Fault)>,
    /// Nodes that were killed in this round.
    killed: BTreeSet<usize>,
}

/// What the network is to lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    /// Everything from and to a node.
    Of(usize),
    /// What one node sends to another.
    Between(usize, usize),
}

impl<'a> Stage<'a> {
    pub(super) fn new(cassandra: &'a Cassandra) -> Self {
        Self {
            cassandra,
            cuts: Vec::new(),
            killed: BTreeSet::new(),
        }
    }

    /// Breaks or mends something.
    pub(super) async fn act(&mut self, action: Action) -> Result<()> {
        match action {
            Action::Break(n, Fault::Kill) => self.kill(n).await,
            Action::Break(n, Fault::Restart) => {
                self.kill(n).await?;
                self.cassandra.node(n).start()
            }
            Action::Break(n, Fault::Pause) => self.pause(n).await,
            Action::Break(n, cut) => self.cut(n, cut).await,
            Action::Mend(n) => self.mend(n).await,
        }
    }

    /// Mends everything, and waits until all nodes see each other.
    pub(super) async fn mend_all(&mut self, within: Duration) -> Result<()> {
        self.cuts.clear();
        self.cassandra.network()?.heal().await?;
        for n in 0..NODES {
            self.let_run(n)?;
        }
        self.killed.clear();
        self.cassandra.all_up(within).await
    }

    async fn kill(&mut self, n: usize) -> Result<()> {
        self.killed.insert(n);
        self.cassandra.node(n).kill().await
    }

    async fn pause(&self, n: usize) -> Result<()> {
        let node = self.cassandra.node(n);
        match node.pause().await {
            // It was killed, and could not start for want of others.
            Err(_) if self.killed.contains(&n) && !node.component().is_running() => Ok(()),
            result => result,
        }
    }

    async fn cut(&mut self, n: usize, cut: Fault) -> Result<()> {
        let before = losses(&self.cuts);
        self.cuts.push((n, cut));
        let after = losses(&self.cuts);
        self.lose(after.difference(&before)).await
    }

    async fn mend(&mut self, n: usize) -> Result<()> {
        self.let_run(n)?;
        let before = self.cuts.len();
        self.cuts.retain(|(whose, _)| *whose != n);
        if self.cuts.len() < before {
            // All can be healed, or nothing: for a moment the others are whole, too.
            self.cassandra.network()?.heal().await?;
            self.lose(losses(&self.cuts).iter()).await?;
        }
        Ok(())
    }

    fn let_run(&self, n: usize) -> Result<()> {
        let node = self.cassandra.node(n);
        if node.component().is_running() {
            return node.resume();
        }
        ensure!(self.killed.contains(&n), "node {n} ended by itself");
        node.start()
    }

    async fn lose(&self, losses: impl Iterator<Item = &Loss>) -> Result<()> {
        let network = self.cassandra.network()?;
        for loss in losses {
            match *loss {
                Loss::Of(n) => network.isolate(n).await?,
                Loss::Between(from, to) => network.lose(&[from], &[to]).await?,
            }
        }
        Ok(())
    }
}

/// What two cuts have in common is lost once.
fn losses(cuts: &[(usize, Fault)]) -> BTreeSet<Loss> {
    let losses = cuts.iter().flat_map(|(n, cut)| match *cut {
        Fault::Isolate => vec![Loss::Of(*n)],
        Fault::Cut(other) => vec![Loss::Between(*n, other), Loss::Between(other, *n)],
        Fault::LoseTo(other) => vec![Loss::Between(*n, other)],
        Fault::LoseFrom(other) => vec![Loss::Between(other, *n)],
        Fault::Kill | Fault::Restart | Fault::Pause => Vec::new(),
    });
    losses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_twice_is_lost_once() {
        let cuts = [
            (0, Fault::Cut(1)),
            (1, Fault::LoseTo(0)),
            (1, Fault::Isolate),
        ];
        let expected = [Loss::Of(1), Loss::Between(0, 1), Loss::Between(1, 0)];
        assert!(losses(&cuts).into_iter().eq(expected));
    }
}
