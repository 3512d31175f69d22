//! In: the name of a topic. Out: what it is about, and how it is measured.
//! Touches what its measuring touches.

use anyhow::Result;
use clap::ValueEnum;

use crate::{
    install, operator_core,
    row::{Row, Run},
};

/// What can be measured, by the name that `make bench ONLY=` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Topic {
    /// The operator's core beside controller-runtime.
    Operator,
    /// From a command to an operator that leads, on a private node.
    Install,
}

impl Topic {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 2] = [Self::Operator, Self::Install];

    /// The name of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Install => "install",
        }
    }

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Operator => "The operator's core beside controller-runtime",
            Self::Install => "An install on a private node",
        }
    }

    /// What a reader must know to judge the figures.
    pub fn notes(self) -> &'static str {
        match self {
            Self::Operator => include_str!("operator_core/notes.md"),
            Self::Install => include_str!("install/notes.md"),
        }
    }

    /// Measures it.
    pub async fn measure(self, date: String, machine: String) -> Result<Vec<Row>> {
        let run = |against| Run {
            command: format!("make bench ONLY={}", self.name()),
            date,
            machine,
            against,
        };
        match self {
            Self::Operator => operator_core::measure(&run(operator_core::against()?)).await,
            Self::Install => install::measure_all(&run(String::new())).await,
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
