//! What a store makes of listings that were not walked for: far smaller than what it knows, or damaged.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use checksum::engine::{self, Job, Lister, Shared};
use checksum::entry::{Attributes, Seen};
use checksum::merge::{Differences, Mode};
use checksum::path::Key;
use checksum::store::{Error, Store, View};
use jiff::Timestamp;

use super::everywhere;
use super::place::{Place, what};

/// More than a store has whose parts are compared together, so each part is compared in steps of a few rows.
const MANY: u64 = 20_500;
const STEP: usize = 30;

/// The listing of files with these numbers, each with a second in which it was modified.
fn list(job: &Job, files: &BTreeMap<u64, u8>) -> Result<()> {
    let Lister::Policy(path, _) = &job.lister else {
        anyhow::bail!("not from a list");
    };
    let line = |(n, second)| format!("1 2 3 |{n}|1970-01-01 00:00:{second:02}| -- /{n}\n");
    Ok(fs::write(path, files.iter().map(line).collect::<String>())?)
}

/// All that is known: the number of each file, and when it was modified.
async fn known(view: &View) -> Result<BTreeMap<u64, u8>> {
    let (first, _) = Key::range_of(0, 0, 1);
    let (_, last) = Key::range_of(u8::MAX, 0, 1);
    let rows = view.rows((first, last), usize::MAX).await?;
    let known = rows.iter().map(|row| {
        let Attributes { size, mtime, .. } = row.attributes;
        assert_eq!(row.key, Key::of(size.to_string().as_bytes()));
        Ok((size, u8::try_from(mtime / 1_000_000_000)?))
    });
    known.collect()
}

#[tokio::test]
async fn a_store_that_knows_far_more_than_is_listed_is_compared_in_steps() -> Result<()> {
    everywhere(async |place: Place| {
        let mut job = place.job();
        let path = place.root().join("list");
        job.lister = Lister::Policy(path, Vec::new());
        (job.sync_rows, job.stop_after_sync) = (STEP, true);
        let mut files: BTreeMap<u64, u8> = (0..MANY).map(|n| (n, 1)).collect();
        list(&job, &files)?;
        let first = place.carry_out(&job, Mode::Full).await?;
        assert_eq!(first.counts.total, i64::try_from(MANY)?);

        let few = files.iter().take(10).map(|(n, second)| (*n, *second));
        list(&job, &few.collect())?;
        let store = Store::open(&place.location, 3).await?;
        let run = store.begin_run(&what(Mode::Full), Timestamp::now()).await?;
        let id = run.id;
        let shared = Arc::new(Shared::new(None, Instant::now()));
        let guarded = engine::run(&job, &store, run, &shared).await;
        let Err(engine::Error::Guard {
            missing, known: of, ..
        }) = guarded
        else {
            anyhow::bail!("{guarded:?}");
        };
        assert_eq!((missing, of), (MANY - 10, MANY));
        assert_eq!(known(store.view()).await?, files);

        files.retain(|n, _| n % 100 > 0);
        files.extend((MANY..MANY + 500).map(|n| (n, 1)));
        for (n, second) in &mut files {
            *second += u8::from(n % 7 == 0);
        }
        list(&job, &files)?;
        let run = store.view().run(id).await?;
        let counts = engine::run(&job, &store, run, &shared).await?.run.counts;
        assert_eq!(counts.total, i64::try_from(files.len())?);
        assert_eq!(counts.deleted, i64::try_from(MANY / 100)?);
        assert_eq!(known(store.view()).await?, files);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_listing_whose_paths_are_damaged_is_refused() -> Result<()> {
    everywhere(async |place: Place| {
        let store = Store::open(&place.location, 2).await?;
        let run = store.begin_run(&what(Mode::Full), Timestamp::now()).await?;
        let key = Key::of(b"file1");
        let attributes = Attributes {
            size: 1,
            mtime: 1,
            ctime: 1,
        };
        let found = Differences {
            new: vec![Seen {
                key,
                path: b"file3",
                attributes,
            }],
            ..Differences::default()
        };
        let mut writer = store.write_parts(run.id, 10);
        let refused = writer.add(&[(key.partition(), found.part())], &found).await;
        assert!(matches!(refused, Err(Error::Listing)), "{refused:?}");
        drop(writer);
        assert_eq!(store.view().rows((key, key), 1).await?, []);
        Ok(())
    })
    .await
}
