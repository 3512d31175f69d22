//! The shortest valid schedule, for tests.

use crds::checksum_schedule::ChecksumSchedule;
use serde_json::json;

/// `nightly`, at three every night.
pub(crate) fn schedule() -> ChecksumSchedule {
    serde_json::from_value(json!({
        "apiVersion": "orrery.dev/v1alpha1",
        "kind": "ChecksumSchedule",
        "metadata": {"namespace": "ns", "name": "nightly", "uid": "schedule-uid", "generation": 1, "creationTimestamp": "2026-11-01T00:00:00Z"},
        "spec": {
            "schedule": "0 3 * * *",
            "template": {"spec": {"source": {"persistentVolumeClaim": {"claimName": "home"}}}},
        },
    }))
    .unwrap()
}
