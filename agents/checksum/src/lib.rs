//! Proof that files still hold what was written: lists files, keeps what is known of them in a store, reads and compares.
//! In: a folder and a store. Out: checksums, and warnings about files that are no longer what was written.
//! Touches: reads the files, writes the store.

pub mod algorithm;
pub mod args;
pub mod commands;
pub mod config;
pub mod coordinator;
pub mod engine;
pub mod entry;
pub mod gpfs;
pub mod judge;
pub mod limit;
pub mod list;
pub mod merge;
mod metrics;
pub mod pack;
pub mod path;
pub mod queue;
mod rate;
pub mod read;
pub mod report;
pub mod result;
pub mod schedule;
pub mod spill;
pub mod split;
pub mod state;
pub mod store;
pub mod verify;
pub mod wire;
pub mod worker;
