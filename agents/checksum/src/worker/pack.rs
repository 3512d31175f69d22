//! Reading packs. In: the files of a pack. Out: what came of each, and those that were not reached.
//! Touches: reads the files.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::warn;

use crate::algorithm::Algorithm;
use crate::engine::Shared;
use crate::judge::Reading;
use crate::path::{Key, RelativePath};
use crate::read::{Buffers, Medium, Reader, Root, Stopped, Task};
use crate::split::PieceSum;
use crate::wire::{BackPack, PackFile, WorkPack};

/// What those who read packs share.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) root: Root,
    pub(super) medium: Medium,
    /// Memory that nobody uses just now; as much as was ever used at once.
    pub(super) buffers: Mutex<Vec<Buffers>>,
}

impl Desk {
    /// Reads a pack; what came of it, and what is left because all reading ends.
    pub(super) fn read(&self, shared: &Shared, pack: WorkPack) -> (BackPack, WorkPack) {
        let paced = |bytes| {
            shared.pace(bytes);
            !shared.is_stopped()
        };
        let buffers = self.spare().pop().unwrap_or_default();
        let mut reader = Reader::with(buffers, &self.root, self.medium, &paced);
        let came = read(&mut reader, shared, pack);
        self.spare().push(reader.into_buffers());
        came
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Buffers>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(reader: &mut Reader<'_>, shared: &Shared, pack: WorkPack) -> (BackPack, WorkPack) {
    let mut done = BackPack::default();
    let mut files = pack.files.into_iter();
    let mut rest = Vec::new();
    for file in files.by_ref() {
        shared.reading.fetch_add(1, Ordering::Relaxed);
        let reading = read_one(reader, &file, pack.algorithm);
        shared.reading.fetch_sub(1, Ordering::Relaxed);
        match reading {
            Ok(Came::File(reading)) => add(&mut done, &file, reading),
            Ok(Came::Piece(key, sum)) => done.pieces.push((key, sum)),
            Err(Stopped) => {
                rest.push(file);
                break;
            }
        }
        shared.files.fetch_add(1, Ordering::Relaxed);
    }
    rest.extend(files);
    let rest = WorkPack {
        files: rest,
        file_system: pack.file_system,
        snapshot: pack.snapshot,
        algorithm: pack.algorithm,
    };
    (done, rest)
}

/// What came of reading.
enum Came {
    File(Reading),
    Piece(Key, PieceSum),
}

fn read_one(
    reader: &mut Reader<'_>,
    file: &PackFile,
    algorithm: Option<Algorithm>,
) -> Result<Came, Stopped> {
    let path = file.path.strip_prefix(b"/").unwrap_or(&file.path);
    let task = Task {
        path: RelativePath::new(path),
        attributes: file.attributes,
    };
    if let (Some(span), Some(key)) = (file.span, file.key) {
        let read = reader.read_piece(&task, span)?;
        return Ok(read.map_or_else(Came::File, |sum| Came::Piece(key, sum)));
    }
    let mut algorithms = vec![algorithm.unwrap_or(Algorithm::Sha1)];
    algorithms.extend(file.other);
    reader.read(&task, &algorithms).map(Came::File)
}

/// An original coordinator is told of what could be read, and nothing else.
fn add(done: &mut BackPack, file: &PackFile, reading: Reading) {
    match (file.key, reading) {
        (Some(key), reading) => done.results.push((key, reading)),
        (None, Reading::Read { digests, .. }) => {
            let sum = digests.first().map(|it| it.as_bytes().to_vec());
            done.files.extend(sum.map(|sum| (file.id, sum)));
        }
        (None, Reading::Moving { why } | Reading::Failed { why }) => {
            let path = RelativePath::new(file.path.as_slice());
            warn!(%path, why, "a file of another coordinator could not be read");
        }
    }
}
