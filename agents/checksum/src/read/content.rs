//! The bytes of a file, from its beginning to its end. In: an open file. Out: blocks to hashers.
//! Touches: reads the file; takes what it read out of the page cache where that is wanted.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use rustix::fd::OwnedFd;
use rustix::fs::{self, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::{Medium, Pace, Stopped};
use crate::split::Span;

/// One read. Larger ones are no faster.
pub(super) const BLOCK: usize = 1 << 20;

/// One read of what the kernel may have in memory: hashed while it is still near the core.
pub(super) const NEAR: usize = 128 << 10;

/// What reads past the cache must be aligned to, everywhere.
const ALIGNMENT: usize = 4096;

/// How often a read is tried: what fails so often has failed.
const ATTEMPTS: usize = 3;

/// From this size on, the next block is read while the one before is hashed, where the kernel does not read ahead.
const LARGE: u64 = 8 << 20;

/// `RWF_DONTCACHE`, since Linux 6.14.
const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Where and why a read failed.
pub(super) type Failed = (u64, Errno);

/// A block of memory, aligned for reads past the cache.
#[derive(Debug)]
pub(super) struct Block {
    memory: Vec<u8>,
    start: usize,
}

impl Block {
    pub(super) fn new() -> Self {
        let memory = vec![0; BLOCK + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, start }
    }

    fn all(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + BLOCK]
    }

    pub(super) fn first(&self, bytes: usize) -> &[u8] {
        &self.memory[self.start..self.start + bytes.min(BLOCK)]
    }
}

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Direct,
    DontCache,
    DropBehind,
}

/// The content of a file.
#[derive(Debug)]
pub(super) struct Content {
    file: OwnedFd,
    size: u64,
    way: Way,
    step: usize,
    offset: u64,
    /// Nothing is read beyond this.
    end: u64,
}

impl Content {
    pub(super) fn new(file: OwnedFd, size: u64, medium: Medium) -> Self {
        let way = match medium {
            Medium::Device if fs::fcntl_setfl(&file, OFlags::DIRECT).is_ok() => Way::Direct,
            Medium::Device => Way::DontCache,
            Medium::Cache => Way::Plain,
        };
        if way != Way::Direct && size > BLOCK as u64 {
            // Advice only.
            let _ = fs::fadvise(&file, 0, None, fs::Advice::Sequential);
        }
        if way == Way::DontCache {
            drop_cached(&file);
        }
        Self {
            file,
            size,
            way,
            step: if way == Way::Plain { NEAR } else { BLOCK },
            offset: 0,
            end: u64::MAX,
        }
    }

    /// Only this of it, which begins where reads past the cache may begin. The last piece is read to where the file ends.
    pub(super) fn only(mut self, span: Span) -> Self {
        self.offset = span.offset;
        let end = span.offset.saturating_add(span.length);
        self.end = if end >= self.size { u64::MAX } else { end };
        self
    }

    /// The file itself.
    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// How far it was read.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next block; nothing at the end.
    pub(super) fn next(&mut self, block: &mut Block) -> Result<usize, Failed> {
        // Less than was asked for is the end, if the size says so too: small files cost one read. What grows while it is read
        // has changed, however much more of it there is.
        let is_over = self.offset > self.size
            || self.offset > 0
                && self.offset == self.size
                && !self.offset.is_multiple_of(self.step as u64);
        if is_over || self.offset >= self.end {
            return Ok(0);
        }
        let room = usize::try_from(self.end - self.offset).unwrap_or(self.step);
        let read = self
            .read(&mut block.all()[..room.min(self.step)])
            .map_err(|error| (self.offset, error))?;
        if self.way == Way::DropBehind {
            let length = std::num::NonZeroU64::new(read as u64);
            let _ = fs::fadvise(&self.file, self.offset, length, fs::Advice::DontNeed);
        }
        self.offset += read as u64;
        Ok(read)
    }

    fn read(&mut self, block: &mut [u8]) -> Result<usize, Errno> {
        patiently(|| self.read_once(block))
    }

    /// Another way where one is not to be had.
    fn read_once(&mut self, block: &mut [u8]) -> Result<usize, Errno> {
        loop {
            let read = match self.way {
                Way::DontCache => {
                    let mut buffers = [std::io::IoSliceMut::new(block)];
                    rustix::io::preadv2(&self.file, &mut buffers, self.offset, DONT_CACHE)
                }
                Way::Plain | Way::Direct | Way::DropBehind => {
                    rustix::io::pread(&self.file, &mut *block, self.offset)
                }
            };
            match (read, self.way) {
                (Err(Errno::INVAL | Errno::OPNOTSUPP), Way::Direct) => {
                    fs::fcntl_setfl(&self.file, OFlags::empty())?;
                    self.way = Way::DontCache;
                    drop_cached(&self.file);
                }
                (Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS), Way::DontCache) => {
                    self.way = Way::DropBehind;
                }
                (read, _) => return read,
            }
        }
    }
}

/// The other ways read from memory what is there. It is taken out only where there is no way past it: others may need it.
fn drop_cached(file: &OwnedFd) {
    let _ = fs::fadvise(file, 0, None, fs::Advice::DontNeed); // advice only
}

/// Tries again what was interrupted, and what a medium may do better another time.
fn patiently<T>(mut read: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut failures = 0;
    loop {
        match read() {
            Err(Errno::INTR) => {}
            Err(Errno::IO) if failures + 1 < ATTEMPTS => failures += 1,
            read => return read,
        }
    }
}

/// Memory for reading, made when it is needed and kept.
#[derive(Debug, Default)]
pub struct Buffers {
    pub(super) first: Option<Block>,
    pub(super) second: Option<Block>,
}

impl Buffers {
    /// Feeds all content to `hash`; how many bytes that were.
    pub(super) fn feed(
        &mut self,
        content: &mut Content,
        pace: &Pace<'_>,
        mut hash: impl FnMut(&[u8]),
    ) -> Result<Result<u64, Failed>, Stopped> {
        if content.way == Way::Direct
            && content.size >= LARGE
            && let Some(fed) = self.feed_ahead(content, pace, &mut hash)
        {
            return fed;
        }
        let block = self.first.get_or_insert_with(Block::new);
        loop {
            let read = match content.next(block) {
                Ok(read) => read,
                Err(failed) => return Ok(Err(failed)),
            };
            // An empty file is a turn, too; the end of another is none.
            if (read > 0 || content.offset == 0) && !pace(read as u64) {
                return Err(Stopped);
            }
            if read == 0 {
                return Ok(Ok(content.offset));
            }
            hash(block.first(read));
        }
    }

    /// The same with two blocks: one is read while the other is hashed. None, and nothing read, if there is no thread to be
    /// had for it.
    fn feed_ahead(
        &mut self,
        content: &mut Content,
        pace: &Pace<'_>,
        hash: &mut impl FnMut(&[u8]),
    ) -> Option<Result<Result<u64, Failed>, Stopped>> {
        let (to_hash, full) = sync_channel::<(Block, usize)>(2);
        let (to_read, empty) = sync_channel::<Block>(2);
        for block in [&mut self.first, &mut self.second] {
            let block = block.take().unwrap_or_else(Block::new);
            let _ = to_read.send(block); // there is room for both
        }
        thread::scope(|scope| {
            let ahead = || read_ahead(content, pace, empty, to_hash);
            let reading = thread::Builder::new().spawn_scoped(scope, ahead).ok()?;
            for (block, read) in &full {
                hash(block.first(read));
                let _ = to_read.send(block); // the other side may be done
            }
            drop(to_read);
            let ended = reading.join();
            Some(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "both ends close when this returns"
)]
fn read_ahead(
    content: &mut Content,
    pace: &Pace<'_>,
    empty: Receiver<Block>,
    to_hash: SyncSender<(Block, usize)>,
) -> Result<Result<u64, Failed>, Stopped> {
    while let Ok(mut block) = empty.recv() {
        let read = match content.next(&mut block) {
            Ok(read) => read,
            Err(failed) => return Ok(Err(failed)),
        };
        if !pace(read as u64) {
            return Err(Stopped);
        }
        if read == 0 || to_hash.send((block, read)).is_err() {
            break;
        }
    }
    Ok(Ok(content.offset))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::Algorithm;

    /// What comes of reads that answer like this, one after the other.
    fn after(answers: &[Result<usize, Errno>]) -> (Result<usize, Errno>, usize) {
        let mut reads = 0;
        let read = patiently(|| {
            reads += 1;
            answers[reads - 1]
        });
        (read, reads)
    }

    #[test]
    fn a_read_that_fails_twice_is_tried_a_third_time_and_no_more() {
        let (io, again) = (Err(Errno::IO), Err(Errno::INTR));
        assert_eq!(after(&[io, io, Ok(7)]), (Ok(7), 3));
        assert_eq!(after(&[io, io, io]), (io, 3));
        // What was interrupted has not failed.
        assert_eq!(after(&[again, io, again, io, again, Ok(7)]), (Ok(7), 6));
        // What cannot become better is not tried again.
        let stale = Err(Errno::STALE);
        assert_eq!(after(&[stale]), (stale, 1));
    }

    /// Where memory of this process ends, and nothing comes for long: nobody maps anything there.
    fn end_of_memory() -> u64 {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let mapped: Vec<_> = maps
            .lines()
            .map(|line| {
                let (range, rest) = line.split_once(' ').unwrap();
                let (start, end) = range.split_once('-').unwrap();
                let is_steady = rest.starts_with('r') && !rest.ends_with("[heap]");
                (hex(start), hex(end), is_steady)
            })
            .collect();
        let pairs = mapped.windows(2).filter(|pair| pair[0].2);
        let widest = pairs.max_by_key(|pair| pair[1].0 - pair[0].1);
        widest.unwrap()[0].1
    }

    #[test]
    fn a_medium_that_fails_is_told_with_the_place() {
        let memory = || fs::open("/proc/self/mem", OFlags::RDONLY, fs::Mode::empty()).unwrap();
        let failure =
            |mut content: Content| Buffers::default().feed(&mut content, &|_| true, |_| {});
        // Nothing is mapped at the beginning of a process: its memory cannot be read there.
        for size in [4096, LARGE] {
            let content = Content::new(memory(), size, Medium::Cache);
            assert_eq!(failure(content), Ok(Err((0, Errno::IO))));
        }
        let end = end_of_memory();
        let last = Span {
            offset: end - 4096,
            length: 8192,
        };
        let content = Content::new(memory(), u64::MAX, Medium::Cache).only(last);
        assert_eq!(failure(content), Ok(Err((end, Errno::IO))));
    }

    #[test]
    fn content_is_the_same_whichever_way_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let large = usize::try_from(LARGE).unwrap();
        for size in [0, 1, BLOCK, BLOCK + 4097, large, large + BLOCK + 77] {
            let content: Vec<u8> = (0..size).map(|n| (n / 7).to_le_bytes()[0]).collect();
            std::fs::write(&path, &content).unwrap();
            for way in [Way::Plain, Way::Direct, Way::DontCache, Way::DropBehind] {
                let file = fs::open(&path, OFlags::RDONLY, fs::Mode::empty()).unwrap();
                if way == Way::Direct {
                    let _ = fs::fcntl_setfl(&file, OFlags::DIRECT); // not everywhere
                }
                let mut read = Content::new(file, size as u64, Medium::Cache);
                (read.way, read.step) = (way, BLOCK);
                let mut hasher = Algorithm::Blake3.hasher();
                let end = Buffers::default().feed(&mut read, &|_| true, |it| hasher.update(it));
                assert_eq!(end, Ok(Ok(size as u64)), "{way:?}");
                let digest = Algorithm::Blake3.digest(&content);
                assert_eq!(hasher.finish(), digest, "{size} bytes, {way:?}");
            }
        }
    }

    #[test]
    fn a_block_is_read_while_the_one_before_is_hashed() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(LARGE).unwrap();
        let file = OwnedFd::from(file);
        let mut content = Content::new(file, LARGE, Medium::Cache);
        (content.way, content.step) = (Way::Direct, BLOCK);
        let (was_read, reads) = sync_channel(1000);
        let pace = |_| was_read.send(()).is_ok();
        let mut missing = 2;
        // The next is there before this one is done with: who read and hashed in turns would wait for ever.
        let hash = |block: &[u8]| {
            assert_eq!(block.len(), BLOCK);
            for _ in 0..missing {
                reads.recv_timeout(Duration::from_secs(30)).unwrap();
            }
            missing = 1;
        };
        let end = Buffers::default().feed(&mut content, &pace, hash);
        assert_eq!(end, Ok(Ok(LARGE)));
    }

    /// The ways in which the first block is read, from the first that is tried to the one that works.
    fn ways(content: &mut Content, block: &mut [u8]) -> (Way, Way) {
        let first = content.way;
        content.read_once(block).unwrap();
        (first, content.way)
    }

    #[test]
    fn what_memory_has_is_not_taken_for_what_the_medium_has_and_stays_where_it_can() {
        const TMPFS: fs::FsWord = 0x0102_1994;
        let folder = tempfile::tempdir().unwrap();
        if fs::statfs(folder.path()).unwrap().f_type == TMPFS {
            return; // it has no medium
        }
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 3 * ALIGNMENT]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        let is_in_memory = || {
            let mut byte = [0];
            let mut buffers = [std::io::IoSliceMut::new(&mut byte)];
            rustix::io::preadv2(&file, &mut buffers, 0, ReadWriteFlags::NOWAIT).is_ok()
        };
        assert!(is_in_memory());
        // Not a copy of the descriptor, which would be read past the cache, too.
        let copy = std::fs::File::open(&path).unwrap();
        let mut content = Content::new(copy.into(), 3 * ALIGNMENT as u64, Medium::Device);
        let mut block = Block::new();
        let (_, last) = ways(&mut content, &mut block.all()[..ALIGNMENT]);
        assert!(last != Way::Direct || is_in_memory(), "others may need it");
        let (_, last) = ways(&mut content, &mut block.all()[1..=ALIGNMENT]);
        assert!(last == Way::Direct || !is_in_memory(), "{last:?}");
    }

    #[test]
    fn what_cannot_be_read_past_the_cache_is_read_another_way() {
        // Files of the kernel's own are never on a medium.
        let version = fs::open("/proc/version", OFlags::RDONLY, fs::Mode::empty()).unwrap();
        let mut content = Content::new(version, 4096, Medium::Device);
        let tried = ways(&mut content, Block::new().all());
        assert_eq!(tried, (Way::DontCache, Way::DropBehind));
    }

    #[test]
    fn a_read_that_is_not_as_the_medium_wants_it_is_made_another_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 3 * ALIGNMENT]).unwrap();
        let file = fs::open(&path, OFlags::RDONLY, fs::Mode::empty()).unwrap();
        let mut content = Content::new(file, 3 * ALIGNMENT as u64, Medium::Device);
        let mut block = Block::new();
        let unaligned = &mut block.all()[1..=ALIGNMENT];
        let (first, last) = ways(&mut content, unaligned);
        assert_eq!(unaligned, [7; ALIGNMENT]);
        // Some file systems take any read; then there is nothing to fall back from.
        let is_direct = fs::fcntl_getfl(content.file())
            .unwrap()
            .contains(OFlags::DIRECT);
        assert_eq!(last == Way::Direct, is_direct, "{first:?}, {last:?}");
    }
}
