//! In: jobs for, and of, whoever speaks the protocol of gocraft/work v0.5.1 over Redis. Out: the same queues, lists,
//! heartbeats and counts, byte for byte, so that Go programs and their web UI work with ours.
//! Touches: Redis, and the monotonic clock. It knows nothing of what the jobs are about.
//!
//! [`Client`] is the connection, [`Namespace`] what the keys begin with. An [`Enqueuer`] fills queues, a [`Pool`]
//! serves them, an [`Inspector`] looks at them, a [`Config`] is a hash that many follow.
//!
//! What is better than in Go, with the same data:
//! - a job is finished by name, together with the jobs that follow from it, and not at all if it has gone to others;
//! - jobs of a dead pool are back in their queue within 15 s instead of ten minutes (within minutes if nothing is left of
//!   it but its lists), and are next there instead of last, once each; one that has come back five times is dead, since it
//!   may be what they die of;
//! - nobody counts as dead because Redis was away; a pool that was away itself takes a new identifier;
//! - retries of names that a pool does not serve are moved to their queue instead of to the dead;
//! - a fetch whose answer was lost, or whose job was dropped, does not keep a job in progress for ever;
//! - an element that is no job neither blocks a queue nor breaks the web UI;
//! - counts of jobs in progress that have drifted are made true again;
//! - all times are those of Redis, so that clocks need not agree.
//!
//! Redis must be 6 or newer.

mod backoff;
mod client;
mod clock;
mod config;
mod enqueue;
mod error;
mod id;
mod identity;
mod inspect;
mod job;
mod json;
mod keys;
mod ledger;
mod observe;
mod options;
mod pool;
mod reap;
mod remove;
mod requeue;
mod sample;
mod scripts;
mod walk;

pub use serde_json::Value;

pub use self::backoff::Idle;
pub use self::client::Client;
pub use self::config::{Config, Published};
pub use self::enqueue::{Enqueued, Enqueuer, MOST_AT_ONCE, NewJob};
pub use self::error::Error;
pub use self::inspect::{Counts, HELD_FOR, Inspector, LIVE_FOR, LivePool};
pub use self::job::{Args, Job, Undecodable};
pub use self::keys::Namespace;
pub use self::options::{Options, Tls};
pub use self::pool::{Failed, Kind, Outcome, Pool, PoolOptions, Stats, Taken, Tries};
