//! Why a `ChecksumRun` is as it is: reasons of its conditions. Part of the API.

use crate::condition::Reason;

/// Ended: every selected file was read and is as it was written.
pub const VERIFIED: Reason = Reason {
    name: "Verified",
    meaning: "The run ended; every selected file is what was written.",
    remedy: "Nothing.",
};

/// Ended: some files are damaged.
pub const DAMAGE_FOUND: Reason = Reason {
    name: "DamageFound",
    meaning: "The run ended; some files are not what was written.",
    remedy: "Restore the files in `status.corrupt`, or accept their new content.",
};

/// Ended: some files could not be read.
pub const UNREADABLE: Reason = Reason {
    name: "Unreadable",
    meaning: "The run ended; some files could not be read.",
    remedy: "Look at the storage and at the permissions of the user that reads.",
};

/// Ended on request.
pub const CANCELLED: Reason = Reason {
    name: "Cancelled",
    meaning: "The run was ended by `spec.cancel`.",
    remedy: "Nothing; make a new run to read the files.",
};

/// Ended at the state named by `spec.stopAfter`.
pub const STOPPED: Reason = Reason {
    name: "Stopped",
    meaning: "The run ended at the state named by `spec.stopAfter`.",
    remedy: "Nothing; make a new run to read the files.",
};

/// Ended by an error.
pub const FAILED: Reason = Reason {
    name: "Failed",
    meaning: "The run ended with an error that the message names.",
    remedy: "Mend what the message names and make a new run.",
};

/// The reasons with which a run ends.
pub const RESULTS: &[&Reason] = &[
    &VERIFIED,
    &DAMAGE_FOUND,
    &UNREADABLE,
    &CANCELLED,
    &STOPPED,
    &FAILED,
];
