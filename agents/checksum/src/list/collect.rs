//! What one thread found so far. In: entries, and what is no entry. Out: full batches to the sink, and counts.
//! Touches: nothing itself.

use std::ops::ControlFlow;

use super::{BATCH, Listing, Sink};
use crate::entry::{Attributes, Entry};
use crate::path::RelativePath;

/// A batch goes out before its paths have more bytes than this: a deep tree must not fill the memory.
const BATCH_BYTES: usize = 4 << 20;

/// Entries of one thread on their way to the sink.
pub(super) struct Collector<'a> {
    sink: &'a Sink<'a>,
    batch: Vec<Entry>,
    path_bytes: usize,
    pub(super) found: Listing,
}

impl<'a> Collector<'a> {
    pub(super) fn new(sink: &'a Sink<'a>) -> Self {
        Self {
            sink,
            batch: Vec::new(),
            path_bytes: 0,
            found: Listing::default(),
        }
    }

    /// A regular file. `Break` when the sink wants no more.
    pub(super) fn file(&mut self, path: RelativePath, attributes: Attributes) -> ControlFlow<()> {
        if self.batch.capacity() == 0 {
            self.batch.reserve_exact(BATCH);
        }
        self.path_bytes += path.as_bytes().len();
        self.batch.push(Entry { path, attributes });
        if self.batch.len() >= BATCH || self.path_bytes >= BATCH_BYTES {
            return self.flush();
        }
        ControlFlow::Continue(())
    }

    /// Hands out what is there.
    pub(super) fn flush(&mut self) -> ControlFlow<()> {
        let batch = std::mem::take(&mut self.batch);
        self.path_bytes = 0;
        if batch.is_empty() {
            return ControlFlow::Continue(());
        }
        self.found.files += batch.len() as u64;
        let bytes = batch.iter().fold(0_u64, |sum, entry| {
            sum.saturating_add(entry.attributes.size)
        });
        self.found.bytes = self.found.bytes.saturating_add(bytes);
        let answer = (self.sink)(batch);
        self.found.stopped |= answer.is_break();
        answer
    }
}

/// `parent/name`, or the name alone in the root.
pub(super) fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(parent.len() + usize::from(!parent.is_empty()) + name.len());
    if !parent.is_empty() {
        path.extend_from_slice(parent);
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
