//! The Orrery operator: watches the resources of the group `orrery.dev` and makes them true.
//! `run` is the wiring; the decisions are in the `plan` of each kind.

pub mod act;
pub mod applied;
pub mod args;
pub mod checksum_run;
pub mod checksum_schedule;
pub mod class;
pub mod client;
pub mod controller;
pub mod definitions;
pub mod failure;
pub mod fleet;
pub mod leader;
pub mod metrics;
pub mod object;
pub mod pki;
pub mod probe;
pub mod queue;
pub mod rbac;
pub mod received;
pub mod report;
pub mod requeue;
mod run;
pub mod secrets;
pub mod watch;

pub use run::run;
