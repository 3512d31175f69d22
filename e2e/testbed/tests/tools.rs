//! Claims about the scripts in `e2e/tools`: what is missing is named with its remedy, and what is half done is not used.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use testbed::process::{Launch, Signal};
use testbed::wait::eventually;

const SOON: std::time::Duration = std::time::Duration::from_secs(20);

#[test]
fn java_of_another_version_is_named_with_what_to_install() -> Result<()> {
    let home = tempfile::tempdir()?;
    java(&home.path().join("old"), "1.8.0_402")?;
    java(&home.path().join("new"), "25.0.1")?;
    let choose = format!(
        "JAVA_HOME=; PATH=/usr/bin:/bin; command() {{ :; }}; java_command {}",
        home.path().display()
    );
    let refused = script(&choose, home.path())?;
    ensure!(!refused.status.success());
    let message = String::from_utf8(refused.stderr)?;
    ensure!(message.lines().count() == 1, "{message}");
    for part in [
        "Java 17 is needed",
        "25 in",
        "/new",
        "/old",
        "apt-get install openjdk-17-jre-headless",
    ] {
        ensure!(message.contains(part), "{part}: {message}");
    }
    Ok(())
}

#[test]
fn no_java_at_all_is_one_line_too() -> Result<()> {
    let home = tempfile::tempdir()?;
    let choose = format!(
        "JAVA_HOME=; command() {{ :; }}; java_command {}",
        home.path().display()
    );
    let refused = script(&choose, home.path())?;
    ensure!(!refused.status.success());
    let message = String::from_utf8(refused.stderr)?;
    ensure!(
        message.lines().count() == 1 && message.contains("found: none"),
        "{message}"
    );
    Ok(())
}

#[test]
fn the_right_java_is_found_behind_wrong_ones() -> Result<()> {
    let home = tempfile::tempdir()?;
    java(&home.path().join("a"), "21.0.2")?;
    java(&home.path().join("b"), "17.0.9")?;
    let choose = format!(
        "JAVA_HOME=; command() {{ :; }}; java_command {}",
        home.path().display()
    );
    let found = script(&choose, home.path())?;
    let found = String::from_utf8(found.stdout)?;
    ensure!(found.trim().ends_with("/b/bin/java"), "{found}");
    Ok(())
}

#[test]
fn a_full_disk_is_named_before_a_download() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let refused = script("once \"$(cache_dir)/thing\" true 999999999", cache.path())?;
    ensure!(!refused.status.success());
    let message = String::from_utf8(refused.stderr)?;
    ensure!(
        message.contains("999999999 MB are needed") && message.contains("ORRERY_CACHE"),
        "{message}"
    );
    Ok(())
}

#[tokio::test]
async fn a_download_that_was_interrupted_begins_again() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let build = |then: &str| {
        format!(
            "make() {{ echo half >$1/file; echo at it; {then}; echo whole >$1/file; }}; once \"$(cache_dir)/thing\" make 1"
        )
    };
    let half = cache.path().join("thing.partial/file");
    // Killed, it has no chance to clean up; asked to end, it has.
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let log = cache.path().join(format!("{signal}.log"));
        let running = Launch::new("build", "bash", log)
            .args(["-c", &in_tools(&build("sleep 600"))])
            .envs([("ORRERY_CACHE", cache.path())])
            .spawn()?;
        eventually("half a download", SOON, async || {
            Ok(running.log()?.contains("at it").then_some(()))
        })
        .await?;
        // To all of them, as Ctrl-C does it.
        let group = format!("-{}", running.pid());
        let mut kill = Command::new("kill");
        kill.args(["-s", &signal.as_str()[3..], "--", &group]);
        ensure!(kill.status()?.success());
        running.wait_exit(SOON).await?;
        ensure!(!cache.path().join("thing").exists(), "half of it is not it");
    }
    ensure!(!half.exists(), "cleaned up");
    let whole = script(&build(":"), cache.path())?;
    ensure!(whole.status.success(), "{whole:?}");
    ensure!(fs::read_to_string(cache.path().join("thing/file"))? == "whole\n");
    Ok(())
}

/// A program that says it is some version of Java.
fn java(home: &Path, version: &str) -> Result<()> {
    let program = home.join("bin/java");
    fs::create_dir_all(program.parent().context("a folder")?)?;
    let text = format!("#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n");
    fs::write(&program, text)?;
    Ok(fs::set_permissions(
        &program,
        fs::Permissions::from_mode(0o755),
    )?)
}

fn script(text: &str, cache: &Path) -> Result<Output> {
    let script = in_tools(text);
    Ok(Command::new("bash")
        .args(["-c", &script])
        .env("ORRERY_CACHE", cache)
        .output()?)
}

/// As the scripts do it.
fn in_tools(text: &str) -> String {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools");
    format!("set -euo pipefail; . {}/lib.sh; {text}", tools.display())
}
