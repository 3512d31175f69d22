//! The listing, and what it changes in the store: in two passes, so that nothing is forgotten before all is known.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{Error, Job, Lister, Shared};
use crate::entry::{Entry, Seen};
use crate::list::{self, Listing, Problems, file_list, walk};
use crate::merge::{Differences, Row, may_forget, merge};
use crate::path::Key;
use crate::spill::{Piece, Sorted, Spill};
use crate::store::{Listed, Part, Run, Store};

/// Threads that walk, where nobody says how many: latency is what a walk waits for.
const WALKERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);

/// Rows of a store that fit into memory with ease.
const SMALL_STORE: u32 = 20_000;

/// Lists, and brings the store up to what there is. A tree that may change is listed anew by a run that is resumed; a snapshot
/// is listed, too, but what was compared of it stays compared, if it was compared with all there is.
pub(super) async fn sync(
    job: &Job,
    store: &Store,
    run: &mut Run,
    shared: &Arc<Shared>,
) -> Result<Problems, Error> {
    let spill = create(job).map_err(|source| spill_failed(job, source))?;
    let spill = Arc::new(spill);
    let listing = list(job, &spill, shared).await?;
    if listing.stopped {
        return Err(Error::Stopped { run: run.id });
    }
    let complete = listing.is_complete();
    store.begin_to_compare(run, complete).await?;
    let pass = Pass {
        job,
        store,
        run,
        spill: &spill,
        shared,
    };
    let parts = pass.compare_all().await?;
    let all = parts.values().copied().fold(Part::default(), Part::plus);
    // What was not seen is perhaps there: it is to be read, and whoever tries finds out.
    let mut tally = all.listed.plus(all.unseen);
    if complete {
        let (missing, known) = (
            all.unseen.total,
            all.listed.total - all.new + all.unseen.total,
        );
        guard(job.deletion_guard, missing, known)?;
        pass.forget_all(&parts).await?;
        tally = all.listed;
    }
    let found = Listed {
        tally,
        complete,
        unlisted: listing.problems.total,
        example: listing.problems.first.first().map(example),
    };
    store.listed(run, &found).await?;
    Ok(listing.problems)
}

/// Of a path that is long for people, its beginning.
fn example(problem: &list::Problem) -> String {
    const LONG: usize = 1000;
    let path: String = problem.path.to_string();
    let short: String = path.chars().take(LONG).collect();
    let more = if short.len() < path.len() { "…" } else { "" };
    format!("{short}{more}: {}", problem.what)
}

/// In a folder of its own: threads of an attempt that was given up may not have noticed yet. What earlier ones have left is
/// removed.
fn create(job: &Job) -> io::Result<Spill> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let folder = &job.spill;
    let removed = match std::fs::remove_dir_all(folder) {
        // One of those threads had a file there, which is gone by now.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            std::fs::remove_dir_all(folder)
        }
        removed => removed,
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::create_dir_all(folder)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let most = job.spill_size.unwrap_or(u64::MAX);
    Spill::create(&folder.join(number.to_string()), most)
}

fn spill_failed(job: &Job, source: io::Error) -> Error {
    Error::Spill {
        path: job.spill.clone(),
        source,
    }
}

async fn list(job: &Job, spill: &Arc<Spill>, shared: &Arc<Shared>) -> Result<Listing, Error> {
    let (job, spill, shared) = (job.clone(), spill.clone(), shared.clone());
    let listing = tokio::task::spawn_blocking(move || list_here(&job, &spill, &shared));
    listing.await.map_err(|_| Error::Reader)?
}

fn list_here(job: &Job, spill: &Spill, shared: &Shared) -> Result<Listing, Error> {
    let error = Mutex::new(None);
    let sink = |entries: Vec<Entry>| {
        shared
            .listed
            .fetch_add(entries.len() as u64, Ordering::Relaxed);
        match spill.add(&entries) {
            Ok(()) => ControlFlow::Continue(()),
            Err(source) => {
                *error.lock().unwrap_or_else(PoisonError::into_inner) = Some(source);
                ControlFlow::Break(())
            }
        }
    };
    let listing = with_lister(job, &sink, shared)?;
    match error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(source) => Err(spill_failed(job, source)),
        None => Ok(listing),
    }
}

fn with_lister(job: &Job, sink: &list::Sink<'_>, shared: &Shared) -> Result<Listing, Error> {
    let threads = job.readers.and_then(NonZeroUsize::new).unwrap_or(WALKERS);
    let excludes = job.excludes.clone();
    let of_list = |prefix: &[u8]| file_list::Options {
        threads,
        excludes: excludes.clone(),
        prefix: prefix.into(),
    };
    let stop = &shared.stop;
    Ok(match &job.lister {
        Lister::Walk => {
            let options = walk::Options {
                threads,
                excludes: excludes.clone(),
                ..walk::Options::default()
            };
            walk::walk(&job.root, &options, sink, stop)?
        }
        Lister::Paths(path) => {
            file_list::nul_separated(open(path)?, &job.root, &of_list(&[]), sink, stop)?
        }
        Lister::Policy(path, prefix) => {
            file_list::policy_output(open(path)?, &of_list(prefix), sink, stop)?
        }
    })
}

fn open(path: &PathBuf) -> Result<BufReader<File>, Error> {
    let file = File::open(path).map_err(|source| Error::Open {
        path: path.clone(),
        source,
    })?;
    Ok(BufReader::with_capacity(1 << 20, file))
}

struct Pass<'a> {
    job: &'a Job,
    store: &'a Store,
    run: &'a Run,
    spill: &'a Arc<Spill>,
    shared: &'a Shared,
}

impl Pass<'_> {
    /// The first pass: writes what is new or changed, and counts what is missing.
    async fn compare_all(&self) -> Result<HashMap<u8, Part>, Error> {
        let mut parts = self.store.view().parts(self.run.id).await?;
        let left: Vec<u8> = (0..=u8::MAX).filter(|it| !parts.contains_key(it)).collect();
        let done: Vec<_> = stream::iter(self.groups(left).await?)
            .map(|group| self.first(group))
            .buffer_unordered(self.at_once())
            .try_collect()
            .await?;
        parts.extend(done.into_iter().flatten());
        Ok(parts)
    }

    /// Parts that are compared together: small ones, because each transaction costs what a thousand files cost.
    async fn groups(&self, parts: Vec<u8>) -> Result<Vec<Vec<u8>>, Error> {
        if !self.store.view().is_at_most(SMALL_STORE).await? {
            return Ok(parts.into_iter().map(|part| vec![part]).collect());
        }
        Ok(self.spill.together(&parts))
    }

    async fn first(&self, parts: Vec<u8>) -> Result<BTreeMap<u8, Part>, Error> {
        if self.shared.is_stopped() {
            return Err(Error::Stopped { run: self.run.id });
        }
        let mut writer = self.store.write_parts(self.run.id, self.job.sync_rows);
        if let [part] = parts[..] {
            for piece in self.pieces(part).await? {
                let mut left = Some(piece.keys);
                let (listed, mut step) =
                    tokio::try_join!(self.sorted(piece), self.step(&mut left))?;
                while let Some((keys, rows)) = step {
                    let found = self.compared(listed.range(keys), &rows);
                    writer.add(&[(part, found.part())], &found).await?;
                    step = self.step(&mut left).await?;
                }
            }
        } else if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
            let keys = (Key::range_of(*first, 0, 1).0, Key::range_of(*last, 0, 1).1);
            let (mut left, mut rows) = (Some(keys), Vec::new());
            while let Some((_, more)) = self.step(&mut left).await? {
                rows.extend(more);
            }
            let wanted = parts.clone();
            let listed = self.spilled(move |spill| spill.sorted(&wanted)).await?;
            let (sums, found) = self.compare_small(&parts, &listed, &rows);
            writer.add(&sums, &found).await?;
        }
        Ok(writer.finish().await?)
    }

    /// What each of these parts comes to, and what is different in all of them.
    fn compare_small<'a>(
        &self,
        parts: &[u8],
        listed: &'a Sorted,
        rows: &[Row],
    ) -> (Vec<(u8, Part)>, Differences<'a>) {
        let (mut sums, mut all) = (Vec::with_capacity(parts.len()), Differences::default());
        for part in parts {
            let first = rows.partition_point(|row| row.key.partition() < *part);
            let end = rows.partition_point(|row| row.key.partition() <= *part);
            let found = self.compared(listed.range(Key::range_of(*part, 0, 1)), &rows[first..end]);
            sums.push((*part, found.part()));
            all.append(found);
        }
        (sums, all)
    }

    fn compared<'a>(
        &self,
        listed: impl IntoIterator<Item = Seen<'a>>,
        rows: &[Row],
    ) -> Differences<'a> {
        merge(listed, rows, self.run.what.mode, self.run.id)
    }

    /// The second pass: forgets what is gone.
    async fn forget_all(&self, parts: &HashMap<u8, Part>) -> Result<(), Error> {
        let missing = parts.iter().filter(|(_, it)| it.unseen.total > 0);
        let missing: Vec<u8> = missing.map(|(part, _)| *part).collect();
        stream::iter(missing)
            .map(|part| self.second(part))
            .buffer_unordered(self.at_once())
            .try_collect()
            .await
    }

    async fn second(&self, part: u8) -> Result<(), Error> {
        if self.shared.is_stopped() {
            return Err(Error::Stopped { run: self.run.id });
        }
        for piece in self.pieces(part).await? {
            let mut left = Some(piece.keys);
            let (listed, mut step) = tokio::try_join!(self.sorted(piece), self.step(&mut left))?;
            while let Some((keys, rows)) = step {
                let gone = self.compared(listed.range(keys), &rows).missing;
                let forgotten = self.store.forget(self.run.id, &gone, self.job.sync_rows);
                forgotten.await?;
                step = self.step(&mut left).await?;
            }
        }
        Ok(())
    }

    /// While some write, one more compares.
    fn at_once(&self) -> usize {
        self.job.sync_concurrency.min(self.store.writers() + 1)
    }

    async fn pieces(&self, part: u8) -> Result<Vec<Piece>, Error> {
        self.spilled(move |spill| spill.pieces(part)).await
    }

    async fn spilled<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Spill) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let spill = self.spill.clone();
        let told = tokio::task::spawn_blocking(move || ask(&spill)).await;
        let told = told.map_err(|_| Error::Reader)?;
        told.map_err(|source| spill_failed(self.job, source))
    }

    /// What was listed of a piece.
    async fn sorted(&self, piece: Piece) -> Result<Sorted, Error> {
        let listed = tokio::task::spawn_blocking(move || piece.sorted()).await;
        let listed = listed.map_err(|_| Error::Reader)?;
        listed.map_err(|source| spill_failed(self.job, source))
    }

    /// The rows of as many of the keys that are left as fit into memory with ease, and which keys these are: the store may know
    /// far more files than were listed.
    async fn step(&self, left: &mut Option<(Key, Key)>) -> Result<Option<Step>, Error> {
        let Some((first, last)) = *left else {
            return Ok(None);
        };
        let most = self.job.sync_rows.max(1);
        let rows = self.store.view().rows((first, last), most).await?;
        let end = match rows.last() {
            Some(row) if rows.len() >= most => row.key,
            _ => last,
        };
        let next = end.following().filter(|next| *next <= last);
        *left = next.map(|next| (next, last));
        Ok(Some(((first, end), rows)))
    }
}

/// The first and the last of some keys, and what the store knows of them.
type Step = ((Key, Key), Vec<Row>);

fn guard(percent: u8, missing: u64, known: u64) -> Result<(), Error> {
    if may_forget(missing, known, percent) {
        return Ok(());
    }
    Err(Error::Guard {
        missing,
        known,
        percent,
    })
}
