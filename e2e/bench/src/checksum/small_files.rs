//! Many small files: a complete first run, every row stored, beside programs that read them. In: rules. Out: rows.
//! Touches: 100,000 files, and the processes that read them.

use std::{fs, path::PathBuf};

use anyhow::Result;
use tempfile::TempDir;
use tokio::process::Command;

use super::{
    command::{first_run, spent},
    goal,
    hashing::nul_separated,
    tree, turn,
};
use crate::{
    peers,
    rounds::{self, Rules, Side},
    row::{self, Measure, Row, Run, Sample},
};

const FILES: usize = 100_000;
const BYTES: usize = 4096;

const SUMS: Measure = goal(
    "100,000 files of 4 KiB, sha1, first run with every row stored: time",
    "s",
    1.5,
);
const BITROT: Measure = goal("the same beside a program that stores, too: time", "s", 0.1);

/// Turns are short.
const TIMES: usize = 5;

/// What bitrot leaves in the folder.
const LEFT: [&str; 2] = [".bitrot.db", ".bitrot.sha512"];

pub(super) async fn measure(rules: Rules, run: &Run) -> Result<Vec<Row>> {
    let place = Place::fill().await?;
    let sides = [Side::Ours, Side::Peer];
    let samples = rounds::run_by(rules.times(TIMES), "small files", &sides, async |side| {
        turn(place.read(side)).await
    });
    let samples = samples.await?;
    let mut rows = row::rows(&[SUMS], &samples, &run.beside("`xargs -P2 sha1sum`"))?;
    rows.extend(row::rows(&[BITROT], &samples, &run.beside("bitrot"))?);
    Ok(rows)
}

struct Place {
    folder: TempDir,
    paths: Vec<PathBuf>,
    python: PathBuf,
}

impl Place {
    async fn fill() -> Result<Self> {
        let python = peers::folder("checksum").await?.join("python");
        let folder = tree::folder()?;
        eprintln!("bench: writing {FILES} files");
        let files = folder.path().join("files");
        tree::small(&files, FILES, BYTES)?;
        let paths = tree::paths(FILES).map(|path| files.join(path)).collect();
        let place = Self {
            folder,
            paths,
            python,
        };
        // Once, so that all is in the page cache for all.
        place.sha1sum().await?;
        Ok(place)
    }

    async fn read(&self, side: Side) -> Result<Sample> {
        match side {
            Side::Ours => {
                let ours = self.ours().await?;
                Ok(Sample::from([(SUMS.name, ours), (BITROT.name, ours)]))
            }
            Side::Peer => Ok(Sample::from([
                (SUMS.name, self.sha1sum().await?),
                (BITROT.name, self.bitrot().await?),
            ])),
        }
    }

    async fn ours(&self) -> Result<f64> {
        let store = tempfile::tempdir_in(self.folder.path())?;
        let files = self.folder.path().join("files");
        let mut run = first_run(&files, &store.path().join("store.sqlite"), "sha1")?;
        Ok(spent(&mut run).await?.wall)
    }

    async fn sha1sum(&self) -> Result<f64> {
        let list = nul_separated(self.folder.path(), &self.paths)?;
        let mut xargs = Command::new("xargs");
        xargs.args(["-0", "-P2", "sha1sum"]).stdin(list);
        Ok(spent(&mut xargs).await?.wall)
    }

    async fn bitrot(&self) -> Result<f64> {
        let files = self.folder.path().join("files");
        let mut bitrot = Command::new("python3");
        bitrot
            .args(["-m", "bitrot", "--quiet"])
            .env("PYTHONPATH", &self.python)
            .current_dir(&files);
        let wall = spent(&mut bitrot).await?.wall;
        for name in LEFT {
            fs::remove_file(files.join(name))?;
        }
        Ok(wall)
    }
}
