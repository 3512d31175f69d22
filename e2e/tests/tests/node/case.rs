//! One case on the real node: a namespace of its own, with Pod Security *restricted*, and an operator that Helm installed
//! there. In: values. Out: what kubectl, helm and Flux say.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use e2e::{operator::repository, render};
use testbed::{Namespace, Shared, tools, wait::eventually};

/// Pods start in seconds; two cores may be busy with other cases.
pub(crate) const SOON: Duration = Duration::from_mins(2);

/// The image that was brought to the nodes.
const IMAGE: &str = "localhost/orrery";
const TAG: &str = "dev";

/// The deployment, its service and its lease.
pub(crate) const OPERATOR: &str = "orrery-operator";

pub(crate) struct Case {
    pub(crate) cluster: Shared,
    pub(crate) namespace: Namespace,
    helm: PathBuf,
    kstatus: PathBuf,
}

impl Case {
    /// A namespace in which only restricted pods may run.
    pub(crate) async fn begin(name: &str) -> Result<Self> {
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
            namespace,
            cluster,
            helm: tools::helm().await?,
            kstatus: tools::kstatus().await?,
        })
    }

    /// The same with an operator that sees this namespace only, ready.
    pub(crate) async fn with_operator(name: &str) -> Result<Self> {
        let case = Self::begin(name).await?;
        case.install(&[]).await?;
        Ok(case)
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
        let installed = self.helm(&args).await;
        if installed.is_err() {
            eprintln!("{}", self.kubectl(&["get", "pods,events"]).await?);
        }
        installed.map(|_| ())
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

    /// A field of an object.
    pub(crate) async fn field(&self, object: &str, path: &str) -> Result<String> {
        self.kubectl(&["get", object, &format!("--output=jsonpath={{{path}}}")])
            .await
    }

    /// Waits until Flux would call the object this: `Current`, `InProgress` or `Failed`.
    pub(crate) async fn flux_says(&self, object: &str, expected: &str) -> Result<()> {
        let what = format!("{object} to be {expected}");
        eventually(&what, SOON, async || {
            let json = self.kubectl(&["get", object, "--output=json"]).await?;
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

    /// Removes the operator and the namespace, and waits until both are gone.
    pub(crate) async fn end(self) -> Result<()> {
        self.helm(&["uninstall", "orrery", "--wait"]).await?;
        let left = self
            .kubectl(&[
                "get",
                "deployments,services,roles,rolebindings",
                "--output=name",
            ])
            .await?;
        let ours: Vec<_> = left.lines().filter(|it| it.contains("orrery")).collect();
        if !ours.is_empty() {
            bail!("left after the uninstall: {ours:?}");
        }
        let delete = ["delete", "namespace", &self.namespace, "--timeout=2m"];
        self.cluster.kubectl(&delete).await?.ok()?;
        Ok(())
    }
}
