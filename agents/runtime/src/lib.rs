//! The process shell that every Orrery binary shares: flags, logs, health, metrics, TLS, configuration, orderly ends.
//! An agent starts with [`shell::Shell`]; the operator takes the parts it needs.

pub mod admin;
pub mod clock;
pub mod config;
pub mod control;
pub mod http;
pub mod metrics;
pub mod process;
mod server;
pub mod shell;
pub mod shutdown;
pub mod tasks;
pub mod telemetry;
pub mod tls;

/// The release this code was built from; all crates of the workspace share it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

#[cfg(test)]
extern crate self as runtime;

#[cfg(test)]
#[path = "../tests/agent/pki.rs"]
mod pki;
