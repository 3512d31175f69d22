//! The contract: the kinds users write, the documents agents exchange, and the rules both follow.
//! No client, no runtime: everything here is data and pure functions.

pub mod checksum_run;
pub mod checksum_schedule;
pub mod condition;
pub mod cron;
pub mod definition;
pub mod duration;
pub mod name;
pub mod pattern;
pub mod pod;
pub mod quantity;
pub mod reference;
pub mod report;
pub mod window;
pub mod zone;
