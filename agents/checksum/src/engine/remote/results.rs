#![expect(
    clippy::disallowed_methods,
    reason = "an edge: it reads the clock for everything below it"
)]
//! What comes back of packs. In: jobs with results. Out: what the store knows then. Touches: the queue, the store.

use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;
use tracing::warn;
use workqueue::{Idle, Taken, Tries};

use super::Remote;
use crate::algorithm::{Algorithm, Digest};
use crate::engine::Error;
use crate::judge::Reading;
use crate::path::Key;
use crate::queue::payload;
use crate::split::{Came, PieceSum};
use crate::store::{FileResult, Run};
use crate::wire::BackPack;

/// Who takes results waits at most so long before it looks for results again.
const IDLE: Duration = Duration::from_millis(500);

/// What is stored together, and the jobs it came in.
#[derive(Default)]
struct Batch {
    found: Found,
    taken: Vec<Taken>,
}

/// What came of packs.
#[derive(Default)]
struct Found {
    results: Vec<FileResult>,
    pieces: Vec<(Key, PieceSum)>,
    /// Files that are not what their other pieces were read from.
    changed: Vec<Key>,
}

impl Remote<'_> {
    /// Stores results as they come. They are acknowledged when they are stored: who dies in between has them sent again.
    pub(super) async fn take_results(&self, run: &Run) -> Result<Infallible, Error> {
        let mut idle = Idle::at_most(IDLE);
        loop {
            let mut batch = Batch::default();
            while batch.found.len() < self.job.batch {
                match self.pool.take().await {
                    Ok(Some(taken)) => self.open(taken, &mut batch).await?,
                    Ok(None) => break,
                    Err(error) => {
                        self.trouble(&error).await;
                        break;
                    }
                }
            }
            if batch.taken.is_empty() {
                sleep(idle.pause()).await;
                continue;
            }
            idle.reset();
            self.store_all(run, batch.found).await?;
            *self.shared.queue_trouble() = None;
            for taken in &batch.taken {
                if let Err(error) = self.pool.finish(taken).await {
                    // It comes again, and changes nothing then.
                    self.trouble(&error).await;
                }
            }
        }
    }

    /// Without what is to be read again.
    async fn store_all(&self, run: &Run, found: Found) -> Result<(), Error> {
        let Found {
            mut results,
            pieces,
            changed,
        } = found;
        if !pieces.is_empty() {
            self.store.keep_pieces(run.id, &pieces).await?;
            let mut kept = self.pieces();
            for (key, _) in &pieces {
                kept.keep(*key);
            }
        }
        self.failures
            .settle(&mut results, |(key, reading)| (*key, reading));
        if !results.is_empty() {
            let stored = self
                .store
                .write_back(run, &results, Timestamp::now())
                .await?;
            self.shared.tell(&stored);
        }
        self.forget_pieces(run, results.iter().map(|(key, _)| *key).chain(changed))
            .await
    }

    /// Those of files that are done, or are to be read anew.
    async fn forget_pieces(
        &self,
        run: &Run,
        files: impl Iterator<Item = Key>,
    ) -> Result<(), Error> {
        let split: Vec<Key> = {
            let mut pieces = self.pieces();
            files.filter(|key| pieces.forget(*key)).collect()
        };
        if !split.is_empty() {
            self.store.forget_pieces(run.id, &split).await?;
        }
        Ok(())
    }

    async fn open(&self, taken: Taken, batch: &mut Batch) -> Result<(), Error> {
        let pack = payload(taken.job())
            .map_err(str::to_owned)
            .and_then(|it| BackPack::decode(it).map_err(|error| error.to_string()));
        let pack = match pack {
            Ok(pack) => pack,
            Err(why) => {
                warn!(
                    why,
                    "a result that cannot be read is left among the dead jobs"
                );
                let tries = Tries {
                    max_fails: 1,
                    skip_dead: false,
                };
                let _ = self.pool.fail(&taken, &why, tries).await;
                return Ok(());
            }
        };
        for (id, sum) in pack.files {
            let known = self.store.view().file_of_id(id).await?;
            let fits = |_: &_| sum.len() == Algorithm::Sha1.length();
            let Some((key, bytes)) = known.filter(fits) else {
                warn!(id, "a result that fits no file is left out");
                continue;
            };
            let digests = vec![Digest::new(Algorithm::Sha1, &sum)];
            let reading = Reading::Read { digests, bytes };
            batch.found.results.push((key, reading));
        }
        batch.found.results.extend(pack.results);
        for (key, sum) in pack.pieces {
            let came = self.pieces().add(key, sum.clone());
            batch.found.add(key, sum, came);
        }
        batch.taken.push(taken);
        Ok(())
    }
}

impl Found {
    fn len(&self) -> usize {
        self.results.len() + self.pieces.len()
    }

    fn add(&mut self, key: Key, piece: PieceSum, came: Came) {
        let reading = match came {
            Came::Part => return self.pieces.push((key, piece)),
            Came::Whole(digest, bytes) => Reading::Read {
                digests: vec![digest],
                bytes,
            },
            Came::Changed => {
                self.changed.push(key);
                let why = "changed while it was read".into();
                Reading::Moving { why }
            }
        };
        self.results.push((key, reading));
    }
}
