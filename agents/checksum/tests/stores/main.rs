//! One suite for both kinds of stores: what a run finds, forgets and keeps must not depend on where it is kept.
#![expect(clippy::disallowed_methods, reason = "tests begin at some instant")]

mod commands;
mod faults;
mod limits;
mod listings;
mod place;
mod taking;
mod tls;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use checksum::algorithm::Algorithm;
use checksum::engine::{self, Lister, Shared, Unresolved};
use checksum::judge::Reading;
use checksum::merge::Mode;
use checksum::path::{Key, RelativePath};
use checksum::state::State;
use checksum::store::{Error, Pending, Store, Theirs, View, WarningState, take_over};
use jiff::Timestamp;

use place::{Place, what};

async fn everywhere<F>(claim: impl Fn(Place) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    claim(Place::sqlite()?).await?;
    claim(Place::mariadb().await?).await
}

/// As if the file had been read, and held its own key.
fn read(file: &Pending) -> (Key, Reading) {
    let digests = vec![Algorithm::Blake3.digest(file.key.as_bytes())];
    let bytes = file.attributes().size;
    (file.key, Reading::Read { digests, bytes })
}

#[tokio::test]
async fn runs_find_exactly_what_changed_was_damaged_or_is_gone() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(200)?;
        let first = place.run(Mode::Full).await?;
        assert_eq!((first.counts.total, first.counts.new), (200, 200));
        let second = place.run(Mode::Incremental).await?;
        assert_eq!(
            (second.counts.not_selected(), second.counts.bytes_read),
            (200, 0)
        );

        place.rot("folder1/file11")?;
        place.rot("folder2/file22")?;
        place.edit("folder3/file33")?;
        fs::remove_file(place.root().join("folder4/file44"))?;
        fs::write(place.root().join("new"), "new")?;
        let third = place.run(Mode::Full).await?;
        let counts = third.counts;
        assert_eq!((counts.total, counts.verified, counts.new), (200, 196, 1));
        assert_eq!((counts.changed, counts.corrupt, counts.deleted), (1, 2, 1));
        let view = View::open(&place.location).await?;
        let warnings = view.warnings(false, 10).await?;
        let paths: Vec<String> = warnings.iter().map(|it| it.path.to_string()).collect();
        assert_eq!(paths, ["folder1/file11", "folder2/file22"]);
        assert_eq!((warnings[0].discovered, warnings[0].last_read), (3, 1));
        let real = fs::metadata(place.root().join("folder1/file11"))?;
        let mtime = real.mtime() * 1_000_000_000 + real.mtime_nsec();
        assert_eq!((warnings[0].size, warnings[0].mtime), (real.len(), mtime));

        place.rot("folder1/file11")?; // the same bit
        let store = Store::open(&place.location, 2).await?;
        assert!(store.accept(&RelativePath::new(*b"folder2/file22")).await?);
        drop(store);
        let fourth = place.run(Mode::Full).await?;
        assert_eq!((fourth.counts.verified, fourth.counts.corrupt), (200, 0));
        let states: Vec<_> = view
            .warnings(true, 10)
            .await?
            .iter()
            .map(|it| it.state)
            .collect();
        assert_eq!(states, [WarningState::Restored, WarningState::Accepted]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn counts_are_exact_at_the_borders_of_chunks_and_batches() -> Result<()> {
    everywhere(async |place: Place| {
        for files in [9, 10, 11, 20, 21] {
            let place = place.named(&format!("of-{files}"));
            place.files(files)?;
            let mut job = place.job();
            (job.sync_rows, job.batch, job.packs.files) = (10, 10, 10);
            let first = place.carry_out(&job, Mode::Full).await?.counts;
            let second = place.carry_out(&job, Mode::Full).await?.counts;
            let files = i64::try_from(files)?;
            assert_eq!(
                (first.total, first.new, first.remaining()),
                (files, files, 0)
            );
            assert_eq!((second.total, second.verified), (files, files));
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn names_of_any_bytes_come_back_as_they_were() -> Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    everywhere(async |place: Place| {
        let names: [&[u8]; 4] = [
            b"\xff\xfe",
            b"new\nline",
            b"'; DROP TABLE orrery_files; --",
            "ä€𝄞".as_bytes(),
        ];
        for name in names {
            fs::write(place.root().join(std::ffi::OsStr::from_bytes(name)), "x")?;
        }
        place.run(Mode::Full).await?;
        let view = View::open(&place.location).await?;
        let mut found: Vec<Vec<u8>> = view
            .checksums(None, 10)
            .await?
            .iter()
            .map(|it| it.path.as_bytes().to_vec())
            .collect();
        found.sort();
        let mut names: Vec<Vec<u8>> = names.iter().map(|it| it.to_vec()).collect();
        names.sort();
        assert_eq!(found, names);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_same_reading_twice_counts_once_also_at_the_same_time() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(50)?;
        let store = Store::open(&place.location, 4).await?;
        let run = place.until_reading(&store).await?;
        let (pending, _) = store.view().pending(&run, None, 100).await?;
        let results: Vec<_> = pending.iter().map(read).collect();
        let now = Timestamp::now();
        let writing = (0..4).map(|_| store.write_back(&run, &results, now));
        for written in futures::future::join_all(writing).await {
            written?;
        }
        let run = store.view().run(run.id).await?;
        assert_eq!((run.counts.new, run.counts.remaining()), (50, 0));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pending_file_that_is_told_twice_counts_once() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(1600)?;
        let store = Store::open(&place.location, 4).await?;
        let run = place.until_reading(&store).await?;
        let (pending, _) = store.view().pending(&run, None, 2000).await?;
        let results: Vec<_> = pending
            .into_iter()
            .map(|file| (file.clone(), read(&file).1))
            .collect();
        let now = Timestamp::now();
        // More than one statement has room for; again with others; and one twice in a batch.
        for part in [&results[..1100], &results[1000..1590], &results[1580..1599]] {
            store.write_back_pending(&run, part, now).await?;
        }
        let last = [results[1599].clone(), results[1599].clone()];
        let run = store.write_back_pending(&run, &last, now).await?;
        assert_eq!((run.counts.new, run.counts.remaining()), (1600, 0));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_result_that_cannot_be_of_its_file_makes_it_unreadable_and_ends_nothing() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(4)?;
        let store = Store::open(&place.location, 1).await?;
        let run = place.until_reading(&store).await?;
        let (pending, _) = store.view().pending(&run, None, 10).await?;
        let digests = vec![Algorithm::Blake3.digest(b"x")];
        let read = |bytes| Reading::Read {
            digests: digests.clone(),
            bytes,
        };
        let long = |why: &str| why.repeat(100_000);
        let readings = [
            read(u64::MAX),
            read(u64::MAX >> 1),
            Reading::Moving { why: long("ä") },
            Reading::Failed { why: long("x") },
        ];
        let results: Vec<_> = pending.iter().map(|it| it.key).zip(readings).collect();
        let counts = store
            .write_back(&run, &results, Timestamp::now())
            .await?
            .counts;
        assert_eq!((counts.unreadable, counts.skipped), (3, 1));
        assert_eq!((counts.bytes_read, counts.remaining()), (0, 0));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_unresolved_run_is_refused_resumed_or_aborted() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(10)?;
        let store = Store::open(&place.location, 2).await?;
        place.until_reading(&store).await?;
        let refused = store.begin_run(&what(Mode::Full), Timestamp::now()).await;
        assert!(
            matches!(refused, Err(Error::Unresolved { id: 1, .. })),
            "{refused:?}"
        );
        let resumed = engine::begin(&store, &what(Mode::Full), Unresolved::Resume).await?;
        assert_eq!((resumed.id, resumed.state), (1, State::WorkQueue));
        let next = engine::begin(&store, &what(Mode::Full), Unresolved::Abort).await?;
        assert_eq!((next.id, next.state), (2, State::Initialised));
        let runs = store.view().runs(10).await?;
        assert_eq!(runs[1].state, State::Aborted);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn parts_of_a_snapshot_that_were_compared_are_not_compared_again() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(300)?;
        let store = Store::open(&place.location, 2).await?;
        let mut new = what(Mode::Full);
        new.snapshot = Some("snapshot-1".into());
        let run = store.begin_run(&new, Timestamp::now()).await?;
        let shared = Arc::new(Shared::new(None, Instant::now()));
        let mut job = place.job();
        engine::run(&job, &store, run, &shared).await?;
        for folder in ["folder0", "folder1"] {
            fs::remove_dir_all(place.root().join(folder))?;
        }
        // A guard of nothing makes the sync fail after the first pass.
        job.deletion_guard = 0;
        let run = store.begin_run(&new, Timestamp::now()).await?;
        let id = run.id;
        let guarded = engine::run(&job, &store, run, &shared).await;
        assert!(
            matches!(
                guarded,
                Err(engine::Error::Guard {
                    missing: 20,
                    known: 300,
                    ..
                })
            ),
            "{guarded:?}"
        );
        assert_eq!(store.view().parts(id).await?.len(), 256);
        // No snapshot does this: who compared again would take the file for one that was changed before the run.
        place.edit("folder5/file55")?;
        job.deletion_guard = 10;
        let run = store.view().run(id).await?;
        let counts = engine::run(&job, &store, run, &shared).await?.run.counts;
        assert_eq!((counts.total, counts.deleted), (280, 20));
        assert_eq!(
            (counts.verified, counts.changed, counts.skipped),
            (279, 0, 1)
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_could_not_be_verified_is_read_by_the_next_run_of_any_mode() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(20)?;
        place.run(Mode::Full).await?;
        let store = Store::open(&place.location, 2).await?;
        let run = place.until_reading(&store).await?;
        let (mut pending, _) = store.view().pending(&run, None, 100).await?;
        let why = "the medium is bad".to_owned();
        let bad = (pending.remove(0), Reading::Failed { why });
        let now = Timestamp::now();
        store.write_back_pending(&run, &[bad], now).await?;
        let shared = Arc::new(Shared::new(None, Instant::now()));
        let full = engine::run(&place.job(), &store, run, &shared).await?.run;
        assert_eq!((full.counts.verified, full.counts.unreadable), (19, 1));
        drop(store);
        for (verified, not_selected) in [(1, 19), (0, 20)] {
            let next = place.run(Mode::Incremental).await?;
            let found = (next.counts.verified, next.counts.not_selected());
            assert_eq!(found, (verified, not_selected), "{next:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_earlier_runs_could_not_verify_is_forgotten_in_steps() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(20)?;
        let store = Store::open(&place.location, 2).await?;
        let run = place.until_reading(&store).await?;
        let (pending, _) = store.view().pending(&run, None, 100).await?;
        let why = "the medium is bad";
        let bad = |file| (file, Reading::Failed { why: why.into() });
        let bad: Vec<_> = pending.into_iter().map(bad).collect();
        let now = Timestamp::now();
        store.write_back_pending(&run, &bad, now).await?;
        let shared = Arc::new(Shared::new(None, Instant::now()));
        let first = engine::run(&place.job(), &store, run, &shared).await?.run;
        let told = async |run| store.view().problems(run, 100).await.map(|it| it.len());
        let (mut after, mut paged) = (None, 0);
        for expected in [8, 8, 4, 0] {
            let page = store.view().problems_after(first.id, after, 8).await?;
            assert!(page.iter().all(|(key, _)| Some(*key) > after));
            assert_eq!(page.len(), expected);
            after = page.last().map(|(key, _)| *key);
            paged += page.len();
        }
        assert_eq!(paged, 20);
        let next = store.begin_run(&what(Mode::Full), now).await?;
        for left in [13, 6, 0] {
            let is_more = store.forget_problems(next.id, 7).await?;
            assert_eq!((told(first.id).await?, is_more), (left, left > 0));
        }
        store.write_back_pending(&next, &bad[..5], now).await?;
        let next = engine::run(&place.job(), &store, next, &shared).await?.run;
        assert_eq!(told(next.id).await?, 5, "its own are kept");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_was_compared_with_half_a_snapshot_is_compared_again() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(300)?;
        place.run(Mode::Full).await?;
        let list = place.folder.path().join("list");
        let mut job = place.job();
        job.lister = Lister::Paths(list.clone());
        let store = Store::open(&place.location, 2).await?;
        let mut new = what(Mode::Full);
        new.snapshot = Some("snapshot-1".into());
        let run = store.begin_run(&new, Timestamp::now()).await?;
        let id = run.id;
        let shared = Arc::new(Shared::new(None, Instant::now()));
        // No file may have such a name, so nobody can say that this is all.
        fs::write(&list, format!("{}\0", "x".repeat(300)))?;
        place.refuse_listings().await?;
        let failed = engine::run(&job, &store, run, &shared).await;
        assert!(failed.is_err(), "{failed:?}");
        assert_eq!(store.view().parts(id).await?.len(), 256);
        place.allow_progress().await?;
        let all = (0..300).map(|n| format!("folder{}/file{n}\0", n / 10));
        fs::write(&list, all.collect::<String>())?;
        let run = store.view().run(id).await?;
        let run = engine::run(&job, &store, run, &shared).await?.run;
        let counts = run.counts;
        assert_eq!((counts.total, counts.verified), (300, 300), "{run:?}");
        assert_eq!((counts.deleted, counts.remaining()), (0, 0), "{run:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn file_systems_in_one_store_know_nothing_of_each_other() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(20)?;
        place.run(Mode::Full).await?;
        let other = place.named("other");
        let mut run = other.run(Mode::Full).await?;
        assert_eq!((run.id, run.counts.new), (1, 20));
        place.rot("folder1/file11")?;
        run = place.run(Mode::Full).await?;
        assert_eq!(run.counts.corrupt, 1);
        assert_eq!(View::open(&other.location).await?.open_warnings().await?, 0);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn rows_come_in_the_order_of_their_keys_as_many_as_are_asked_for() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(200)?;
        place.run(Mode::Full).await?;
        let view = View::open(&place.location).await?;
        let (first, _) = Key::range_of(0, 0, 1);
        let (_, last) = Key::range_of(u8::MAX, 0, 1);
        let all = view.rows((first, last), 1000).await?;
        assert_eq!(all.len(), 200);
        assert!(all.is_sorted_by_key(|row| row.key));
        for most in [1, 7, 200] {
            assert_eq!(view.rows((first, last), most).await?, all[..most]);
        }
        let some = view.rows((all[5].key, all[9].key), 1000).await?;
        assert_eq!(some, all[5..=9]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_lsdf_checksum_has_kept_is_taken_over_whole() -> Result<()> {
    use sha1::Digest as _;
    let theirs = Place::mariadb().await?;
    theirs.files(100)?;
    place::lsdf::create(&theirs).await?;
    let sum = |content: &[u8]| sha1::Sha1::digest(content).to_vec();
    for n in 0..100 {
        let (path, content) = (
            format!("folder{}/file{n}", n / 10),
            format!("content of {n}"),
        );
        // Three were damaged, one of them twice, and theirs overwrote the good checksums with the bad ones.
        let (stored, read) = match n {
            42 | 45 => (sum(b"damaged"), 2),
            43 => (sum(b"damaged again"), 2),
            _ => (sum(content.as_bytes()), 1),
        };
        place::lsdf::file(&theirs, &path, &stored, read).await?;
    }
    for (path, expected, actual) in [
        ("folder4/file42", &b"content of 42"[..], &b"damaged"[..]),
        ("folder4/file43", b"content of 43", b"damaged"),
        ("folder4/file43", b"damaged", b"damaged again"),
        // Restored, of which theirs warn, too.
        ("folder4/file44", b"content of 44", b"damaged"),
        ("folder4/file44", b"damaged", b"content of 44"),
        ("folder4/file45", b"older content", b"damaged"),
    ] {
        place::lsdf::warning(&theirs, path, &sum(expected), &sum(actual)).await?;
    }
    // What it holds now was never read: nobody knows of damage in it.
    place::lsdf::outdate(&theirs, "folder4/file45").await?;

    for place in [Place::sqlite()?, Place::mariadb().await?] {
        let store = Store::open(&place.location, 1).await?;
        let from = Theirs {
            server: theirs.mysql()?,
            prefix: "",
            folder: Path::new(""),
        };
        let taken = take_over(&store, from).await?;
        assert_eq!((taken.files, taken.runs, taken.warnings), (100, 2, 6));
        let again = take_over(&store, from).await;
        assert!(again.is_err(), "it would be taken over twice");
        let open = store.view().warnings(false, 10).await?;
        let [_, twice] = open.as_slice() else {
            anyhow::bail!("{open:?}");
        };
        assert_eq!(twice.expected.as_bytes(), sum(b"content of 43"));
        assert_eq!(twice.actual.as_bytes(), sum(b"damaged again"));
        drop(store);
        let incremental = theirs.run_into(&place.location, Mode::Incremental).await?;
        assert_eq!((incremental.id, incremental.counts.not_selected()), (3, 99));
        assert_eq!(incremental.counts.changed, 1);
        let full = theirs.run_into(&place.location, Mode::Full).await?;
        assert_eq!((full.counts.verified, full.counts.corrupt), (100, 0));
        // The file holds the good content: it was restored since.
        assert_eq!(View::open(&place.location).await?.open_warnings().await?, 0);
    }
    Ok(())
}
