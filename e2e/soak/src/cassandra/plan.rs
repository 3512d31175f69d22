//! In: a seed. Out: the rounds of faults, the same ones for the same seed.
//! Pure.

use std::time::Duration;

use fastrand::Rng;

use crate::choice::{self, pause};

/// How many nodes there are.
pub const NODES: usize = 3;

/// The most faults of a round.
const FAULTS: usize = 3;

/// In one of so many rounds there may be no majority.
const RARELY: u8 = 4;

/// What can be broken about a node; others are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGKILL, and started again at once.
    Restart,
    /// SIGSTOP.
    Pause,
    /// It reaches nobody and is reached by nobody.
    Isolate,
    /// It and another lose what they send each other.
    Cut(usize),
    /// What it sends to another is lost.
    LoseTo(usize),
    /// What another sends to it is lost.
    LoseFrom(usize),
}

/// One thing to do to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Break it.
    Break(usize, Fault),
    /// Mend it, while others may be broken.
    Mend(usize),
}

impl Action {
    /// Its name in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mend(_) => "mend a node",
            Self::Break(_, fault) => match fault {
                Fault::Kill => "kill a node",
                Fault::Restart => "restart a node",
                Fault::Pause => "pause a node",
                Fault::Isolate => "isolate a node",
                Fault::Cut(_) => "cut two nodes apart",
                Fault::LoseTo(_) | Fault::LoseFrom(_) => "cut one way",
            },
        }
    }
}

/// An action, and the pause before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// How long to wait first.
    pub after: Duration,
    /// What to do then.
    pub action: Action,
}

/// Breaks nodes, one after the other, and leaves some of them broken for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// In order.
    pub steps: Vec<Step>,
    /// How long to wait before everything is mended.
    pub hold: Duration,
}

/// The rounds of a seed, without end.
pub fn rounds(seed: u64) -> impl Iterator<Item = Round> {
    choice::rounds(seed, round)
}

/// Where one more fault would be too many, the oldest one moves on: a node is mended and another broken at once.
fn round(rng: &mut Rng) -> Round {
    let at_once = if rng.u8(..RARELY) == 0 { 2 } else { 1 };
    let (mut steps, mut broken) = (Vec::new(), Vec::new());
    for _ in 0..rng.usize(at_once..=FAULTS) {
        // Shorter and longer than the ten seconds after which nodes take one another for dead.
        let mut after = pause(rng, 0..=15);
        let mut whole: Vec<usize> = (0..NODES).filter(|n| !broken.contains(n)).collect();
        if broken.len() == at_once {
            let action = Action::Mend(broken.remove(0));
            steps.push(Step { after, action });
            after = Duration::ZERO;
        }
        let victim = whole.swap_remove(rng.usize(..whole.len()));
        let action = Action::Break(victim, fault(rng, victim));
        steps.push(Step { after, action });
        broken.push(victim);
    }
    // Shorter and longer than what a node needs to start.
    let hold = pause(rng, 0..=30);
    Round { steps, hold }
}

fn fault(rng: &mut Rng, victim: usize) -> Fault {
    let other = (victim + rng.usize(1..NODES)) % NODES;
    match rng.u8(..9) {
        0 => Fault::Kill,
        1 | 2 => Fault::Restart,
        3 | 4 => Fault::Pause,
        5 => Fault::Isolate,
        6 => Fault::Cut(other),
        7 => Fault::LoseTo(other),
        _ => Fault::LoseFrom(other),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn some(seed: u64) -> Vec<Round> {
        rounds(seed).take(100).collect()
    }

    /// The most nodes that are broken at once.
    fn at_once(round: &Round) -> usize {
        let mut broken = BTreeSet::new();
        let numbers = round.steps.iter().map(|step| {
            match step.action {
                Action::Break(n, _) => assert!(broken.insert(n), "broken twice: {round:?}"),
                Action::Mend(n) => assert!(broken.remove(&n), "not broken: {round:?}"),
            }
            broken.len()
        });
        numbers.max().unwrap()
    }

    #[test]
    fn a_seed_always_has_the_same_rounds_and_another_seed_others() {
        assert_eq!(some(1), some(1));
        assert_ne!(some(1), some(2));
    }

    #[test]
    fn the_seed_that_finds_commit_logs_which_are_not_durable_keeps_its_first_round() {
        let first = &some(88849)[0];
        let actions: Vec<_> = first.steps.iter().map(|step| step.action).collect();
        let expected = [
            Action::Break(2, Fault::Isolate),
            Action::Break(0, Fault::Restart),
            Action::Mend(2),
            Action::Break(1, Fault::Pause),
        ];
        assert_eq!(actions, expected);
    }

    #[test]
    fn every_action_occurs() {
        let rounds = some(7);
        let steps = rounds.iter().flat_map(|round| &round.steps);
        let names: BTreeSet<_> = steps.map(|step| step.action.name()).collect();
        assert_eq!(names.len(), 7, "{names:?}");
    }

    #[test]
    fn mostly_one_node_is_broken_at_once_and_sometimes_two() {
        let rounds = some(7);
        let minority = rounds.iter().filter(|round| at_once(round) == 1).count();
        assert!((60..90).contains(&minority), "{minority} of 100");
        assert!(rounds.iter().all(|round| at_once(round) <= 2));
    }

    #[test]
    fn nobody_is_cut_off_from_itself() {
        let rounds = some(7);
        for step in rounds.iter().flat_map(|round| &round.steps) {
            if let Action::Break(n, Fault::Cut(m) | Fault::LoseTo(m) | Fault::LoseFrom(m)) =
                step.action
            {
                assert!(n != m && m < NODES, "{step:?}");
            }
        }
    }
}
