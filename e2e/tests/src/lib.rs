//! What the end-to-end cases share: operator processes as they run in a cluster, and what the API
//! server's audit log says about them. The cases are in `tests/`, one file per topic.

pub mod history;
pub mod operator;
pub mod render;
pub mod schedules;
