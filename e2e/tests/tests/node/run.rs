//! `make run` and `make stop`: a private cluster in the background, and the cluster that is there already.

use std::{borrow::BorrowMut, fs, path::Path, process::Stdio};

use anyhow::{Context, Result, ensure};
use e2e::{operator::repository, render::Said};
use testbed::{tools, wait::eventually};
use tokio::process::{Child, Command};

use crate::{
    case::{Case, SOON},
    evidence,
    install::{SYSTEM, system},
    statuses::Statuses,
};

/// Where `make run` puts the samples.
pub(crate) const SAMPLES: &str = "orrery-samples";

/// How variables begin that make, cargo and the testbed set for what they run.
const OURS: [&str; 6] = [
    "MAKE",
    "MFLAGS",
    "CARGO_",
    "NEXTEST",
    "KUBECONFIG",
    testbed::VARIABLE,
];

/// `make`, as a user types it.
fn make(args: &[&str]) -> Command {
    let mut make = Command::new("make");
    make.args(args).current_dir(repository()).kill_on_drop(true);
    // A user's make has no other above it, no test around it, for which cargo would build everything anew, and knows nothing of
    // the nodes that are here.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let is_users = ["CARGO_HOME", "CARGO_INCREMENTAL", "CARGO_TARGET_DIR"].contains(&&*name);
        if !is_users && OURS.iter().any(|ours| name.starts_with(ours)) {
            make.env_remove(&*name);
        }
    }
    make
}

async fn said(mut command: impl BorrowMut<Command>) -> Result<Said> {
    let command = command.borrow_mut();
    Ok(command.output().await?.try_into()?)
}

/// The lines in which the last word about our kinds is said.
fn tells_of_both_samples(said: &str) -> bool {
    let ready = |name: &str| {
        let mut lines = said.lines().filter(|line| line.starts_with(SAMPLES));
        lines.any(|line| line.contains(name) && line.contains(" True "))
    };
    ready("checksumschedule.orrery.dev/nightly") && ready("checksumrun.orrery.dev/home-full")
}

/// What was measured on the way.
fn has_figures(run: &str) -> Result<()> {
    for (before, after) in [
        ("the operator led ", " s after its start"),
        ("make run took ", " s; "),
        (" pods use ", " MB"),
    ] {
        let measured = run
            .split_once(before)
            .and_then(|(_, rest)| rest.split_once(after));
        let (figure, _) = measured.with_context(|| format!("no {before}: {run}"))?;
        figure.parse::<f64>().with_context(|| run.to_owned())?;
    }
    Ok(())
}

/// The live status of a run whose schedule was suspended.
async fn tells_of_a_suspension(log: &Path) -> Result<()> {
    eventually("word of the change", SOON, async || {
        let log = fs::read_to_string(log)?;
        let (_, changes) = log.split_once("Changes:").context("no live status")?;
        let mut lines = changes.lines();
        let told = lines.any(|line| line.contains("/nightly ") && line.contains(" Suspended "));
        Ok(told.then_some(()))
    })
    .await
}

#[tokio::test]
async fn make_run_goes_on_in_the_background_until_it_is_stopped() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("run");
    let went = goes_on(&state).await;
    // Also when it went wrong in between.
    said(make(&["stop"]).env("RUN_STATE", &state)).await?.ok()?;
    went
}

async fn goes_on(state: &Path) -> Result<()> {
    let make = |args: &[&str]| {
        let mut make = make(args);
        make.env("RUN_STATE", state);
        make
    };
    let run = said(make(&["run", "DETACH=1", "WITH=redis"])).await?.ok()?;
    ensure!(tells_of_both_samples(&run), "{run}");
    has_figures(&run)?;
    let mut lines = run.lines().filter(|line| line.contains("/home-full "));
    ensure!(
        lines.any(|line| line.contains(" Verified ") && line.contains(" 1000 ")),
        "{run}"
    );
    let (_, kubeconfig) = run.split_once("export KUBECONFIG=").context("no hint")?;
    let kubeconfig = kubeconfig.split_whitespace().next().context("no path")?;

    let kubectl = async |args: &[&str]| {
        let mut kubectl = Command::new(tools::binary("kubectl").await?);
        kubectl.args(["--kubeconfig", kubeconfig]).args(args);
        said(kubectl).await?.ok()
    };
    let nodes = kubectl(&["get", "--no-headers", "nodes"]).await?;
    ensure!(
        nodes.lines().count() == 1 && nodes.contains(" Ready "),
        "{nodes}"
    );
    let pods = kubectl(&["get", "--no-headers", "pods", "--all-namespaces"]).await?;
    let mut redis = pods.lines().filter(|line| line.contains(" redis-"));
    ensure!(redis.any(|line| line.contains(" Running ")), "{pods}");
    let suspend = ["patch", "cksched", "nightly", "--namespace", SAMPLES];
    let merge = ["--type=merge", r#"--patch={"spec": {"suspend": true}}"#];
    kubectl(&[&suspend[..], &merge].concat()).await?;
    tells_of_a_suspension(&state.join("log")).await?;
    let second = said(make(&["run", "DETACH=1"])).await?;
    ensure!(
        !second.well && second.stderr.contains("make stop ends it"),
        "{second:?}"
    );

    let stopped = said(make(&["stop"])).await?;
    ensure!(
        stopped.well && stopped.stderr.contains("stopped"),
        "{stopped:?}"
    );
    ensure!(
        !Path::new(kubeconfig).exists(),
        "{kubeconfig} outlives its cluster"
    );
    let stopped = said(make(&["stop"])).await?;
    ensure!(
        stopped.stderr.contains("nothing runs in the background"),
        "{stopped:?}"
    );
    Ok(())
}

#[tokio::test]
async fn make_run_leaves_nothing_in_the_background_when_it_is_interrupted() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("run");
    let mut make = make(&["run", "DETACH=1"]);
    make.env("RUN_STATE", &state).process_group(0);
    let making = make.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let started = eventually("a process in the background", SOON, async || {
        let process = fs::read_to_string(state.join("process")).unwrap_or_default();
        let pid = process.split_once(' ').map(|(pid, _)| pid.to_owned());
        Ok(pid)
    })
    .await?;
    let ended = interrupt(making).await?;
    ensure!(!ended.well && ended.stderr.contains("stopped"), "{ended:?}");
    ensure!(!state.exists(), "{ended:?}");
    ensure!(
        !Path::new("/proc").join(&started).exists(),
        "{started} lives"
    );
    Ok(())
}

/// Ctrl-C, as a terminal does it: to all that belongs to the command.
async fn interrupt(making: Child) -> Result<Said> {
    let group = format!("-{}", making.id().context("it has ended")?);
    said(Command::new("kill").args(["-INT", "--", &group]))
        .await?
        .ok()?;
    Ok(making.wait_with_output().await?.try_into()?)
}

#[tokio::test]
async fn make_run_installs_into_the_current_cluster_or_leaves_it_as_it_was() -> Result<()> {
    Case::play("current", async |case| {
        let absent = said(current(case, "localhost/absent:1")).await?;
        let why = "no node finds the image localhost/absent:1";
        ensure!(!absent.well, "{absent:?}");
        let complaints: Vec<_> = absent
            .stderr
            .lines()
            .filter(|line| line.contains(why))
            .collect();
        ensure!(complaints.len() == 1, "{absent:?}");
        let left = system(case, &["get", "deployments,pods", "--output=name"]).await?;
        ensure!(left.is_empty(), "{left}");
        interrupted(case).await?;
        given_up(case).await?;

        let statuses = Statuses::watch(&case.cluster, SAMPLES).await?;
        for _ in ["at first", "again"] {
            let run = said(current(case, "localhost/orrery:dev")).await?.ok()?;
            ensure!(tells_of_both_samples(&run), "{run}");
        }
        let judged = statuses.agree_with(&tools::kstatus().await?).await?;
        ensure!(judged.len() == 2, "only {judged:?} were judged");
        let asked = evidence::nothing_forbidden_nothing_secret(&case.cluster, SYSTEM)?;
        ensure!(asked > 0, "the audit log knows nothing of the operator");

        let delete = ["delete", "namespace", SAMPLES, "--timeout=50s"];
        case.cluster.kubectl(&delete).await?.ok()?;
        case.helm(&["uninstall", "orrery", "--wait", "--namespace", SYSTEM])
            .await?;
        Ok(())
    })
    .await
}

/// `make run CLUSTER=current` with the kubeconfig of the nodes.
pub(crate) fn current(case: &Case, image: &str) -> Command {
    let mut make = make(&["run", "CLUSTER=current", &format!("IMAGE={image}")]);
    make.env("KUBECONFIG", case.cluster.kubeconfig());
    make
}

pub(crate) async fn refused(command: Command, expected: &str) -> Result<()> {
    let said = said(command).await?;
    ensure!(!said.well && said.stderr.contains(expected), "{said:?}");
    Ok(())
}

/// Ctrl-C while it installs.
async fn given_up(case: &Case) -> Result<()> {
    let mut make = current(case, "localhost/orrery:dev");
    make.process_group(0);
    let making = make.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let deployments = ["get", "deployments", "--output=name"];
    eventually("a deployment", SOON, async || {
        let found = system(case, &deployments).await?;
        Ok((!found.is_empty()).then_some(()))
    })
    .await?;
    let ended = interrupt(making).await?;
    ensure!(
        !ended.well && ended.stderr.contains("interrupted"),
        "{ended:?}"
    );
    let left = system(case, &["get", "deployments,pods", "--output=name"]).await?;
    let samples = ["get", "namespace", SAMPLES, "--ignore-not-found"];
    let samples = case.cluster.kubectl(&samples).await?.ok()?;
    ensure!(left.is_empty() && samples.is_empty(), "{left}{samples}");
    Ok(())
}

/// Somebody else's Helm was killed while it installed.
async fn interrupted(case: &Case) -> Result<()> {
    let mut helm = install_forever(case).await?;
    eventually("a release that is being installed", SOON, async || {
        let secrets = ["get", "secrets", "--output=name"];
        let pending = [
            &secrets[..],
            &["--selector=name=orrery,status=pending-install"],
        ];
        let found = system(case, &pending.concat()).await?;
        Ok((!found.is_empty()).then_some(()))
    })
    .await?;
    helm.kill().await?;
    let expected = "the Helm release orrery is pending-install";
    refused(current(case, "localhost/orrery:dev"), expected).await?;
    case.helm(&["uninstall", "orrery", "--wait", "--namespace", SYSTEM])
        .await?;
    Ok(())
}

/// Waits for pods whose image nobody has.
async fn install_forever(case: &Case) -> Result<Child> {
    let mut helm = Command::new(tools::helm().await?);
    helm.args(["install", "orrery", "charts/orrery", "--namespace", SYSTEM])
        .args(["--wait", "--set", "image.repository=localhost/absent"])
        .current_dir(repository())
        .env("KUBECONFIG", case.cluster.kubeconfig())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    Ok(helm.spawn()?)
}
