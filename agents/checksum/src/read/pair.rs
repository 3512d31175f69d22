//! Two large files at once on one thread, their blocks hashed in step. In: files, as long as there are more. Out: what came of
//! each. Touches: reads the files.

use super::content::{Block, Buffers, Failed};
use super::{Medium, Open, Pace, Reader, Stopped, Task, whole};
use crate::algorithm::{Algorithm, Hasher};
use crate::entry::Attributes;
use crate::judge::Reading;

/// Files from this size on are worth a companion.
const LARGE: u64 = 1 << 20;

/// Whether a file is read sooner beside another one, where the algorithm gains by it. One that is read past the page cache
/// waits for the medium, and one that is hashed in a second way fills the processor's gaps by itself.
pub fn gains_by_a_companion(
    medium: Medium,
    listed: Option<Attributes>,
    second: Option<Algorithm>,
) -> bool {
    listed.is_some_and(|it| it.size >= LARGE) && medium == Medium::Cache && second.is_none()
}

/// A file to be read, and what its owner knows it by.
#[derive(Debug)]
pub struct Wanted<T> {
    /// What comes back with the result.
    pub file: T,
    /// What to read.
    pub task: Task,
    /// How to hash it.
    pub algorithm: Algorithm,
}

/// A file that is being read.
struct Lane<T> {
    file: T,
    open: Open,
    block: Block,
    /// How much of the block is to be hashed.
    filled: usize,
    /// Where reading has ended, and how, if it has.
    end: Option<Result<u64, Failed>>,
}

impl Reader<'_> {
    /// Reads a file, and beside it those that `more` has for a companion, until there is none left. It is asked before every
    /// block that would be hashed alone. Each file is told once; those that were not read to their end, as stopped.
    pub fn read_beside<T>(
        &mut self,
        first: Wanted<T>,
        mut more: impl FnMut() -> Option<Wanted<T>>,
        mut done: impl FnMut(T, Result<Reading, Stopped>),
    ) {
        let mut lanes = Vec::with_capacity(2);
        let mut next = Some(first);
        loop {
            while lanes.len() < 2
                && let Some(wanted) = next.take().or_else(&mut more)
            {
                match self.lane(wanted) {
                    Ok(lane) => lanes.push(lane),
                    Err((file, reading)) => done(file, Ok(reading)),
                }
            }
            if lanes.is_empty() {
                return;
            }
            let is_stopped = lanes.iter_mut().any(|lane| lane.read(self.pace).is_err());
            if !is_stopped {
                hash(&mut lanes);
            }
            for lane in lanes.extract_if(.., |lane| is_stopped || lane.end.is_some()) {
                let reading = match lane.end {
                    Some(end) => Ok(whole(lane.open.close(end))),
                    None => Err(Stopped),
                };
                self.keep(lane.block);
                done(lane.file, reading);
            }
            if is_stopped {
                return;
            }
        }
    }

    fn lane<T>(&mut self, wanted: Wanted<T>) -> Result<Lane<T>, (T, Reading)> {
        let hashers = vec![wanted.algorithm.hasher()];
        match Open::new(self.root, self.medium, &wanted.task, None, hashers) {
            Ok(open) => Ok(Lane {
                file: wanted.file,
                open,
                block: self.block(),
                filled: 0,
                end: None,
            }),
            Err(reading) => Err((wanted.file, reading)),
        }
    }

    fn block(&mut self) -> Block {
        let Buffers { first, second } = &mut self.buffers;
        first
            .take()
            .or_else(|| second.take())
            .unwrap_or_else(Block::new)
    }

    fn keep(&mut self, block: Block) {
        let Buffers { first, second } = &mut self.buffers;
        *(if first.is_none() { first } else { second }) = Some(block);
    }
}

impl<T> Lane<T> {
    /// Reads the next block.
    fn read(&mut self, pace: &Pace<'_>) -> Result<(), Stopped> {
        self.filled = 0;
        match self.open.content.next(&mut self.block) {
            Ok(0) => self.end = Some(Ok(self.open.content.offset())),
            Ok(read) if !pace(read as u64) => return Err(Stopped),
            Ok(read) => self.filled = read,
            Err(failed) => self.end = Some(Err(failed)),
        }
        Ok(())
    }

    /// What is to be hashed, and by what.
    fn unhashed(&mut self) -> Option<(&mut Hasher, &[u8])> {
        let block = self.block.first(self.filled);
        Some((self.open.hashers.first_mut()?, block))
    }
}

fn hash<T>(lanes: &mut [Lane<T>]) {
    let mut blocks = lanes.iter_mut().filter_map(Lane::unhashed);
    match (blocks.next(), blocks.next()) {
        (Some((hasher, block)), Some((other, other_block))) => {
            hasher.update_in_step(block, other, other_block);
        }
        (Some((hasher, block)), None) => hasher.update(block),
        (None, _) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::Root;
    use super::super::content::NEAR;
    use super::*;
    use crate::path::RelativePath;

    const BLOCK: usize = NEAR;
    const SIZES: [usize; 5] = [3 * BLOCK + 77, BLOCK, 0, 5 * BLOCK, BLOCK + 1];

    /// Files of these sizes, each called by its place in the list.
    fn files(folder: &Path) -> Vec<Wanted<usize>> {
        let root = Root::open(folder).unwrap();
        let file = |(number, size): (usize, usize)| {
            fs::write(folder.join(number.to_string()), content(number, size)).unwrap();
            let path = RelativePath::new(number.to_string().as_bytes());
            Wanted {
                file: number,
                task: Task {
                    attributes: root.look(&path).unwrap(),
                    path,
                },
                algorithm: Algorithm::Sha1,
            }
        };
        SIZES.into_iter().enumerate().map(file).collect()
    }

    fn content(number: usize, size: usize) -> Vec<u8> {
        (0..size)
            .map(|n| (n / 3 + number).to_le_bytes()[0])
            .collect()
    }

    fn read(
        folder: &Path,
        files: Vec<Wanted<usize>>,
        pace: &Pace<'_>,
    ) -> Vec<(usize, Result<Reading, Stopped>)> {
        let root = Root::open(folder).unwrap();
        let mut reader = Reader::new(&root, Medium::Cache, pace);
        let (mut files, mut told) = (files.into_iter(), Vec::new());
        let first = files.next().unwrap();
        let tell = |file, reading| told.push((file, reading));
        reader.read_beside(first, || files.next(), tell);
        told.sort_by_key(|it| it.0);
        told
    }

    fn right(number: usize) -> Reading {
        let content = content(number, SIZES[number]);
        Reading::Read {
            digests: vec![Algorithm::Sha1.digest(&content)],
            bytes: content.len() as u64,
        }
    }

    #[test]
    fn files_beside_each_other_are_read_as_each_is_alone() {
        let folder = tempfile::tempdir().unwrap();
        let told = read(folder.path(), files(folder.path()), &|_| true);
        let expected: Vec<_> = (0..SIZES.len()).map(|it| (it, Ok(right(it)))).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn a_file_that_moves_does_not_harm_the_one_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        fs::remove_file(folder.path().join("1")).unwrap();
        // Longer than it was, once it is being read: after two blocks of the first.
        let blocks = AtomicUsize::new(0);
        let meddle = |_| {
            if blocks.fetch_add(1, Ordering::Relaxed) == 2 {
                let path = folder.path().join("3");
                let longer = fs::OpenOptions::new().append(true).open(path).unwrap();
                longer.set_len(6 * BLOCK as u64).unwrap();
            }
            true
        };
        let moving = |why: &str| Ok(Reading::Moving { why: why.into() });
        for (number, reading) in read(folder.path(), files, &meddle) {
            let expected = match number {
                1 => moving("gone since it was listed"),
                3 => moving("changed while it was read"),
                _ => Ok(right(number)),
            };
            assert_eq!(reading, expected, "{number}");
        }
    }

    #[test]
    fn reading_that_stops_tells_each_file_that_was_begun() {
        let folder = tempfile::tempdir().unwrap();
        let blocks = AtomicUsize::new(0);
        let pace = |_| blocks.fetch_add(1, Ordering::Relaxed) < 5;
        let told = read(folder.path(), files(folder.path()), &pace);
        // The first was nearly done, its third companion beside it; nobody has heard of the last one.
        let stopped = |number| (number, Err(Stopped));
        let read = |number| (number, Ok(right(number)));
        assert_eq!(told, [stopped(0), read(1), read(2), stopped(3)]);
    }

    #[test]
    fn who_has_no_companion_is_asked_for_one_before_every_block() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path());
        files.truncate(1);
        let root = Root::open(folder.path()).unwrap();
        let mut reader = Reader::new(&root, Medium::Cache, &|_| true);
        let asked = Cell::new(0);
        let nobody = || {
            asked.set(asked.get() + 1);
            None
        };
        let mut told = None;
        reader.read_beside(files.remove(0), nobody, |_, reading| told = Some(reading));
        assert_eq!(told, Some(Ok(right(0))));
        assert!(asked.get() > 3, "{}", asked.get());
    }

    #[test]
    fn small_files_and_those_past_the_cache_have_no_companion() {
        let of = |size| {
            Some(Attributes {
                size,
                mtime: 0,
                ctime: 0,
            })
        };
        let gains = |medium, listed| gains_by_a_companion(medium, listed, None);
        assert!(gains(Medium::Cache, of(LARGE)));
        assert!(!gains(Medium::Cache, of(LARGE - 1)));
        assert!(!gains(Medium::Cache, None));
        assert!(!gains(Medium::Device, of(LARGE)));
        let second = Some(Algorithm::Sha256);
        assert!(!gains_by_a_companion(Medium::Cache, of(LARGE), second));
    }
}
