//! In: a record. Out: the results of its topic with it, and the page about all topics.
//! Touches: `docs/soak.md` and `docs/soak/`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    page::page,
    record::{Record, add},
    topic::Topic,
};

/// The folder with the pages.
#[derive(Debug)]
pub struct Docs(PathBuf);

impl Docs {
    /// That of the repository this crate was compiled in.
    pub fn of_repository() -> Self {
        Self(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs"))
    }

    /// Keeps a record, and makes the page agree with it.
    pub fn add(&self, topic: Topic, record: Record) -> Result<()> {
        let mut records = self.records(topic)?;
        add(&mut records, record);
        let json = serde_json::to_string_pretty(&records)? + "\n";
        write(&self.results(topic), &json)?;
        self.refresh()
    }

    /// Makes the page agree with the results that are kept.
    pub fn refresh(&self) -> Result<()> {
        write(&self.page(), &self.wanted()?)
    }

    /// The page that follows from the results.
    fn wanted(&self) -> Result<String> {
        let mut topics = Vec::new();
        for topic in Topic::ALL {
            topics.push((topic, self.records(topic)?));
        }
        Ok(page(&topics))
    }

    /// What is kept, the oldest first; nothing if it never ran.
    fn records(&self, topic: Topic) -> Result<Vec<Record>> {
        let file = self.results(topic);
        let failed = || format!("failed to read {}", file.display());
        match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).with_context(failed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).with_context(failed),
        }
    }

    fn results(&self, topic: Topic) -> PathBuf {
        self.0.join(format!("soak/{}.json", topic.name()))
    }

    fn page(&self) -> PathBuf {
        self.0.join("soak.md")
    }
}

/// In one step: whoever is interrupted leaves the old file or the new one.
fn write(file: &Path, text: &str) -> Result<()> {
    let failed = || format!("failed to write {}", file.display());
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(failed)?;
    }
    let draft = file.with_extension("draft");
    fs::write(&draft, text).with_context(failed)?;
    fs::rename(&draft, file).with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn the_page_agrees_with_the_results() {
        let docs = Docs::of_repository();
        let found = fs::read_to_string(docs.page()).unwrap_or_default();
        assert!(
            found == docs.wanted().unwrap(),
            "docs/soak.md is out of date: cargo run -p soak -- --refresh"
        );
    }

    #[test]
    fn a_record_is_added_to_those_before_it_and_shown() {
        let folder = tempfile::tempdir().unwrap();
        let docs = Docs(folder.path().into());
        for seed in [7, 8] {
            docs.add(Topic::Leader, record(seed, None)).unwrap();
        }
        let kept = docs.records(Topic::Leader).unwrap();
        assert_eq!(kept, [record(7, None), record(8, None)]);
        assert_eq!(docs.records(Topic::Cassandra).unwrap(), []);
        let page = fs::read_to_string(docs.page()).unwrap();
        assert_eq!(page, docs.wanted().unwrap());
    }

    #[test]
    fn results_that_cannot_be_read_are_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let docs = Docs(folder.path().into());
        write(&docs.results(Topic::Leader), "{").unwrap();
        assert!(docs.add(Topic::Leader, record(7, None)).is_err());
        assert_eq!(
            fs::read_to_string(docs.results(Topic::Leader)).unwrap(),
            "{"
        );
    }
}
