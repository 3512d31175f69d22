#![expect(clippy::disallowed_methods, reason = "measures how long things take")]
//! Large files in the page cache: as fast as the cores hash. In: rules. Out: rows.
//! Touches: 2 GiB of files, and the processes that read them.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Instant,
};

use anyhow::{Context, Result};
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
/// What it gains to hash two files in step, wherever they come from.
const SHA1_IN_STEP: Measure = in_step("2 GiB in memory, two files in step, sha1: time");
const SHA256_IN_STEP: Measure = in_step("2 GiB in memory, two files in step, sha256: time");

const fn in_step(name: &'static str) -> Measure {
    Measure {
        name,
        unit: "s",
        goal: None,
    }
}

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
    rows.extend(row::rows(&[SHA1], &sha1.await?, &memory)?);
    let in_step = rounds::run_by(rules, "in step", &sides, async |side| {
        turn(memory_alone(side)).await
    });
    let one = run.beside("one file per core at a time");
    let measures = [SHA1_IN_STEP, SHA256_IN_STEP];
    rows.extend(row::rows(&measures, &in_step.await?, &one)?);
    Ok(rows)
}

async fn memory_alone(side: Side) -> Result<Sample> {
    let files = match side {
        Side::Ours => 2,
        Side::Peer => 1,
    };
    let mut sample = Sample::default();
    for (measure, algorithm) in [
        (SHA1_IN_STEP, Algorithm::Sha1),
        (SHA256_IN_STEP, Algorithm::Sha256),
    ] {
        sample.insert(measure.name, in_memory(algorithm, files).await?);
    }
    Ok(sample)
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
        let seconds = match side {
            Side::Ours => self.ours("sha1").await?.wall,
            Side::Peer => in_memory(Algorithm::Sha1, 1).await?,
        };
        Ok(Sample::from([(SHA1.name, seconds)]))
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

/// Seconds that all cores together need for as many bytes as the files have, with so many hashers in step on each.
async fn in_memory(algorithm: Algorithm, files: usize) -> Result<f64> {
    let hash = move || -> Result<f64> {
        let cores = thread::available_parallelism()?.get();
        let rounds = usize::try_from(FILES * BYTES)? / BUFFER / cores / files;
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(move || hash_again(algorithm, rounds, files));
            }
        });
        let hashed = u64::try_from(rounds * BUFFER * cores * files).context("too many bytes")?;
        Ok(began.elapsed().as_secs_f64() * number(FILES * BYTES) / number(hashed))
    };
    tokio::task::spawn_blocking(hash).await?
}

fn hash_again(algorithm: Algorithm, rounds: usize, files: usize) {
    let buffer = vec![1; BUFFER];
    let [mut hasher, mut other] = [algorithm.hasher(), algorithm.hasher()];
    for _ in 0..rounds {
        if files > 1 {
            hasher.update_in_step(&buffer, &mut other, &buffer);
        } else {
            hasher.update(&buffer);
        }
    }
    std::hint::black_box((hasher.finish(), other.finish()));
}
