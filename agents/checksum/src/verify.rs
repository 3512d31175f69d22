//! Compares another tree with the checksums on record. In: a folder and a store. Out: what is different. Changes neither.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use futures::{StreamExt as _, stream};
use tokio::task::spawn_blocking;

use crate::engine::{self, Shared};
use crate::judge::Reading;
use crate::path::RelativePath;
use crate::read::{Medium, Reader, Root, Task};
use crate::store::{self, Checksum, View};

/// Rows that are asked for at once.
const PAGE: u32 = 1000;
/// Files that are read before anything is told of them.
const AT_ONCE: usize = 16;

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

/// Compares all files that are on record, and tells each, in the order of their keys, until one cannot be told. They are read on
/// threads of their own, so that whoever stops it is heard in the middle of a file, too.
pub async fn verify<E>(
    folder: &Path,
    medium: Medium,
    view: &View,
    shared: &Arc<Shared>,
    mut tell: impl FnMut(&RelativePath, Finding) -> Result<(), E>,
) -> Result<(), E>
where
    E: From<engine::Error> + From<store::Error>,
{
    let root = engine::open(folder).await?;
    let readers = thread::available_parallelism().map_or(1, usize::from);
    let mut after = None;
    loop {
        let checksums = view.checksums(after, PAGE).await?;
        let Some(last) = checksums.last() else {
            return Ok(());
        };
        after = Some(last.key);
        let compare = |some: &[Checksum]| {
            let (root, shared, some) = (root.clone(), shared.clone(), some.to_vec());
            spawn_blocking(move || compare_all(&root, medium, &shared, some))
        };
        let mut comparing = stream::iter(checksums.chunks(AT_ONCE).map(compare)).buffered(readers);
        while let Some(compared) = comparing.next().await {
            for (path, finding) in compared.map_err(|_| engine::Error::Reader)? {
                tell(&path, finding.ok_or(engine::Error::Interrupted)?)?;
            }
        }
    }
}

/// To the end, or to the one at which all reading was stopped, which has no finding.
fn compare_all(
    root: &Root,
    medium: Medium,
    shared: &Shared,
    checksums: Vec<Checksum>,
) -> Vec<(RelativePath, Option<Finding>)> {
    let pace = |_| !shared.is_stopped();
    let mut reader = Reader::new(root, medium, &pace);
    let mut compared = Vec::with_capacity(checksums.len());
    for checksum in checksums {
        let finding = compare(root, &mut reader, &checksum);
        let is_stopped = finding.is_none();
        compared.push((checksum.path, finding));
        if is_stopped {
            break;
        }
    }
    compared
}

/// None when all reading was stopped.
fn compare(root: &Root, reader: &mut Reader<'_>, checksum: &Checksum) -> Option<Finding> {
    let Some(expected) = &checksum.digest else {
        let why = "no checksum on record: it was not read since it was changed last";
        return Some(Finding::Unknown(why.into()));
    };
    let path = checksum.path.clone();
    let attributes = match root.look(&path) {
        Ok(Some(attributes)) => Some(attributes),
        Ok(None) => return Some(Finding::Unknown("not a regular file".into())),
        Err(error) => return Some(Finding::Unknown(error.to_string())),
    };
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
