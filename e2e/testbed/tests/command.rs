//! Claims about sharing: what the `testbed` command starts can be used by others and never outlives it.

use std::env;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testbed::process::{self, Launch, Process, Signal};
use testbed::wait::eventually;

const SOON: Duration = Duration::from_mins(1);
const COMMAND: &str = env!("CARGO_BIN_EXE_testbed");
const GUEST: &str = "a_guest_uses_the_shared_control_plane";
const OWNER: &str = "an_owner_shares_within_its_process";

#[tokio::test]
async fn a_killed_command_leaves_no_process_and_the_next_one_removes_its_folder() -> Result<()> {
    let home = tempfile::tempdir()?;
    let killed = testbed(home.path(), ["up"])?;
    both_parts_run(home.path()).await?;
    killed.kill().await?;
    nothing_runs(home.path()).await?;
    ensure!(
        folders(home.path())? == 1,
        "SIGKILL leaves no time to clean up"
    );

    let guest = env::current_exe()?;
    let guest = guest.to_str().context("a path that is not UTF-8")?;
    let run = testbed(
        home.path(),
        ["run", "--", guest, "--ignored", "--exact", GUEST],
    )?;
    let status = run.wait_exit(SOON).await?;
    ensure!(status.success(), "{status}:\n{}", run.log()?);
    nothing_runs(home.path()).await?;
    ensure!(folders(home.path())? == 0);
    Ok(())
}

#[tokio::test]
#[ignore = "run by the test above, below `testbed run`"]
async fn a_guest_uses_the_shared_control_plane() -> Result<()> {
    let folder = env::var_os(testbed::VARIABLE).context("not below `testbed run`")?;
    let kubernetes = testbed::kubernetes().await?;
    ensure!(kubernetes.folder() == Path::new(&folder));
    let namespace = kubernetes.namespace("guest").await?;
    let get = [
        "get",
        "namespace",
        &namespace,
        "--output=jsonpath={.status.phase}",
    ];
    ensure!(kubernetes.kubectl(&get).await?.ok()? == "Active");
    let name = namespace.to_string();
    drop(namespace);
    let get = [
        "get",
        "namespace",
        &name,
        "--output=jsonpath={.status.phase}",
    ];
    let left = kubernetes.kubectl(&get).await?;
    ensure!(
        left.stdout == "Terminating" || left.stderr.contains("NotFound"),
        "{left:?}"
    );
    let (one, same) = tokio::try_join!(testbed::redis(), testbed::redis())?;
    ensure!(one.address() == same.address(), "one for the whole run");
    drop((one, same));
    testbed::redis().await?; // and the run, not a guest, ends it
    Ok(())
}

#[tokio::test]
async fn without_the_command_a_process_has_a_control_plane_of_its_own() -> Result<()> {
    let home = tempfile::tempdir()?;
    let alone = Launch::new("owner", "env", home.path().join("log"))
        .args(["-u", testbed::VARIABLE])
        .args([env::current_exe()?])
        .args(["--ignored", "--exact", OWNER])
        .envs([("TMPDIR", home.path())])
        .spawn()?;
    let status = alone.wait_exit(SOON).await?;
    ensure!(status.success(), "{status}:\n{}", alone.log()?);
    nothing_runs(home.path()).await?;
    ensure!(folders(home.path())? == 0);
    Ok(())
}

#[tokio::test]
#[ignore = "run by the test above, not below `testbed run`"]
async fn an_owner_shares_within_its_process() -> Result<()> {
    let (one, same) = tokio::try_join!(testbed::kubernetes(), testbed::kubernetes())?;
    ensure!(one.folder() == same.folder());
    let (mine, yours) = tokio::try_join!(testbed::redis(), testbed::redis())?;
    ensure!(mine.address() != yours.address(), "nobody to share with");
    let folder = one.folder().to_owned();
    drop(one);
    same.namespace("still-up").await?;
    drop(same);
    ensure!(!folder.exists(), "the last one ends it");
    Ok(())
}

#[tokio::test]
async fn the_exit_code_of_the_command_is_passed_on() -> Result<()> {
    let home = tempfile::tempdir()?;
    let run = testbed(home.path(), ["run", "--", "sh", "-c", "exit 7"])?;
    let status = run.wait_exit(SOON).await?;
    ensure!(status.code() == Some(7), "{status}:\n{}", run.log()?);
    ensure!(run.log()?.contains("logs kept in"));
    Ok(())
}

#[tokio::test]
async fn a_request_to_end_is_passed_on_and_followed() -> Result<()> {
    let home = tempfile::tempdir()?;
    let script = "trap 'echo told; exit 5' TERM; echo up; while :; do sleep 0.05; done";
    let run = testbed(home.path(), ["run", "--", "sh", "-c", script])?;
    let up = async || Ok(run.log()?.contains("up\n").then_some(()));
    eventually("the command to run", SOON, up).await?;
    run.signal(Signal::SIGTERM)?;
    let status = run.wait_exit(SOON).await?;
    ensure!(
        status.code() == Some(5) && run.log()?.contains("told"),
        "{}",
        run.log()?
    );
    nothing_runs(home.path()).await?;
    ensure!(folders(home.path())? == 0);
    Ok(())
}

/// The command with a temporary folder of its own: whatever it leaves is found in there.
fn testbed<'a>(home: &Path, args: impl IntoIterator<Item = &'a str>) -> Result<Process> {
    Launch::new("testbed", COMMAND, home.join("log"))
        .args(args)
        .envs([("TMPDIR", home)])
        .spawn()
}

async fn both_parts_run(home: &Path) -> Result<()> {
    eventually("etcd and the API server", SOON, async || {
        let running = process::mentioning(&home.to_string_lossy())?;
        ensure!(running.len() >= 2, "{} processes", running.len());
        Ok(Some(()))
    })
    .await
}

async fn nothing_runs(home: &Path) -> Result<()> {
    eventually("every process to be gone", SOON, async || {
        let left = process::mentioning(&home.to_string_lossy())?;
        ensure!(left.is_empty(), "still running: {left:?}");
        Ok(Some(()))
    })
    .await
}

fn folders(home: &Path) -> Result<usize> {
    let mut folders = 0;
    for entry in home.read_dir()? {
        folders += usize::from(entry?.path().is_dir());
    }
    Ok(folders)
}
