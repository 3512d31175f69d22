//! Why a `ChecksumSchedule` is as it is: reasons of its conditions and events. Part of the API.

use crate::condition::Reason;

/// All is well, the next slot is awaited.
pub const SCHEDULED: Reason = Reason {
    name: "Scheduled",
    meaning: "The schedule waits for its next slot.",
    remedy: "Nothing.",
};

/// A run is active.
pub const RUNNING: Reason = Reason {
    name: "Running",
    meaning: "A run of this schedule is active.",
    remedy: "Nothing; `kubectl get cksum` shows how far it is.",
};

/// A slot waits for the active run to end.
pub const WAITING: Reason = Reason {
    name: "WaitingForActiveRun",
    meaning: "A slot is due and `concurrencyPolicy: Forbid` holds it until the active run ends.",
    remedy: "Nothing, or lengthen the interval, or cancel the active run.",
};

/// Nothing is started on request of the user.
pub const SUSPENDED: Reason = Reason {
    name: "Suspended",
    meaning: "`spec.suspend` is true: no run is started.",
    remedy: "Set `spec.suspend` to false to go on. Slots that passed meanwhile are not made up for.",
};

/// The spec cannot be used.
pub const INVALID_SPEC: Reason = Reason {
    name: "InvalidSpec",
    meaning: "A field of the spec cannot be used; the message names it.",
    remedy: "Correct the field. Nothing is tried until the object changes.",
};

/// The name of the next run is taken by an object of somebody else.
pub const NAME_TAKEN: Reason = Reason {
    name: "NameTaken",
    meaning: "The run for a slot cannot be made: an object of that name exists and is not ours.",
    remedy: "Delete or rename the object that the message names; it is tried again.",
};

/// The API server refused to make the run.
pub const RUN_REFUSED: Reason = Reason {
    name: "RunRefused",
    meaning: "The API server refuses the run made from the template, for example by a quota or a policy.",
    remedy: "Correct what the message names. It is tried again with growing pauses.",
};

/// Something failed that is likely to pass.
pub const FAILING: Reason = Reason {
    name: "ReconcileFailed",
    meaning: "The last pass of the operator failed; the message says at which step.",
    remedy: "Nothing if it passes; it is tried again with growing pauses.",
};

/// No run has ended yet.
pub const NO_RUN_YET: Reason = Reason {
    name: "NoRunYet",
    meaning: "No run of this schedule has ended yet.",
    remedy: "Nothing, or start one with the annotation `orrery.dev/run-now`.",
};

/// The last run ended with Verified.
pub const LAST_VERIFIED: Reason = Reason {
    name: "Verified",
    meaning: "The newest run that ended verified every file it read.",
    remedy: "Nothing.",
};

/// The last run ended otherwise.
pub const LAST_NOT_VERIFIED: Reason = Reason {
    name: "NotVerified",
    meaning: "The newest run that ended did so with another result than Verified; the message names both.",
    remedy: "Look at the run.",
};

/// Event: a run was started.
pub const RUN_STARTED: Reason = Reason {
    name: "RunStarted",
    meaning: "Event: a run was made.",
    remedy: "Nothing.",
};

/// Event: a run ended.
pub const RUN_ENDED: Reason = Reason {
    name: "RunEnded",
    meaning: "Event: a run ended; a warning when its result is not Verified.",
    remedy: "Look at the run when it is a warning.",
};

/// Event: an active run was deleted for the next one.
pub const RUN_REPLACED: Reason = Reason {
    name: "RunReplaced",
    meaning: "Event: `concurrencyPolicy: Replace` deleted an active run.",
    remedy: "Nothing, or lengthen the interval.",
};

/// Event: slots were given up.
pub const SLOTS_MISSED: Reason = Reason {
    name: "SlotsMissed",
    meaning: "Event: slots passed without a run, during an outage or beyond `startingDeadline`.",
    remedy: "Nothing, or start a run with the annotation `orrery.dev/run-now`.",
};

/// Every reason, for the reference.
pub const ALL: &[&Reason] = &[
    &SCHEDULED,
    &RUNNING,
    &WAITING,
    &SUSPENDED,
    &INVALID_SPEC,
    &NAME_TAKEN,
    &RUN_REFUSED,
    &FAILING,
    &NO_RUN_YET,
    &LAST_VERIFIED,
    &LAST_NOT_VERIFIED,
    &RUN_STARTED,
    &RUN_ENDED,
    &RUN_REPLACED,
    &SLOTS_MISSED,
];
