//! Rules of `ChecksumRun` that the API server checks: CEL, and the message a user sees.
//! What may change later is in `definition`: a template is not bound by it.

/// A rule and its message.
type Rule = (&'static str, &'static str);

pub(super) const SAMPLE: Rule = (
    "(self.mode == 'Sample') == has(self.samplePercent)",
    "samplePercent goes with mode Sample: set both or neither",
);

pub(super) const SINGLE_POD: Rule = (
    "has(self.queue) || !has(self.workers) || !has(self.workers.replicas) || self.workers.replicas == 1",
    "without spec.queue there is one pod: spec.workers.replicas must be 1; spec.suspend stops reading",
);

pub(super) const SHARED_QUEUE_STORE: Rule = (
    "!has(self.queue) || (has(self.store) && has(self.store.mysql))",
    "a queue needs a store that several pods can reach: set store.mysql",
);

pub(super) const OWN_STORE: Rule = (
    "!has(self.store) || !has(self.store.embedded) || !has(self.store.embedded.claimName) || self.store.embedded.claimName != self.source.persistentVolumeClaim.claimName",
    "store.embedded.claimName must not be the claim that is read: checksums are written there",
);

pub(super) const SUB_PATH: Rule = (
    "!has(self.subPath) || (!self.subPath.startsWith('/') && !self.subPath.split('/').exists(p, p == '..'))",
    "subPath is relative to the volume and must not contain ..",
);

pub(super) const SNAPSHOT: Rule = (
    "has(self.csi) != has(self.existing)",
    "set exactly one of csi and existing; leave snapshot out to read the live volume",
);

pub(super) const SNAPSHOT_PATH: Rule = (
    "!self.path.startsWith('/') && !self.path.split('/').exists(p, p == '..')",
    "path is relative to the volume and must not contain ..",
);

pub(super) const STORE: Rule = (
    "has(self.embedded) != has(self.mysql)",
    "set exactly one of embedded and mysql; leave store out for embedded with its defaults",
);

pub(super) const QUEUE: Rule = (
    "has(self.redis)",
    "set redis; leave queue out to run as a single pod",
);

pub(super) const HOST: Rule = (
    "isIP(self.host) || self.host.matches('^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$')",
    "host is a host name or an address, without scheme, user, port or path",
);
