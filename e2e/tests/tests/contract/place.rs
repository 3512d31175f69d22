//! In: arguments for kubectl. Out: what it said. Touches a namespace that no other test uses.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testbed::{Namespace, Output, Shared};

/// A file or folder of this repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// A namespace of one's own on a server with our definitions.
pub(crate) struct Place {
    namespace: Namespace,
    kubernetes: Shared,
}

impl Place {
    /// A new one.
    pub(crate) async fn new(prefix: &str) -> Result<Self> {
        let kubernetes = testbed::kubernetes().await?;
        let namespace = kubernetes.namespace(prefix).await?;
        Ok(Self {
            namespace,
            kubernetes,
        })
    }

    /// Runs kubectl in this namespace.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<Output> {
        self.kubectl_stdin(args, "").await
    }

    /// The same with `input` to read.
    pub(crate) async fn kubectl_stdin(&self, args: &[&str], input: &str) -> Result<Output> {
        let args = [&["--namespace", &*self.namespace], args].concat();
        self.kubernetes.kubectl_stdin(&args, input).await
    }

    /// `kubectl apply` of all objects at once, which saves time: what is said of one names it.
    pub(crate) async fn apply(&self, flags: &[&str], objects: &[Value]) -> Result<Output> {
        let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
        let args = [&["apply", "--filename=-"], flags].concat();
        self.kubectl_stdin(&args, &texts.join("\n---\n")).await
    }

    /// Applies objects that nobody has anything against.
    pub(crate) async fn apply_quietly(&self, flags: &[&str], objects: &[Value]) -> Result<String> {
        let output = self.apply(flags, objects).await?;
        ensure!(output.stderr.is_empty(), "{}", output.stderr);
        output.ok()
    }

    /// An object as it is stored, or the list of a kind.
    pub(crate) async fn get(&self, what: &str) -> Result<Value> {
        let stored = self.kubectl(&["get", what, "--output=json"]).await?.ok()?;
        serde_json::from_str(&stored).with_context(|| format!("failed to read {what}"))
    }

    /// Writes the status, as a controller would.
    pub(crate) async fn patch_status(&self, what: &str, status: &Value) -> Result<()> {
        let patch = format!("--patch={}", serde_json::json!({"status": status}));
        let args = [
            "patch",
            what,
            "--subresource=status",
            "--type=merge",
            &patch,
        ];
        self.kubectl(&args).await?.ok()?;
        Ok(())
    }
}
