#![expect(clippy::disallowed_methods, reason = "writes to the server under test")]
//! In: a prefix. Out: a namespace of its own for a test.
//! Touches: creates a namespace, and deletes it if the cluster is not the test's alone.

use std::fmt;
use std::ops::Deref;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1 as core;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use tokio::runtime;

use super::{Access, Tenancy, bounded};

/// On a loaded machine controllers take seconds to see a new namespace.
const USABLE_DEADLINE: Duration = Duration::from_mins(1);

/// A namespace nobody else uses. Reads as its name.
///
/// When it is dropped its deletion is asked for, but not awaited. If the cluster is this process's
/// own it is left alone: it goes with the cluster.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    access: Access,
}

impl Access {
    /// Creates a namespace whose name begins with `prefix`, ready for pods.
    pub async fn namespace(&self, prefix: &str) -> Result<Namespace> {
        let namespaces: Api<core::Namespace> = Api::all(self.client().await?);
        let wanted = core::Namespace {
            metadata: ObjectMeta {
                generate_name: Some(format!("{prefix}-")),
                ..ObjectMeta::default()
            },
            ..core::Namespace::default()
        };
        let created = bounded(namespaces.create(&PostParams::default(), &wanted)).await;
        let created = created.with_context(|| format!("failed to create namespace {prefix}-…"))?;
        let name = created
            .metadata
            .name
            .context("a namespace without a name")?;
        let access = self.clone();
        let namespace = Namespace { name, access };
        self.default_service_account(&namespace, USABLE_DEADLINE)
            .await?;
        Ok(namespace)
    }

    async fn delete_namespace(&self, name: &str) -> Result<()> {
        let namespaces: Api<core::Namespace> = Api::all(self.client().await?);
        bounded(namespaces.delete(name, &DeleteParams::default())).await?;
        Ok(())
    }
}

impl Namespace {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the server's answer, which comes at once: a request merely queued would be lost when
    /// the process ends with the test, as it does under nextest.
    fn ask_for_deletion(&self) -> Result<()> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.access.delete_namespace(&self.name))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if self.access.tenancy == Tenancy::Sole {
            return;
        }
        // From a thread of its own, because the runtime of this one, if any, cannot be blocked on.
        let deleted = thread::scope(|scope| scope.spawn(|| self.ask_for_deletion()).join());
        if let Ok(Err(error)) = deleted {
            eprintln!("testbed: namespace {self} stays: {error:#}");
        }
    }
}

impl Deref for Namespace {
    type Target = str;

    fn deref(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
