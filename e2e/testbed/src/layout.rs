//! In: the root of a state folder. Out: where each thing in it is.
//! Pure: knows names, touches nothing.

use std::path::{Path, PathBuf};

/// The names of everything in a state folder; what starts a cluster and what attaches to it agree by this.
#[derive(Clone, Debug)]
pub(crate) struct Layout(PathBuf);

impl Layout {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// What is worth keeping after a failure.
    pub(crate) fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs().join(format!("{name}.log"))
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.log("audit")
    }

    pub(crate) fn audit_policy(&self) -> PathBuf {
        self.0.join("audit-policy.yaml")
    }

    pub(crate) fn etcd_data(&self) -> PathBuf {
        self.0.join("etcd")
    }

    pub(crate) fn certificates(&self) -> PathBuf {
        self.0.join("certificates")
    }

    pub(crate) fn certificate(&self, name: &str) -> PathBuf {
        self.certificates().join(format!("{name}.crt"))
    }

    pub(crate) fn key(&self, name: &str) -> PathBuf {
        self.certificates().join(format!("{name}.key"))
    }

    pub(crate) fn public_key(&self, name: &str) -> PathBuf {
        self.certificates().join(format!("{name}.pub"))
    }

    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.0.join(format!("{user}.kubeconfig"))
    }

    pub(crate) fn kubectl_cache(&self) -> PathBuf {
        self.0.join("kubectl-cache")
    }
}
