//! A listing in 256 parts by key: a small one in memory, a large one on disk. In: entries in any order. Out: each part,
//! sorted, in pieces that are small however many files there are. Touches: files without names in a folder of its own.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::entry::{Attributes, Entry, Seen};
use crate::path::Key;

/// How many parts there are.
pub const PARTS: usize = 256;

/// What a part gathers before it is written: 16 MiB for all of them.
const BUFFER: usize = 64 << 10;
/// What it begins with.
const FEW: usize = 4 << 10;

/// What an entry has beside its path.
const HEAD: usize = 44;

/// A piece that is sorted in memory has about so many bytes.
const PIECE: u64 = 400 << 10;

/// A part is split into at most so many pieces, of which each has a file: of very many files they are larger.
const PIECES: u64 = 64;

/// Small parts go together up to so many bytes.
const GROUP: u64 = 512 << 10;

/// Longer paths than any file system has are damage.
const LONGEST_PATH: u32 = 1 << 20;

/// What was written here is not what is read.
const DAMAGED: io::ErrorKind = io::ErrorKind::InvalidData;

/// Where a listing is kept until it has been compared.
#[derive(Debug)]
pub struct Spill {
    folder: PathBuf,
    parts: Vec<Mutex<Pile>>,
    room: Room,
}

/// How much may be written. Files without names are in nobody's way, and nobody else sees how large they are.
#[derive(Debug)]
struct Room {
    most: u64,
    written: AtomicU64,
}

impl Room {
    fn take(&self, bytes: usize) -> io::Result<()> {
        let bytes = bytes as u64;
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= self.most {
            return Ok(());
        }
        let most = self.most >> 20;
        let what = format!("more files than fit into {most} MiB: raise spec.tuning.spillSize");
        Err(io::Error::new(io::ErrorKind::StorageFull, what))
    }
}

/// One part: whole entries, the first of them in a file if there are many.
#[derive(Debug, Default)]
struct Pile {
    file: Option<File>,
    written: u64,
    rest: Vec<u8>,
    entries: usize,
}

impl Pile {
    fn size(&self) -> u64 {
        self.written + self.rest.len() as u64
    }

    fn add(&mut self, key: Key, entry: &Entry, folder: &Path, room: &Room) -> io::Result<()> {
        let size = HEAD + entry.path.as_bytes().len();
        if self.rest.len() + size > BUFFER {
            room.take(self.rest.len())?;
            self.write_out(&folder.join(format!("{:02x}", key.partition())))?;
        }
        // Never more than it may gather, but less as long as it has little.
        let full = self.rest.len() + size;
        if full > self.rest.capacity() {
            let wanted = if full > FEW { BUFFER } else { FEW };
            self.rest.reserve_exact(wanted.max(full) - self.rest.len());
        }
        self.entries += 1;
        write(&mut self.rest, key, entry)
    }

    fn write_out(&mut self, path: &Path) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(nameless(path)?),
        };
        file.write_all(&self.rest)?;
        self.written += self.rest.len() as u64;
        self.rest.clear();
        Ok(())
    }
}

impl Spill {
    /// Makes the folder, which must not be there yet. At most so many bytes are written to it, and what it takes to split some
    /// of them.
    pub fn create(folder: &Path, most: u64) -> io::Result<Self> {
        fs::create_dir(folder)?;
        Ok(Self {
            folder: folder.into(),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            room: Room {
                most,
                written: AtomicU64::new(0),
            },
        })
    }

    /// Adds entries; from any thread.
    pub fn add(&self, entries: &[Entry]) -> io::Result<()> {
        for entry in entries {
            let key = entry.path.key();
            let mut pile = self.pile(key.partition());
            pile.add(key, entry, &self.folder, &self.room)?;
        }
        Ok(())
    }

    /// The pieces of a part, in the order of their keys; one at least. May be asked again.
    pub fn pieces(&self, part: u8) -> io::Result<Vec<Piece>> {
        self.pieces_of(part, PIECE)
    }

    /// Runs of parts that follow each other and are no larger together than a group may be; a part that is larger is alone.
    pub fn together(&self, parts: &[u8]) -> Vec<Vec<u8>> {
        self.together_of(parts, GROUP)
    }

    fn together_of(&self, parts: &[u8], most: u64) -> Vec<Vec<u8>> {
        let mut groups: Vec<Vec<u8>> = Vec::new();
        let mut room = 0;
        for part in parts {
            let size = self.pile(*part).size();
            match groups.last_mut() {
                Some(group) if size <= room && group.last().copied() == part.checked_sub(1) => {
                    group.push(*part);
                    room -= size;
                }
                Some(_) | None => {
                    groups.push(vec![*part]);
                    room = most.saturating_sub(size);
                }
            }
        }
        groups
    }

    /// All entries of these parts, in the order of their keys, each once.
    pub fn sorted(&self, parts: &[u8]) -> io::Result<Sorted> {
        let pieces: io::Result<Vec<_>> = parts.iter().map(|part| self.whole(*part)).collect();
        Sorted::of(&pieces?)
    }

    fn pile(&self, part: u8) -> MutexGuard<'_, Pile> {
        let pile = &self.parts[usize::from(part)];
        pile.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn whole(&self, part: u8) -> io::Result<Piece> {
        let pile = self.pile(part);
        Ok(Piece {
            keys: Key::range_of(part, 0, 1),
            file: pile.file.as_ref().map(File::try_clone).transpose()?,
            rest: pile.rest.clone(),
            entries: pile.entries,
            size: pile.size(),
        })
    }

    fn pieces_of(&self, part: u8, size: u64) -> io::Result<Vec<Piece>> {
        let whole = self.whole(part)?;
        let pieces = whole.size.div_ceil(size).min(PIECES);
        match u32::try_from(pieces).unwrap_or(u32::MAX) {
            0 | 1 => Ok(vec![whole]),
            pieces => self.split(part, &whole, pieces),
        }
    }

    /// Keys are as good as random, so equal ranges of them hold about equally many.
    fn split(&self, part: u8, whole: &Piece, pieces: u32) -> io::Result<Vec<Piece>> {
        let mut split = Vec::new();
        for piece in 0..pieces {
            let file = nameless(&self.folder.join(format!("{part:02x}-{piece}")))?;
            split.push((BufWriter::new(file), 0, 0));
        }
        whole.each(|key, record| {
            let piece = usize::try_from(key.piece(pieces)).map_err(io::Error::other)?;
            let (writer, entries, size) = &mut split[piece];
            *entries += 1;
            *size += record.len() as u64;
            writer.write_all(record)
        })?;
        let split = (0..pieces).zip(split);
        let split = split.map(|(piece, (writer, entries, size))| {
            Ok(Piece {
                keys: Key::range_of(part, piece, pieces),
                file: Some(writer.into_inner()?),
                rest: Vec::new(),
                entries,
                size,
            })
        });
        split.collect()
    }
}

/// A file that is gone when it is closed.
fn nameless(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).open(path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// Entries of a range of keys.
#[derive(Debug)]
pub struct Piece {
    /// The first and the last key there can be.
    pub keys: (Key, Key),
    file: Option<File>,
    rest: Vec<u8>,
    entries: usize,
    size: u64,
}

impl Piece {
    /// All of them, in the order of their keys, each once.
    pub fn sorted(self) -> io::Result<Sorted> {
        Sorted::of(&[self])
    }

    fn each(&self, take: impl FnMut(Key, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let rest = self.rest.as_slice();
        let Some(mut file) = self.file.as_ref() else {
            return each(rest, self.entries, take);
        };
        file.rewind()?;
        let file = BufReader::with_capacity(BUFFER, file);
        each(file.chain(rest), self.entries, take)
    }
}

/// Entries in memory, in the order of their keys.
#[derive(Debug)]
pub struct Sorted {
    entries: Vec<Place>,
    paths: Vec<u8>,
}

/// An entry whose path is among those of all.
#[derive(Debug)]
struct Place {
    key: Key,
    attributes: Attributes,
    path: (u32, u32),
}

impl Sorted {
    fn of(pieces: &[Piece]) -> io::Result<Self> {
        let count = pieces.iter().map(|it| it.entries).sum();
        let size: u64 = pieces.iter().map(|it| it.size).sum();
        let size = usize::try_from(size).map_err(io::Error::other)?;
        let mut entries = Vec::with_capacity(count);
        let mut paths = Vec::with_capacity(size.saturating_sub(count * HEAD));
        for piece in pieces {
            piece.each(|key, record| {
                let (attributes, path) = parsed(record)?;
                let begin = u32::try_from(paths.len()).map_err(io::Error::other)?;
                paths.extend_from_slice(path);
                let end = u32::try_from(paths.len()).map_err(io::Error::other)?;
                entries.push(Place {
                    key,
                    attributes,
                    path: (begin, end),
                });
                Ok(())
            })?;
        }
        entries.sort_unstable_by_key(|it| it.key);
        entries.dedup_by_key(|it| it.key);
        Ok(Self { entries, paths })
    }

    /// Those from the first to the last of these keys.
    pub fn range(&self, keys: (Key, Key)) -> impl Iterator<Item = Seen<'_>> {
        let (first, last) = keys;
        let begin = self.entries.partition_point(|it| it.key < first);
        let end = self.entries.partition_point(|it| it.key <= last);
        let entries = self.entries.get(begin..end).unwrap_or_default();
        entries.iter().map(|it| self.seen(it))
    }

    fn seen(&self, place: &Place) -> Seen<'_> {
        let (begin, end) = place.path;
        Seen {
            key: place.key,
            path: &self.paths[begin as usize..end as usize],
            attributes: place.attributes,
        }
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        // What cannot be removed is in a folder that is made anew next time.
        let _ = fs::remove_dir_all(&self.folder);
        // Only if nobody else has a listing there.
        let _ = self.folder.parent().map(fs::remove_dir);
    }
}

fn write(to: &mut impl Write, key: Key, entry: &Entry) -> io::Result<()> {
    let path = entry.path.as_bytes();
    let length = u32::try_from(path.len()).map_err(io::Error::other)?;
    let Attributes { size, mtime, ctime } = entry.attributes;
    let mut head = [0; HEAD];
    head[..16].copy_from_slice(key.as_bytes());
    head[16..24].copy_from_slice(&size.to_le_bytes());
    head[24..32].copy_from_slice(&mtime.to_le_bytes());
    head[32..40].copy_from_slice(&ctime.to_le_bytes());
    head[40..].copy_from_slice(&length.to_le_bytes());
    to.write_all(&head)?;
    to.write_all(path)
}

/// So many records, one after the other.
fn each(
    mut from: impl Read,
    entries: usize,
    mut take: impl FnMut(Key, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut record = Vec::new();
    for _ in 0..entries {
        record.resize(HEAD, 0);
        from.read_exact(&mut record)?;
        let length = number::<4>(&record, 40).map(u32::from_le_bytes);
        let length = length.filter(|it| *it <= LONGEST_PATH).ok_or(DAMAGED)?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        record.resize(HEAD + length, 0);
        from.read_exact(&mut record[HEAD..])?;
        let key = Key::from_bytes(&record[..16]).ok_or(DAMAGED)?;
        take(key, &record)?;
    }
    Ok(())
}

/// What a record says beside its key.
fn parsed(record: &[u8]) -> io::Result<(Attributes, &[u8])> {
    let number = |at| number::<8>(record, at).ok_or(DAMAGED);
    let attributes = Attributes {
        size: u64::from_le_bytes(number(16)?),
        mtime: i64::from_le_bytes(number(24)?),
        ctime: i64::from_le_bytes(number(32)?),
    };
    Ok((attributes, record.get(HEAD..).ok_or(DAMAGED)?))
}

fn number<const N: usize>(record: &[u8], at: usize) -> Option<[u8; N]> {
    record.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::RelativePath;

    fn entry(n: i64) -> Entry {
        Entry {
            path: RelativePath::new(format!("folder/\u{ff}{n}").into_bytes()),
            attributes: Attributes {
                size: n.unsigned_abs(),
                mtime: -n,
                ctime: n,
            },
        }
    }

    #[test]
    fn small_parts_that_follow_each_other_go_together() {
        let folder = tempfile::tempdir().unwrap();
        let spill = Spill::create(&folder.path().join("spill"), u64::MAX).unwrap();
        let entries: Vec<_> = (0..2000).map(entry).collect();
        spill.add(&entries).unwrap();
        let all: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(spill.together(&all), std::slice::from_ref(&all));
        assert_eq!(spill.together(&[0, 1, 5]), [&[0, 1][..], &[5]]);
        for piece in [1, 1000, 5000] {
            let groups = spill.together_of(&all, piece);
            assert_eq!(groups.concat(), all);
            for group in groups {
                let size: u64 = group.iter().map(|part| spill.pile(*part).size()).sum();
                assert!(size <= piece || group.len() == 1, "{size} in {group:?}");
            }
        }
        let together = spill.sorted(&all).unwrap();
        let whole = (Key::range_of(0, 0, 1).0, Key::range_of(u8::MAX, 0, 1).1);
        assert!(together.range(whole).is_sorted_by_key(|it| it.key));
        assert_eq!(together.range(whole).count(), entries.len());
        let of_part = |part: &u8| together.range(Key::range_of(*part, 0, 1));
        let by_part = all.iter().flat_map(of_part);
        assert!(by_part.eq(together.range(whole)));
        assert!(of_part(&7).all(|it| it.key.partition() == 7));
        let keys: Vec<_> = together.range(whole).map(|it| it.key).collect();
        let some = together.range((keys[3], keys[5])).map(|it| it.key);
        assert!(some.eq(keys[3..=5].iter().copied()));
    }

    #[test]
    fn every_entry_comes_back_once_in_the_order_of_its_part() {
        // In memory, and partly on disk.
        for (padding, small) in [(0, 1000), (2000, 30_000)] {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path().join("spill");
            let spill = Spill::create(&folder, u64::MAX).unwrap();
            let padded = |n| {
                let mut entry = entry(n);
                let path = [entry.path.as_bytes(), &vec![b'x'; padding]].concat();
                entry.path = RelativePath::new(path);
                entry
            };
            let entries: Vec<_> = (0..10_000).map(padded).collect();
            for batch in entries.chunks(1000) {
                spill.add(batch).unwrap();
            }
            spill.add(&entries[..10]).unwrap();
            let is_on_disk = |part| spill.pile(part).file.is_some();
            assert_eq!((0..=u8::MAX).any(is_on_disk), padding > 0);
            // Whole parts, and parts in pieces.
            for size in [PIECE, small] {
                let mut found = Vec::new();
                for part in 0..=u8::MAX {
                    let pieces = spill.pieces_of(part, size).unwrap();
                    assert_eq!(pieces.len() > 1, size == small);
                    let mut last = None;
                    for piece in pieces {
                        let (first, end) = piece.keys;
                        let sorted = piece.sorted().unwrap();
                        let entries = || sorted.range((first, end));
                        assert_eq!(entries().count(), sorted.entries.len());
                        assert!(entries().is_sorted_by_key(|it| it.key));
                        assert!(last < Some(first) && first <= end);
                        assert!(entries().all(|it| it.key.partition() == part));
                        last = Some(end);
                        found.extend(entries().map(|it| Entry {
                            path: RelativePath::new(it.path),
                            attributes: it.attributes,
                        }));
                    }
                }
                found.sort_by_key(|entry| entry.attributes.size);
                assert_eq!(found, entries);
            }
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
            drop(spill);
            assert!(!folder.exists());
        }
    }

    #[test]
    fn what_is_on_disk_has_a_bound_that_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let spill = Spill::create(&folder.path().join("spill"), 1 << 20).unwrap();
        let entries: Vec<_> = (0..100_000).map(entry).collect();
        let stored = entries.chunks(1000).position(|it| spill.add(it).is_err());
        assert_eq!(stored, None, "all of this is in memory");
        let many: Vec<_> = (0..1_000_000).map(entry).collect();
        let full = spill.add(&many).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        let words = "more files than fit into 1 MiB: raise spec.tuning.spillSize";
        assert_eq!(full.to_string(), words);
    }

    #[test]
    fn few_files_are_open_at_once_however_large_a_part_is() {
        let folder = tempfile::tempdir().unwrap();
        let spill = Spill::create(&folder.path().join("spill"), u64::MAX).unwrap();
        let entries: Vec<_> = (0..20_000).map(entry).collect();
        spill.add(&entries).unwrap();
        let pieces = spill.pieces_of(0, 1).unwrap();
        assert_eq!(pieces.len() as u64, PIECES);
    }
}
