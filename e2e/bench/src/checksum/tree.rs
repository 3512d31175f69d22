//! In: how many files of which size. Out: a folder with them, or a list of files that need not exist.
//! Touches: a folder below `target`, gone with its handle.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// How much is written at once.
const CHUNK: usize = 1 << 20;

/// How many files are in a folder.
const CROWD: usize = 500;

/// A folder for what is measured. Not in /tmp: that may be memory.
pub(super) fn folder() -> Result<TempDir> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    fs::create_dir_all(&target)?;
    let target = target.canonicalize()?;
    tempfile::Builder::new()
        .prefix("bench-checksum-")
        .tempdir_in(&target)
        .with_context(|| format!("failed to make a folder in {}", target.display()))
}

/// Large files, no two blocks of them alike.
pub(super) fn large(folder: &Path, files: u64, bytes: u64) -> Result<()> {
    fs::create_dir_all(folder)?;
    for n in 0..files {
        let mut noise = Noise(n + 1);
        let mut file = File::create(folder.join(format!("large{n}")))?;
        let mut left = usize::try_from(bytes)?;
        while left > 0 {
            let chunk = noise.bytes(left.min(CHUNK));
            file.write_all(&chunk)?;
            left -= chunk.len();
        }
    }
    settle(folder)
}

/// Waits until all is on the disk: writing it must not be part of what is measured.
fn settle(folder: &Path) -> Result<()> {
    Ok(nix::unistd::syncfs(File::open(folder)?)?)
}

/// Large files that take no space: all of their bytes are zero.
pub(super) fn sparse(folder: &Path, files: u64, bytes: u64) -> Result<()> {
    fs::create_dir_all(folder)?;
    for n in 0..files {
        File::create(folder.join(format!("sparse{n}")))?.set_len(bytes)?;
    }
    Ok(())
}

/// Small files, no two of them alike, in folders of some hundred.
pub(super) fn small(folder: &Path, files: usize, bytes: usize) -> Result<()> {
    let mut noise = Noise(7);
    for (n, path) in paths(files).enumerate() {
        let path = folder.join(path);
        if let Some(parent) = path.parent().filter(|_| n % CROWD == 0) {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, noise.bytes(bytes))?;
    }
    settle(folder)
}

/// A list as the policy engine of Spectrum Scale writes it, of files below `root` that nobody needs to have.
pub(super) fn policy_list(list: &Path, root: &Path, files: usize) -> Result<()> {
    let mut out = BufWriter::with_capacity(CHUNK, File::create(list)?);
    let root = root.display();
    for (n, path) in paths(files).enumerate() {
        let path = path.display();
        let (minute, second) = (n / 60 % 60, n % 60);
        writeln!(
            out,
            "{n} 1 0 |{}|2026-01-01 00:{minute:02}:{second:02}.000000| -- {root}/{path}",
            n % 100_000
        )?;
    }
    Ok(out.flush()?)
}

/// Paths of some sixty bytes.
pub(super) fn paths(files: usize) -> impl Iterator<Item = PathBuf> {
    (0..files).map(|n| {
        let folder = n / CROWD;
        let (above, below) = (folder / 100, folder % 100);
        format!("archive/collection-{above:05}/experiment-{below:03}/data-{n:09}.raw").into()
    })
}

/// Bytes that look random, always the same.
struct Noise(u64);

impl Noise {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        words.take(count).collect()
    }

    /// Xorshift.
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_size_and_differ() {
        let folder = tempfile::tempdir().unwrap();
        small(folder.path(), 3, 10).unwrap();
        let read = |path: PathBuf| fs::read(folder.path().join(path)).unwrap();
        let content: Vec<_> = paths(3).map(read).collect();
        assert!(content.iter().all(|it| it.len() == 10), "{content:?}");
        assert_ne!(content[0], content[1]);
    }

    #[test]
    fn a_list_has_a_line_for_each_file() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        policy_list(&list, Path::new("/data"), 61).unwrap();
        let text = fs::read_to_string(list).unwrap();
        assert_eq!(text.lines().count(), 61);
        let line = "60 1 0 |60|2026-01-01 00:01:00.000000| -- \
                    /data/archive/collection-00000/experiment-000/data-000000060.raw";
        assert_eq!(text.lines().last(), Some(line));
    }
}
