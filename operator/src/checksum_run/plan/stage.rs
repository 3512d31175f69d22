//! How far a run is, in a word and in words. In: the run, and what was observed. Out: a stage. Pure.

use std::borrow::Cow;

use crds::{
    checksum_run::{
        StopAfter,
        reason::{
            self, FAILED, NAME_TAKEN, READING, REFERENCE_MISSING, SNAPSHOT_FAILING, SNAPSHOTTING,
            STARTING, STOPPED, STORE_IN_USE, SUSPENDED, SUSPENDING, WAITING,
        },
        status::RunState,
    },
    condition::{READY, Reason, find},
    name,
    report::checksum::{CoordinatorReport, Explained},
};
use serde::{Serialize, Serializer};

use super::{
    super::{
        config::{Place, Validated, address},
        credentials::Credentials,
        snapshot::Found,
    },
    Life, Observed, Pod, Rival,
    idle::idle,
};

/// How much of a log is told: with what comes before, no more than a condition holds.
const LAST_WORDS: usize = 600;

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Stage {
    /// It has ended, and its status says so.
    Over,
    /// It ends now.
    Ended(Told),
    /// It goes on.
    Working(Told),
    /// It waits for something that somebody must do.
    Waiting(Told),
    /// Nothing is read, on request.
    Suspended,
}

impl Stage {
    /// Whether the snapshot is being made.
    pub(super) fn is_snapshotting(&self) -> bool {
        matches!(self, Self::Working(told) if *told.reason == SNAPSHOTTING)
    }
}

/// A reason and words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// Why.
    #[serde(serialize_with = "name_of")]
    pub reason: &'static Reason,
    /// The same for people.
    pub message: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
fn name_of<S: Serializer>(reason: &&'static Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.name)
}

pub(super) fn told(reason: &'static Reason, message: impl Into<String>) -> Told {
    Told {
        reason,
        message: message.into(),
    }
}

/// How the run ended, if it has.
pub(super) fn end(seen: &Observed) -> Option<Told> {
    let mut reports = seen.coordinators().filter_map(Pod::report);
    if let Some(result) = reports.find_map(|report| report.result) {
        return Some(result_of(result));
    }
    let (_, job) = seen.job.as_ref()?;
    let newest = seen.coordinators().next();
    if let Some(why) = &job.failed {
        return Some(told(&FAILED, format!("{why}{}", last_words(newest))));
    }
    let exit = newest?.exit.as_ref()?;
    (job.complete && exit.code == 0).then(|| {
        let words = last_words(newest);
        told(
            &FAILED,
            format!("the coordinator ended without a result{words}"),
        )
    })
}

fn result_of(Explained { reason, message }: Explained) -> Told {
    match reason::result(&reason) {
        Some(known) => told(known, message),
        None => told(&FAILED, format!("ended with {reason}: {message}")),
    }
}

fn last_words(pod: Option<&Pod>) -> String {
    let exit = pod.and_then(|pod| Some((&pod.name, pod.exit.as_ref()?)));
    exit.map_or_else(String::new, |(pod, exit)| {
        let (code, words) = (exit.code, exit.message.trim());
        // That there was an error is what the code says.
        let reason = Some(&*exit.reason).filter(|reason| !["", "Error"].contains(reason));
        let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        let words = Some(newest(words)).filter(|words| !words.is_empty());
        let words = words.map_or_else(String::new, |words| format!(": {words}"));
        format!("; pod {pod} ended with exit code {code}{reason}{words}")
    })
}

/// The end of a log: its newest lines say why there are no more.
fn newest(words: &str) -> Cow<'_, str> {
    if words.len() <= LAST_WORDS {
        return words.into();
    }
    let from = words.ceil_char_boundary(words.len() - LAST_WORDS);
    format!("…{}", &words[from..]).into()
}

/// What keeps the run from beginning.
pub(super) fn before_start(run: &Validated, seen: &Observed) -> Option<Stage> {
    if run.spec.stop_after == Some(StopAfter::Snapshot) && run.csi().is_none() {
        let message =
            "nothing was done: a snapshot to stop after is made only with spec.source.snapshot.csi";
        return Some(Stage::Ended(told(&STOPPED, message)));
    }
    if run.is_suspended() {
        return Some(suspended(run, seen));
    }
    if let Some(rival) = first_rival(run, seen) {
        return Some(Stage::Waiting(told(&STORE_IN_USE, in_use(run, rival))));
    }
    let claim = &run.spec.source.persistent_volume_claim.claim_name;
    if seen.source.is_none() {
        let message = format!("PersistentVolumeClaim {claim} does not exist");
        return Some(Stage::Waiting(told(&REFERENCE_MISSING, message)));
    }
    if let Some(taken) = foreign_store(run, seen) {
        return Some(taken);
    }
    match &seen.credentials {
        Credentials::Missing(what) => Some(Stage::Waiting(told(&REFERENCE_MISSING, what.clone()))),
        Credentials::None | Credentials::Known(_) => None,
    }
}

/// Nobody has asked us to write to a claim that somebody else made, though it has the name that ours would have.
fn foreign_store(run: &Validated, seen: &Observed) -> Option<Stage> {
    let Place::Claim(name) = &run.place else {
        return None;
    };
    let is_foreign = seen.store.is_some_and(|claim| !claim.ours);
    (is_foreign && run.has_default_store()).then(|| {
        let message = format!(
            "PersistentVolumeClaim {name} exists and was not made for checksums; to use it, replace this run by one that names it in spec.store.embedded.claimName"
        );
        Stage::Waiting(told(&NAME_TAKEN, message))
    })
}

/// What keeps the snapshot from being read.
pub(super) fn before_reading(run: &Validated, seen: &Observed) -> Option<Stage> {
    run.csi()?;
    let name = name::checksum_snapshot(&run.key.name);
    let taken = |kind: &str| {
        let message = format!("{kind} {name} exists already and does not belong to this run");
        Stage::Waiting(told(&NAME_TAKEN, message))
    };
    let making = |message: String| Stage::Working(told(&SNAPSHOTTING, message));
    if seen.restored.as_ref().is_some_and(|claim| !claim.ours) {
        return Some(taken("PersistentVolumeClaim"));
    }
    match &seen.snapshot {
        Found::Unknown | Found::Absent => Some(making(format!("VolumeSnapshot {name} is made"))),
        Found::Foreign => Some(taken("VolumeSnapshot")),
        Found::NoKind => {
            let message = "the cluster has no definition volumesnapshots.snapshot.storage.k8s.io: install its snapshot controller";
            Some(Stage::Waiting(told(&REFERENCE_MISSING, message)))
        }
        Found::There { status, .. } if status.ready_to_use == Some(true) => {
            let stops = run.spec.stop_after == Some(StopAfter::Snapshot);
            let message = format!("VolumeSnapshot {name} is ready; it is deleted with this run");
            stops.then(|| Stage::Ended(told(&STOPPED, message)))
        }
        Found::There { status, .. } => {
            let error = status.error.as_ref().and_then(|e| e.message.as_deref());
            Some(match error {
                Some(words) => {
                    let message = format!("VolumeSnapshot {name}: {words}");
                    Stage::Waiting(told(&SNAPSHOT_FAILING, message))
                }
                None => making(format!(
                    "VolumeSnapshot {name}: the snapshot controller has not finished it"
                )),
            })
        }
    }
}

/// Of the runs on one store, one that has begun goes on, else the oldest begins.
fn first_rival<'a>(run: &Validated, seen: &'a Observed) -> Option<&'a Rival> {
    let rank = |begun: bool, created, name| (!begun, created, name);
    let own = rank(seen.begun, seen.created, run.key.name.as_str());
    let of = |rival: &'a Rival| rank(rival.begun, rival.created, rival.name.as_str());
    let first = seen.rivals.iter().min_by_key(|rival| of(rival))?;
    (of(first) < own).then_some(first)
}

/// Whom the run waits for, and what helps if that one does not begin.
fn in_use(
    run: &Validated,
    Rival {
        name,
        begun,
        reason,
        ..
    }: &Rival,
) -> String {
    let store = words(run);
    if *begun {
        return format!("ChecksumRun {name} uses {store}");
    }
    let why = match reason.as_deref() {
        Some(reason) if reason == SUSPENDED.name => ": it is suspended; resume or cancel it".into(),
        Some(reason) => format!(": its reason is {reason}; see to that, or cancel it"),
        None => " yet".into(),
    };
    format!("ChecksumRun {name} goes first on {store}, and has not begun{why}")
}

fn words(run: &Validated) -> String {
    let server = run.mysql().map(address).unwrap_or_default();
    match &run.place {
        Place::Claim(name) => format!("the store in PersistentVolumeClaim {name}"),
        Place::Database { file_system, .. } => {
            format!("the files {file_system} in database {server}")
        }
    }
}

/// That nothing is read is told when nobody is left who may still read. A new operator has not heard of everybody at once: what
/// its status says of this very spec holds until a pod says otherwise.
pub(super) fn suspended(run: &Validated, seen: &Observed) -> Stage {
    let ready = find(&seen.status.conditions, READY);
    let is_told = seen.status.observed_generation == run.generation
        && ready.is_some_and(|ready| ready.reason == SUSPENDED.name);
    let has_said = |pod: &&Pod| !is_told || pod.heard.is_some() || pod.works.is_some();
    let mut reading = seen.pods.iter().filter(|pod| pod.may_read_on());
    let Some(Pod { name, refusal, .. }) = reading.find(has_said) else {
        return Stage::Suspended;
    };
    let why = refusal.as_ref();
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let message = format!("is being suspended; pod {name} has not acknowledged it yet{why}");
    Stage::Working(told(&SUSPENDING, message))
}

/// A coordinator whose Job is gone: beside it no second one may begin.
pub(super) fn earlier_pod(seen: &Observed) -> Option<Stage> {
    let Pod { name, .. } = seen.coordinators().find(|pod| pod.is_alive())?;
    let message = format!(
        "waiting for pod {name}, whose Job is gone, to end; if it takes long, its events say why: kubectl describe pod {name}"
    );
    Some(Stage::Working(told(&STARTING, message)))
}

/// How far a run is that goes on.
pub(super) fn stage(run: &Validated, seen: &Observed) -> Stage {
    if run.is_suspended() {
        return suspended(run, seen);
    }
    let Some(report) = seen
        .report()
        .filter(|r| r.state.is_some() || r.waiting.is_some())
    else {
        return Stage::Working(told(&STARTING, starting(run, seen)));
    };
    if let Some(Explained { reason, message }) = report.waiting {
        let message = message + &failed_preparation(run, seen);
        return Stage::Waiting(match reason::progress(&reason) {
            Some(known) => told(known, message),
            None => told(&WAITING, format!("{reason}: {message}")),
        });
    }
    // A coordinator that crashed is replaced: what it said last holds until the next one says more.
    match seen.coordinators().next() {
        Some(pod) if pod.exit.is_some() => Stage::Working(told(&STARTING, starting(run, seen))),
        Some(_) | None => Stage::Working(working(run, seen, &report)),
    }
}

/// Why a store that belongs to root still does, if that was tried.
fn failed_preparation(run: &Validated, seen: &Observed) -> String {
    let failed = seen.preparation.as_ref();
    let failed = failed.and_then(|(_, job)| job.failed.as_deref());
    let job = name::checksum_preparation(&run.key.name);
    failed.map_or_else(String::new, |why| {
        format!("; Job {job} could not make the store writable: {why}")
    })
}

fn working(run: &Validated, seen: &Observed, report: &CoordinatorReport) -> Told {
    let files = report.files.unwrap_or_default();
    let reason = match report.state.unwrap_or(RunState::Initialised) {
        RunState::Initialised => &STARTING,
        RunState::Snapshot => &SNAPSHOTTING,
        RunState::MetadataSync => &reason::LISTING,
        RunState::WorkQueue => &READING,
        RunState::CleanUp
        | RunState::Finished
        | RunState::AbortingMetadataSync
        | RunState::AbortingSnapshot
        | RunState::Aborted => &reason::CLEANING_UP,
    };
    let message = match report.state {
        Some(RunState::WorkQueue) => {
            let read = files.total - files.remaining - files.not_selected;
            format!(
                "{read} of {} files are read{}",
                files.total - files.not_selected,
                idle(run, seen)
            )
        }
        Some(RunState::MetadataSync) => format!("{} files are listed", report.listed),
        Some(_) | None => reason.meaning.into(),
    };
    told(reason, message)
}

/// What the pod of the coordinator waits for.
fn starting(run: &Validated, seen: &Observed) -> String {
    let job = name::checksum(&run.key.name);
    let Some(pod) = seen.coordinators().next() else {
        return format!(
            "waiting for a pod of Job {job}; if none comes, its events say why: kubectl describe job {job}"
        );
    };
    if pod.exit.is_some() {
        return format!("another pod is started{}", last_words(Some(pod)));
    }
    held_up(pod).unwrap_or_else(|| being_started(pod))
}

/// What keeps a pod from starting, if the pod says so.
pub(super) fn held_up(pod: &Pod) -> Option<String> {
    let holdup = pod.holdup.as_ref()?;
    Some(format!("pod {} does not start: {holdup}", pod.name))
}

/// How far a pod is that nothing is known to keep from starting.
pub(super) fn being_started(Pod { name, life, .. }: &Pod) -> String {
    if *life != Life::NotStarted {
        return format!("pod {name} has started, and is asked how it is");
    }
    format!(
        "pod {name} is being started; if it takes long, its events say why: kubectl describe pod {name}"
    )
}
