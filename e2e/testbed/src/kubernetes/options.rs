//! In: wishes. Out: the options of a control plane.
//! Touches: reads definitions from a folder.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::ground;

/// How a control plane is to be.
#[derive(Clone, Debug, Default)]
pub struct Options {
    name: Option<String>,
    scheduler: bool,
    crds: Vec<String>,
}

impl Options {
    /// A name for the logs that are kept; that of the test by default.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// With the scheduler, which is of use only to who also brings nodes.
    #[must_use]
    pub fn with_scheduler(mut self) -> Self {
        self.scheduler = true;
        self
    }

    /// With these documents applied before the controllers start, meant for definitions of kinds.
    #[must_use]
    pub fn with_crds(mut self, yaml: impl Into<String>) -> Self {
        self.crds.push(yaml.into());
        self
    }

    /// With the definitions found in the YAML files of a folder and the folders in it.
    pub fn with_crds_in(mut self, folder: &Path) -> Result<Self> {
        let read = definitions(folder, &mut self.crds);
        read.with_context(|| format!("failed to read the definitions in {}", folder.display()))?;
        Ok(self)
    }

    pub(super) fn scheduler(&self) -> bool {
        self.scheduler
    }

    pub(super) fn crds(&self) -> &[String] {
        &self.crds
    }

    pub(crate) fn name(&self) -> String {
        self.name.clone().unwrap_or_else(ground::test_name)
    }
}

/// Adds each definition below `folder`, in the order of the file names; other objects are left out.
fn definitions(folder: &Path, found: &mut Vec<String>) -> Result<()> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    for path in paths {
        if path.is_dir() {
            definitions(&path, found)?;
        } else if path
            .extension()
            .is_some_and(|it| it == "yaml" || it == "yml")
        {
            let text = fs::read_to_string(&path)?;
            let only = only_definitions(&text);
            found.extend(only.with_context(|| format!("failed to parse {}", path.display()))?);
        }
    }
    Ok(())
}

fn only_definitions(text: &str) -> Result<Vec<String>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    documents
        .iter()
        .filter(|document| document["kind"] == "CustomResourceDefinition")
        .map(|document| Ok(serde_json::to_string(document)?)) // which is YAML too
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_taken_from_all_below_a_folder_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("bases");
        fs::create_dir(&inner).unwrap();
        let crd = |name| format!("kind: CustomResourceDefinition\nmetadata: {{name: {name}}}\n");
        fs::write(
            inner.join("all.yaml"),
            format!("{}---\n{}", crd("a"), crd("b")),
        )
        .unwrap();
        fs::write(folder.path().join("c.yml"), crd("c")).unwrap();
        fs::write(
            folder.path().join("kustomization.yaml"),
            "kind: Kustomization\n",
        )
        .unwrap();
        fs::write(folder.path().join("README.md"), "# not YAML: [").unwrap();
        let options = Options::default().with_crds_in(folder.path()).unwrap();
        assert_eq!(options.crds.len(), 3);
        for (crd, name) in options.crds.iter().zip(["a", "b", "c"]) {
            assert!(crd.contains(&format!(r#""name":"{name}""#)), "{crd}");
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_named_in_the_error() {
        let error = Options::default()
            .with_crds_in(Path::new("/no/such"))
            .unwrap_err();
        assert!(error.to_string().contains("/no/such"));
    }
}
