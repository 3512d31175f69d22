//! In: how to take one turn. Out: the samples of all repetitions, none of them void.
//! Touches nothing but what a turn touches; says on standard error how far it is.

use anyhow::{Result, bail};

use crate::quiet::Load;

/// How often everything is measured, unless a topic says otherwise.
const REPETITIONS: usize = 3;

/// How often a turn is taken before the machine is called too busy.
const ATTEMPTS: usize = 5;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This project.
    Ours,
    /// What it is compared with.
    Peer,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Peer => "the peer",
        }
    }
}

/// How turns are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How often each side is measured.
    pub repetitions: usize,
    /// Whether a turn counts although others use the machine: for a first look, not for a page.
    pub lenient: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            repetitions: REPETITIONS,
            lenient: false,
        }
    }
}

impl Rules {
    /// The same, so many times.
    #[must_use]
    pub fn times(self, repetitions: usize) -> Self {
        Self {
            repetitions,
            ..self
        }
    }

    /// A first look is taken once.
    fn repetitions(self) -> usize {
        if self.lenient { 1 } else { self.repetitions }
    }
}

/// What one turn found.
#[derive(Clone, Debug)]
pub struct Turn<T> {
    /// The measurements.
    pub sample: T,
    /// Who used the machine meanwhile; decides whether they count.
    pub load: Load,
}

/// Takes turns by the usual rules.
pub async fn run<T>(
    what: &str,
    sides: &[Side],
    turn: impl AsyncFnMut(Side) -> Result<Turn<T>>,
) -> Result<Vec<(Side, T)>> {
    run_by(Rules::default(), what, sides, turn).await
}

/// Takes turns, as many for each side as the rules say. Void turns are taken again, a few times.
///
/// The sides alternate, and each repetition begins with the other side, so that a machine that gets
/// slower or faster meanwhile treats both alike.
pub async fn run_by<T>(
    rules: Rules,
    what: &str,
    sides: &[Side],
    mut turn: impl AsyncFnMut(Side) -> Result<Turn<T>>,
) -> Result<Vec<(Side, T)>> {
    let mut samples = Vec::new();
    for repetition in 0..rules.repetitions() {
        for side in order(repetition, sides) {
            let name = format!(
                "{what}, {} of {}, {}",
                repetition + 1,
                rules.repetitions(),
                side.name()
            );
            eprintln!("bench: {name}");
            let sample = until_it_counts(rules, &name, side, &mut turn).await?;
            samples.push((side, sample));
        }
    }
    Ok(samples)
}

fn order(repetition: usize, sides: &[Side]) -> Vec<Side> {
    let mut order = sides.to_vec();
    if repetition % 2 == 1 {
        order.reverse();
    }
    order
}

async fn until_it_counts<T>(
    rules: Rules,
    name: &str,
    side: Side,
    turn: &mut impl AsyncFnMut(Side) -> Result<Turn<T>>,
) -> Result<T> {
    let mut attempt = 1;
    loop {
        let Turn { sample, load } = turn(side).await?;
        if rules.lenient || !load.is_void() {
            return Ok(sample);
        }
        if attempt == ATTEMPTS {
            bail!("{name}: the machine is too busy, {ATTEMPTS} times: {load}");
        }
        eprintln!("bench: void, once more: {load}");
        attempt += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{Side::*, *};

    fn load(involved: u64) -> Load {
        Load {
            capacity: 100,
            busy: 100,
            involved,
            others: vec![("rustc (7)".into(), 40)],
        }
    }

    #[tokio::test]
    async fn sides_alternate_and_take_turns_to_be_first() {
        let run = run("x", &[Ours, Peer], async |side| {
            Ok(Turn {
                sample: side,
                load: load(100),
            })
        });
        let taken: Vec<_> = run
            .await
            .unwrap()
            .into_iter()
            .map(|(side, _)| side)
            .collect();
        assert_eq!(taken, [Ours, Peer, Peer, Ours, Ours, Peer]);
    }

    #[tokio::test]
    async fn a_void_turn_is_taken_again_and_does_not_count() {
        let mut turns = 0;
        let run = run("x", &[Ours], async |_| {
            turns += 1;
            Ok(Turn {
                sample: turns,
                load: load(if turns == 2 { 50 } else { 95 }),
            })
        });
        let samples: Vec<_> = run.await.unwrap().into_iter().map(|(_, n)| n).collect();
        assert_eq!(samples, [1, 3, 4]);
    }

    #[tokio::test]
    async fn a_first_look_is_taken_once_whoever_uses_the_machine() {
        let rules = Rules {
            lenient: true,
            ..Rules::default()
        };
        let run = run_by(rules.times(5), "x", &[Ours], async |_| {
            Ok(Turn {
                sample: (),
                load: load(50),
            })
        });
        assert_eq!(run.await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_machine_that_stays_busy_ends_the_run_and_names_the_busiest() {
        let mut turns = 0;
        let run = run("x", &[Peer], async |_| {
            turns += 1;
            Ok(Turn {
                sample: (),
                load: load(50),
            })
        });
        let error = run.await.unwrap_err().to_string();
        assert_eq!(
            error,
            "x, 1 of 3, the peer: the machine is too busy, 5 times: others used 50.0 % of the CPU, \
             10 % are allowed; busiest: rustc (7) 40.0 %"
        );
        assert_eq!(turns, ATTEMPTS);
    }
}
