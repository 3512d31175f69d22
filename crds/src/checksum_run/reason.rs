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
    meaning: "The run ended; some files could not be read, or were not there as they were listed: any of a snapshot, or so many of a live volume that more must be wrong than files in use.",
    remedy: "Look at the storage and at the permissions of the user that reads, and whether the volume is still what it was.",
};

/// Ended on request.
pub const CANCELLED: Reason = Reason {
    name: "Cancelled",
    meaning: "The run was ended by `spec.cancel`, or given up by somebody who has the store.",
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

/// Ended: some files were changed while the run went on.
pub const CHANGED_MEANWHILE: Reason = Reason {
    name: "ChangedMeanwhile",
    meaning: "The run ended; files that somebody changed or removed while it went on were not verified, all others that were read are what was written.",
    remedy: "Nothing; the next run reads them. Read a snapshot to verify files that change all the time.",
};

/// Ended: not everything could be listed.
pub const LISTING_INCOMPLETE: Reason = Reason {
    name: "ListingIncomplete",
    meaning: "The run ended; some folders could not be listed, so nobody knows of the files in them. Nothing was forgotten.",
    remedy: "Look at the storage and at the permissions of the user that reads; the message names the first folder.",
};

/// Ended: more files are gone than the guard allows.
pub const DELETION_GUARD: Reason = Reason {
    name: "DeletionGuard",
    meaning: "The run ended before it read anything: more files are gone than `spec.deletionGuardPercent` allows. Nothing was forgotten.",
    remedy: "See whether the right volume is mounted. If the files were deleted on purpose, make a run with a higher guard.",
};

/// Ended: nothing could be read at all.
pub const PERMISSION_DENIED: Reason = Reason {
    name: "PermissionDenied",
    meaning: "The user that reads may not read anything; the message names the user that owns the files.",
    remedy: "Set `spec.workers.runAsUser`, `runAsGroup` or `supplementalGroups`.",
};

/// Going on: the snapshot is being made.
pub const SNAPSHOTTING: Reason = Reason {
    name: "Snapshotting",
    meaning: "The snapshot is being made, or the volume with it.",
    remedy: "Wait. The message says what the snapshot controller says.",
};

/// Going on: pods are being started.
pub const STARTING: Reason = Reason {
    name: "Starting",
    meaning: "The pods of the run are being started.",
    remedy: "Wait. If it takes long, the message names what the pods wait for, or the command that tells.",
};

/// Going on: files are listed.
pub const LISTING: Reason = Reason {
    name: "Listing",
    meaning: "Files are being listed and compared with the store.",
    remedy: "Wait.",
};

/// Going on: files are read.
pub const READING: Reason = Reason {
    name: "Reading",
    meaning: "Files are being read.",
    remedy: "Wait; `status.progressPercent` tells how far it is. If no worker is ready, the message says why.",
};

/// Going on: what the run made is removed.
pub const CLEANING_UP: Reason = Reason {
    name: "CleaningUp",
    meaning: "The snapshot and the volume with it are being removed.",
    remedy: "Wait.",
};

/// Not going on, on request.
pub const SUSPENDED: Reason = Reason {
    name: "Suspended",
    meaning: "Nothing is read because `spec.suspend` is true.",
    remedy: "Set `spec.suspend` to false to go on.",
};

/// Going on: somebody may still read.
pub const SUSPENDING: Reason = Reason {
    name: "Suspending",
    meaning: "`spec.suspend` is true, and a pod of the run has not acknowledged it: it may still read. The message names it.",
    remedy: "Wait. If it takes long, the message says why the pod does not take it up, or the condition AgentsReachable whether it answers.",
};

/// Waiting: another run uses the store.
pub const STORE_IN_USE: Reason = Reason {
    name: "StoreInUse",
    meaning: "Another run uses the store, or is older and goes first; the message names it. If that one has not begun, the message says so, and why.",
    remedy: "Wait until it has ended, or cancel it. One that has not begun uses nothing yet: resume it, make what it waits for, or cancel it.",
};

/// Waiting: an earlier run was neither finished nor aborted.
pub const UNRESOLVED_RUN: Reason = Reason {
    name: "UnresolvedRun",
    meaning: "The store holds a run that was neither finished nor aborted, and that no ChecksumRun of this namespace stands for.",
    remedy: "Resume or abort it where it was started; the message names it. If that is gone, `orrery-checksum abort` gives it up.",
};

/// Waiting: the store cannot be reached.
pub const STORE_UNREACHABLE: Reason = Reason {
    name: "StoreUnreachable",
    meaning: "The database does not answer. Nothing is lost, and the run goes on when it does.",
    remedy: "Look at the database and the network in between.",
};

/// Waiting: the store refuses us.
pub const STORE_REFUSED: Reason = Reason {
    name: "StoreRefused",
    meaning: "The database refuses the credentials, or the rights that they give, or the claim of an embedded store cannot be written.",
    remedy: "Mend what the message names; the run goes on by itself.",
};

/// Waiting: the store is full.
pub const STORE_FULL: Reason = Reason {
    name: "StoreFull",
    meaning: "There is no room left for checksums. What was stored is kept, and the run goes on when there is room.",
    remedy: "Enlarge the claim, or make room in the database.",
};

/// Waiting: the queue cannot be used.
pub const QUEUE_UNREACHABLE: Reason = Reason {
    name: "QueueUnreachable",
    meaning: "Redis does not answer, or refuses the credentials. Nothing is lost, and the run goes on when it does.",
    remedy: "Look at Redis and the network in between; the message says which.",
};

/// Waiting: the snapshot cannot be made.
pub const SNAPSHOT_FAILING: Reason = Reason {
    name: "SnapshotFailing",
    meaning: "The snapshot cannot be made; the message says what the snapshot controller or the driver says. They go on trying.",
    remedy: "Mend what the message names; the run goes on by itself.",
};

/// Waiting: something that the spec names is missing.
pub const REFERENCE_MISSING: Reason = Reason {
    name: "ReferenceMissing",
    meaning: "A Secret or a claim that the spec names does not exist, or lacks a key.",
    remedy: "Make it; the message names it. The run goes on by itself.",
};

/// Waiting: for something that only a newer release has a word for.
pub const WAITING: Reason = Reason {
    name: "Waiting",
    meaning: "The coordinator waits for something that this release of the operator has no word for; the message says for what.",
    remedy: "Do what the message says. An operator as new as its agents has the word.",
};

/// The spec cannot be used.
pub const INVALID_SPEC: Reason = Reason {
    name: "InvalidSpec",
    meaning: "A field of the spec cannot be used; the message names it.",
    remedy: "Make a new run with the field corrected, and cancel or delete this one. Nothing is tried until the object changes.",
};

/// The name of something that the run needs is taken.
pub const NAME_TAKEN: Reason = Reason {
    name: "NameTaken",
    meaning: "An object that the run needs cannot be made: one of that name exists and is not ours.",
    remedy: "Delete or rename the object that the message names; it is tried again.",
};

/// The API server refuses something that the run needs.
pub const REFUSED: Reason = Reason {
    name: "Refused",
    meaning: "The API server refuses an object that the run needs, for example by a quota or a policy.",
    remedy: "Correct what the message names. It is tried again with growing pauses.",
};

/// Something failed that is likely to pass.
pub const FAILING: Reason = Reason {
    name: "ReconcileFailed",
    meaning: "The last pass of the operator failed; the message says at which step.",
    remedy: "Nothing if it passes; it is tried again with growing pauses.",
};

/// The reasons with which a run ends.
pub const RESULTS: &[&Reason] = &[
    &VERIFIED,
    &DAMAGE_FOUND,
    &UNREADABLE,
    &CHANGED_MEANWHILE,
    &LISTING_INCOMPLETE,
    &DELETION_GUARD,
    &PERMISSION_DENIED,
    &CANCELLED,
    &STOPPED,
    &FAILED,
];

/// The reasons of a run that has not ended.
pub const PROGRESS: &[&Reason] = &[
    &SNAPSHOTTING,
    &STARTING,
    &LISTING,
    &READING,
    &CLEANING_UP,
    &SUSPENDING,
    &SUSPENDED,
    &STORE_IN_USE,
    &UNRESOLVED_RUN,
    &STORE_UNREACHABLE,
    &STORE_REFUSED,
    &STORE_FULL,
    &QUEUE_UNREACHABLE,
    &SNAPSHOT_FAILING,
    &REFERENCE_MISSING,
];

/// The reasons of a run for which the operator cannot do what it should.
pub const TROUBLE: &[&Reason] = &[&WAITING, &INVALID_SPEC, &NAME_TAKEN, &REFUSED, &FAILING];

/// The reason of a result, by its name; one of a newer agent is none of ours.
pub fn result(name: &str) -> Option<&'static Reason> {
    RESULTS.iter().copied().find(|reason| reason.name == name)
}

/// The reason of a run that has not ended, by its name.
pub fn progress(name: &str) -> Option<&'static Reason> {
    PROGRESS.iter().copied().find(|reason| reason.name == name)
}
