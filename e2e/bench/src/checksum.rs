//! The topic `checksum`: `orrery-checksum` beside programs that do a part of what it does, and beside what the machine can
//! do. In: which part. Out: rows. Touches: files below `target`, a MariaDB, a Redis and processes, all of its own.

mod command;
mod crash;
mod hashing;
mod limit;
mod listing;
mod memory;
mod packs;
mod site;
mod small_files;
mod split;
mod statements;
mod sync;
mod tree;

use anyhow::Result;
use clap::ValueEnum;

use crate::{
    meter,
    rounds::{Rules, Turn},
    row::{Measure, Row, Run, Sample},
};

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Large files.
    Hashing,
    /// Many small files, from nothing to all checksums stored.
    SmallFiles,
    /// Listing alone.
    Listing,
    /// A run that finds nothing changed.
    Sync,
    /// Memory of a coordinator and of a worker.
    Memory,
    /// The limit that all workers share.
    Limit,
    /// One large file for several workers.
    Split,
    /// Processes that are killed.
    Crash,
}

impl Part {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 8] = [
        Self::Hashing,
        Self::SmallFiles,
        Self::Listing,
        Self::Sync,
        Self::Memory,
        Self::Limit,
        Self::Split,
        Self::Crash,
    ];
}

/// Measures a part.
pub async fn measure(part: Part, rules: Rules, run: &Run) -> Result<Vec<Row>> {
    match part {
        Part::Hashing => hashing::measure(rules, run).await,
        Part::SmallFiles => small_files::measure(rules, run).await,
        Part::Listing => listing::measure(rules, run).await,
        Part::Sync => Box::pin(sync::measure(rules, run)).await,
        Part::Memory => Box::pin(memory::measure(rules, run)).await,
        Part::Limit => Box::pin(limit::measure(rules, run)).await,
        Part::Split => Box::pin(split::measure(rules, run)).await,
        Part::Crash => Box::pin(crash::measure(rules, run)).await,
    }
}

const fn goal(name: &'static str, unit: &'static str, most: f64) -> Measure {
    Measure {
        name,
        unit,
        goal: Some(most),
    }
}

/// Does the work of one turn, and sees who else uses the machine meanwhile.
async fn turn(work: impl Future<Output = Result<Sample>>) -> Result<Turn<Sample>> {
    let measured = meter::during([], work).await?;
    Ok(Turn {
        sample: measured.output,
        load: measured.load,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_measured() {
        assert_eq!(Part::ALL, Part::value_variants());
    }
}
