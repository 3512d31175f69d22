//! Packs of all that is still to be read; large files in pieces of their own.

use workqueue::NewJob;

use super::Remote;
use crate::algorithm::Algorithm;
use crate::engine::Error;
use crate::engine::left::Left;
use crate::pack::Packer;
use crate::path::Key;
use crate::queue::pack_job;
use crate::split::{self, Span};
use crate::store::{Pending, Run};
use crate::wire::{PackFile, WorkPack, id_of};

pub(super) struct Source<'a> {
    remote: &'a Remote<'a>,
    run: &'a Run,
    packer: Packer,
    pending: std::vec::IntoIter<Pending>,
    /// A file that is read in pieces, and those that were not sent yet.
    split: Option<(Pending, std::vec::IntoIter<Span>)>,
    left: Left<'a>,
}

impl<'a> Source<'a> {
    pub(super) fn new(remote: &'a Remote<'a>, run: &'a Run, keys: Option<Vec<Key>>) -> Self {
        Self {
            remote,
            run,
            packer: Packer::new(remote.job.packs),
            pending: Vec::new().into_iter(),
            split: None,
            left: Left::of(remote.store.view(), run, keys),
        }
    }

    pub(super) async fn next(&mut self) -> Result<Option<NewJob>, Error> {
        loop {
            if let Some(piece) = self.piece() {
                return Ok(Some(self.job(vec![piece])));
            }
            let Some(file) = self.pending.next() else {
                let Some(pending) = self.left.next().await? else {
                    return Ok(self.packer.rest().map(|pack| self.whole(&pack)));
                };
                self.pending = pending.into_iter();
                continue;
            };
            if let Some(spans) = self.spans(&file) {
                self.split = Some((file, spans.into_iter()));
            } else if let Some(pack) = self.packer.add(file) {
                return Ok(Some(self.whole(&pack)));
            }
        }
    }

    /// The pieces of a file that is to be split: only one kind of digest can be put together.
    fn spans(&self, file: &Pending) -> Option<Vec<Span>> {
        let is_tree = self.run.what.algorithm == Algorithm::Blake3
            && file.algorithm().is_none_or(|it| it == Algorithm::Blake3);
        let size = file.task.attributes.filter(|_| is_tree)?.size;
        split::spans(size, self.remote.job.packs.bytes)
    }

    /// The next piece of the file that is being sent. What came back already is not sent again.
    fn piece(&mut self) -> Option<PackFile> {
        let remote = self.remote;
        let (file, spans) = self.split.as_mut()?;
        let span = {
            let pieces = remote.pieces();
            spans.find(|it| !pieces.has(file.key, *it))
        };
        if span.is_none() {
            self.split = None;
        }
        let (file, _) = self.split.as_ref()?;
        let file = self.file(file);
        Some(PackFile { span, ..file })
    }

    fn whole(&self, pack: &[Pending]) -> NewJob {
        self.job(pack.iter().map(|file| self.file(file)).collect())
    }

    fn file(&self, file: &Pending) -> PackFile {
        let algorithm = self.run.what.algorithm;
        PackFile {
            id: id_of(file.key),
            path: [b"/", file.task.path.as_bytes()].concat(),
            key: Some(file.key),
            attributes: file.task.attributes,
            other: file.algorithm().filter(|it| *it != algorithm),
            span: None,
        }
    }

    fn job(&self, files: Vec<PackFile>) -> NewJob {
        pack_job(&WorkPack {
            file_system: self.remote.queue.file_system.clone(),
            snapshot: self.remote.queue.snapshot.clone(),
            algorithm: Some(self.run.what.algorithm),
            files,
        })
    }
}
