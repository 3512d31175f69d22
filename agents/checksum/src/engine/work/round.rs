//! The readers of a round: each takes packs, reads their files and tells what it found. In: packs. Out: results. Touches: reads
//! the files.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender};

use super::found::Found;
use super::waiting::Waiting;
use super::{Pack, Read};
use crate::algorithm::Algorithm;
use crate::engine::{Job, Shared};
use crate::judge::Reading;
use crate::pack::Sizes;
use crate::read::{Medium, Reader, Root, Stopped, Wanted, gains_by_a_companion};
use crate::store::{Pending, Run};

/// No larger file is taken from another pack to be read beside one: some seconds.
const LARGEST_COMPANION: u64 = 1 << 30;
/// A reader whose turn it is not looks so often whether it is.
const NAP: Duration = Duration::from_millis(50);

/// The readers of one round, and who keeps them busy.
pub(super) struct Round {
    root: Arc<Root>,
    pub(super) shared: Arc<Shared>,
    algorithm: Algorithm,
    medium: Medium,
    waiting: Mutex<Waiting>,
    packs: Sizes,
    /// A reader may have two files.
    pairs: bool,
    /// Readers with a lower number may read.
    pub(super) allowed: AtomicUsize,
    /// Readers that have a pack.
    busy: AtomicUsize,
    /// Nobody waits for results any more.
    pub(super) is_given_up: AtomicBool,
    /// No more packs will come.
    is_drained: AtomicBool,
    /// Those whose turn it is not wait here, and nobody for them when there is nothing left.
    turn: Mutex<()>,
    changed: Condvar,
}

/// Lets nobody wait for a reader that has ended, however it did.
struct CloseWith<'a>(&'a Round);

impl Drop for CloseWith<'_> {
    fn drop(&mut self) {
        let waiting = &self.0.waiting;
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.close();
    }
}

impl Round {
    /// At first so many may read.
    pub(super) fn new(
        job: &Job,
        root: &Arc<Root>,
        run: &Run,
        shared: &Arc<Shared>,
        waiting: Receiver<Pack>,
        allowed: usize,
    ) -> Self {
        Self {
            root: root.clone(),
            shared: shared.clone(),
            algorithm: run.what.algorithm,
            medium: job.medium,
            waiting: Mutex::new(Waiting::new(waiting)),
            packs: job.packs,
            pairs: pairs(job.readers, run.what.algorithm),
            allowed: AtomicUsize::new(allowed),
            busy: AtomicUsize::new(0),
            is_given_up: AtomicBool::new(false),
            is_drained: AtomicBool::new(false),
            turn: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// One reader, on a thread of its own, until there are no more packs or all reading ends. Then nobody waits for room
    /// for more.
    pub(super) fn read(&self, number: usize, results: &Sender<Vec<Read>>) {
        let _close = CloseWith(self);
        self.read_packs(number, results);
    }

    fn read_packs(&self, number: usize, results: &Sender<Vec<Read>>) {
        let pace = |bytes| {
            self.shared.pace(bytes);
            self.go_on()
        };
        let mut reader: Option<Reader<'_>> = None;
        while let Some(pack) = self.next(number) {
            let reader = reader.get_or_insert_with(|| Reader::new(&self.root, self.medium, &pace));
            self.busy.fetch_add(1, Ordering::Relaxed);
            let read = self.read_pack(number, reader, pack, results);
            self.busy.fetch_sub(1, Ordering::Relaxed);
            if read.is_err() {
                return;
            }
        }
    }

    /// Reads a pack, and those whose files are read beside its own.
    fn read_pack(
        &self,
        number: usize,
        reader: &mut Reader<'_>,
        pack: Pack,
        results: &Sender<Vec<Read>>,
    ) -> Result<(), Stopped> {
        let mut hand = VecDeque::from(pack);
        let mut found = Found::new(self.packs, results);
        while let Some(file) = hand.pop_front() {
            if self.is_paired(&file) {
                let more = || {
                    if !hand.iter().any(|file| self.is_paired(file)) {
                        hand.extend(self.companions(number).into_iter().flatten());
                    }
                    let at = hand.iter().position(|file| self.is_paired(file))?;
                    hand.remove(at)
                };
                self.read_beside(reader, file, more, &mut found)?;
                continue;
            }
            self.shared.reading.fetch_add(1, Ordering::Relaxed);
            let reading = read_one(reader, &file, self.algorithm);
            self.shared.reading.fetch_sub(1, Ordering::Relaxed);
            let reading = reading?;
            self.shared.files.fetch_add(1, Ordering::Relaxed);
            found.add(file, reading)?;
        }
        found.tell()
    }

    /// Whether a file is read beside another one.
    fn is_paired(&self, file: &Pending) -> bool {
        let second = file.algorithm().filter(|it| *it != self.algorithm);
        self.pairs && gains_by_a_companion(self.medium, file.task.attributes, second)
    }

    /// Reads a large file, and others beside it as long as there are some.
    fn read_beside(
        &self,
        reader: &mut Reader<'_>,
        file: Pending,
        mut more: impl FnMut() -> Option<Pending>,
        found: &mut Found<'_>,
    ) -> Result<(), Stopped> {
        let wanted = |file: Pending| {
            self.shared.reading.fetch_add(1, Ordering::Relaxed);
            Wanted {
                task: file.task.clone(),
                algorithm: self.algorithm,
                file,
            }
        };
        let mut is_over = Ok(());
        let done = |file, reading: Result<Reading, Stopped>| {
            self.shared.reading.fetch_sub(1, Ordering::Relaxed);
            let told = reading.and_then(|reading| {
                self.shared.files.fetch_add(1, Ordering::Relaxed);
                found.add(file, reading)
            });
            is_over = is_over.and(told);
        };
        reader.read_beside(wanted(file), || more().map(wanted), done);
        is_over
    }

    /// A pack of large files that waits while every reader has one. It may last so long that another has nothing to do
    /// meanwhile, so the largest are left.
    fn companions(&self, number: usize) -> Option<Pack> {
        let allowed = self.allowed.load(Ordering::Relaxed);
        let all_are_busy = self.busy.load(Ordering::Relaxed) >= allowed;
        if number >= allowed || !all_are_busy || self.shared.is_paused() || !self.go_on() {
            return None;
        }
        // Who waits for a pack holds the lock.
        let mut waiting = self.waiting.try_lock().ok()?;
        let is_companion =
            |file: &Pending| self.is_paired(file) && file.attributes().size <= LARGEST_COMPANION;
        waiting.take_if(|pack| pack.iter().all(is_companion))
    }

    fn go_on(&self) -> bool {
        !self.shared.is_stopped() && !self.is_given_up.load(Ordering::Relaxed)
    }

    /// The next pack, when it is this reader's turn and nothing keeps it from reading.
    fn next(&self, number: usize) -> Option<Pack> {
        loop {
            if !self.go_on() || self.is_drained.load(Ordering::Relaxed) {
                return None;
            }
            let is_waiting = number >= self.allowed.load(Ordering::Relaxed);
            if !is_waiting && !self.shared.is_paused() {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let pack = waiting.next();
                if pack.is_none() {
                    self.is_drained.store(true, Ordering::Relaxed);
                    self.changed.notify_all();
                }
                return pack;
            }
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.changed.wait_timeout(turn, NAP));
        }
    }
}

/// Whether a reader may have two files. Who says how many files are read at once means files.
fn pairs(readers: Option<usize>, algorithm: Algorithm) -> bool {
    readers.is_none() && algorithm.gains_in_step()
}

/// A file whose checksum was computed with another algorithm is compared by that one, in the same reading.
fn read_one(
    reader: &mut Reader<'_>,
    file: &Pending,
    algorithm: Algorithm,
) -> Result<Reading, Stopped> {
    match file.algorithm() {
        Some(other) if other != algorithm => reader.read(&file.task, &[algorithm, other]),
        _ => reader.read(&file.task, &[algorithm]),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;
    use std::time::{Instant, UNIX_EPOCH};

    use tokio::sync::mpsc::channel;

    use super::*;
    use crate::entry::{Attributes, UNKNOWN};
    use crate::judge::Known;
    use crate::path::RelativePath;
    use crate::read::Task;

    fn file(name: &str, size: u64, mtime: i64) -> Pending {
        let path = RelativePath::new(name.as_bytes());
        Pending {
            key: path.key(),
            task: Task {
                path,
                attributes: Some(Attributes {
                    size,
                    mtime,
                    ctime: UNKNOWN,
                }),
            },
            known: Known {
                changed_run: 1,
                read_run: 0,
                checksum: None,
            },
        }
    }

    fn pack(sizes: &[u64]) -> Pack {
        sizes.iter().map(|size| file("a", *size, 0)).collect()
    }

    /// Two readers, both busy, and these packs.
    fn round(packs: &[&[u64]]) -> Round {
        let folder = tempfile::tempdir().unwrap();
        round_in(folder.path(), packs.iter().map(|sizes| pack(sizes)))
    }

    fn round_in(folder: &Path, packs: impl Iterator<Item = Pack>) -> Round {
        let (sender, waiting) = channel::<Pack>(4);
        for pack in packs {
            sender.try_send(pack).unwrap();
        }
        Round {
            root: Arc::new(Root::open(folder).unwrap()),
            shared: Arc::new(Shared::new(None, Instant::now())),
            algorithm: Algorithm::Sha1,
            medium: Medium::Cache,
            waiting: Mutex::new(Waiting::new(waiting)),
            packs: Sizes::default(),
            pairs: true,
            allowed: AtomicUsize::new(2),
            busy: AtomicUsize::new(2),
            is_given_up: AtomicBool::new(false),
            is_drained: AtomicBool::new(false),
            turn: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// What becomes of files of these sizes, by name. The last one is gone before it is read.
    fn read(packs: &[&[usize]]) -> (Round, BTreeMap<String, Reading>) {
        let folder = tempfile::tempdir().unwrap();
        let (mut last, mut number) = (None, 0);
        let mut create = |size: &usize| {
            let name = number.to_string();
            let path = folder.path().join(&name);
            fs::write(&path, content(number, *size)).unwrap();
            let modified = fs::metadata(&path).unwrap().modified().unwrap();
            let mtime = modified.duration_since(UNIX_EPOCH).unwrap().as_nanos();
            number += 1;
            last = Some(path);
            file(&name, *size as u64, mtime.try_into().unwrap())
        };
        let packs = packs
            .iter()
            .map(|sizes| sizes.iter().map(&mut create).collect());
        let packs: Vec<Pack> = packs.collect();
        fs::remove_file(last.unwrap()).unwrap();
        let round = round_in(folder.path(), packs.into_iter());
        // This reader is the only one.
        round.allowed.store(1, Ordering::Relaxed);
        round.busy.store(0, Ordering::Relaxed);
        let (results, mut found) = channel(16);
        round.read(0, &results);
        drop(results);
        let mut told = BTreeMap::new();
        while let Some(reads) = found.blocking_recv() {
            for (file, reading) in reads {
                let name = file.task.path.to_string();
                let before = told.insert(name, reading);
                assert_eq!(before, None, "told twice");
            }
        }
        (round, told)
    }

    fn content(number: usize, size: usize) -> Vec<u8> {
        (0..size)
            .map(|n| (n / 5 + number).to_le_bytes()[0])
            .collect()
    }

    #[test]
    fn every_file_is_told_once_whether_it_was_read_alone_or_beside_another() {
        const LARGE: usize = 1 << 20;
        let packs: [&[usize]; 4] = [
            &[2 * LARGE, 5, 3 * LARGE + 7, 0],
            &[6 * LARGE],
            &[LARGE, LARGE + 1],
            &[2 * LARGE, LARGE],
        ];
        let (round, told) = read(&packs);
        let sizes = packs.concat();
        assert_eq!(told.len(), sizes.len());
        for (number, size) in sizes.iter().enumerate() {
            let expected = if number + 1 == sizes.len() {
                let why = "gone since it was listed".into();
                Reading::Moving { why }
            } else {
                let digests = vec![Algorithm::Sha1.digest(&content(number, *size))];
                let bytes = *size as u64;
                Reading::Read { digests, bytes }
            };
            assert_eq!(told[&number.to_string()], expected, "{number}");
        }
        assert_eq!(round.shared.reading.load(Ordering::Relaxed), 0);
        assert_eq!(round.busy.load(Ordering::Relaxed), 0);
        let files = round.shared.files.load(Ordering::Relaxed);
        assert_eq!(files, sizes.len() as u64);
    }

    #[test]
    fn companions_are_what_nobody_else_could_begin_with() {
        let round = round(&[&[LARGEST_COMPANION]]);
        round.busy.store(1, Ordering::Relaxed);
        assert_eq!(round.companions(0), None, "the other reader has nothing");
        round.busy.store(2, Ordering::Relaxed);
        let waiting = round.waiting.lock().unwrap();
        assert_eq!(round.companions(0), None, "somebody waits for it");
        drop(waiting);
        round.shared.pause.store(true, Ordering::Relaxed);
        assert_eq!(round.companions(0), None, "nothing is to be begun");
        round.shared.pause.store(false, Ordering::Relaxed);
        assert_eq!(round.companions(2), None, "not the turn of this one");
        round.is_given_up.store(true, Ordering::Relaxed);
        assert_eq!(round.companions(0), None, "nobody wants to know");
        round.is_given_up.store(false, Ordering::Relaxed);
        assert_eq!(round.companions(0), Some(pack(&[LARGEST_COMPANION])));
        assert_eq!(round.companions(0), None, "there is no other");
    }

    #[test]
    fn a_pack_that_is_no_companion_is_left_for_the_next_reader() {
        for sizes in [&[LARGEST_COMPANION + 1][..], &[7 << 20, 7]] {
            let round = round(&[sizes, &[5 << 20]]);
            assert_eq!(round.companions(0), None);
            assert_eq!(round.next(1), Some(pack(sizes)));
            assert_eq!(round.companions(0), Some(pack(&[5 << 20])));
            assert_eq!(round.next(1), None);
        }
    }

    #[test]
    fn who_says_how_many_files_are_read_at_once_gets_no_more() {
        let mut round = round(&[&[5 << 20]]);
        round.pairs = pairs(Some(2), Algorithm::Sha1);
        assert_eq!(round.companions(0), None);
        assert!(!round.is_paired(&pack(&[5 << 20])[0]));
        for algorithm in Algorithm::ALL {
            assert_eq!(pairs(None, algorithm), algorithm.gains_in_step());
        }
    }
}
