//! What a case leaves to be looked at. In: a case. Out: what its operator asked for, or a folder that tells why it failed.

use std::{fs, path::PathBuf};

use anyhow::{Result, ensure};
use e2e::{history::History, operator::repository};
use testbed::Access;

use crate::{case::Case, install::SYSTEM, run::SAMPLES};

/// File name, and what kubectl is asked.
const QUESTIONS: [(&str, &[&str]); 6] = [
    (
        "objects.yaml",
        &[
            "get",
            "all,orrery,leases,persistentvolumeclaims,poddisruptionbudgets",
            "--output=yaml",
        ],
    ),
    (
        "events.txt",
        &["get", "events", "--sort-by=.metadata.creationTimestamp"],
    ),
    ("pods.txt", &["describe", "pods"]),
    (
        "logs.txt",
        &[
            "logs",
            "--selector=app.kubernetes.io/name=orrery-operator",
            "--prefix",
            "--tail=-1",
        ],
    ),
    (
        "logs-of-agents.txt",
        &[
            "logs",
            "--selector=orrery.dev/agent",
            "--prefix",
            "--tail=-1",
        ],
    ),
    (
        "logs-before.txt",
        &[
            "logs",
            "--selector=app.kubernetes.io/name=orrery-operator",
            "--prefix",
            "--tail=-1",
            "--previous",
        ],
    ),
];

/// Writes objects, events and logs into a folder of this case; those of an operator for all namespaces and of the samples
/// of `make run` into folders below it.
pub(crate) async fn keep(case: &Case, name: &str) -> Result<PathBuf> {
    let folder = repository()
        .join("target/testbed-logs")
        .join(format!("case-{name}"));
    for (namespace, place) in [
        (case.namespace.name(), folder.clone()),
        (SYSTEM, folder.join(SYSTEM)),
        (SAMPLES, folder.join(SAMPLES)),
    ] {
        fs::create_dir_all(&place)?;
        for (file, question) in QUESTIONS {
            let args = [&["--namespace", namespace], question].concat();
            let answer = case.cluster.kubectl(&args).await;
            // That there is no answer is worth knowing too.
            let answer = answer.and_then(testbed::Output::ok);
            let answer = answer.unwrap_or_else(|error| format!("{error:#}\n"));
            fs::write(place.join(file), answer)?;
        }
    }
    Ok(folder)
}

/// What the operators of a namespace have asked for so far. Says how many requests that were.
pub(crate) fn nothing_forbidden_nothing_secret(cluster: &Access, namespace: &str) -> Result<usize> {
    let history = History::read(&cluster.audit())?;
    let account = format!("system:serviceaccount:{namespace}:");
    let ours = history.events().iter();
    let ours = ours.filter(|event| event.user.username.starts_with(&account));
    let mut seen = 0;
    for event in ours {
        seen += 1;
        ensure!(event.code() != Some(403), "forbidden: {event:?}");
        // Secrets are asked for by name, and never for all of them.
        let is_many = matches!(event.verb.as_str(), "list" | "watch" | "deletecollection");
        ensure!(
            !(event.is_about("", "secrets") && is_many),
            "secrets: {event:?}"
        );
    }
    Ok(seen)
}
