//! In: what cargo-cyclonedx wrote for each program. Out: one bill of materials for the image.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

const IMAGE: &str = "orrery-image";

/// Joins the bills of single programs. `root` is where their sources were, which is nobody's business.
pub fn merge(bills: &[String], root: &str) -> Result<Value> {
    let bills: Vec<_> = bills
        .iter()
        .map(|text| parse(text, root))
        .collect::<Result<_>>()?;
    let mut whole = bills.first().context("an image needs a program")?.clone();
    let programs: Vec<_> = bills
        .iter()
        .map(|bill| bill["metadata"]["component"].clone())
        .collect();
    let names: Vec<_> = programs
        .iter()
        .map(|program| program["bom-ref"].clone())
        .collect();

    let mut dependencies = joined(&bills, "dependencies", "ref");
    dependencies.push(json!({ "ref": IMAGE, "dependsOn": names }));
    whole["components"] = joined(&bills, "components", "bom-ref").into();
    whole["dependencies"] = dependencies.into();
    whole["metadata"]["component"] = json!({
        "type": "container",
        "bom-ref": IMAGE,
        "name": "orrery",
        "version": env!("CARGO_PKG_VERSION"),
        "components": programs,
    });
    Ok(whole)
}

fn parse(text: &str, root: &str) -> Result<Value> {
    let text = text.replace(&format!("path+file://{root}"), "path+file://");
    let bill: Value = serde_json::from_str(&text)?;
    ensure!(
        bill["bomFormat"] == "CycloneDX",
        "it is no CycloneDX document"
    );
    ensure!(
        bill["metadata"]["component"]["name"].is_string(),
        "it names no program"
    );
    Ok(bill)
}

/// The entries of all bills, each once.
fn joined(bills: &[Value], list: &str, key: &str) -> Vec<Value> {
    let entries = bills
        .iter()
        .filter_map(|bill| bill[list].as_array())
        .flatten();
    let unique: BTreeMap<_, _> = entries
        .map(|entry| (entry[key].to_string(), entry.clone()))
        .collect();
    unique.into_values().collect()
}

/// Refuses a bill that lacks one of these crates or programs.
pub fn require(bill: &Value, names: &[String]) -> Result<()> {
    let programs = &bill["metadata"]["component"]["components"];
    let known: Vec<_> = [programs, &bill["components"]]
        .into_iter()
        .filter_map(Value::as_array)
        .flatten()
        .filter_map(|component| component["name"].as_str())
        .collect();
    for name in names {
        ensure!(
            known.contains(&name.as_str()),
            "the bill of materials lacks {name}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bill(program: &str, crates: &[&str]) -> String {
        let components: Vec<_> = crates
            .iter()
            .map(|it| json!({ "bom-ref": it, "name": it }))
            .collect();
        let own = format!("path+file:///build/{program}#1");
        json!({
            "bomFormat": "CycloneDX",
            "metadata": { "component": { "bom-ref": own, "name": program } },
            "components": components,
            "dependencies": [{ "ref": own, "dependsOn": crates }],
        })
        .to_string()
    }

    #[test]
    fn the_image_lists_each_crate_once() {
        let whole = merge(
            &[
                bill("one", &["kube", "serde"]),
                bill("two", &["serde", "tar"]),
            ],
            "/build",
        )
        .unwrap();
        let names: Vec<_> = whole["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["name"])
            .collect();
        assert_eq!(names, ["kube", "serde", "tar"]);
        assert_eq!(whole["dependencies"].as_array().unwrap().len(), 3);
        require(&whole, &["one", "two", "kube"].map(str::to_owned)).unwrap();
    }

    #[test]
    fn what_is_missing_is_named() {
        let whole = merge(&[bill("one", &["serde"])], "/build").unwrap();
        let error = require(&whole, &["kube".to_owned()])
            .unwrap_err()
            .to_string();
        assert_eq!(error, "the bill of materials lacks kube");
    }

    #[test]
    fn the_place_of_the_sources_is_not_told() {
        let whole = merge(&[bill("one", &[])], "/build").unwrap().to_string();
        assert!(
            whole.contains("path+file:///one#1") && !whole.contains("/build"),
            "{whole}"
        );
    }

    #[test]
    fn another_document_is_refused() {
        let error = merge(&["{}".to_owned()], "/build").unwrap_err().to_string();
        assert_eq!(error, "it is no CycloneDX document");
    }
}
