//! Compares another tree with the checksums on record. In: a folder and a store. Out: what is different. Changes neither.

use std::path::Path;

use crate::engine;
use crate::judge::Reading;
use crate::path::RelativePath;
use crate::read::{Medium, Pace, Reader, Root, Task};
use crate::store::{Checksum, View};

/// Rows that are asked for at once.
const PAGE: u32 = 1000;

/// What was found of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is what is on record.
    Same,
    /// It is something else.
    Different {
        /// What is on record.
        expected: String,
        /// What it is.
        actual: String,
    },
    /// It could not be compared.
    Unknown(String),
}

/// Compares all files that have a checksum, and tells each.
pub async fn verify(
    folder: &Path,
    view: &View,
    pace: &Pace<'_>,
    mut tell: impl FnMut(&RelativePath, Finding),
) -> Result<(), engine::Error> {
    let root = Root::open(folder).map_err(|source| engine::Error::Open {
        path: folder.into(),
        source,
    })?;
    let mut reader = Reader::new(&root, Medium::Cache, pace);
    let mut after = None;
    loop {
        let checksums = view.checksums(after, PAGE).await?;
        let Some(last) = checksums.last() else {
            return Ok(());
        };
        after = Some(last.key);
        for checksum in &checksums {
            let Some(finding) = compare(&root, &mut reader, checksum) else {
                return Err(engine::Error::Interrupted);
            };
            tell(&checksum.path, finding);
        }
    }
}

/// None when all reading was stopped.
fn compare(root: &Root, reader: &mut Reader<'_>, checksum: &Checksum) -> Option<Finding> {
    let path = checksum.path.clone();
    let attributes = match root.look(&path) {
        Ok(Some(attributes)) => Some(attributes),
        Ok(None) => return Some(Finding::Unknown("not a regular file".into())),
        Err(error) => return Some(Finding::Unknown(error.to_string())),
    };
    let expected = &checksum.digest;
    let reading = reader.read(&Task { path, attributes }, &[expected.algorithm]);
    Some(match reading.ok()? {
        Reading::Read { digests, .. } if digests.contains(expected) => Finding::Same,
        Reading::Read { digests, .. } => Finding::Different {
            expected: expected.to_string(),
            actual: digests.first().map(ToString::to_string).unwrap_or_default(),
        },
        Reading::Moving { why } | Reading::Failed { why } => Finding::Unknown(why),
    })
}
