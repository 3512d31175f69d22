//! The commands about a database, as people run them.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use checksum::merge::Mode;
use checksum::store::{Location, Store, View};
use sha1::Digest as _;

use super::place::{Place, lsdf};

/// What a command said.
struct Said {
    code: Option<i32>,
    out: String,
    complaint: String,
}

/// Who logs in is in variables that begin like this.
fn program(args: &[&str], variables: &str, password: Option<&str>) -> Result<Said> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery-checksum"));
    command.args(args);
    if let Some(password) = password {
        command.env(format!("{variables}_USERNAME"), "testbed");
        command.env(format!("{variables}_PASSWORD"), password);
    }
    said(command)
}

fn said(mut command: Command) -> Result<Said> {
    let output = command.output()?;
    Ok(Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout)?,
        complaint: String::from_utf8(output.stderr)?,
    })
}

fn address(place: &Place) -> Result<String> {
    let server = place.mysql()?;
    Ok(format!(
        "{}:{}/{}",
        server.host, server.port, server.database
    ))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .ok_or_else(|| anyhow::anyhow!("a name of other bytes"))
}

#[tokio::test]
async fn lsdf_checksum_is_taken_over_by_a_command_when_none_of_its_runs_goes_on() -> Result<()> {
    let theirs = Place::mariadb().await?;
    theirs.files(20)?;
    lsdf::create(&theirs).await?;
    for n in 0..20 {
        let sum = sha1::Sha1::digest(format!("content of {n}")).to_vec();
        lsdf::file(&theirs, &format!("folder{}/file{n}", n / 10), &sum, 1).await?;
    }
    let folder = tempfile::tempdir()?;
    let store = folder.path().join("store.sqlite");
    let from = address(&theirs)?;
    let args = ["take-over", "--from", &from, "--store", text(&store)?];
    let take_over = |password| program(&args, "ORRERY_FROM", password);
    let unknown = take_over(None)?;
    assert_eq!(unknown.code, Some(3));
    let complaint = unknown.complaint;
    assert!(
        complaint.contains("ORRERY_FROM_USERNAME is not set"),
        "{complaint}"
    );
    let wrong = take_over(Some("wrong"))?;
    assert_eq!(wrong.code, Some(3));
    assert!(
        wrong.complaint.contains("Access denied"),
        "{}",
        wrong.complaint
    );
    let taken = take_over(Some("testbed"))?;
    assert_eq!(taken.code, Some(0), "{}", taken.complaint);
    assert_eq!(taken.out, "took over 20 files, 2 runs and 0 warnings\n");
    let run = theirs.run_into(&Location::file(&store), Mode::Full).await?;
    assert_eq!((run.id, run.counts.verified), (3, 20));

    lsdf::unresolved(&theirs).await?;
    let other = folder.path().join("other.sqlite");
    let args = ["take-over", "--from", &from, "--store", text(&other)?];
    let refused = program(&args, "ORRERY_FROM", Some("testbed"))?;
    assert_eq!(refused.code, Some(3));
    let words = "run 3 of lsdf-checksum was interrupted in state workqueue";
    assert!(refused.complaint.contains(words), "{}", refused.complaint);
    let view = View::open(&Location::file(&other)).await?;
    assert_eq!(view.checksums(None, 1).await?.len(), 0);
    Ok(())
}

#[tokio::test]
async fn lsdf_checksum_is_taken_over_where_no_run_ever_kept_checksums() -> Result<()> {
    let theirs = Place::mariadb().await?;
    theirs.files(3)?;
    lsdf::create(&theirs).await?;
    let home = tempfile::tempdir()?;
    let from = address(&theirs)?;
    let of = text(home.path())?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery-checksum"));
    command.args(["take-over", "--from", &from, "--of", of]);
    command.env("XDG_STATE_HOME", home.path().join("no/such/folder"));
    command.env("ORRERY_FROM_USERNAME", "testbed");
    command.env("ORRERY_FROM_PASSWORD", "testbed");
    let taken = said(command)?;
    assert_eq!(taken.code, Some(0), "{}", taken.complaint);
    assert_eq!(taken.out, "took over 0 files, 2 runs and 0 warnings\n");
    Ok(())
}

#[tokio::test]
async fn tables_of_lsdf_checksum_are_taken_over_by_what_their_names_begin_with() -> Result<()> {
    let theirs = Place::mariadb().await?;
    theirs.files(3)?;
    lsdf::create(&theirs).await?;
    for n in 0..3 {
        let sum = sha1::Sha1::digest(format!("content of {n}")).to_vec();
        lsdf::file(&theirs, &format!("folder0/file{n}"), &sum, 1).await?;
    }
    lsdf::rename(&theirs, "home_").await?;
    let folder = tempfile::tempdir()?;
    let store = folder.path().join("store.sqlite");
    let from = address(&theirs)?;
    let take_over = |prefix: &str| {
        let args = ["take-over", "--from", &from, "--table-prefix", prefix];
        let args = [&args[..], &["--store", text(&store)?]].concat();
        program(&args, "ORRERY_FROM", Some("testbed"))
    };
    let other = take_over("other_")?;
    assert_eq!(other.code, Some(3));
    assert!(
        other.complaint.contains("other_runs"),
        "{}",
        other.complaint
    );
    let wrong = take_over("home; DROP")?;
    assert_eq!(wrong.code, Some(3));
    let words = "is no prefix of tables";
    assert!(wrong.complaint.contains(words), "{}", wrong.complaint);
    let taken = take_over("home_")?;
    assert_eq!(taken.code, Some(0), "{}", taken.complaint);
    assert_eq!(taken.out, "took over 3 files, 2 runs and 0 warnings\n");
    Ok(())
}

#[tokio::test]
async fn files_of_lsdf_checksum_are_taken_over_by_their_paths_below_the_folder_that_is_read()
-> Result<()> {
    let theirs = Place::mariadb().await?;
    theirs.files(3)?;
    lsdf::create(&theirs).await?;
    for n in 0..3 {
        let sum = sha1::Sha1::digest(format!("content of {n}")).to_vec();
        lsdf::file(&theirs, &format!("folder0/file{n}"), &sum, 1).await?;
    }
    let folder = tempfile::tempdir()?;
    let store = folder.path().join("store.sqlite");
    let from = address(&theirs)?;
    let take_over = |below: &str| {
        let args = [
            "take-over",
            "--from",
            &from,
            "--sub-path",
            below,
            "--store",
            text(&store)?,
        ];
        program(&args, "ORRERY_FROM", Some("testbed"))
    };
    let wrong = take_over("/folder")?;
    assert_eq!(wrong.code, Some(3));
    let words = "folder0/file0 of lsdf-checksum is not below /folder";
    assert!(wrong.complaint.contains(words), "{}", wrong.complaint);
    let taken = take_over("/folder0/")?;
    assert_eq!(taken.code, Some(0), "{}", taken.complaint);
    let location = Location::file(&store);
    let checksums = View::open(&location).await?.checksums(None, 10).await?;
    let mut paths: Vec<_> = checksums.iter().map(|it| it.path.to_string()).collect();
    paths.sort();
    assert_eq!(paths, ["file0", "file1", "file2"]);
    Ok(())
}

#[tokio::test]
async fn checksums_in_a_database_are_reported_and_accepted_by_commands() -> Result<()> {
    let place = Place::mariadb().await?;
    place.files(20)?;
    place.run(Mode::Full).await?;
    place.rot("folder1/file11")?;
    place.run(Mode::Full).await?;
    let address = address(&place)?;
    let of = ["--mysql", &address, "--file-system", "home"];
    let about = |args: &[&str], password| {
        let (task, rest) = args.split_at(1);
        program(&[task, &of, rest].concat(), "ORRERY_STORE", password)
    };
    let found = about(&["report"], Some("testbed"))?;
    assert_eq!(found.code, Some(1), "{}", found.complaint);
    assert!(found.out.contains("open: folder1/file11"), "{}", found.out);
    let accepted = about(&["accept", "folder1/file11"], Some("testbed"))?;
    assert_eq!(accepted.code, Some(0), "{}", accepted.complaint);
    assert_eq!(about(&["report"], Some("testbed"))?.code, Some(0));

    let unknown = about(&["report"], None)?;
    assert_eq!(unknown.code, Some(3));
    assert!(
        unknown.complaint.contains("ORRERY_STORE_USERNAME"),
        "{}",
        unknown.complaint
    );
    let args = ["report", "--mysql", &address];
    let which = program(&args, "ORRERY_STORE", Some("testbed"))?;
    assert_eq!(which.code, Some(3));
    assert!(
        which.complaint.contains("--file-system"),
        "{}",
        which.complaint
    );
    // Who asks makes no file system.
    let args = [&args[..], &["--file-system", "elsewhere"]].concat();
    let elsewhere = program(&args, "ORRERY_STORE", Some("testbed"))?;
    assert_eq!(elsewhere.code, Some(3));
    assert!(
        elsewhere.complaint.contains("elsewhere"),
        "{}",
        elsewhere.complaint
    );
    Store::open(&place.location, 1).await?; // nobody is left who holds it
    Ok(())
}
