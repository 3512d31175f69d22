//! In: pinned recipes for real parts. Out: control planes, processes, faulty connections and jumping clocks for tests.
//! Touches: processes and temporary folders, none of which outlives the test that asked for it. Start with
//! [`kubernetes`] for a test that gets along with others, with [`Kubernetes::start`] for one that breaks things.

mod access;
pub mod audit;
mod certificates;
pub mod faketime;
mod folder;
mod kubeconfig;
mod kubernetes;
mod layout;
mod ports;
pub mod process;
pub mod proxy;
mod shared;
pub mod tools;
pub mod wait;

pub use access::{AGENT, Access, Namespace, Output};
pub use kubernetes::{Component, Kubernetes, Options, Part};
pub use shared::{Shared, VARIABLE, kubernetes, repository_crds};

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Compiles only if the future can be handed to another thread.
    fn can_be_spawned<T: Send>(_: T) {}

    #[test]
    fn tests_can_use_a_cluster_from_tasks() {
        can_be_spawned(async {
            let broken = Kubernetes::start(Options::default()).await?;
            broken.part(Part::Etcd).pause().await?;
            broken.ready(Duration::ZERO).await?;
            broken.shutdown().await
        });
        can_be_spawned(async {
            let shared = kubernetes().await?;
            let namespace = shared.namespace("any").await?;
            shared.apply_yaml("").await?;
            let account = shared.service_account_kubeconfig(&namespace, "default", None);
            account.await
        });
    }
}
