//! In: flags and a configuration. Out: an agent that does nothing but what every agent does.
//! What a new agent copies; the tests of the shell run it as a real process.

use std::convert::Infallible;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use crds::report::ConfigDocument;
use runtime::config::ConfigReceiver;
use runtime::process::{self, Threads};
use runtime::shell::{Detail, Error, Shell, ShellArgs, duration};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// An agent with no work of its own
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    shell: ShellArgs,

    /// How long its last piece of work takes at shutdown
    #[arg(long, env = "ORRERY_LAST_WORK", default_value = "0s", value_parser = duration)]
    last_work: Duration,
}

fn main() -> ExitCode {
    let args = Args::parse();
    process::run(&args.shell.telemetry, Threads::PerCore, agent(&args))
}

async fn agent(args: &Args) -> Result<(), Error> {
    let mut shell = Shell::start("bare-agent", &args.shell, validate).await?;
    let work = work(
        shell.config(),
        shell.detail(),
        shell.token(),
        args.last_work,
    );
    shell.spawn("work", work)?;
    shell.run_until_shutdown().await
}

/// Refuses what the work could not use, so that the configuration in force is always a good one.
fn validate(document: &ConfigDocument) -> Result<(), String> {
    let is_object = document.spec.is_object();
    is_object
        .then_some(())
        .ok_or_else(|| "spec must be an object".into())
}

/// Follows the configuration until told to end.
async fn work(
    mut config: ConfigReceiver,
    detail: Detail,
    token: CancellationToken,
    last_work: Duration,
) -> Result<(), Infallible> {
    let mut configurations = 0;
    while let Some(Ok(())) = token.run_until_cancelled(config.changed()).await {
        configurations += 1;
        detail.set(json!({ "configurations": configurations }));
    }
    tokio::time::sleep(last_work).await;
    Ok(())
}
