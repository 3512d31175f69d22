//! Claims about what is installed: the chart and the kustomize tree say the same, refuse what is wrong, and work.
//! Touches: real helm, kubectl, promtool and API servers.

#[path = "charts/alerts.rs"]
mod alerts;
#[path = "charts/installed.rs"]
mod installed;
#[path = "charts/rendered.rs"]
mod rendered;
#[path = "charts/values.rs"]
mod values;

/// Every toggle on: all that the chart can render, but for the other monitor. As JSON, so that a later `--set-json` wins.
pub(crate) const EVERYTHING: [&str; 2] = [
    "--set-json",
    r#"{"networkPolicy": {"enabled": true}, "metrics": {"serviceMonitor": {"enabled": true},
        "rules": {"enabled": true}, "dashboards": {"enabled": true}}}"#,
];

/// The other monitor.
pub(crate) const MONITORED_PODS: [&str; 2] = [
    "--set-json",
    r#"{"metrics": {"podMonitor": {"enabled": true}}}"#,
];
