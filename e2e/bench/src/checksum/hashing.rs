#![expect(clippy::disallowed_methods, reason = "measures how long things take")]
//! Large files in the page cache: as fast as the cores hash. In: rules. Out: rows.
//! Touches: 2 GiB of files, and the processes that read them.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Instant,
};

use anyhow::{Context, Result, anyhow};
use checksum::algorithm::Algorithm;
use tempfile::TempDir;
use tokio::process::Command;

use super::{
    command::{Spent, first_run, spent},
    goal, tree, turn,
};
use crate::{
    peers,
    rounds::{self, Rules, Side},
    row::{self, Measure, Row, Run, Sample},
    stats::number,
};

const FILES: u64 = 4;
const BYTES: u64 = 512 << 20;

/// What each core hashes in memory, again and again: small enough to stay near it.
const BUFFER: usize = 256 << 10;

/// Turns are short.
const TIMES: usize = 5;

const WALL: Measure = goal("2 GiB in 4 files, blake3, warm: time", "s", 1.1);
const CPU: Measure = goal("2 GiB in 4 files, blake3, warm: CPU", "s", 1.1);
/// At least 0.85 times as fast.
const SHA1: Measure = goal("2 GiB in 4 files, sha1, warm: time", "s", 1.176);
/// What a program can do that has files copied from the page cache, as `read` does.
const SHA1_COPIED: Measure = Measure {
    name: "the same beside that and copying: time",
    unit: "s",
    goal: None,
};

/// What is copied at once.
const COPY: usize = 64 << 10;

pub(super) async fn measure(rules: Rules, run: &Run) -> Result<Vec<Row>> {
    let place = Place::fill().await?;
    let rules = rules.times(TIMES);
    let sides = [Side::Ours, Side::Peer];
    let blake3 = rounds::run_by(rules, "blake3", &sides, async |side| {
        turn(place.blake3(side)).await
    });
    let b3sum = run.beside("`xargs -P2 -n1 b3sum --no-mmap`");
    let mut rows = row::rows(&[WALL, CPU], &blake3.await?, &b3sum)?;
    let sha1 = rounds::run_by(rules, "sha1", &sides, async |side| {
        turn(place.sha1(side)).await
    });
    let memory = run.beside("all cores, the same bytes in memory");
    let sha1 = sha1.await?;
    rows.extend(row::rows(&[SHA1], &sha1, &memory)?);
    let copied = run.beside("the same, and all cores copying the files from the page cache");
    rows.extend(row::rows(&[SHA1_COPIED], &sha1, &copied)?);
    Ok(rows)
}

struct Place {
    folder: TempDir,
    b3sum: PathBuf,
}

impl Place {
    async fn fill() -> Result<Self> {
        let b3sum = peers::folder("checksum").await?.join("bin/b3sum");
        let folder = tree::folder()?;
        eprintln!("bench: writing 2 GiB");
        let place = Self { folder, b3sum };
        tree::large(&place.files(), FILES, BYTES)?;
        place.warm()?;
        Ok(place)
    }

    fn files(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    fn paths(&self) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.files())?;
        entries.map(|entry| Ok(entry?.path())).collect()
    }

    fn warm(&self) -> Result<()> {
        for path in self.paths()? {
            io::copy(&mut File::open(path)?, &mut io::sink())?;
        }
        Ok(())
    }

    async fn ours(&self, algorithm: &str) -> Result<Spent> {
        let store = tempfile::tempdir_in(self.folder.path())?;
        let store = store.path().join("store.sqlite");
        spent(&mut first_run(&self.files(), &store, algorithm)?).await
    }

    async fn blake3(&self, side: Side) -> Result<Sample> {
        let spent = match side {
            Side::Ours => self.ours("blake3").await?,
            Side::Peer => {
                let list = nul_separated(self.folder.path(), &self.paths()?)?;
                let mut xargs = Command::new("xargs");
                xargs.args(["-0", "-P2", "-n1"]).arg(&self.b3sum);
                spent(xargs.arg("--no-mmap").stdin(list)).await?
            }
        };
        Ok(Sample::from([
            (WALL.name, spent.wall),
            (CPU.name, spent.cpu),
        ]))
    }

    async fn sha1(&self, side: Side) -> Result<Sample> {
        let (seconds, copying) = match side {
            Side::Ours => (self.ours("sha1").await?.wall, 0.0),
            Side::Peer => {
                let paths = self.paths()?;
                let memory = tokio::task::spawn_blocking(|| in_memory(Algorithm::Sha1)).await??;
                (
                    memory,
                    tokio::task::spawn_blocking(move || copied(&paths)).await??,
                )
            }
        };
        Ok(Sample::from([
            (SHA1.name, seconds),
            (SHA1_COPIED.name, seconds + copying),
        ]))
    }
}

/// Paths that end with a NUL each, as what a command reads.
pub(super) fn nul_separated(folder: &Path, paths: &[PathBuf]) -> Result<Stdio> {
    let mut list = Vec::new();
    for path in paths {
        list.extend_from_slice(path.as_os_str().as_encoded_bytes());
        list.push(0);
    }
    let file = folder.join("list");
    fs::write(&file, list)?;
    Ok(File::open(file)?.into())
}

/// Seconds that all cores together need to copy the files from the page cache, into memory that stays near them.
fn copied(paths: &[PathBuf]) -> Result<f64> {
    let cores = thread::available_parallelism()?.get();
    let began = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = paths
            .chunks(paths.len().div_ceil(cores))
            .map(|paths| scope.spawn(|| paths.iter().try_for_each(|path| copy(path))))
            .collect();
        threads
            .into_iter()
            .try_for_each(|it| it.join().map_err(|_| anyhow!("a thread ended"))?)
    })?;
    Ok(began.elapsed().as_secs_f64())
}

fn copy(path: &Path) -> Result<()> {
    let (mut file, mut buffer) = (File::open(path)?, vec![0; COPY]);
    while file.read(&mut buffer)? > 0 {
        std::hint::black_box(&buffer);
    }
    Ok(())
}

/// Seconds that all cores together need for as many bytes as the files have.
fn in_memory(algorithm: Algorithm) -> Result<f64> {
    let cores = thread::available_parallelism()?.get();
    let rounds = usize::try_from(FILES * BYTES)? / BUFFER / cores;
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(move || {
                let buffer = vec![1; BUFFER];
                let mut hasher = algorithm.hasher();
                (0..rounds).for_each(|_| hasher.update(&buffer));
                std::hint::black_box(hasher.finish());
            });
        }
    });
    let hashed = number(u64::try_from(rounds * BUFFER * cores).context("too many bytes")?);
    Ok(began.elapsed().as_secs_f64() * number(FILES * BYTES) / hashed)
}
