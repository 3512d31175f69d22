//! In: a seed. Out: the rounds of faults, the same ones for the same seed.
//! Pure.

use std::time::Duration;

use fastrand::Rng;

use crate::choice::{self, pause};

/// The most faults of a round.
const FAULTS: usize = 3;

/// A clock is at most so many seconds off.
const OFF: i64 = 60;

/// Milliseconds that a chunk is held up, each way. Several requests fit into the renew deadline of the
/// lease, or do not; none is so late that it arrives when somebody else may lead.
const DELAY: std::ops::RangeInclusive<u64> = 100..=1500;

/// Who is meant, when the round begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Who leads.
    Leader,
    /// One of the others.
    First,
    /// The other one.
    Second,
}

/// One thing to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// SIGKILL; started again when the round ends.
    Kill(Role),
    /// SIGTERM; started again when the round ends.
    Terminate(Role),
    /// SIGSTOP, until the round ends.
    Pause(Role),
    /// Its connections are reset, also new ones.
    Cut(Role),
    /// Its connections, also new ones, carry nothing.
    HalfOpen(Role),
    /// Its connections carry everything late.
    Delay(Role, Duration),
    /// Its wall clock is so many seconds off from now on.
    Jump(Role, i64),
    /// SIGKILL; started again when the round ends.
    KillApiServer,
    /// SIGSTOP, until the round ends.
    PauseEtcd,
}

impl Action {
    /// Its name in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill(_) => "kill a replica",
            Self::Terminate(_) => "end a replica",
            Self::Pause(_) => "pause a replica",
            Self::Cut(_) => "cut a replica off",
            Self::HalfOpen(_) => "silence a replica",
            Self::Delay(..) => "delay a replica",
            Self::Jump(..) => "jump a clock",
            Self::KillApiServer => "kill the API server",
            Self::PauseEtcd => "pause etcd",
        }
    }

    /// What it breaks: two actions of a round never break the same thing.
    fn breaks(self) -> (&'static str, Option<Role>) {
        match self {
            Self::Kill(role) | Self::Terminate(role) | Self::Pause(role) => ("process", Some(role)),
            Self::Cut(role) | Self::HalfOpen(role) | Self::Delay(role, _) => {
                ("connections", Some(role))
            }
            Self::Jump(role, _) => ("clock", Some(role)),
            Self::KillApiServer | Self::PauseEtcd => ("control plane", None),
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

/// Breaks things, one after the other, and leaves them broken for a while.
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

fn round(rng: &mut Rng) -> Round {
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..rng.usize(1..=FAULTS) {
        let step = Step {
            after: pause(rng, 0..=3),
            action: action(rng),
        };
        let broken = |earlier: &Step| earlier.action.breaks() == step.action.breaks();
        if !steps.iter().any(broken) {
            steps.push(step);
        }
    }
    // Shorter and longer than the renew deadline of the lease, and than its duration.
    let hold = pause(rng, 0..=25);
    Round { steps, hold }
}

fn action(rng: &mut Rng) -> Action {
    let role = role(rng);
    match rng.u8(..9) {
        0 => Action::Kill(role),
        1 => Action::Terminate(role),
        2 => Action::Pause(role),
        3 => Action::Cut(role),
        4 => Action::HalfOpen(role),
        5 => Action::Delay(role, Duration::from_millis(rng.u64(DELAY))),
        6 => Action::Jump(role, rng.i64(-OFF..=OFF)),
        7 => Action::KillApiServer,
        _ => Action::PauseEtcd,
    }
}

/// Mostly the leader: little happens when a standby is broken alone.
fn role(rng: &mut Rng) -> Role {
    match rng.u8(..5) {
        0 => Role::First,
        1 => Role::Second,
        _ => Role::Leader,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn some(seed: u64) -> Vec<Round> {
        rounds(seed).take(100).collect()
    }

    #[test]
    fn a_seed_always_has_the_same_rounds_and_another_seed_others() {
        assert_eq!(some(1), some(1));
        assert_ne!(some(1), some(2));
    }

    #[test]
    fn a_seed_keeps_its_rounds_from_release_to_release() {
        let first = Step {
            after: Duration::from_millis(1600),
            action: Action::Pause(Role::Leader),
        };
        assert_eq!(some(1)[0].steps[0], first);
    }

    #[test]
    fn every_action_occurs_and_nothing_is_broken_twice() {
        let rounds = some(7);
        let steps = || rounds.iter().flat_map(|round| &round.steps);
        let names: BTreeSet<_> = steps().map(|step| step.action.name()).collect();
        assert_eq!(names.len(), 9, "{names:?}");
        for round in &rounds {
            let mut broken: Vec<_> = round.steps.iter().map(|s| s.action.breaks()).collect();
            let steps = broken.len();
            broken.sort_by_key(|(what, role)| (*what, role.map(|role| role as u8)));
            broken.dedup();
            assert!((1..=FAULTS).contains(&steps), "{round:?}");
            assert_eq!(broken.len(), steps, "{round:?}");
        }
        let most = steps().filter(|step| step.action.breaks().1 == Some(Role::Leader));
        assert!(most.count() * 3 > steps().count(), "mostly the leader");
    }

    #[test]
    fn delays_and_jumps_stay_within_their_bounds() {
        for step in some(3).iter().flat_map(|round| &round.steps) {
            match step.action {
                Action::Delay(_, delay) => assert!(delay <= Duration::from_millis(1500)),
                Action::Jump(_, seconds) => assert!(seconds.abs() <= OFF),
                Action::Kill(_)
                | Action::Terminate(_)
                | Action::Pause(_)
                | Action::Cut(_)
                | Action::HalfOpen(_)
                | Action::KillApiServer
                | Action::PauseEtcd => {}
            }
        }
    }
}
