//! The operator's side of the agents' control port: asks every agent how it is, and sends it its configuration.
//! In: resources and their pods. Out: what is known of their agents. Only `poll` touches the world.
//! A controller owns one [`Fleet`], whose documentation says how it is used.

pub mod answer;
pub mod known;
pub mod metrics;
pub mod plan;
mod poll;
pub mod reason;
pub mod summary;

pub use metrics::FleetMetrics;
pub use plan::{Pace, Pod, Roster};
pub use poll::{AT_ONCE, Fleet, PROBES, REQUEST, Round, Settings, Subject};
pub use summary::Summary;
