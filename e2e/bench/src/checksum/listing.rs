#![expect(clippy::disallowed_methods, reason = "measures how long things take")]
//! Listing with metadata, and nothing else. In: rules. Out: rows.
//! Touches: 500,000 empty files.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use checksum::list::walk::{self, Options};
use ignore::{WalkBuilder, WalkState};
use tempfile::TempDir;
use tokio::process::Command;

use super::{command::spent, goal, tree, turn};
use crate::{
    rounds::{self, Rules, Side},
    row::{self, Measure, Row, Run, Sample},
};

const FILES: usize = 500_000;

/// Turns are short.
const TIMES: usize = 5;

const IGNORE: Measure = goal("listing 500,000 files with metadata: time", "s", 1.0);
/// At least 1.5 times as fast.
const FIND: Measure = goal("the same beside one thread: time", "s", 0.667);

/// What `find` prints for each file: what a listing is made of.
const FORMAT: &str = r"%y %s %T@ %C@ %p\0";

pub(super) async fn measure(rules: Rules, run: &Run) -> Result<Vec<Row>> {
    let folder = tree::folder()?;
    eprintln!("bench: making {FILES} files");
    let files = folder.path().join("files");
    tree::small(&files, FILES, 0)?;
    warm(&folder).await?;
    let sides = [Side::Ours, Side::Peer];
    let samples = rounds::run_by(rules.times(TIMES), "listing", &sides, async |side| {
        turn(list(side, &files)).await
    });
    let samples = samples.await?;
    let ignore = run.beside("the crate `ignore`, in parallel");
    let mut rows = row::rows(&[IGNORE], &samples, &ignore)?;
    rows.extend(row::rows(&[FIND], &samples, &run.beside("`find -printf`"))?);
    Ok(rows)
}

/// All inodes are in memory after this.
async fn warm(folder: &TempDir) -> Result<()> {
    find(folder.path()).await.map(drop)
}

async fn list(side: Side, files: &Path) -> Result<Sample> {
    let here = files.to_owned();
    match side {
        Side::Ours => {
            let seconds = timed(here, ours).await?;
            Ok(Sample::from([(IGNORE.name, seconds), (FIND.name, seconds)]))
        }
        Side::Peer => Ok(Sample::from([
            (IGNORE.name, timed(here, |files| Ok(theirs(files))).await?),
            (FIND.name, find(files).await?),
        ])),
    }
}

/// Seconds of a listing that must find all files.
async fn timed(files: PathBuf, list: fn(&Path) -> Result<u64>) -> Result<f64> {
    tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        let found = list(&files)?;
        let seconds = began.elapsed().as_secs_f64();
        ensure!(found == FILES as u64, "{found} files were listed");
        Ok(seconds)
    })
    .await?
}

fn ours(files: &Path) -> Result<u64> {
    let (found, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let sink = |entries: Vec<checksum::entry::Entry>| {
        found.fetch_add(entries.len() as u64, Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    let listing = walk::walk(files, &Options::default(), &sink, &stop)?;
    ensure!(listing.is_complete(), "{listing:?}");
    Ok(found.into_inner())
}

fn theirs(files: &Path) -> u64 {
    let found = AtomicU64::new(0);
    let mut walk = WalkBuilder::new(files);
    walk.standard_filters(false);
    walk.build_parallel().run(|| {
        Box::new(|entry| {
            let metadata = entry.ok().and_then(|entry| entry.metadata().ok());
            if metadata.is_some_and(|it| it.is_file()) {
                found.fetch_add(1, Ordering::Relaxed);
            }
            WalkState::Continue
        })
    });
    found.into_inner()
}

async fn find(files: &Path) -> Result<f64> {
    let mut find = Command::new("find");
    find.arg(files).args(["-type", "f", "-printf", FORMAT]);
    let spent = spent(&mut find).await.context("find")?;
    Ok(spent.wall)
}
