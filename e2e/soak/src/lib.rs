//! Long runs under faults that a seed decides: `make soak`.
//! In: a topic, a seed, a time. Out: `docs/soak/<topic>.json` and `docs/soak.md`: what was done, what held.
//! Touches: these files, and the processes it starts.

pub mod cassandra;
pub mod choice;
pub mod docs;
pub mod journal;
pub mod leader;
pub mod page;
pub mod record;
pub mod run;
pub mod topic;
pub mod wish;
