//! In: a shell with tasks that end well or badly. Out: claims about how the process would end.

use std::convert::Infallible;
use std::future::pending;
use std::io;

use clap::Parser;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;

type Nothing = Result<(), Infallible>;

const DRAIN: Duration = Duration::from_secs(20);

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    shell: ShellArgs,
}

fn args(more: &[&str]) -> Result<ShellArgs, clap::Error> {
    let flags = ["agent", "--pod-uid=pod-1"];
    let parsed = Args::try_parse_from(flags.iter().chain(more));
    parsed.map(|args| args.shell)
}

async fn until(token: CancellationToken) -> Nothing {
    token.cancelled().await;
    Ok(())
}

/// Ends a shell of these tasks, told to stop at once.
async fn stop(members: TaskGroup, servers: TaskGroup) -> Result<(), Error> {
    let stop = CancellationToken::new();
    stop.cancel();
    supervise(members, servers, stop, &SystemClock, DRAIN).await
}

/// How a shell of these tasks ends that nobody tells to. Time is paused, so that waiting in vain takes no time.
async fn ended(members: TaskGroup, servers: TaskGroup) -> Result<(), Error> {
    let never = CancellationToken::new();
    let ended = supervise(members, servers, never, &SystemClock, DRAIN);
    timeout(Duration::from_hours(1), ended).await.unwrap()
}

#[test]
fn the_flags_have_the_documented_defaults() {
    let args = args(&[]).unwrap();
    assert_eq!(args.admin.admin_address.to_string(), "0.0.0.0:8081");
    assert_eq!(args.control_address.to_string(), "0.0.0.0:8444");
    assert_eq!(args.drain_timeout, DRAIN);
    assert_eq!(args.config_poll, crate::config::POLL_INTERVAL);
    assert_eq!(args.tls_poll, crate::tls::RELOAD_INTERVAL);
}

#[test]
fn durations_are_positive_and_readable() {
    assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
    for bad in ["-1s", "20", "soon", ""] {
        assert!(duration(bad).is_err(), "{bad} should be refused");
    }
    assert!(args(&["--tls-poll=0s"]).is_err());
}

#[tokio::test(start_paused = true)]
async fn tasks_that_drain_end_the_process_well() {
    let (mut members, mut servers) = (TaskGroup::new(1), TaskGroup::new(1));
    members.spawn("work", until(members.token())).unwrap();
    servers.spawn("port", until(servers.token())).unwrap();
    assert!(stop(members, servers).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_dead_task_ends_the_process_with_its_name() {
    let (mut members, servers) = (TaskGroup::new(2), TaskGroup::new(1));
    members.spawn("work", until(members.token())).unwrap();
    let failing = async { Err(io::Error::other("disk on fire")) };
    members.spawn("writer", failing).unwrap();
    let ended = ended(members, servers).await;
    assert_eq!(
        chain(&ended.unwrap_err()),
        "task writer failed: disk on fire"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_port_lets_the_work_drain_first() {
    let (mut members, mut servers) = (TaskGroup::new(1), TaskGroup::new(1));
    let (finish, finished) = oneshot::channel();
    let token = members.token();
    let careful = async move {
        token.cancelled().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        finish.send(()).unwrap();
        Nothing::Ok(())
    };
    members.spawn("work", careful).unwrap();
    servers.spawn("port", async { Nothing::Ok(()) }).unwrap();
    let ended = ended(members, servers).await;
    assert!(matches!(ended, Err(Error::Died(_))));
    finished.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_drain_time_out_holds_and_names_who_was_cut_off() {
    let (mut members, mut servers) = (TaskGroup::new(1), TaskGroup::new(1));
    members.spawn("stuck", pending::<Nothing>()).unwrap();
    servers.spawn("port", pending::<Nothing>()).unwrap();
    let before = SystemClock.monotonic();
    let ended = stop(members, servers).await;
    assert_eq!(
        chain(&ended.unwrap_err()),
        "failed to end in time: cut off stuck"
    );
    // Timers have a granularity of a millisecond.
    let taken = SystemClock.monotonic() - before;
    assert!(taken <= DRAIN + Duration::from_millis(5), "{taken:?}");
}

#[tokio::test]
async fn a_configuration_that_is_already_there_counts_as_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let document = r#"{"version":1,"uid":"a","generation":1}"#;
    std::fs::write(folder.path().join("config.json"), document).unwrap();
    let mut args = args(&[
        "--admin-address=127.0.0.1:0",
        "--control-address=127.0.0.1:0",
    ])
    .unwrap();
    folder.path().clone_into(&mut args.config_folder);
    let shell = Shell::start("test", &args, |_| Ok(())).await.unwrap();
    assert!(shell.config().has_changed().unwrap());
}
