//! Side-by-side benchmarks: what this project costs beside others, measured again by `make bench`.
//! In: real processes. Out: `docs/benchmarks/<topic>.{json,svg}` and `docs/benchmarks.md`.
//! Touches: these files, `/proc`, and the processes it starts.

pub mod checksum;
pub mod docs;
pub mod install;
pub mod machine;
pub mod meter;
pub mod operator_core;
pub mod page;
pub mod peers;
pub mod plot;
pub mod proc;
pub mod quiet;
pub mod rounds;
pub mod row;
pub mod scrape;
pub mod stats;
pub mod table;
pub mod topic;
