//! Claims about defaults: they are there, they are stable, and no union is among them.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::objects::{RUN, SCHEDULE, object};
use crate::place::Place;

/// The status is written in between, as the operator does at once: until then the store lacks the
/// default that readers see, and the next server-side apply would add it, once.
#[tokio::test]
async fn applying_a_minimal_object_again_changes_nothing() -> Result<()> {
    let place = Place::new("defaults").await?;
    for (flags, again) in [
        (&[][..], "unchanged"),
        (&["--server-side"], "serverside-applied"),
    ] {
        let name = format!("by{}", flags.concat());
        let minimal = [RUN, SCHEDULE].map(|kind| object(kind, &name, &json!({})));
        place.apply_quietly(flags, &minimal).await?;
        for kind in [RUN, SCHEDULE] {
            let seen = json!({"observedGeneration": 1});
            place.patch_status(&format!("{kind}/{name}"), &seen).await?;
        }
        let first = stored(&place, &name).await?;
        let said = place.apply_quietly(flags, &minimal).await?;
        ensure!(said.matches(again).count() == minimal.len(), "{said}");
        ensure!(stored(&place, &name).await? == first, "{first:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_new_object_has_been_looked_at_by_nobody() -> Result<()> {
    let place = Place::new("fresh").await?;
    let minimal = [RUN, SCHEDULE].map(|kind| object(kind, "fresh", &json!({})));
    place.apply_quietly(&[], &minimal).await?;
    for object in stored(&place, "fresh").await? {
        ensure!(
            object["status"] == json!({"observedGeneration": -1}),
            "{object}"
        );
    }
    Ok(())
}

/// A default would be in the way of whoever switches to another member.
#[tokio::test]
async fn no_union_has_a_default() -> Result<()> {
    let place = Place::new("unions").await?;
    let minimal = [RUN, SCHEDULE].map(|kind| object(kind, "plain", &json!({})));
    place.apply_quietly(&[], &minimal).await?;
    let [run, schedule] = stored(&place, "plain").await?;
    for spec in [&run["spec"], &schedule["spec"]["template"]["spec"]] {
        ensure!(spec["mode"] == "Full", "defaults were to be there: {spec}");
        for union in ["/store", "/queue", "/source/snapshot"] {
            ensure!(spec.pointer(union).is_none(), "{union} in {spec}");
        }
    }
    Ok(())
}

/// The run and the schedule of that name, resource version included.
async fn stored(place: &Place, name: &str) -> Result<[Value; 2]> {
    Ok([
        place.get(&format!("cksum/{name}")).await?,
        place.get(&format!("cksched/{name}")).await?,
    ])
}
