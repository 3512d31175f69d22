//! One case on real nodes: a namespace of its own, with Pod Security *restricted*, and an operator that Helm installed
//! there. In: values. Out: what kubectl, helm and Flux say.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use e2e::{operator::repository, render};
use testbed::{Namespace, Shared, tools, wait::eventually};

use crate::{
    evidence,
    install::{self, SYSTEM},
    run::SAMPLES,
    statuses::Statuses,
};

/// Pods start in seconds; two cores may be busy with other cases.
pub(crate) const SOON: Duration = Duration::from_mins(2);

/// The image that was brought to the nodes.
const IMAGE: &str = "localhost/orrery";
const TAG: &str = "dev";

/// Its name, as pods say it.
pub(crate) fn image() -> String {
    format!("{IMAGE}:{TAG}")
}

/// A schedule as users are shown it, and its name.
pub(crate) const SAMPLE: &str = "config/samples/checksumschedule.yaml";
pub(crate) const SCHEDULE: &str = "checksumschedule/nightly";

/// The deployment, its service and its lease.
pub(crate) const OPERATOR: &str = "orrery-operator";

pub(crate) struct Case {
    pub(crate) cluster: Shared,
    pub(crate) namespace: Namespace,
    statuses: Statuses,
    helm: PathBuf,
    kstatus: PathBuf,
}

impl Case {
    /// Plays a case in a namespace in which only restricted pods may run. Whatever the case is about: every status that
    /// was seen meanwhile means to Flux what it means to us, and the operator asked for nothing it may not have. What
    /// tells why a case failed is kept.
    pub(crate) async fn play(
        name: &str,
        body: impl AsyncFnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        let case = Self::begin(name).await?;
        let played = async {
            body(&case).await?;
            case.judge().await?;
            case.remove_operator().await
        };
        let Err(error) = played.await else {
            return case.remove_namespace().await;
        };
        let told = match evidence::keep(&case, name).await {
            Ok(kept) => format!("what there was is in {}", kept.display()),
            Err(lost) => format!("what there was could not be kept: {lost:#}"),
        };
        match case.clear_away().await {
            Ok(()) => Err(error.context(told)),
            Err(stays) => Err(error.context(format!("{told}; something stays: {stays:#}"))),
        }
    }

    /// Removes all that a case may have left that did not come to its end, so that no other case meets it.
    async fn clear_away(self) -> Result<()> {
        let uninstall = ["uninstall", "orrery", "--wait", "--ignore-not-found"];
        self.helm(&uninstall).await?;
        self.helm(&[&uninstall[..], &["--namespace", SYSTEM]].concat())
            .await?;
        let samples = ["delete", "namespace", SAMPLES, "--timeout=50s"];
        let samples = [&samples[..], &["--ignore-not-found"]].concat();
        self.cluster.kubectl(&samples).await?.ok()?;
        install::remove(&self).await?;
        self.remove_namespace().await
    }

    /// Nothing was asked for that may not be, and nothing was seen of which Flux thinks otherwise than we do.
    async fn judge(&self) -> Result<()> {
        let asked = evidence::nothing_forbidden_nothing_secret(&self.cluster, &self.namespace)?;
        let seen = self.statuses.agree_with(&self.kstatus).await?;
        for kind in ["checksumschedules", "checksumruns"] {
            let told = "--output=jsonpath={.items[?(@.status.observedGeneration)].metadata.name}";
            let there = self.kubectl(&["get", kind, told]).await?;
            ensure!(
                there.is_empty() || seen.contains(&kind),
                "no status of {kind} {there} was judged"
            );
        }
        let installed = self.helm(&["list", "--short"]).await?;
        ensure!(
            asked > 0 || !installed.lines().any(|release| release == "orrery"),
            "the audit log knows nothing of the operator"
        );
        Ok(())
    }

    /// The same with an operator that sees this namespace only, and a schedule, both ready.
    pub(crate) async fn play_with_operator(
        name: &str,
        body: impl AsyncFnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        Self::play(name, async |case| {
            case.install(&[]).await?;
            case.apply(SAMPLE).await?;
            case.flux_says("Current").await?;
            body(case).await
        })
        .await
    }

    async fn begin(name: &str) -> Result<Self> {
        ensure!(
            std::env::var_os(testbed::VARIABLE).is_some(),
            "these cases need nodes: run `make e2e`"
        );
        let cluster = testbed::kubernetes().await?;
        let namespace = cluster.namespace(name).await?;
        let enforce = "pod-security.kubernetes.io/enforce=restricted";
        let label = ["label", "namespace", &namespace, enforce];
        cluster.kubectl(&label).await?.ok()?;
        Ok(Self {
            statuses: Statuses::watch(&cluster, &namespace).await?,
            namespace,
            cluster,
            helm: tools::helm().await?,
            kstatus: tools::kstatus().await?,
        })
    }

    /// Installs the operator, or changes it, and waits until it is ready.
    pub(crate) async fn install(&self, values: &[&str]) -> Result<()> {
        let image = format!("image.repository={IMAGE}");
        let watched = format!("watchNamespaces={{{}}}", self.namespace.name());
        let tag = format!("image.tag={TAG}");
        let mut args = vec!["upgrade", "--install", "orrery", "charts/orrery", "--wait"];
        args.extend([
            "--timeout",
            "2m",
            "--set",
            &image,
            "--set",
            &tag,
            "--set",
            &watched,
        ]);
        for value in values {
            args.extend(["--set", value]);
        }
        self.helm(&args).await.map(|_| ())
    }

    /// What helm prints.
    pub(crate) async fn helm(&self, args: &[&str]) -> Result<String> {
        let kubeconfig = self.cluster.kubeconfig();
        let kubeconfig = kubeconfig.to_str().context("a path that is not UTF-8")?;
        let mut all = vec!["--kubeconfig", kubeconfig, "--namespace", &self.namespace];
        all.extend(args);
        render::run(&self.helm, &all).await?.ok()
    }

    /// What kubectl prints.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut all = vec!["--namespace", self.namespace.name()];
        all.extend(args);
        self.cluster.kubectl(&all).await?.ok()
    }

    /// Applies a file of the repository.
    pub(crate) async fn apply(&self, file: &str) -> Result<String> {
        let file = repository().join(file);
        let file = file.to_str().context("a path that is not UTF-8")?;
        self.kubectl(&["apply", "--filename", file]).await
    }

    /// Applies a document.
    pub(crate) async fn apply_text(&self, text: &str) -> Result<String> {
        let args = ["--namespace", &self.namespace, "apply", "--filename=-"];
        self.cluster.kubectl_stdin(&args, text).await?.ok()
    }

    /// What Prometheus is told by one of the operators.
    pub(crate) async fn metrics(&self) -> Result<String> {
        let path = format!(
            "/api/v1/namespaces/{}/services/{OPERATOR}:admin/proxy/metrics",
            self.namespace
        );
        self.kubectl(&["get", "--raw", &path]).await
    }

    /// A field of an object.
    pub(crate) async fn field(&self, object: &str, path: &str) -> Result<String> {
        self.kubectl(&["get", object, &format!("--output=jsonpath={{{path}}}")])
            .await
    }

    /// Waits until Flux would call the sample this: `Current`, `InProgress` or `Failed`.
    pub(crate) async fn flux_says(&self, expected: &str) -> Result<()> {
        let what = format!("{SCHEDULE} to be {expected}");
        eventually(&what, SOON, async || {
            let json = self.kubectl(&["get", SCHEDULE, "--output=json"]).await?;
            let said = render::run_with(&self.kstatus, &[], &json).await?.ok()?;
            ensure!(said.starts_with(expected), "{said}");
            Ok(Some(()))
        })
        .await
    }

    /// The pod that leads, once there is one other than `former`.
    pub(crate) async fn leader_after(&self, former: &str) -> Result<String> {
        eventually("a leader", SOON, async || {
            let holder = self
                .field(&format!("lease/{OPERATOR}"), ".spec.holderIdentity")
                .await?;
            ensure!(holder != former && !holder.is_empty(), "{holder:?} leads");
            Ok(Some(holder))
        })
        .await
    }

    /// Removes the operator, if there is one, and nothing that users made.
    async fn remove_operator(&self) -> Result<()> {
        let mine = async || {
            self.kubectl(&["get", "orrery,leases", "--output=name"])
                .await
        };
        let before = mine().await?;
        self.helm(&["uninstall", "orrery", "--wait", "--ignore-not-found"])
            .await?;
        let kinds = "deployments,services,roles,rolebindings,serviceaccounts,poddisruptionbudgets";
        let left = self.kubectl(&["get", kinds, "--output=name"]).await?;
        let ours: Vec<_> = left.lines().filter(|it| it.contains("orrery")).collect();
        ensure!(ours.is_empty(), "left after the uninstall: {ours:?}");
        let after = mine().await?;
        ensure!(
            before == after,
            "{before} became {after} with the uninstall"
        );
        Ok(())
    }

    /// Removes the namespace, and waits until it is gone.
    async fn remove_namespace(self) -> Result<()> {
        let delete = ["delete", "namespace", &self.namespace, "--timeout=50s"];
        self.cluster.kubectl(&delete).await?.ok()?;
        Ok(())
    }
}
