//! What users were told by events. In: the API server. Out: reasons and notes.

use anyhow::Result;
use k8s_openapi::api::events::v1::Event;
use kube::{Api, Client, api::ListParams};

/// The reasons and notes of the events about an object, in no order.
pub(crate) async fn events(
    client: &Client,
    namespace: &str,
    about: &str,
) -> Result<Vec<(String, String)>> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let mut events = api.list(&ListParams::default()).await?.items;
    events
        .retain(|event| event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(about));
    let words = events.into_iter().map(|event| {
        let (reason, note) = (event.reason, event.note);
        (reason.unwrap_or_default(), note.unwrap_or_default())
    });
    Ok(words.collect())
}
