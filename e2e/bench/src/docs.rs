//! In: the rows of a topic. Out: its files, and the page about all topics.
//! Touches: `docs/benchmarks.md` and `docs/benchmarks/`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{page::page, plot::plot, row::Row, topic::Topic};

/// The folder with the pages.
pub struct Docs(PathBuf);

impl Docs {
    /// That of the repository this crate was compiled in.
    pub fn of_repository() -> Self {
        Self(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs"))
    }

    /// Keeps the figures of a topic, and makes the page and the pictures agree with them.
    pub fn write(&self, topic: Topic, rows: &[Row]) -> Result<()> {
        let json = serde_json::to_string_pretty(rows)? + "\n";
        write(&self.figures(topic), &json)?;
        self.refresh()
    }

    /// Keeps the figures of a part of a topic beside those that it has of others.
    pub fn amend(&self, topic: Topic, rows: &[Row]) -> Result<()> {
        self.write(topic, &amended(self.rows(topic)?, rows))
    }

    /// Makes the page and the pictures agree with the figures that are kept.
    pub fn refresh(&self) -> Result<()> {
        for (file, text) in self.wanted()? {
            write(&file, &text)?;
        }
        Ok(())
    }

    /// What follows from the figures: the page, and a picture of each topic that was ever measured.
    fn wanted(&self) -> Result<Vec<(PathBuf, String)>> {
        let (mut topics, mut files) = (Vec::new(), Vec::new());
        for topic in Topic::ALL {
            let rows = self.rows(topic)?;
            if !rows.is_empty() {
                let picture = self.0.join(format!("benchmarks/{}.svg", topic.name()));
                files.push((picture, plot(topic.title(), &rows)));
            }
            topics.push((topic, rows));
        }
        files.push((self.0.join("benchmarks.md"), page(&topics)));
        Ok(files)
    }

    /// The rows that were measured last; none if it never was.
    pub fn rows(&self, topic: Topic) -> Result<Vec<Row>> {
        let file = self.figures(topic);
        let failed = || format!("failed to read {}", file.display());
        match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).with_context(failed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).with_context(failed),
        }
    }

    fn figures(&self, topic: Topic) -> PathBuf {
        self.0.join(format!("benchmarks/{}.json", topic.name()))
    }
}

/// The rows with new ones in the places of those that they replace; others come last.
fn amended(mut rows: Vec<Row>, new: &[Row]) -> Vec<Row> {
    for row in new {
        match rows.iter_mut().find(|old| old.measure == row.measure) {
            Some(old) => *old = row.clone(),
            None => rows.push(row.clone()),
        }
    }
    rows
}

fn write(file: &Path, text: &str) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, text).with_context(|| format!("failed to write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::example;

    #[test]
    fn rows_that_are_measured_again_stay_where_they_are() {
        let all = example();
        let mut again = all[1].clone();
        again.ours = 7.0;
        let rows = amended(all[..2].to_vec(), &[all[2].clone(), again.clone()]);
        assert_eq!(rows, [all[0].clone(), again, all[2].clone()]);
    }

    #[test]
    fn the_page_and_the_pictures_agree_with_the_figures() {
        for (file, wanted) in Docs::of_repository().wanted().unwrap() {
            let found = fs::read_to_string(&file).unwrap_or_default();
            let file = file.display();
            assert!(
                found == wanted,
                "{file} is out of date: cargo run -p bench -- --refresh"
            );
        }
    }
}
