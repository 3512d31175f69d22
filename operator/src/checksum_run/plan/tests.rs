//! Claims about what a run needs, case by case.

use crds::{
    checksum_run::{reason, status::FileCounts},
    condition::{Draft, merge},
    name,
    report::checksum::Explained,
};
use serde_json::json;

use super::{
    super::{
        fixture::{distributed, image, validated},
        snapshot::{SnapshotError, VolumeSnapshotStatus},
        status,
    },
    *,
};
use crate::{object::digest, secrets};

mod begin;
mod end;
mod progress;
mod snapshot;
mod store;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-11-16T04:00:00Z")
}

fn seen() -> Observed {
    Observed {
        status: ChecksumRunStatus::default(),
        image: image(),
        source: Some(ClaimState {
            access_modes: vec!["ReadWriteOnce".into()],
            ..ClaimState::default()
        }),
        store: None,
        preparation: None,
        begun: false,
        created: at("2026-11-16T03:00:00Z"),
        scheduled: false,
        rivals: Vec::new(),
        config: None,
        credentials: Credentials::None,
        copy: None,
        job: None,
        workers: None,
        snapshot: Found::Unknown,
        restored: None,
        pods: Vec::new(),
    }
}

fn made(uid: &str, applied: Option<&str>) -> Made {
    Made {
        uid: uid.into(),
        applied: applied.map(Into::into),
    }
}

fn job() -> (Made, JobState) {
    let job = JobState {
        image: Some("registry.example.com/orrery:0.9.0".into()),
        ..JobState::default()
    };
    (made("job-uid", None), job)
}

fn coordinator() -> Pod {
    Pod {
        name: "home-full-checksum-abc".into(),
        role: Role::Coordinator,
        life: Life::Ready,
        exit: None,
        holdup: None,
        heard: None,
        works: None,
        heeds: true,
        refusal: None,
        behind_since: None,
        silent_since: None,
    }
}

fn working_pod(report: CoordinatorReport) -> Pod {
    Pod {
        heard: Some(report),
        ..coordinator()
    }
}

fn reading() -> CoordinatorReport {
    CoordinatorReport {
        state: Some(RunState::WorkQueue),
        files: Some(FileCounts {
            total: 100,
            verified: 40,
            not_selected: 10,
            remaining: 50,
            ..FileCounts::default()
        }),
        ..CoordinatorReport::default()
    }
}

fn explained(reason: &str) -> Explained {
    Explained {
        reason: reason.into(),
        message: "words".into(),
    }
}

fn finished(result: &str) -> CoordinatorReport {
    CoordinatorReport {
        state: Some(RunState::Finished),
        result: Some(explained(result)),
        ..CoordinatorReport::default()
    }
}

fn exited(code: i32, message: &str) -> Pod {
    Pod {
        exit: Some(Exit {
            code,
            reason: "Error".into(),
            message: message.into(),
        }),
        ..coordinator()
    }
}

/// A run whose Job is there, with that pod.
fn with_pod(pod: Pod) -> Observed {
    Observed {
        job: Some(job()),
        pods: vec![pod],
        store: Some(StoreClaim { ours: true }),
        begun: true,
        ..seen()
    }
}

fn stage_of(plan: &Plan) -> (&'static str, &'static str, String) {
    let (stage, told) = match &plan.stage {
        Stage::Over => ("Over", None),
        Stage::Suspended => ("Suspended", None),
        Stage::Ended(told) => ("Ended", Some(told)),
        Stage::Working(told) => ("Working", Some(told)),
        Stage::Waiting(told) => ("Waiting", Some(told)),
    };
    let words = told.map_or_else(String::new, |told| told.message.clone());
    (stage, told.map_or("", |told| told.reason.name), words)
}

fn writes(plan: &Plan) -> Vec<&'static str> {
    let all = [
        ("store", plan.store.is_some()),
        ("preparation", plan.preparation.is_some()),
        ("config", plan.config.is_some()),
        ("credentials", plan.credentials.is_some()),
        ("job", plan.job.is_some()),
        ("workers", plan.workers.is_some()),
        ("remove", !plan.remove.is_empty()),
    ];
    all.iter()
        .filter(|(_, is)| *is)
        .map(|(name, _)| *name)
        .collect()
}

fn ended(mut seen: Observed, result: &'static Reason) -> Observed {
    let drafts = [Draft::new(COMPLETE, true, result, "")];
    seen.status.conditions = merge(&[], &drafts, Some(1), now());
    seen.status.completion_time = Some(now());
    seen
}
