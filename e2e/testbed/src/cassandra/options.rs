//! In: wishes. Out: the options of a cluster.
//! Pure.

use super::topology::Topology;

/// How a cluster is to be: by default on loopback addresses, without passwords, without hints.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a wish of its own, and set by a method that names it"
)]
pub struct Options {
    pub(super) topology: Topology,
    pub(super) namespaces: bool,
    pub(super) passwords: bool,
    pub(super) tls: bool,
    pub(super) hints: bool,
    pub(super) synced: bool,
    pub(super) stream_limit: Option<u32>,
}

impl Options {
    /// Nodes and data centres: `3`, or `[2, 1]`.
    pub fn new(topology: impl Into<Topology>) -> Self {
        Self {
            topology: topology.into(),
            namespaces: false,
            passwords: false,
            tls: false,
            hints: false,
            synced: false,
            stream_limit: None,
        }
    }

    /// Each node in a network namespace of its own, so that it can be cut off; needs root.
    #[must_use]
    pub fn in_namespaces(mut self) -> Self {
        self.namespaces = true;
        self
    }

    /// Clients log in, and have rights; see [`Access::credentials`](super::Access::credentials).
    #[must_use]
    pub fn with_passwords(mut self) -> Self {
        self.passwords = true;
        self
    }

    /// Clients speak TLS; see [`Access::authority`](super::Access::authority).
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Writes for a node that is down are kept and handed over later, as in production.
    /// Without them a replica that was down stays behind until it is repaired.
    #[must_use]
    pub fn with_hints(mut self) -> Self {
        self.hints = true;
        self
    }

    /// A write is on disk before it is acknowledged. By default, here as in production, a node that is killed
    /// forgets the last moments, which three nodes can hide unless another one is away at the same time.
    #[must_use]
    pub fn with_synced_commits(mut self) -> Self {
        self.synced = true;
        self
    }

    /// Streams at most so many MiB/s, which makes a repair long enough to be disturbed.
    #[must_use]
    pub fn with_stream_limit(mut self, mebibytes: u32) -> Self {
        self.stream_limit = Some(mebibytes);
        self
    }
}
