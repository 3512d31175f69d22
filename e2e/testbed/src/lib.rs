//! In: pinned recipes for real parts. Out: control planes, processes, faulty connections and jumping clocks for tests.
//! Touches: processes and temporary folders, none of which outlives the test that asked for it. Start with
//! [`kubernetes`] for a test that gets along with others, with [`Kubernetes::start`] for one that breaks things.

mod access;
pub mod audit;
pub mod cassandra;
pub mod certificates;
pub mod cluster;
mod component;
pub mod faketime;
mod folder;
mod ground;
mod java;
pub mod kafka;
mod kubeconfig;
mod kubernetes;
mod layout;
pub mod mariadb;
pub mod network;
mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod redis;
mod server;
mod shared;
mod snapshots;
mod stock;
pub mod tools;
pub mod wait;

pub use access::{AGENT, Access, Namespace, Output};
pub use cassandra::Cassandra;
pub use cluster::Cluster;
pub use component::Component;
pub use folder::{memory_of_owner, remove_folders_of_the_dead};
pub use kubernetes::{Kubernetes, Options, Part};
pub use server::{Owned, Server};
pub use shared::{Shared, VARIABLE, kubernetes, repository_crds};
pub use snapshots::Snapshots;
pub use stock::{SharedStore, Stock, cassandra, kafka, mariadb, postgres, redis, snapshots};

/// Makes what lets the JVM of Cassandra and Kafka start faster, once per version; says so on standard error.
pub async fn make_class_archives() -> anyhow::Result<()> {
    cassandra::make_archive().await?;
    kafka::make_archive().await
}

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
