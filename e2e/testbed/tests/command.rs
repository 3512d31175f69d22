//! Claims about the `testbed` command: what it starts can be used by others and never outlives it, and what it cannot
//! start it refuses in one line.

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

#[tokio::test]
async fn nodes_without_root_are_refused_in_one_line() -> Result<()> {
    // Another user, who may still read the command wherever it was built.
    let rights = "+dac_override,+dac_read_search";
    let nobody = format!(
        "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps={rights} --ambient-caps={rights}"
    );
    let said = refusal(&nobody).await?;
    let advice =
        "a node needs root: run as root, or use another cluster with `make run CLUSTER=current`";
    ensure!(said == advice, "{said}");
    Ok(())
}

#[tokio::test]
async fn nodes_without_namespaces_are_refused_in_one_line() -> Result<()> {
    let said = refusal("setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin").await?;
    ensure!(
        said.starts_with("a node needs namespaces, which are refused here (unshare: "),
        "{said}"
    );
    ensure!(
        said.contains("leave this container, have it run as privileged, or use another"),
        "{said}"
    );
    Ok(())
}

#[tokio::test]
async fn nodes_without_control_groups_are_refused_in_one_line() -> Result<()> {
    let said = refusal(&privately("mount -t tmpfs -o ro none /sys/fs/cgroup")).await?;
    ensure!(
        said.starts_with("a node needs control groups, which cannot be made in /sys/fs/cgroup: "),
        "{said}"
    );
    Ok(())
}

#[tokio::test]
async fn nodes_without_their_packages_are_refused_in_one_line() -> Result<()> {
    let few = tempfile::tempdir()?;
    std::os::unix::fs::symlink("/usr/bin/unshare", few.path().join("unshare"))?;
    let said = refusal(&format!("env PATH={}", few.path().display())).await?;
    let (advice, packages) = said.split_once("apt-get install ").unwrap_or_default();
    ensure!(
        advice.contains("run `make run`, which installs them, or"),
        "{said}"
    );
    ensure!(packages.split(' ').any(|it| it == "containerd"), "{said}");
    Ok(())
}

#[tokio::test]
async fn nodes_without_space_are_refused_in_one_line() -> Result<()> {
    let said = refusal(&privately("mount -t tmpfs -o size=50M none $TMPDIR")).await?;
    ensure!(
        said.contains(" has 52 MB free, but 2000 MB are needed: "),
        "{said}"
    );
    ensure!(
        said.ends_with("make room, or let TMPDIR name another folder"),
        "{said}"
    );
    Ok(())
}

/// What changes a mount for a command, and for nobody else.
fn privately(mount: &str) -> String {
    format!("unshare --mount --propagation=private sh -ec '{mount};exec \"$@\"' sh")
}

/// The one line with which nodes are refused under a wrapper, which leaves nothing behind.
async fn refusal(wrapper: &str) -> Result<String> {
    let home = tempfile::tempdir()?;
    let refused = Launch::new("testbed", "sh", home.path().join("log"))
        .args(["-c", &format!(r#"exec {wrapper} "$0" nodes"#), COMMAND])
        .envs([
            ("TMPDIR", home.path().as_os_str()),
            ("RUST_BACKTRACE", "0".as_ref()),
        ])
        .spawn()?;
    let status = refused.wait_exit(SOON).await?;
    let said = refused.log()?;
    ensure!(status.code() == Some(1), "{status}:\n{said}");
    ensure!(folders(home.path())? == 0, "a folder is left");
    let line = said
        .strip_prefix("Error: ")
        .and_then(|it| it.strip_suffix('\n'));
    let line = line.filter(|it| !it.contains('\n'));
    Ok(line.with_context(|| said.clone())?.to_owned())
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
