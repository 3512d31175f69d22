//! Takes lsdf-checksum over while something is wrong with it, or with us.

use std::path::Path;

use anyhow::Result;
use checksum::merge::Mode;
use checksum::store::{Error, Store, Taken, Theirs, Trouble, take_over};
use jiff::Timestamp;
use sha1::Digest as _;

use super::place::{Place, lsdf, what};

fn sum(content: &str) -> Vec<u8> {
    sha1::Sha1::digest(content).to_vec()
}

/// Twenty files that were read in their second run.
async fn theirs() -> Result<Place> {
    let theirs = Place::mariadb().await?;
    theirs.files(20)?;
    lsdf::create(&theirs).await?;
    for n in 0..20 {
        let path = format!("folder{}/file{n}", n / 10);
        lsdf::file(&theirs, &path, &sum(&format!("content of {n}")), 2).await?;
    }
    Ok(theirs)
}

async fn take(theirs: &Place, into: &Place) -> Result<Result<Taken, Error>> {
    let store = Store::open(&into.location, 1).await?;
    let from = Theirs {
        server: theirs.mysql()?,
        prefix: "",
        folder: Path::new(""),
    };
    Ok(take_over(&store, from).await)
}

#[tokio::test]
async fn no_run_begins_before_all_is_taken_over() -> Result<()> {
    let (theirs, ours) = (theirs().await?, Place::sqlite()?);
    // Warnings come after the files, so these are there when it ends.
    lsdf::warning(&theirs, "folder0/file5", &sum("older"), &sum("damaged")).await?;
    drop(Store::open(&ours.location, 1).await?);
    let refuse = "CREATE TRIGGER refused BEFORE INSERT ON orrery_warnings
                  BEGIN SELECT RAISE(ABORT, 'refused'); END";
    ours.command(refuse).await?;
    assert!(take(&theirs, &ours).await?.is_err());
    let store = Store::open(&ours.location, 1).await?;
    let begun = store.begin_run(&what(Mode::Full), Timestamp::now()).await;
    let refused = begun.expect_err("it compares with a part");
    assert!(matches!(refused, Error::HalfTaken), "{refused}");
    assert_eq!(refused.trouble(), Trouble::Unresolved);
    drop(store);

    ours.allow_progress().await?;
    assert_eq!(take(&theirs, &ours).await??.files, 20);
    theirs.edit("folder0/file3")?;
    let run = theirs.run_into(&ours.location, Mode::Full).await?;
    assert_eq!((run.counts.verified, run.counts.changed), (19, 1));
    Ok(())
}

#[tokio::test]
async fn a_take_over_that_cannot_be_is_given_up_by_itself_or_by_somebody() -> Result<()> {
    let (theirs, ours) = (theirs().await?, Place::sqlite()?);
    lsdf::warning(&theirs, "folder0/file5", &sum("older"), b"short").await?;
    let refused = take(&theirs, &ours).await?;
    let words = "a checksum of 5 bytes for folder0/file5";
    assert!(refused.is_err_and(|it| it.to_string().contains(words)));
    let run = theirs.run_into(&ours.location, Mode::Full).await?;
    assert_eq!((run.id, run.counts.new), (1, 20), "nothing was left");

    let ours = Place::sqlite()?;
    drop(Store::open(&ours.location, 1).await?);
    ours.command("UPDATE orrery_file_systems SET is_half_taken = 1")
        .await?;
    let store = Store::open(&ours.location, 1).await?;
    assert!(store.give_up_taking().await?);
    assert!(!store.give_up_taking().await?);
    store.begin_run(&what(Mode::Full), Timestamp::now()).await?;
    Ok(())
}

#[tokio::test]
async fn the_next_run_comes_after_all_that_files_tell_of() -> Result<()> {
    let (theirs, ours) = (theirs().await?, Place::sqlite()?);
    // As it is where rows of runs were removed.
    lsdf::change(&theirs, "UPDATE files SET last_seen = 7, last_read = 7").await?;
    take(&theirs, &ours).await??;
    theirs.edit("folder0/file3")?;
    let run = theirs.run_into(&ours.location, Mode::Full).await?;
    assert_eq!(run.id, 8);
    assert_eq!((run.counts.verified, run.counts.changed), (19, 1));
    Ok(())
}

#[tokio::test]
async fn what_they_cannot_have_written_is_refused_in_words() -> Result<()> {
    for (change, words) in [
        ("UPDATE runs SET sync_mode = 'odd'", "a run in mode \"odd\""),
        ("UPDATE runs SET state = 'odd'", "a run in state \"odd\""),
        (
            "UPDATE files SET last_read = 9000000000000000000",
            "a run 9000000000000000000",
        ),
        (
            "UPDATE files SET checksum = 'short'",
            "a checksum of 5 bytes",
        ),
    ] {
        let (theirs, ours) = (theirs().await?, Place::sqlite()?);
        lsdf::change(&theirs, change).await?;
        let refused = take(&theirs, &ours).await?.expect_err(change);
        assert!(refused.to_string().contains(words), "{refused}");
    }
    Ok(())
}
