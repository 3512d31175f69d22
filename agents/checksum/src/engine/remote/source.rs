//! Packs of all that is still to be read; large files in pieces of their own.

use std::collections::VecDeque;

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
    pieces: VecDeque<PackFile>,
    left: Left<'a>,
}

impl<'a> Source<'a> {
    pub(super) fn new(remote: &'a Remote<'a>, run: &'a Run, keys: Option<Vec<Key>>) -> Self {
        Self {
            remote,
            run,
            packer: Packer::new(remote.job.packs),
            pending: Vec::new().into_iter(),
            pieces: VecDeque::new(),
            left: Left::of(remote.store.view(), run, keys),
        }
    }

    pub(super) async fn next(&mut self) -> Result<Option<NewJob>, Error> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
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
                self.pieces.extend(self.missing(&file, spans));
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

    /// What came back in an earlier round is not sent again.
    fn missing(&self, file: &Pending, spans: Vec<Span>) -> Vec<PackFile> {
        let pieces = self.remote.pieces();
        let spans = spans.into_iter().filter(|it| !pieces.has(file.key, *it));
        let piece = |span| PackFile {
            span: Some(span),
            ..self.file(file)
        };
        spans.map(piece).collect()
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
