//! Every fixed string of the API in one place: group, labels, annotations, field managers, child names.
//! In: names of parents and slots. Out: names of children. Pure.

use jiff::{Timestamp, tz::Offset};
use sha2::{Digest, Sha256};

/// The API group of every kind.
pub const GROUP: &str = "orrery.dev";
/// The version of every kind.
pub const VERSION: &str = "v1alpha1";
/// The category that `kubectl get orrery` lists.
pub const CATEGORY: &str = "orrery";

/// Starts one run of a schedule for each new value.
pub const RUN_NOW_ANNOTATION: &str = "orrery.dev/run-now";
/// On a run: the slot it was made for, in RFC 3339.
pub const SCHEDULED_AT_ANNOTATION: &str = "orrery.dev/scheduled-at";
/// On a run: the token of the run-now annotation it was made for.
pub const RUN_TOKEN_ANNOTATION: &str = "orrery.dev/run-token";
/// On a run: the name of the ChecksumSchedule that made it.
pub const SCHEDULE_LABEL: &str = "orrery.dev/checksum-schedule";
/// On a pod: the agent it carries.
pub const AGENT_LABEL: &str = "orrery.dev/agent";
/// On everything that is made for a ChecksumRun: its name.
pub const CHECKSUM_RUN_LABEL: &str = "orrery.dev/checksum-run";
/// On a pod: the UID of the resource that its agent works for.
pub const OWNER_LABEL: &str = "orrery.dev/owner-uid";
/// On a claim that holds the memory of runs and outlives them: what is in it.
pub const STORE_LABEL: &str = "orrery.dev/store";
/// The value of [`STORE_LABEL`] on claims with checksums.
pub const CHECKSUMS: &str = "checksums";
/// On a workload: the digest of its pods as they were asked for, which tells whether another release asked for them.
pub const TEMPLATE_ANNOTATION: &str = "orrery.dev/template";
/// The conventional label that names the tool which made an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY_LABEL`] on everything the operator makes.
pub const MANAGED_BY: &str = "orrery";

/// The field manager of the ChecksumSchedule controller.
pub const CHECKSUM_SCHEDULE_MANAGER: &str = "orrery.dev/checksum-schedule";

/// The field manager of the ChecksumRun controller.
pub const CHECKSUM_RUN_MANAGER: &str = "orrery.dev/checksum-run";
/// The field manager of what is told of an object that a release cannot read: it goes by itself, whatever else is told.
pub const UNREADABLE_MANAGER: &str = "orrery.dev/unreadable";
/// The field manager of certificates.
pub const PKI_MANAGER: &str = "orrery.dev/pki";

/// The value of [`AGENT_LABEL`] on the pod that leads a run.
pub const CHECKSUM_COORDINATOR: &str = "checksum-coordinator";
/// The value of [`AGENT_LABEL`] on the pods that read for it.
pub const CHECKSUM_WORKER: &str = "checksum-worker";
/// The container of either.
pub const CHECKSUM_CONTAINER: &str = "checksum";

/// The Secret with the authority that signs all certificates, in the operator's own namespace.
pub const CA_SECRET: &str = "orrery-ca";
/// The Secret with the certificate of all agents of a namespace.
pub const AGENT_TLS_SECRET: &str = "orrery-agent-tls";
/// The name in the certificates of agents: the operator talks to nobody else.
pub const AGENT_TLS_NAME: &str = "agent.orrery.dev";
/// The name in the operator's client certificate: agents take configuration from nobody else.
pub const OPERATOR_TLS_NAME: &str = "operator.orrery.dev";

/// The longest name of a schedule: its runs get eleven characters more and must fit a label value.
pub const SCHEDULE_NAME_LIMIT: usize = 52;

/// The name of the run that `schedule` starts for the slot at `at`: `nightly-2611160300`, in UTC.
///
/// A cron slot is a whole minute, so the name is unique per slot for a hundred years.
pub fn slot_run(schedule: &str, at: Timestamp) -> String {
    let utc = Offset::UTC.to_datetime(at);
    format!("{schedule}-{}", utc.strftime("%y%m%d%H%M"))
}

/// The name of the run that `schedule` starts for a run-now token, given the token's digest in hex.
pub fn token_run(schedule: &str, digest: &str) -> String {
    let digest = digest.get(..9).unwrap_or(digest);
    format!("{schedule}-r{digest}")
}

/// The longest name of a child: it is used as a label.
pub const CHILD_NAME_LIMIT: usize = 63;

/// The ConfigMap, the Secret and the Job of a run.
pub fn checksum(run: &str) -> String {
    child(run, "-checksum")
}

/// The Deployment of a run's workers.
pub fn checksum_workers(run: &str) -> String {
    child(run, "-checksum-worker")
}

/// The snapshot that is made for a run, and the claim that is made from it.
pub fn checksum_snapshot(run: &str) -> String {
    child(run, "-snapshot")
}

/// The claim with the checksums of a schedule's runs, or of a run that has none.
pub fn checksum_store(schedule_or_run: &str) -> String {
    format!("{schedule_or_run}-store")
}

/// The Job that makes the claim with the checksums writable.
pub fn checksum_preparation(run: &str) -> String {
    child(run, "-checksum-store")
}

/// The longest name of the files of a run: a database has a column for it.
pub const FILE_SYSTEM_LIMIT: usize = 253;

/// The files of a claim in a database, which several namespaces may use.
pub fn file_system(namespace: &str, claim: &str) -> String {
    fitting(&format!("{namespace}/{claim}"), "", FILE_SYSTEM_LIMIT)
}

/// The parent's name and what the child is.
fn child(parent: &str, what: &str) -> String {
    fitting(parent, what, CHILD_NAME_LIMIT)
}

/// A name and what comes after it. One that would be too long is cut, and ends in a digest that keeps it apart from
/// others that begin alike.
fn fitting(name: &str, what: &str, limit: usize) -> String {
    if name.len() + what.len() <= limit {
        return format!("{name}{what}");
    }
    let digest = digest(name.as_bytes(), 4);
    let room = limit - what.len() - digest.len() - 1;
    let cut = name[..name.floor_char_boundary(room)].trim_end_matches(['-', '.']);
    format!("{cut}-{digest}{what}")
}

/// The first bytes of a digest of `content`, in hex: the same for the same content, in every release.
pub fn digest(content: &[u8], bytes: usize) -> String {
    let digest = Sha256::digest(content);
    digest.iter().take(bytes).fold(String::new(), |hex, byte| {
        let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or('0');
        hex + &String::from_iter([digit(byte >> 4), digit(byte & 15)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_named_after_their_run() {
        assert_eq!(checksum("home"), "home-checksum");
        assert_eq!(checksum_workers("home"), "home-checksum-worker");
        assert_eq!(checksum_store("nightly"), "nightly-store");
    }

    #[test]
    fn a_long_name_is_shortened_and_stays_apart_from_others() {
        for length in [40, 54, 55, 63, 253] {
            let name = format!("{}.{}", "a".repeat(length - 9), "b-c-d-e-");
            let (one, other) = (format!("{name}1"), format!("{name}2"));
            for child in [
                checksum,
                checksum_workers,
                checksum_snapshot,
                checksum_preparation,
            ] {
                let (one, other) = (child(&one), child(&other));
                assert!(one.len() <= CHILD_NAME_LIMIT, "{one}");
                assert_ne!(one, other);
                assert!(!one.contains(".-") && !one.contains("--"), "{one}");
            }
        }
    }

    #[test]
    fn claims_of_two_namespaces_are_two_file_systems_however_long_their_names() {
        assert_eq!(file_system("photos", "home"), "photos/home");
        let (namespace, claim) = ("n".repeat(63), "c".repeat(252));
        let long = |last| file_system(&namespace, &format!("{claim}{last}"));
        assert_eq!(long('1').len(), FILE_SYSTEM_LIMIT);
        assert_ne!(long('1'), long('2'));
    }

    #[test]
    fn the_slot_is_readable_in_the_name_of_its_run() {
        let at: Timestamp = "2026-11-16T03:00:00Z".parse().unwrap();
        assert_eq!(slot_run("nightly", at), "nightly-2611160300");
    }

    #[test]
    fn the_longest_schedule_name_still_fits_a_label() {
        let schedule = "s".repeat(SCHEDULE_NAME_LIMIT);
        assert_eq!(slot_run(&schedule, Timestamp::UNIX_EPOCH).len(), 63);
        assert_eq!(token_run(&schedule, &"a".repeat(64)).len(), 63);
    }
}
