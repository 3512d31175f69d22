//! Every fixed string of the API in one place: group, labels, annotations, field managers, child names.
//! In: names of parents and slots. Out: names of children. Pure.

use jiff::{Timestamp, tz::Offset};

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
/// The conventional label that names the tool which made an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY_LABEL`] on everything the operator makes.
pub const MANAGED_BY: &str = "orrery";

/// The field manager of the ChecksumSchedule controller.
pub const CHECKSUM_SCHEDULE_MANAGER: &str = "orrery.dev/checksum-schedule";

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

#[cfg(test)]
mod tests {
    use super::*;

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
