//! Claims about the definitions themselves, on a server of their own because everybody shares them.

use anyhow::{Result, ensure};
use testbed::{Kubernetes, Options};

use crate::place::repository;

#[tokio::test]
async fn definitions_apply_in_both_ways_and_a_second_time_change_nothing() -> Result<()> {
    let kubernetes = Kubernetes::start(Options::default()).await?;
    let folder = format!("--kustomize={}", repository("config/crd").display());
    applied_twice(&kubernetes, &["apply", &folder], ["created", "unchanged"]).await?;
    kubernetes.kubectl(&["delete", &folder]).await?.ok()?;
    let server_side = ["apply", "--server-side", &folder];
    applied_twice(&kubernetes, &server_side, ["serverside-applied"; 2]).await?;
    kubernetes.shutdown().await
}

/// Applies twice and expects these words about each definition, and no warning.
async fn applied_twice(kubernetes: &Kubernetes, args: &[&str], words: [&str; 2]) -> Result<()> {
    let mut versions = Vec::new();
    for word in words {
        let output = kubernetes.kubectl(args).await?;
        ensure!(output.stderr.is_empty(), "{}", output.stderr);
        let said = output.ok()?;
        let plurals = crds::definition::all()
            .into_iter()
            .map(|crd| crd.spec.names.plural);
        for plural in plurals {
            let line = format!(
                "customresourcedefinition.apiextensions.k8s.io/{plural}.orrery.dev {word}\n"
            );
            ensure!(said.contains(&line), "{said}");
        }
        // Then the server has written all it has to say of them.
        let established = ["wait", "crd", "--all", "--for=condition=Established"];
        kubernetes.kubectl(&established).await?.ok()?;
        let version = "--output=jsonpath={range .items[*]}{.metadata.resourceVersion} {end}";
        versions.push(kubernetes.kubectl(&["get", "crd", version]).await?.ok()?);
    }
    ensure!(versions[0] == versions[1], "{versions:?}");
    Ok(())
}
