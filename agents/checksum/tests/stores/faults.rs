//! What goes wrong around a store: other writers, servers that go away, runs that died, clocks that jump.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use checksum::engine::{self, Shared};
use checksum::entry::{Attributes, Seen};
use checksum::judge::Reading;
use checksum::merge::{Differences, Mode};
use checksum::path::RelativePath;
use checksum::state::State;
use checksum::store::{Error, Location, Mysql, Password, Store, Trouble, View};
use jiff::Timestamp;
use testbed::{proxy::Proxy, wait::eventually};

use super::{
    everywhere,
    place::{Place, what},
    read,
};

/// A transaction that was left open is the last to go.
const FORGOTTEN: Duration = Duration::from_secs(100);

#[tokio::test]
async fn a_listing_that_cannot_be_stored_forgets_nothing() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(100)?;
        place.run(Mode::Full).await?;
        for n in 0..5 {
            fs::remove_file(place.root().join(format!("folder0/file{n}")))?;
        }
        place.edit("folder5/file55")?;
        let known = async || {
            let view = View::open(&place.location).await?;
            anyhow::Ok(view.checksums(None, 1000).await?.len())
        };
        place.refuse_progress().await?;
        let failed = place.run(Mode::Full).await;
        assert!(failed.is_err(), "{failed:?}");
        assert_eq!(known().await?, 100);
        place.allow_progress().await?;
        let store = Store::open(&place.location, 2).await?;
        let edited = RelativePath::new(*b"folder5/file55").key();
        assert!(edited.partition() > 2, "its progress could not be stored");
        let rows = store.view().rows((edited, edited), 1).await?;
        assert_eq!(rows[0].changed_run, rows[0].read_run, "nor what was found");
        let run = store.view().last_run().await?.expect("it was begun");
        assert_eq!(run.state, State::MetadataSync);
        let shared = Arc::new(Shared::new(None, Instant::now()));
        let counts = engine::run(&place.job(), &store, run, &shared)
            .await?
            .run
            .counts;
        assert_eq!((counts.total, counts.changed, counts.deleted), (95, 1, 5));
        assert_eq!(known().await?, 95);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_second_writer_is_refused_and_one_that_was_taken_for_dead_writes_nothing() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(10)?;
        let store = Store::open(&place.location, 2).await?;
        let refused = Store::open(&place.location, 2).await;
        assert!(matches!(refused, Err(Error::InUse(_))), "{refused:?}");
        let run = place.until_reading(&store).await?;

        place.free_lock().await?;
        let later = Store::open(&place.location, 2).await?;
        let fenced = store.write_back(&run, &[], Timestamp::now()).await;
        assert!(matches!(fenced, Err(Error::Fenced)), "{fenced:?}");
        let kept = store.keep().await;
        assert!(
            place.is_sqlite() || matches!(kept, Err(Error::InUse(_))),
            "{kept:?}"
        );
        later.write_back(&run, &[], Timestamp::now()).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_server_is_one_by_whatever_name_and_forgets_a_writer_that_vanished_without_a_word()
-> Result<()> {
    let place = Place::mariadb().await?;
    place.files(10)?;
    let server = place.mysql()?;
    let proxy = Proxy::start(SocketAddr::new(server.host.parse()?, server.port)).await?;
    let through = place.changed(|server| server.port = proxy.address().port());
    let vanishing = Store::open(&through, 2).await?;
    let run = place.until_reading(&vanishing).await?;
    let mut writer = vanishing.write_parts(run.id, 10);
    let path = RelativePath::new(*b"folder0/file1");
    let mut found = Differences::default();
    found.suspect.push(Seen {
        key: path.key(),
        path: path.as_bytes(),
        attributes: Attributes::default(),
    });
    writer.add(&[], &found).await?;

    let refused = Store::open(&place.location, 2).await;
    assert!(matches!(refused, Err(Error::InUse(_))), "{refused:?}");
    proxy.half_open();
    let later = eventually("the server to give up", FORGOTTEN, async || {
        Ok(Some(Store::open(&place.location, 2).await?))
    });
    let later = later.await?;
    later.write_back(&run, &[], Timestamp::now()).await?;
    Ok(())
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_refused_in_words() -> Result<()> {
    everywhere(async |place: Place| {
        drop(Store::open(&place.location, 1).await?);
        place
            .command("INSERT INTO orrery_schema VALUES (99)")
            .await?;
        let Err(refused) = Store::open(&place.location, 1).await else {
            anyhow::bail!("it was opened");
        };
        let said = refused.to_string();
        assert!(
            said.contains("by a newer version (its schema is 99"),
            "{said}"
        );
        assert_eq!(refused.trouble(), Trouble::Broken);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_store_of_an_older_version_is_brought_up_to_this_one() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(20)?;
        place.run(Mode::Full).await?;
        let older = "ALTER TABLE orrery_files DROP COLUMN read_mtime;
             ALTER TABLE orrery_file_systems DROP COLUMN is_half_taken;
             DROP TABLE orrery_pieces;
             DELETE FROM orrery_schema WHERE version = 2";
        place.command(older).await?;
        if !place.is_sqlite() {
            // Servers commit each change by itself: one who died has made the first.
            let begun = "ALTER TABLE orrery_file_systems ADD COLUMN is_half_taken BIGINT NOT NULL DEFAULT 0";
            place.command(begun).await?;
        }
        place.rot("folder0/file5")?;
        let run = place.run(Mode::Full).await?;
        assert_eq!((run.counts.verified, run.counts.corrupt), (19, 1));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_wrong_password_and_a_server_that_is_away_are_told_apart() -> Result<()> {
    let place = Place::mariadb().await?;
    let wrong = place.with_password("wrong");
    let refused = Store::open(&wrong, 1).await.err().map(|it| it.trouble());
    assert_eq!(refused, Some(Trouble::Refused));
    let away = place.elsewhere();
    let unreachable = Store::open(&away, 1).await.err().map(|it| it.trouble());
    assert_eq!(unreachable, Some(Trouble::Unreachable));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_not_waited_for_for_ever() -> Result<()> {
    // The kernel takes connections, and nobody else does.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let server = Mysql {
        host: "127.0.0.1".into(),
        port: silent.local_addr()?.port(),
        database: "any".into(),
        username: "any".into(),
        password: Password("any".into()),
        tls: None,
    };
    let location = Location::Mysql {
        server,
        file_system: "home".into(),
    };
    let slow = Store::open(&location, 1).await.err();
    assert_eq!(slow.map(|it| it.trouble()), Some(Trouble::Unreachable));
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_restarted_in_the_middle_costs_nothing_that_was_stored() -> Result<()> {
    let server = testbed::mariadb::start().await?;
    let place = Place::on(&server, "testbed")?;
    place.files(400)?;
    let store = Store::open(&place.location, 2).await?;
    let run = store.begin_run(&what(Mode::Full), Timestamp::now()).await?;
    let id = run.id;
    let shared = Arc::new(Shared::new(Some(1000), Instant::now()));
    let job = place.job();
    let running = engine::run(&job, &store, run, &shared);
    let breaking = async {
        while shared.run().is_none_or(|run| run.counts.new < 50) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        server.server().kill().await?;
        server.server().start().await
    };
    let (broken, restarted) = tokio::join!(running, breaking);
    restarted?;
    // A statement was under way, or none was: the first is told, and the run goes on from what is stored.
    let mut lost = 0;
    let run = match broken {
        Ok(ended) => ended.run,
        Err(engine::Error::Store(error)) => {
            let trouble = error.trouble();
            assert_eq!(trouble, Trouble::Unreachable, "{error:?}");
            store.keep().await?;
            let run = store.view().run(id).await?;
            assert!(run.counts.new >= 50, "{run:?}");
            lost = shared.bytes.load(Ordering::Relaxed) - u64::try_from(run.counts.bytes_read)?;
            shared.own_limit.set(None, Instant::now());
            engine::run(&job, &store, run, &shared).await?.run
        }
        Err(other) => return Err(other.into()),
    };
    assert_eq!((run.counts.new, run.counts.remaining()), (400, 0));
    // What was read and could not be stored is read again, and nothing else.
    let read = shared.bytes.load(Ordering::Relaxed);
    assert_eq!(read, place.size()? + lost);
    server.shutdown().await
}

#[tokio::test]
async fn transactions_that_write_at_once_never_wait_for_each_other_in_a_circle() -> Result<()> {
    let server = testbed::mariadb::start().await?;
    let place = Place::on(&server, "testbed")?;
    place.files(400)?;
    let store = Store::open(&place.location, 8).await?;
    place.believed_empty().await?;
    for round in 0..6 {
        let mut run = place.until_reading(&store).await?;
        let (pending, _) = store.view().pending(&run, None, 1000).await?;
        let nothing = || Reading::Failed { why: "no".into() };
        let results = pending.into_iter().enumerate().map(|(n, file)| {
            let (_, reading) = read(&file);
            (file, if n % 3 == 0 { nothing() } else { reading })
        });
        let results: Vec<_> = results.collect();
        let now = Timestamp::now();
        // Every tenth row each, so that all of them meet everywhere.
        let writing = (0..10).map(|n| {
            let batch: Vec<_> = results.iter().skip(n).step_by(10).cloned().collect();
            let (store, run) = (&store, &run);
            async move {
                if round % 2 == 0 {
                    return store.write_back_pending(run, &batch, now).await;
                }
                let batch: Vec<_> = batch.into_iter().map(|(it, how)| (it.key, how)).collect();
                store.write_back(run, &batch, now).await
            }
        });
        futures::future::try_join_all(writing).await?;
        run = store.view().run(run.id).await?;
        assert_eq!(run.counts.remaining(), 0);
        engine::abort(&store, run, None).await?;
    }
    assert_eq!(place.deadlocks().await?, 0);
    server.shutdown().await
}

#[tokio::test]
async fn a_run_that_died_in_any_state_is_gone_on_with_or_given_up() -> Result<()> {
    use State::{
        Aborted, AbortingMetadataSync, AbortingSnapshot, CleanUp, Finished, Initialised,
        MetadataSync, Snapshot, WorkQueue,
    };
    everywhere(async |place: Place| {
        place.files(30)?;
        place.run(Mode::Full).await?;
        place.rot("folder1/file11")?;
        for (died, goes_on, ends) in [
            (Initialised, true, Finished),
            (Snapshot, true, Finished),
            (MetadataSync, true, Finished),
            (WorkQueue, true, Finished),
            (CleanUp, true, Finished),
            (AbortingMetadataSync, true, Aborted),
            (AbortingSnapshot, true, Aborted),
            (Initialised, false, Aborted),
            (Snapshot, false, Aborted),
            (MetadataSync, false, Aborted),
            (WorkQueue, false, Aborted),
            (CleanUp, false, Aborted),
        ] {
            let id = place.died_in(died).await?;
            let store = Store::open(&place.location, 2).await?;
            let run = store.view().run(id).await?;
            assert_eq!(run.state, died);
            let shared = Arc::new(Shared::new(None, Instant::now()));
            let ended = if goes_on {
                engine::run(&place.job(), &store, run, &shared).await?.run
            } else {
                engine::abort(&store, run, None).await?
            };
            assert_eq!(ended.state, ends, "{died}");
            let found = (ended.counts.verified, ended.counts.corrupt);
            let is_read = ends == Finished || died == CleanUp;
            assert_eq!(found == (29, 1), is_read, "{died}: {ended:?}");
            assert!(store.view().open_warnings().await? <= 1);
        }
        let last = place.run(Mode::Full).await?;
        assert_eq!((last.counts.verified, last.counts.corrupt), (29, 1));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_server_that_goes_away_in_any_state_is_told_and_the_run_goes_on_when_it_is_back()
-> Result<()> {
    use State::{
        Aborted, AbortingMetadataSync, AbortingSnapshot, CleanUp, Finished, Initialised,
        MetadataSync, Snapshot, WorkQueue,
    };
    let server = testbed::mariadb::start().await?;
    let place = Place::on(&server, "testbed")?;
    place.files(30)?;
    place.run(Mode::Full).await?;
    for (state, ends) in [
        (Initialised, Finished),
        (Snapshot, Finished),
        (MetadataSync, Finished),
        (WorkQueue, Finished),
        (CleanUp, Finished),
        (AbortingMetadataSync, Aborted),
        (AbortingSnapshot, Aborted),
    ] {
        let id = place.died_in(state).await?;
        let store = Store::open(&place.location, 2).await?;
        let run = store.view().run(id).await?;
        assert_eq!(run.state, state);
        server.server().kill().await?;
        let shared = Arc::new(Shared::new(None, Instant::now()));
        let failed = engine::run(&place.job(), &store, run, &shared).await;
        let Err(engine::Error::Store(error)) = failed else {
            anyhow::bail!("{state}: {failed:?}");
        };
        assert_eq!(error.trouble(), Trouble::Unreachable, "{state}: {error:?}");
        server.server().start().await?;
        store.keep().await?;
        let run = store.view().run(id).await?;
        assert_eq!(run.state, state, "nothing was stored");
        let run = engine::run(&place.job(), &store, run, &shared).await?.run;
        assert_eq!(run.state, ends, "{state}");
        let is_read = run.counts.verified == 30;
        assert_eq!(is_read, ends == Finished, "{state}: {run:?}");
    }
    server.shutdown().await
}

#[tokio::test]
async fn a_clock_that_jumps_changes_nothing_but_times() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(30)?;
        let day = jiff::SignedDuration::from_hours(24);
        let store = Store::open(&place.location, 2).await?;
        let shared = Arc::new(Shared::new(None, Instant::now()));
        for (began, expected) in [
            (Timestamp::now() + day, (30, 0)),
            (Timestamp::now() - day, (0, 30)),
            (Timestamp::UNIX_EPOCH, (0, 30)),
        ] {
            let run = store.begin_run(&what(Mode::Full), began).await?;
            let run = engine::run(&place.job(), &store, run, &shared).await?.run;
            assert_eq!((run.counts.new, run.counts.verified), expected);
            let last = store.view().last_run().await?;
            assert_eq!(last.map(|it| it.id), Some(run.id));
        }
        Ok(())
    })
    .await
}
