//! Results on their way to the store. In: files, and what came of reading them. Out: packs of results.

use tokio::sync::mpsc::Sender;

use super::Read;
use crate::judge::Reading;
use crate::pack::Sizes;
use crate::read::Stopped;
use crate::store::Pending;

/// What was read and is not told yet. It is told in packs, too.
pub(super) struct Found<'a> {
    reads: Vec<Read>,
    bytes: u64,
    sizes: Sizes,
    results: &'a Sender<Vec<Read>>,
}

impl<'a> Found<'a> {
    pub(super) fn new(sizes: Sizes, results: &'a Sender<Vec<Read>>) -> Self {
        Self {
            reads: Vec::new(),
            bytes: 0,
            sizes,
            results,
        }
    }

    pub(super) fn add(&mut self, file: Pending, reading: Reading) -> Result<(), Stopped> {
        self.bytes = self.bytes.saturating_add(file.attributes().size);
        self.reads.push((file, reading));
        if self.bytes >= self.sizes.bytes || self.reads.len() >= self.sizes.files {
            return self.tell();
        }
        Ok(())
    }

    /// Fails when nobody wants to know any more.
    pub(super) fn tell(&mut self) -> Result<(), Stopped> {
        self.bytes = 0;
        let reads = std::mem::take(&mut self.reads);
        if reads.is_empty() {
            return Ok(());
        }
        self.results.blocking_send(reads).map_err(|_| Stopped)
    }
}

/// What was read is not read again, also when all reading ends.
impl Drop for Found<'_> {
    fn drop(&mut self) {
        let _ = self.tell(); // perhaps nobody wants to know any more
    }
}
