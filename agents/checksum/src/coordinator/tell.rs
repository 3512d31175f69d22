//! What a coordinator tells. In: counters and the store. Out: `/status`, metrics, the log, and a message in the pod.
//! Touches: writes the message; asks the store for damaged files.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crds::checksum_run::reason;
use crds::checksum_run::status::{CorruptFile, FileCounts, RunState};
use crds::report::checksum::{CoordinatorReport, Explained};
use runtime::clock::Clock;
use runtime::shell::{Detail, Shell};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::engine::Shared;
use crate::judge::RunId;
use crate::metrics::Metrics;
use crate::rate::Rate;
use crate::result::explained;
use crate::state::State;
use crate::store::{Damage, Problem, Run, Store, View, WarningRow};

/// How often it is told how far the run is.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often the store is asked for damaged files, at most.
const ASK: Duration = Duration::from_secs(3);
/// Damaged files that a report holds.
const CORRUPT: u32 = 20;
/// Damaged files that the log holds, at most.
const LOGGED: u32 = 100_000;
/// What a kubelet takes.
const MESSAGE: usize = 4096;

/// Tells.
#[derive(Clone, Debug)]
pub(super) struct Teller {
    detail: Detail,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    message: PathBuf,
    report: Arc<Mutex<CoordinatorReport>>,
}

impl Teller {
    pub(super) fn new(shell: &Shell, message: PathBuf) -> Self {
        let metrics = Metrics::default();
        shell.metrics().with(|registry| metrics.register(registry));
        Self {
            detail: shell.detail(),
            clock: shell.clock(),
            metrics,
            message,
            report: Arc::default(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut CoordinatorReport)) {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut report);
        // Strings and numbers can always be written.
        self.detail
            .set(serde_json::to_value(&*report).unwrap_or_default());
    }

    /// Why nothing goes on.
    pub(super) fn waiting(&self, why: Explained) {
        self.change(|report| {
            report.bytes_per_second = 0;
            report.waiting = Some(why);
        });
    }

    /// How it ended; also for those who come too late to ask.
    pub(super) fn ended(&self, result: Explained) {
        self.change(|report| {
            report.bytes_per_second = 0;
            report.waiting = None;
            report.result = Some(result);
        });
        let report = self
            .report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Err(error) = std::fs::write(&self.message, shortened(report)) {
            info!(%error, "no message was left: there is no place for one");
        }
    }

    /// Tells how far the run is, until it is dropped.
    pub(super) async fn follow(&self, store: &Store, shared: &Shared) -> Infallible {
        let mut rate = Rate::default();
        let mut asked: Option<(i64, Instant)> = None;
        loop {
            if let Some(run) = shared.run() {
                let now = self.clock.monotonic();
                let is_due = asked.is_none_or(|(corrupt, at)| {
                    corrupt != run.counts.corrupt && now.duration_since(at) >= ASK
                });
                if is_due && self.ask(store.view()).await.is_ok() {
                    asked = Some((run.counts.corrupt, now));
                }
                let read = run.counts.bytes_read.cast_unsigned();
                let here = shared.bytes.load(Ordering::Relaxed);
                let rate = rate.observe(now.into_std(), here.max(read));
                self.tell(&run, shared, rate);
            }
            sleep(INTERVAL).await;
        }
    }

    fn tell(&self, run: &Run, shared: &Shared, rate: u64) {
        self.metrics.observe(run, shared);
        self.change(|report| {
            fill(report, run);
            fill_live(report, shared, rate);
        });
    }

    async fn ask(&self, view: &View) -> Result<(), crate::store::Error> {
        let warnings = view.warnings(false, CORRUPT).await?;
        let Damage { all, open } = view.damage().await?;
        self.metrics.open_warnings(open);
        self.change(|report| {
            report.corrupt = warnings.iter().map(corrupt).collect();
            report.damaged = Some(all);
            report.open_warnings = Some(open);
        });
        Ok(())
    }

    /// The end of a run: all that is damaged goes to the log, where it can be read as long as the pod is there.
    pub(super) async fn last(&self, store: &Store, run: RunId) {
        if let Err(error) = self.try_last(store.view(), run).await {
            let error = runtime::telemetry::chain(&error);
            warn!(
                error,
                "not all that was found could be told: the store has it"
            );
        }
    }

    async fn try_last(&self, view: &View, run: RunId) -> Result<(), crate::store::Error> {
        self.ask(view).await?;
        let run = view.run(run).await?;
        self.change(|report| fill(report, &run));
        let problems = view.problems(run.id, LOGGED).await?;
        problems.iter().for_each(log_problem);
        let warnings = view.warnings(false, LOGGED).await?;
        warnings.iter().for_each(log_damage);
        // At last: it may take long where there are many files.
        let oldest = view.oldest_verification(&run).await?;
        self.change(|report| report.oldest_verification = oldest);
        Ok(())
    }
}

fn log_problem(problem: &Problem) {
    let Problem { path, outcome, why } = problem;
    warn!(%path, outcome, why, "not verified");
}

fn log_damage(warning: &WarningRow) {
    let WarningRow {
        path,
        expected,
        actual,
        discovered,
        last_read,
        ..
    } = warning;
    let (state, algorithm) = (warning.state.name(), expected.algorithm);
    warn!(%path, state, %algorithm, %expected, %actual, discovered, last_read, "damaged");
}

fn corrupt(warning: &WarningRow) -> CorruptFile {
    CorruptFile {
        path: cut(&warning.path.to_string(), 4096),
        expected: warning.expected.to_string(),
        actual: warning.actual.to_string(),
    }
}

/// At most so many bytes of a text, whole characters.
fn cut(text: &str, most: usize) -> String {
    let end = text.floor_char_boundary(most);
    text[..end].to_owned()
}

fn fill(report: &mut CoordinatorReport, run: &Run) {
    report.state = Some(state(run.state));
    report.began = Some(run.began);
    report.files = Some(FileCounts::from(&run.counts));
    report.selected_bytes = run.counts.selected_bytes.cast_unsigned();
    report.bytes_read = run.counts.bytes_read.cast_unsigned();
    report.unlisted = run.unlisted.cast_unsigned();
    report.unlisted_example = run.unlisted_example.as_deref().map(|it| cut(it, 1000));
}

/// What only the process knows.
fn fill_live(report: &mut CoordinatorReport, shared: &Shared, rate: u64) {
    let trouble = shared.queue_trouble().clone();
    report.waiting = trouble.map(|words| explained(reason::QUEUE_UNREACHABLE.name, words));
    report.bytes_per_second = rate;
    report.listed = shared.listed.load(Ordering::Relaxed);
    report.queued = shared.queued.load(Ordering::Relaxed);
}

fn state(state: State) -> RunState {
    match state {
        State::Initialised => RunState::Initialised,
        State::Snapshot => RunState::Snapshot,
        State::MetadataSync => RunState::MetadataSync,
        State::WorkQueue => RunState::WorkQueue,
        State::CleanUp => RunState::CleanUp,
        State::Finished => RunState::Finished,
        State::AbortingMetadataSync => RunState::AbortingMetadataSync,
        State::AbortingSnapshot => RunState::AbortingSnapshot,
        State::Aborted => RunState::Aborted,
    }
}

/// What fits: first fewer damaged files, then fewer words.
fn shortened(mut report: CoordinatorReport) -> String {
    loop {
        // Strings and numbers can always be written.
        let text = serde_json::to_string(&report).unwrap_or_default();
        if text.len() <= MESSAGE {
            return text;
        }
        if report.corrupt.pop().is_none() {
            report.unlisted_example = None;
            if let Some(result) = &mut report.result {
                result.message = cut(&result.message, result.message.len() / 2);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_message_fits_and_can_be_read() {
        let file = CorruptFile {
            path: "ä".repeat(2000),
            expected: "0".repeat(64),
            actual: "1".repeat(64),
        };
        let report = CoordinatorReport {
            corrupt: vec![file; 20],
            result: Some(Explained {
                reason: "DamageFound".into(),
                message: "x".repeat(9000),
            }),
            ..CoordinatorReport::default()
        };
        let text = shortened(report);
        assert!(text.len() <= MESSAGE);
        let read: CoordinatorReport = serde_json::from_str(&text).unwrap();
        assert_eq!(read.result.unwrap().reason, "DamageFound");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "needs some instant to begin at")]
    fn files_are_told_while_they_are_listed() {
        let shared = Shared::new(None, std::time::Instant::now());
        shared.listed.store(1234, Ordering::Relaxed);
        shared.queued.store(5, Ordering::Relaxed);
        let mut report = CoordinatorReport::default();
        fill_live(&mut report, &shared, 77);
        assert_eq!((report.listed, report.queued), (1234, 5));
        assert_eq!((report.bytes_per_second, &report.waiting), (77, &None));
        *shared.queue_trouble() = Some("away".into());
        fill_live(&mut report, &shared, 0);
        let waiting = report.waiting.unwrap();
        assert_eq!(waiting.reason, reason::QUEUE_UNREACHABLE.name);
    }
}
