#![expect(clippy::disallowed_methods, reason = "writes to the server under test")]
//! In: YAML documents. Out: the objects in them, stored in the cluster.
//! Touches: writes by server-side apply.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};

use super::{AGENT, Access, bounded};
use crate::wait::eventually;

/// A definition is served about a second after it was stored.
const SERVED_DEADLINE: Duration = Duration::from_secs(30);

impl Access {
    /// Applies every document of `text`, in order, and waits until the definitions among them are served.
    ///
    /// Objects of a namespaced kind that name no namespace go to `default`. Of kinds defined only now the
    /// garbage collector learns within 30 seconds; [`Options`](crate::Options) can have them from the start.
    pub async fn apply_yaml(&self, text: &str) -> Result<()> {
        let objects: Vec<DynamicObject> =
            serde_saphyr::from_multiple(text).context("failed to read the YAML to apply")?;
        let client = self.client().await?;
        for object in objects {
            let name = object.name_any();
            let applied = apply(&client, object).await;
            applied.with_context(|| format!("failed to apply {name}"))?;
        }
        Ok(())
    }
}

async fn apply(client: &Client, object: DynamicObject) -> Result<()> {
    let types = object.types.as_ref().context("no apiVersion and kind")?;
    let kind = GroupVersionKind::try_from(types)?;
    let (resource, capabilities) = bounded(pinned_kind(client, &kind)).await?;
    let api: Api<DynamicObject> = match (capabilities.scope, object.namespace()) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
        (Scope::Namespaced, Some(namespace)) => {
            Api::namespaced_with(client.clone(), &namespace, &resource)
        }
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
    };
    let parameters = PatchParams::apply(AGENT).force();
    let name = object.name_any();
    bounded(api.patch(&name, &parameters, &Patch::Apply(&object))).await?;
    if kind.kind == "CustomResourceDefinition" {
        served(client, object.try_parse()?).await?;
    }
    Ok(())
}

async fn served(client: &Client, definition: CustomResourceDefinition) -> Result<()> {
    let spec = definition.spec;
    for version in spec.versions.iter().filter(|version| version.served) {
        let kind = GroupVersionKind::gvk(&spec.group, &version.name, &spec.names.kind);
        let what = format!("{} {} to be served", kind.api_version(), kind.kind);
        eventually(&what, SERVED_DEADLINE, async || {
            bounded(pinned_kind(client, &kind)).await.map(Some)
        })
        .await?;
    }
    Ok(())
}
