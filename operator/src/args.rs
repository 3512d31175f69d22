//! What the operator is told on its command line. In: flags and environment. Out: checked values.

use std::time::Duration;

use clap::{Parser, Subcommand};
use http::Uri;
use runtime::{admin::AdminArgs, telemetry::TelemetryArgs};

use crate::{
    checksum_run::pod::Image,
    watch::{Scope, WATCH_TIMEOUT},
};

/// The Orrery operator: reconciles the resources of the group orrery.dev.
#[derive(Clone, Debug, Parser)]
#[command(name = "orrery-operator", version)]
pub struct Args {
    /// Namespaces to watch, separated by commas; none means all.
    #[arg(long, env = "ORRERY_WATCH_NAMESPACES", value_delimiter = ',', value_parser = namespace)]
    pub watch_namespaces: Vec<String>,

    /// Where health and metrics are served.
    #[command(flatten)]
    pub admin: AdminArgs,

    /// The Lease that replicas compete for.
    #[arg(long, env = "ORRERY_LEASE_NAME", default_value = "orrery-operator")]
    pub lease_name: String,

    /// The namespace of the Lease; absent means the operator's own.
    #[arg(long, env = "ORRERY_LEASE_NAMESPACE", value_parser = namespace)]
    pub lease_namespace: Option<String>,

    /// The name of this replica, usually that of its pod.
    #[arg(long, env = "ORRERY_POD_NAME", default_value = "orrery-operator")]
    pub pod_name: String,

    /// The image of agents, usually the operator's own: it holds every program.
    #[arg(long, env = "ORRERY_AGENT_IMAGE", value_name = "IMAGE")]
    pub agent_image: Option<String>,

    /// When nodes pull that image: `Always`, `IfNotPresent` or `Never`; absent means as Kubernetes sees fit.
    #[arg(long, env = "ORRERY_AGENT_PULL_POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub agent_pull_policy: Option<String>,

    /// Secrets to pull that image with, separated by commas; they must be in the namespaces of the agents.
    #[arg(
        long,
        env = "ORRERY_AGENT_PULL_SECRETS",
        value_delimiter = ',',
        value_name = "NAMES"
    )]
    pub agent_pull_secrets: Vec<String>,

    /// After how many seconds the server ends a watch; a dead connection is noticed a little later.
    #[arg(long, env = "ORRERY_WATCH_TIMEOUT_SECONDS", default_value_t = WATCH_TIMEOUT.as_secs(),
        value_parser = clap::value_parser!(u64).range(5..=290))]
    pub watch_timeout_seconds: u64,

    /// How many seconds running reconciles get to end after SIGTERM.
    #[arg(long, env = "ORRERY_DRAIN_SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=300))]
    pub drain_seconds: u64,

    /// Logs.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,

    /// Without one the operator runs.
    #[command(subcommand)]
    pub task: Option<Task>,
}

/// What else the program can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Task {
    /// Ask an operator whether it is ready; prints what it says, and fails if it is not. For `helm test`.
    Probe {
        /// Where it says so.
        #[arg(default_value = "http://127.0.0.1:8081/readyz")]
        url: Uri,
    },
}

/// The operator was not told which image agents run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--agent-image or ORRERY_AGENT_IMAGE is missing: it names the image of agents, usually the operator's own"
)]
pub struct NoImage;

impl Args {
    /// Which namespaces are watched.
    pub fn scope(&self) -> Scope {
        let mut namespaces: Vec<_> = self
            .watch_namespaces
            .iter()
            .filter(|n| !n.is_empty())
            .cloned()
            .collect();
        namespaces.sort();
        namespaces.dedup();
        if namespaces.is_empty() {
            Scope::Cluster
        } else {
            Scope::Namespaces(namespaces)
        }
    }

    /// What agents run. An operator that cannot tell would start pods that never do.
    pub fn image(&self) -> Result<Image, NoImage> {
        let name = self.agent_image.clone().filter(|name| !name.is_empty());
        let secrets = self.agent_pull_secrets.iter();
        Ok(Image {
            name: name.ok_or(NoImage)?,
            pull_policy: self.agent_pull_policy.clone(),
            pull_secrets: secrets.filter(|name| !name.is_empty()).cloned().collect(),
        })
    }

    /// After what time the server ends a watch.
    pub fn watch_timeout(&self) -> Duration {
        Duration::from_secs(self.watch_timeout_seconds)
    }

    /// How long running reconciles get to end.
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }
}

fn namespace(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.len() <= 63 && text.chars().all(good) {
        return Ok(text.into());
    }
    Err("a namespace has at most 63 characters: lower-case letters, digits and -".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(more: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from([&["orrery-operator"], more].concat())
    }

    #[test]
    fn without_namespaces_all_are_watched() {
        assert_eq!(args(&[]).unwrap().scope(), Scope::Cluster);
        assert_eq!(
            args(&["--watch-namespaces", ""]).unwrap().scope(),
            Scope::Cluster
        );
    }

    #[test]
    fn a_namespace_named_twice_is_watched_once() {
        let scope = args(&["--watch-namespaces", "b,a,b"]).unwrap().scope();
        assert_eq!(scope, Scope::Namespaces(vec!["a".into(), "b".into()]));
    }

    #[test]
    fn the_image_of_agents_has_to_be_named() {
        assert_eq!(args(&[]).unwrap().image(), Err(NoImage));
        assert_eq!(args(&["--agent-image="]).unwrap().image(), Err(NoImage));
        let named = ["--agent-image=orrery:1", "--agent-pull-secrets=a,b"];
        let image = args(&named).unwrap().image().unwrap();
        assert_eq!(
            (image.name.as_str(), image.pull_secrets.len()),
            ("orrery:1", 2)
        );
        assert!(args(&["--agent-pull-policy=Sometimes"]).is_err());
    }

    #[test]
    fn a_bad_namespace_is_refused_with_the_rule() {
        let error = args(&["--watch-namespaces", "A_B"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("lower-case letters"), "{error}");
    }
}
