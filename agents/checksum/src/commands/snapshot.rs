#![expect(
    clippy::disallowed_methods,
    reason = "an edge: it reads the clock for everything below it"
)]
//! A run over a snapshot that is made for it, and deleted when the run has ended. The store knows its name before it is made:
//! whoever goes on with the run, or gives it up, finds it.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use runtime::telemetry::chain;

use super::Error;
use crate::engine::{self, Ended, Job, Shared, Source, Unresolved};
use crate::gpfs::{self, FileSystem};
use crate::report;
use crate::state::State;
use crate::store::{NewRun, Run, Store, beside};

/// What the names of our snapshots begin with.
const PREFIX: &str = "orrery-checksum-";

pub(super) async fn run(
    snapshots: &FileSystem<'_>,
    mut job: Job,
    store: &Store,
    mut what: NewRun,
    unresolved: Unresolved,
    shared: &Arc<Shared>,
) -> Result<Ended, Error> {
    if let Some(run) = store.view().last_run().await? {
        clear(snapshots, &run, unresolved).await?;
    }
    let name = format!("{PREFIX}{}", Timestamp::now().as_millisecond());
    what.snapshot = Some(name);
    let run = engine::begin(store, &what, unresolved).await?;
    let Some(name) = run.what.snapshot.clone() else {
        return Err(gpfs::Error::NoSnapshot(run.id).into());
    };
    let id = run.id;
    let ended = read(snapshots, &name, &mut job, store, run, shared).await;
    let is_over = store.view().run(id).await?.state.is_resolved();
    if is_over {
        tell(&name, snapshots.delete(&name).await)?;
    }
    ended
}

/// Deletes what the run before has left, if nobody goes on with it: also one that died when it had ended.
async fn clear(snapshots: &FileSystem<'_>, run: &Run, unresolved: Unresolved) -> Result<(), Error> {
    let name = run.what.snapshot.as_deref();
    // Of a run that was taken over it is not ours.
    let Some(name) = name.filter(|it| run.what.owner.is_none() && it.starts_with(PREFIX)) else {
        return Ok(());
    };
    match (run.state.is_resolved(), unresolved) {
        (true, _) => match snapshots.delete(name).await {
            Err(stopped @ gpfs::Error::Stopped) => Err(stopped.into()),
            deleted => tell(name, deleted),
        },
        (false, Unresolved::Abort) => Ok(snapshots.delete(name).await?),
        (false, Unresolved::Refuse | Unresolved::Resume) => Ok(()),
    }
}

/// That one cannot be deleted is told, and no more: what the run has found is worth more than that.
fn tell(name: &str, deleted: Result<(), gpfs::Error>) -> Result<(), Error> {
    if let Err(error) = deleted {
        let why = chain(&error);
        writeln!(io::stderr(), "the snapshot {name} stays, delete it: {why}")?;
    }
    Ok(())
}

/// A run over the files as they are. One that reads a snapshot can only be given up here, and its snapshot stays.
pub(super) async fn begin_without(
    store: &Store,
    what: &NewRun,
    unresolved: Unresolved,
) -> Result<Run, Error> {
    let earlier = store.view().last_run().await?;
    let earlier = earlier.filter(|run| !run.state.is_resolved());
    if let (Some(run), Unresolved::Resume) = (&earlier, unresolved)
        && run.what.snapshot.is_some()
    {
        return Err(gpfs::Error::HasSnapshot(run.id).into());
    }
    let run = engine::begin(store, what, unresolved).await?;
    let left = earlier.as_ref().and_then(report::left_snapshot);
    io::stderr().write_all(left.unwrap_or_default().as_bytes())?;
    Ok(run)
}

async fn read(
    snapshots: &FileSystem<'_>,
    name: &str,
    job: &mut Job,
    store: &Store,
    run: Run,
    shared: &Arc<Shared>,
) -> Result<Ended, Error> {
    if let Err(error) = snapshots.create(name).await {
        // Nothing was begun that could be gone on with.
        if !matches!(error, gpfs::Error::Stopped) && run.state == State::Initialised {
            engine::abort(store, run, None).await?;
        }
        return Err(error.into());
    }
    let list = ListFolder(list_beside(&job.spill));
    job.root = snapshots.root(name);
    job.source = Source::Snapshot;
    if matches!(
        run.state,
        State::Initialised | State::Snapshot | State::MetadataSync
    ) {
        job.lister = snapshots.list(name, &list.0).await?;
    }
    Ok(engine::run(job, store, run, shared).await?)
}

fn list_beside(spill: &Path) -> PathBuf {
    beside(spill, ".policy")
}

/// Rules and list of a policy, gone with it.
struct ListFolder(PathBuf);

impl Drop for ListFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // made anew next time
    }
}
