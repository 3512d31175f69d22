//! In: two flags. Out: logs on standard error, one JSON object per line unless text is asked for.
//! Installs the process-wide subscriber and panic hook.

use std::error::Error as StdError;
use std::io::IsTerminal;
use std::panic::PanicHookInfo;

use tracing::error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// How to log.
#[derive(Clone, Debug, clap::Args)]
pub struct TelemetryArgs {
    /// What to log: a level, or directives such as `info,orrery=debug`
    #[arg(
        long,
        env = "ORRERY_LOG_LEVEL",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub log_level: String,

    /// How a log line looks
    #[arg(long, env = "ORRERY_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line, for collectors.
    Json,
    /// For people at a terminal.
    Text,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter does not parse.
    #[error("failed to understand the filter given by --log-level or ORRERY_LOG_LEVEL")]
    Filter(#[source] ParseError),
    /// Something else has set up logging before.
    #[error("failed to install the log subscriber")]
    Install(#[source] TryInitError),
}

/// Libraries that log what they also return; we log what we do about it. A filter of the user wins.
const QUIET: &str = "kube_client=off,kube_runtime=off";

/// Starts logging; to be called once, before anything that may have something to say.
pub fn init(args: &TelemetryArgs) -> Result<(), Error> {
    let directives = format!("{QUIET},{}", args.log_level);
    let filter = EnvFilter::try_new(directives).map_err(Error::Filter)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .finish()
            .try_init(),
        LogFormat::Text => builder.finish().try_init(),
    }
    .map_err(Error::Install)?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// The error and all that caused it, as `a: b: c`.
///
/// Some libraries repeat the cause in their own text; a cause that is already there is not said twice.
pub fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}

/// The span around the line names the task that panicked.
fn log_panic(info: &PanicHookInfo<'_>) {
    let location = info.location().map(ToString::to_string);
    let reason = info.payload_as_str().unwrap_or("no reason given");
    error!(location, reason, "panicked");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to {what}")]
    struct Step {
        what: &'static str,
        source: Option<Box<Self>>,
    }

    fn step(what: &'static str, source: Option<Step>) -> Step {
        Step {
            what,
            source: source.map(Box::new),
        }
    }

    #[test]
    fn an_error_is_told_with_all_its_causes() {
        let error = step("start", Some(step("bind", Some(step("open", None)))));
        assert_eq!(
            chain(&error),
            "failed to start: failed to bind: failed to open"
        );
    }

    #[test]
    fn a_cause_that_is_already_in_the_text_is_not_repeated() {
        let error = std::io::Error::other(step("bind", Some(step("open", None))));
        assert_eq!(chain(&error), "failed to bind: failed to open");
    }

    #[test]
    fn a_bad_filter_is_refused_by_the_name_of_its_flag() {
        let args = TelemetryArgs {
            log_level: "orrery=loud".into(),
            log_format: LogFormat::Json,
        };
        let error = init(&args).unwrap_err();
        assert!(chain(&error).contains("--log-level"), "{error}");
    }
}
