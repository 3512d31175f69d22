//! Reads files. In: a root and a path below it. Out: digests, or why there are none. Touches: opens and reads files, never
//! through a symbolic link and never anything but a regular file.

mod content;
mod pair;
mod settle;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    self, AtFlags, CWD, FileType, Mode, OFlags, RawMode, ResolveFlags, StatxFlags, fstat,
};
use rustix::io::Errno;

use crate::algorithm::{Algorithm, Hasher};
use crate::entry::Attributes;
use crate::judge::Reading;
use crate::list::stat;
use crate::path::RelativePath;
use crate::split::{self, PieceSum, Span};

use content::{Content, Failed};

pub use content::Buffers;
pub use pair::{Wanted, gains_by_a_companion};

/// The kernel takes paths of less than this.
const PATH_MAX: usize = 4096;

const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    // A FIFO that took the file's place must not be waited for.
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);
const FOLDER: OFlags = OFlags::PATH
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::DIRECTORY);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// The folder that all paths are below.
#[derive(Debug)]
pub struct Root(OwnedFd);

impl Root {
    /// Opens it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(fs::openat(CWD, path, flags, Mode::empty())?))
    }

    /// What a file is now, if it is a regular one.
    pub fn look(&self, path: &RelativePath) -> io::Result<Option<Attributes>> {
        Ok(look(&self.file(path)?)?)
    }

    /// Opens a file, in as many steps as its path is long for the kernel.
    fn file(&self, path: &RelativePath) -> Result<OwnedFd, Errno> {
        let mut rest = path.as_bytes();
        let mut folder: Option<OwnedFd> = None;
        while rest.len() >= PATH_MAX {
            let slash = rest[..PATH_MAX].iter().rposition(|byte| *byte == b'/');
            let slash = slash.ok_or(Errno::NAMETOOLONG)?;
            let at = folder.as_ref().map_or_else(|| self.0.as_fd(), AsFd::as_fd);
            let next = open(at, &rest[..slash], FOLDER)?;
            folder = Some(next);
            rest = &rest[slash + 1..];
        }
        let at = folder.as_ref().map_or_else(|| self.0.as_fd(), AsFd::as_fd);
        open(at, rest, FILE)
    }
}

fn open(at: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    match fs::openat2(at, path, flags, Mode::empty(), BENEATH) {
        // Kernels before 5.6 do not know this call, and some sandboxes forbid it.
        Err(Errno::NOSYS | Errno::PERM) => open_by_names(at, path, flags),
        opened => opened,
    }
}

/// The same in one step per name, so that no link is followed, nor any other way out.
fn open_by_names(at: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
    if !path.split(|byte| *byte == b'/').all(is_name) {
        return Err(Errno::XDEV);
    }
    let mut folder: Option<OwnedFd> = None;
    let mut rest = path;
    while let Some(slash) = rest.iter().position(|byte| *byte == b'/') {
        let at = folder.as_ref().map_or(at, AsFd::as_fd);
        let next = fs::openat(at, &rest[..slash], FOLDER, Mode::empty())?;
        folder = Some(next);
        rest = &rest[slash + 1..];
    }
    let at = folder.as_ref().map_or(at, AsFd::as_fd);
    fs::openat(at, rest, flags, Mode::empty())
}

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Where it is.
    pub path: RelativePath,
    /// What it was when it was listed, if that is known.
    pub attributes: Option<Attributes>,
}

/// Where content comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Medium {
    /// From wherever the kernel has it.
    #[default]
    Cache,
    /// From the medium, past the page cache, where the file system can do that; else what was read leaves the cache at once.
    Device,
}

/// Told of every read, before the next; may wait. False ends all reading.
pub type Pace<'a> = dyn Fn(u64) -> bool + Sync + 'a;

/// Reads files, one after the other or two at once, into buffers of its own.
pub struct Reader<'a> {
    root: &'a Root,
    medium: Medium,
    buffers: Buffers,
    pace: &'a Pace<'a>,
}

/// A reading was given up because all reading was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl<'a> Reader<'a> {
    /// A reader below `root`.
    pub fn new(root: &'a Root, medium: Medium, pace: &'a Pace<'a>) -> Self {
        Self::with(Buffers::default(), root, medium, pace)
    }

    /// The same with the memory of one that is done.
    pub fn with(buffers: Buffers, root: &'a Root, medium: Medium, pace: &'a Pace<'a>) -> Self {
        Self {
            root,
            medium,
            buffers,
            pace,
        }
    }

    /// Its memory, for the next.
    pub fn into_buffers(self) -> Buffers {
        self.buffers
    }

    /// Reads a file from end to end. What moves is not taken for damage: only a file that is as it was listed, before and
    /// after, has a digest.
    pub fn read(&mut self, task: &Task, algorithms: &[Algorithm]) -> Result<Reading, Stopped> {
        let hashers = algorithms.iter().map(|it| it.hasher()).collect();
        Ok(whole(self.hash(task, None, hashers)?))
    }

    /// Reads a piece of a file, by the same rules.
    pub fn read_piece(
        &mut self,
        task: &Task,
        span: Span,
    ) -> Result<Result<PieceSum, Reading>, Stopped> {
        let hashers = vec![split::hasher(span.offset)];
        let read = self.hash(task, Some(span), hashers)?;
        Ok(read.and_then(|Hashed { hashers, end, file }| {
            let node = hashers.first().and_then(split::node);
            match node.filter(|_| end == span.offset.saturating_add(span.length)) {
                Some(node) => Ok(PieceSum {
                    span,
                    size: file.size,
                    ctime: file.ctime,
                    node,
                }),
                None => Err(moving("changed since it was listed")),
            }
        }))
    }

    fn hash(
        &mut self,
        task: &Task,
        span: Option<Span>,
        hashers: Vec<Hasher>,
    ) -> Result<Result<Hashed, Reading>, Stopped> {
        let mut open = match Open::new(self.root, self.medium, task, span, hashers) {
            Ok(open) => open,
            Err(reading) => return Ok(Err(reading)),
        };
        let update = |block: &[u8]| open.hashers.iter_mut().for_each(|it| it.update(block));
        let end = self.buffers.feed(&mut open.content, self.pace, update)?;
        Ok(open.close(end))
    }
}

/// What is known when all was read.
struct Hashed {
    hashers: Vec<Hasher>,
    /// Where it ended.
    end: u64,
    /// What the file was, before and after.
    file: Attributes,
}

/// A file that is being read.
struct Open {
    content: Content,
    before: Attributes,
    is_whole: bool,
    hashers: Vec<Hasher>,
}

impl Open {
    /// A file that is as it was listed; or what came of it instead.
    fn new(
        root: &Root,
        medium: Medium,
        task: &Task,
        span: Option<Span>,
        hashers: Vec<Hasher>,
    ) -> Result<Self, Reading> {
        let file = match root.file(&task.path) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => {
                return Err(moving("gone since it was listed"));
            }
            Err(error) => return Err(failed("failed to open", error)),
        };
        let before = match look(&file) {
            Ok(Some(before)) => before,
            Ok(None) => return Err(moving("no longer a regular file")),
            Err(error) => return Err(failed("failed to look at", error)),
        };
        if let Some(listed) = task.attributes
            && !(before.size == listed.size && listed.has_time_of(&before))
        {
            return Err(moving("changed since it was listed"));
        }
        settle::settle(before.mtime);
        let content = Content::new(file, before.size, medium);
        Ok(Self {
            content: match span {
                Some(span) => content.only(span),
                None => content,
            },
            before,
            is_whole: span.is_none(),
            hashers,
        })
    }

    /// What was read, if it is still the same file.
    fn close(self, end: Result<u64, Failed>) -> Result<Hashed, Reading> {
        let end = end.map_err(|(offset, error)| {
            let error = io::Error::from(error);
            let why = format!("failed to read at byte {offset}: {error}");
            Reading::Failed { why }
        })?;
        match look(self.content.file()) {
            Ok(Some(after))
                if after == self.before && (!self.is_whole || end == self.before.size) =>
            {
                Ok(Hashed {
                    hashers: self.hashers,
                    end,
                    file: after,
                })
            }
            Ok(_) => Err(moving("changed while it was read")),
            Err(error) => Err(failed("failed to look again at", error)),
        }
    }
}

/// What came of reading a whole file.
fn whole(read: Result<Hashed, Reading>) -> Reading {
    read.map_or_else(
        |reading| reading,
        |read| Reading::Read {
            digests: read.hashers.into_iter().map(Hasher::finish).collect(),
            bytes: read.end,
        },
    )
}

fn moving(why: &str) -> Reading {
    Reading::Moving { why: why.into() }
}

fn failed(what: &str, error: Errno) -> Reading {
    Reading::Failed {
        why: format!("{what} it: {}", io::Error::from(error)),
    }
}

/// What the file is now, if it is a regular one.
fn look(file: &OwnedFd) -> Result<Option<Attributes>, Errno> {
    let wanted = StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::MTIME | StatxFlags::CTIME;
    let seen = match fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted) {
        Err(Errno::NOSYS) => return look_as_before(file),
        seen => seen?,
    };
    let is_file = FileType::from_raw_mode(RawMode::from(seen.stx_mode)) == FileType::RegularFile;
    Ok(is_file.then(|| stat::attributes(&seen)))
}

fn look_as_before(file: &OwnedFd) -> Result<Option<Attributes>, Errno> {
    let seen = fstat(file)?;
    let is_file = FileType::from_raw_mode(seen.st_mode) == FileType::RegularFile;
    let fraction = |nanoseconds| i64::try_from(nanoseconds).unwrap_or_default();
    Ok(is_file.then_some(Attributes {
        size: u64::try_from(seen.st_size).unwrap_or_default(),
        mtime: stat::nanoseconds(seen.st_mtime, fraction(seen.st_mtime_nsec)),
        ctime: stat::nanoseconds(seen.st_ctime, fraction(seen.st_ctime_nsec)),
    }))
}

#[cfg(test)]
mod tests {
    use std::fs as files;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::content::BLOCK;
    use super::*;

    fn task(root: &Root, path: &[u8]) -> Task {
        let path = RelativePath::new(path);
        let attributes = look(&root.file(&path).unwrap()).unwrap();
        Task { path, attributes }
    }

    fn read(root: &Root, task: &Task) -> Reading {
        let [cached, direct] = [Medium::Cache, Medium::Device].map(|medium| {
            Reader::new(root, medium, &|_| true)
                .read(task, &Algorithm::ALL)
                .unwrap()
        });
        assert_eq!(cached, direct);
        cached
    }

    #[test]
    fn content_of_any_size_hashes_to_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        for size in [
            0,
            1,
            BLOCK - 1,
            BLOCK,
            BLOCK + 1,
            3 * BLOCK,
            20 * BLOCK + 77,
        ] {
            let content = vec![7; size];
            files::write(folder.path().join("a"), &content).unwrap();
            let digests = Algorithm::ALL
                .iter()
                .map(|it| it.digest(&content))
                .collect();
            let bytes = size as u64;
            assert_eq!(
                read(&root, &task(&root, b"a")),
                Reading::Read { digests, bytes }
            );
        }
    }

    #[test]
    fn pieces_of_a_file_make_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let content: Vec<u8> = (0..3 * BLOCK + 77).map(|n| n.to_le_bytes()[1]).collect();
        files::write(folder.path().join("a"), &content).unwrap();
        let task = task(&root, b"a");
        for medium in [Medium::Cache, Medium::Device] {
            let mut reader = Reader::new(&root, medium, &|_| true);
            let mut pieces = split::Pieces::default();
            let mut came = split::Came::Part;
            for span in split::spans(content.len() as u64, 1).unwrap() {
                let sum = reader.read_piece(&task, span).unwrap().unwrap();
                came = pieces.add(task.path.key(), sum);
            }
            let digest = Algorithm::Blake3.digest(&content);
            let size = content.len() as u64;
            assert_eq!(came, split::Came::Whole(digest, size));
        }
        files::write(folder.path().join("a"), "short").unwrap();
        let mut reader = Reader::new(&root, Medium::Cache, &|_| true);
        let span = Span {
            offset: 0,
            length: BLOCK as u64,
        };
        let gone = reader.read_piece(&task, span).unwrap();
        assert!(matches!(gone, Err(Reading::Moving { .. })), "{gone:?}");
    }

    #[test]
    fn holes_are_read_as_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let file = files::File::create(folder.path().join("a")).unwrap();
        file.set_len(5 * BLOCK as u64 + 1).unwrap();
        let digests: Vec<_> = Algorithm::ALL
            .iter()
            .map(|it| it.digest(&vec![0; 5 * BLOCK + 1]))
            .collect();
        let bytes = 5 * BLOCK as u64 + 1;
        assert_eq!(
            read(&root, &task(&root, b"a")),
            Reading::Read { digests, bytes }
        );
    }

    #[test]
    fn where_a_medium_fails_is_told() {
        // The beginning of the memory of a process cannot be read: nothing is there.
        let root = Root::open(Path::new("/proc/self")).unwrap();
        let task = Task {
            path: RelativePath::new(*b"mem"),
            attributes: None,
        };
        let reading = Reader::new(&root, Medium::Cache, &|_| true).read(&task, &[Algorithm::Sha1]);
        let Ok(Reading::Failed { why }) = reading else {
            panic!("{reading:?}");
        };
        assert!(why.starts_with("failed to read at byte 0: "), "{why}");
    }

    #[test]
    fn a_file_that_moves_is_not_taken_for_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let file = folder.path().join("a");
        files::write(&file, "before").unwrap();
        let listed = task(&root, b"a");
        files::write(&file, "after it").unwrap();
        assert!(matches!(read(&root, &listed), Reading::Moving { .. }));
        let listed = task(&root, b"a");
        files::remove_file(&file).unwrap();
        assert!(matches!(read(&root, &listed), Reading::Moving { .. }));

        files::write(&file, "meanwhile").unwrap();
        let listed = task(&root, b"a");
        let meddle = |_| {
            let opened = files::OpenOptions::new().append(true).open(&file);
            io::Write::write_all(&mut opened.unwrap(), b"x").unwrap();
            true
        };
        let mut reader = Reader::new(&root, Medium::Cache, &meddle);
        let reading = reader.read(&listed, &[Algorithm::Sha1]);
        assert!(matches!(reading, Ok(Reading::Moving { .. })));
    }

    #[test]
    fn a_file_that_grows_as_fast_as_it_is_read_is_not_read_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let file = folder.path().join("a");
        let block = vec![7; BLOCK];
        for medium in [Medium::Cache, Medium::Device] {
            files::write(&file, &block).unwrap();
            let listed = task(&root, b"a");
            let reads = AtomicUsize::new(0);
            let meddle = |_| {
                let opened = files::OpenOptions::new().append(true).open(&file);
                io::Write::write_all(&mut opened.unwrap(), &block).unwrap();
                reads.fetch_add(1, Ordering::Relaxed) < 100
            };
            let mut reader = Reader::new(&root, medium, &meddle);
            let reading = reader.read(&listed, &[Algorithm::Sha1]);
            assert!(matches!(reading, Ok(Reading::Moving { .. })), "{reading:?}");
        }
    }

    #[test]
    fn no_path_leads_out_of_the_root() {
        let folder = tempfile::tempdir().unwrap();
        files::create_dir_all(folder.path().join("root/a")).unwrap();
        for file in ["secret", "root/a/file"] {
            files::write(folder.path().join(file), "x").unwrap();
        }
        let root = Root::open(&folder.path().join("root")).unwrap();
        let by_names = |path: &[u8]| open_by_names(root.0.as_fd(), path, FILE).map(drop);
        assert_eq!(by_names(b"a/file"), Ok(()));
        for path in [
            &b"../secret"[..],
            b"a/../../secret",
            b"a/./file",
            b"a//file",
            b"",
        ] {
            assert!(by_names(path).is_err(), "{path:?}");
        }
        for path in [&b"../secret"[..], b"a/../../secret"] {
            assert!(root.file(&RelativePath::new(path)).is_err(), "{path:?}");
        }
    }

    #[test]
    fn neither_a_link_nor_a_pipe_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        files::create_dir(folder.path().join("real")).unwrap();
        files::write(folder.path().join("real/a"), "a").unwrap();
        let listed = task(&root, b"real/a");
        symlink("real", folder.path().join("linked")).unwrap();
        symlink("real/a", folder.path().join("link")).unwrap();
        fs::mkfifoat(CWD, folder.path().join("pipe"), Mode::RUSR).unwrap();
        for path in [&b"linked/a"[..], b"link", b"pipe", b"real/../real/a"] {
            let moved = Task {
                path: RelativePath::new(path),
                ..listed.clone()
            };
            let reading = read(&root, &moved);
            let is_read = matches!(reading, Reading::Read { .. });
            assert!(!is_read || path == b"real/../real/a", "{reading:?}");
        }
        let by_names = open_by_names(root.0.as_fd(), b"linked/a", FILE);
        assert!(by_names.is_err());
        open_by_names(root.0.as_fd(), b"real/a", FILE).unwrap();
    }

    #[test]
    fn a_path_longer_than_the_kernel_takes_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let name = "d".repeat(250);
        let mut at = fs::openat(CWD, folder.path(), FOLDER, Mode::empty()).unwrap();
        let mut path = String::new();
        for _ in 0..40 {
            fs::mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
            at = fs::openat(&at, name.as_str(), FOLDER, Mode::empty()).unwrap();
            path += &name;
            path.push('/');
        }
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = fs::openat(&at, "file", flags, Mode::RUSR).unwrap();
        rustix::io::write(file, b"deep").unwrap();
        path += "file";
        assert!(path.len() > 2 * PATH_MAX);
        let reading = read(&root, &task(&root, path.as_bytes()));
        assert!(
            matches!(reading, Reading::Read { bytes: 4, .. }),
            "{reading:?}"
        );
    }

    #[test]
    fn paths_at_the_border_of_what_the_kernel_takes_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let name = "d".repeat(255);
        let mut at = fs::openat(CWD, folder.path(), FOLDER, Mode::empty()).unwrap();
        let mut path = String::new();
        for _ in 0..15 {
            fs::mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
            at = fs::openat(&at, name.as_str(), FOLDER, Mode::empty()).unwrap();
            path = path + &name + "/";
        }
        fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        for length in [PATH_MAX - 1, PATH_MAX, PATH_MAX + 1] {
            let rest = length - path.len();
            let file = if rest > 255 {
                format!("d/{}", "f".repeat(rest - 2))
            } else {
                "f".repeat(rest)
            };
            let flags = OFlags::CREATE | OFlags::WRONLY;
            let opened = fs::openat(&at, file.as_str(), flags, Mode::RUSR).unwrap();
            rustix::io::write(opened, &length.to_le_bytes()).unwrap();
            let path = format!("{path}{file}");
            assert_eq!(path.len(), length);
            let Reading::Read { digests, .. } = read(&root, &task(&root, path.as_bytes())) else {
                panic!("{length} bytes: not read");
            };
            let expected = Algorithm::ALL.map(|it| it.digest(&length.to_le_bytes()));
            assert_eq!(digests, expected);
        }
    }

    #[test]
    fn reading_stops_in_the_middle_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        files::write(folder.path().join("a"), vec![0; 30 * BLOCK]).unwrap();
        for medium in [Medium::Cache, Medium::Device] {
            let mut reader = Reader::new(&root, medium, &|_| false);
            let reading = reader.read(&task(&root, b"a"), &Algorithm::ALL);
            assert_eq!(reading, Err(Stopped));
        }
    }
}
