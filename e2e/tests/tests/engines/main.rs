//! Engines as pods on a real node: started as `make run WITH=…` starts them, killed, and asked for what they were given.
//! Run by `make e2e`.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{operator::repository, render};
use testbed::{Namespace, Shared, wait::eventually};

/// A node of Cassandra takes twenty seconds; two cores may be busy with other cases.
const SOON: Duration = Duration::from_mins(3);

const POD: &str = "pod/cassandra-0";

struct Cassandra {
    cluster: Shared,
    namespace: Namespace,
}

impl Cassandra {
    async fn install() -> Result<Self> {
        ensure!(
            std::env::var_os(testbed::VARIABLE).is_some(),
            "these cases need nodes: run `make e2e`"
        );
        let cluster = testbed::kubernetes().await?;
        let namespace = cluster.namespace("cassandra").await?;
        let script = repository().join("e2e/engines/cassandra.sh");
        let said = render::run(&script, &["install", &namespace]).await?.ok()?;
        ensure!(said.contains("1/1"), "{said}");
        Ok(Self { cluster, namespace })
    }

    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let all = [&["--namespace", self.namespace.name()], args].concat();
        self.cluster.kubectl(&all).await?.ok()
    }

    async fn field(&self, object: &str, path: &str) -> Result<String> {
        let path = format!("--output=jsonpath={{{path}}}");
        self.kubectl(&["get", object, &path]).await
    }

    /// What a command of the image prints.
    async fn exec(&self, command: &[&str]) -> Result<String> {
        self.kubectl(&[&["exec", POD, "--"], command].concat())
            .await
    }

    /// Takes the pod away without a word, and waits until another one is ready.
    async fn lose_pod(&self) -> Result<()> {
        let former = self.field(POD, ".metadata.uid").await?;
        self.kubectl(&["delete", POD, "--grace-period=0", "--force"])
            .await?;
        eventually("another pod to be ready", SOON, async || {
            let uid = self.field(POD, ".metadata.uid").await?;
            let ready = ".status.conditions[?(@.type=='Ready')].status";
            let ready = self.field(POD, ready).await?;
            ensure!(uid != former && ready == "True", "{uid} is ready: {ready}");
            Ok(Some(()))
        })
        .await
    }
}

#[tokio::test]
async fn cassandra_runs_as_pods() -> Result<()> {
    let cassandra = Cassandra::install().await?;
    cassandra
        .exec(&[
            "cql",
            "CREATE KEYSPACE kept WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE kept.words (id int PRIMARY KEY, word text)",
            "INSERT INTO kept.words (id, word) VALUES (1, 'acknowledged')",
        ])
        .await?;

    cassandra.lose_pod().await?;
    let rows = cassandra
        .exec(&["cql", "SELECT word FROM kept.words"])
        .await?;
    ensure!(rows.trim() == "[acknowledged]", "{rows}");
    let status = cassandra.exec(&["status"]).await?;
    ensure!(status.contains("NORMAL"), "{status}");

    let logs = cassandra.kubectl(&["logs", POD]).await?;
    for file in ["/secret/password", "/secret/jolokia-password"] {
        let secret = cassandra.exec(&["cat", file]).await?;
        ensure!(!logs.contains(secret.trim()), "{file} is in the log");
    }
    let delete = ["delete", "namespace", &cassandra.namespace];
    cassandra.cluster.kubectl(&delete).await?.ok()?;
    Ok(())
}
