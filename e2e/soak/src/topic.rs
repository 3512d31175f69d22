//! In: the name of a topic. Out: what it claims, and how it is run.
//! Touches what its run touches.

use anyhow::Result;

use crate::{cassandra, journal::Claim, leader, run::Run};

/// What can be run, by the name that `make soak ONLY=` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Operators that compete for the lease.
    Leader,
    /// What our leases in Cassandra stand on.
    Cassandra,
}

impl Topic {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 2] = [Self::Leader, Self::Cassandra];

    /// The name of its file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Cassandra => "cassandra",
        }
    }

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Leader => "Leader election",
            Self::Cassandra => "Compare-and-set in Cassandra",
        }
    }

    /// What a run consists of.
    pub fn about(self) -> &'static str {
        match self {
            Self::Leader => include_str!("leader/about.md"),
            Self::Cassandra => include_str!("cassandra/about.md"),
        }
    }

    /// What is claimed.
    pub fn claims(self) -> &'static [Claim] {
        match self {
            Self::Leader => &leader::CLAIMS,
            Self::Cassandra => &cassandra::CLAIMS,
        }
    }

    /// Runs it until the time is over, or a claim does not hold.
    pub async fn run(self, run: &Run<'_>) -> Result<()> {
        match self {
            Self::Leader => Box::pin(leader::run(run)).await,
            Self::Cassandra => Box::pin(cassandra::run(run)).await,
        }
    }
}
