#![expect(clippy::disallowed_methods, reason = "reads clocks")]
//! Claims about fake clocks: the wall clock of a running process jumps, its monotonic clock does not.

use std::env;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use nix::time::{ClockId, clock_gettime};
use testbed::faketime::FakeClock;
use testbed::process::{Launch, Process};
use testbed::wait::eventually;

const SOON: Duration = Duration::from_secs(10);
const HOUR: i64 = 3600;

/// How far two readings of true clocks may lie apart: a busy machine, not a jump.
const NEAR: i64 = 60;

#[tokio::test]
async fn the_wall_clock_jumps_both_ways_and_the_monotonic_one_does_not() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut clock = FakeClock::new(folder.path().join("clock"))?;
    let child = Launch::new("clocks", env::current_exe()?, folder.path().join("log"))
        .args(["--ignored", "--exact", "print_clocks", "--nocapture"])
        .envs(clock.envs())
        .spawn()?;
    shows(&child, 0).await?;
    clock.jump(2 * HOUR)?;
    shows(&child, 2 * HOUR).await?;
    clock.jump(-3 * HOUR)?;
    shows(&child, -HOUR).await?;
    ensure!(clock.offset() == -HOUR);
    let pid = child.pid();
    drop((child, clock));
    let litter = std::fs::read_dir("/dev/shm")?.flatten();
    let mut litter = litter.map(|entry| entry.file_name().to_string_lossy().into_owned());
    ensure!(!litter.any(|file| file.contains("faketime") && file.ends_with(&pid.to_string())));
    Ok(())
}

async fn shows(child: &Process, offset: i64) -> Result<()> {
    let what = format!("a wall clock that is {offset} seconds off");
    eventually(&what, SOON, async || {
        let (wall, monotonic) = last_reading(&child.log()?)?;
        let (true_wall, true_monotonic) = clocks()?;
        let off = wall - true_wall;
        ensure!(
            (monotonic - true_monotonic).abs() < NEAR,
            "monotonic: {monotonic}"
        );
        ensure!((off - offset).abs() < NEAR, "{off} seconds off");
        Ok(Some(()))
    })
    .await
}

fn last_reading(log: &str) -> Result<(i64, i64)> {
    let complete = log.rfind('\n').map_or("", |end| &log[..end]);
    let mut fields = complete
        .lines()
        .filter_map(|line| line.strip_prefix("clocks "));
    let fields = fields.next_back().and_then(|fields| fields.split_once(' '));
    let (wall, monotonic) = fields.context("no reading yet")?;
    Ok((wall.parse()?, monotonic.parse()?))
}

fn clocks() -> Result<(i64, i64)> {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok((i64::try_from(wall.as_secs())?, monotonic.tv_sec()))
}

#[test]
#[ignore = "run by the test above, with a fake clock"]
fn print_clocks() -> Result<()> {
    for _ in 0..2 * SOON.as_secs() * 100 {
        let (wall, monotonic) = clocks()?;
        println!("clocks {wall} {monotonic}");
        sleep(Duration::from_millis(10));
    }
    Ok(())
}
