//! Runs for tests.

use crds::checksum_run::ChecksumRun;
use serde_json::{Value, json};

use super::{
    config::{Validated, validate},
    pod::{Image, Mounts, Together},
};

/// A run over the claim `home` with more fields.
pub(crate) fn run_with(fields: Value) -> ChecksumRun {
    let mut spec = json!({"source": {"persistentVolumeClaim": {"claimName": "home"}}});
    let (Value::Object(all), Value::Object(more)) = (&mut spec, fields) else {
        panic!("fields are an object");
    };
    all.extend(more);
    let run = json!({
        "apiVersion": "orrery.dev/v1alpha1",
        "kind": "ChecksumRun",
        "metadata": {"namespace": "ns", "name": "home-full", "uid": "run-uid", "generation": 3, "creationTimestamp": "2026-11-16T03:00:00Z"},
        "spec": spec,
    });
    serde_json::from_value(run).unwrap()
}

/// The same with every field read.
pub(crate) fn validated(fields: Value) -> Validated {
    validate(&run_with(fields)).unwrap()
}

/// Fields of a run with a database, a queue, and credentials for both.
pub(crate) fn distributed() -> Value {
    json!({
        "store": {"mysql": {"host": "db", "database": "sums", "credentialsRef": {"name": "db-user"}, "tls": {"secretRef": {"name": "db-tls"}}}},
        "queue": {"redis": {"host": "cache", "credentialsRef": {"name": "cache-user"}}},
        "workers": {"replicas": 3},
    })
}

/// What new pods run.
pub(crate) fn image() -> Image {
    Image {
        name: "registry.example.com/orrery:1.0.0".into(),
        pull_policy: Some("IfNotPresent".into()),
        pull_secrets: Vec::new(),
    }
}

/// What a run with an embedded store mounts.
pub(crate) fn mounts() -> Mounts {
    Mounts {
        source: "home".into(),
        store: Some("home-full-store".into()),
        credentials: false,
        together: Together::Anywhere,
    }
}
