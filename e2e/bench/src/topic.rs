//! In: the name of a topic. Out: what it is about, and how it is measured.
//! Touches what its measuring touches.

use anyhow::Result;
use clap::ValueEnum;

use crate::{
    checksum::{self, Part},
    install, operator_core,
    rounds::Rules,
    row::{Row, Run},
};

/// What can be measured, by the name that `make bench ONLY=` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Topic {
    /// The operator's core beside controller-runtime.
    Operator,
    /// From a command to an operator that leads, on a private node.
    Install,
    /// orrery-checksum beside programs that do a part of it, and beside what the machine can do.
    Checksum,
}

/// What is measured in one go, its figures kept before anything else is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// All of the topic `operator`.
    Operator,
    /// All of the topic `install`.
    Install,
    /// A part of the topic `checksum`.
    Checksum(Part),
}

impl Topic {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 3] = [Self::Operator, Self::Install, Self::Checksum];

    /// The name of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Install => "install",
            Self::Checksum => "checksum",
        }
    }

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Operator => "The operator's core beside controller-runtime",
            Self::Install => "An install on a private node",
            Self::Checksum => "orrery-checksum beside others, and beside the machine",
        }
    }

    /// What a reader must know to judge the figures.
    pub fn notes(self) -> &'static str {
        match self {
            Self::Operator => include_str!("operator_core/notes.md"),
            Self::Install => include_str!("install/notes.md"),
            Self::Checksum => include_str!("checksum/notes.md"),
        }
    }

    /// What is measured one after the other: all, or only the parts that are named.
    pub fn pieces(self, parts: &[Part]) -> Vec<Piece> {
        match self {
            Self::Operator => vec![Piece::Operator],
            Self::Install => vec![Piece::Install],
            Self::Checksum if parts.is_empty() => {
                Part::ALL.into_iter().map(Piece::Checksum).collect()
            }
            Self::Checksum => parts.iter().copied().map(Piece::Checksum).collect(),
        }
    }
}

impl Piece {
    /// Measures it.
    pub async fn measure(self, rules: Rules, date: String, machine: String) -> Result<Vec<Row>> {
        let run = |topic: Topic, against| Run {
            command: format!("make bench ONLY={}", topic.name()),
            date,
            machine,
            against,
        };
        match self {
            Self::Operator => {
                operator_core::measure(&run(Topic::Operator, operator_core::against()?)).await
            }
            Self::Install => install::measure_all(&run(Topic::Install, String::new())).await,
            Self::Checksum(part) => {
                checksum::measure(part, rules, &run(Topic::Checksum, String::new())).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_takes_the_name_of_the_files() {
        for topic in Topic::ALL {
            let value = topic.to_possible_value().unwrap();
            assert_eq!(value.get_name(), topic.name());
        }
        assert_eq!(Topic::ALL.len(), Topic::value_variants().len());
    }
}
