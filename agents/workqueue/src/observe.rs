//! In: which jobs begin and end. Out: what is to be written about each worker, at most once a second.
//! Pure. Only people look at it, so a worker that is done within a second need not be seen.

use std::sync::Arc;

use crate::Job;

/// More than this is not shown: arguments can have megabytes, and are written again and again.
const ARGS_BYTES: usize = 4096;

/// What one worker is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) job_name: String,
    pub(crate) job_id: String,
    pub(crate) started_at: i64,
    /// JSON, or nothing if there are none or too many.
    pub(crate) args: String,
}

/// What is to be written about one worker: what it does, or that it does nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) worker: Arc<str>,
    pub(crate) doing: Option<Observation>,
    slot: usize,
    version: u64,
}

/// The workers of a pool. Jobs are given to the first that is idle; when all are busy a job is not shown.
#[derive(Debug)]
pub(crate) struct Workers {
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    worker: Arc<str>,
    doing: Option<Observation>,
    version: u64,
    written: u64,
}

impl Workers {
    pub(crate) fn new(ids: impl IntoIterator<Item = String>) -> Self {
        let slot = |id: String| Slot {
            worker: id.into(),
            doing: None,
            version: 0,
            written: 0,
        };
        Self {
            slots: ids.into_iter().map(slot).collect(),
        }
    }

    /// A job begins. Tells at which place, and whether it is the first there and so to be written at once.
    pub(crate) fn start(&mut self, job: &Job, started_at: i64) -> Option<(usize, bool)> {
        let place = self.slots.iter().position(|slot| slot.doing.is_none())?;
        let slot = &mut self.slots[place];
        slot.doing = Some(Observation {
            job_name: job.name.clone(),
            job_id: job.id.clone(),
            started_at,
            args: shown_args(job),
        });
        slot.version += 1;
        Some((place, slot.version == 1))
    }

    /// The job at that place has ended.
    pub(crate) fn done(&mut self, place: usize) {
        if let Some(slot) = self.slots.get_mut(place) {
            slot.doing = None;
            slot.version += 1;
        }
    }

    /// What differs from what was written.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let changed = |(place, slot): (usize, &Slot)| {
            (slot.version != slot.written).then(|| Change {
                worker: slot.worker.clone(),
                doing: slot.doing.clone(),
                slot: place,
                version: slot.version,
            })
        };
        self.slots.iter().enumerate().filter_map(changed).collect()
    }

    /// These have been written.
    pub(crate) fn written(&mut self, changes: &[Change]) {
        for change in changes {
            self.slots[change.slot].written = change.version;
        }
    }

    /// The identifiers, sorted, with commas in between.
    pub(crate) fn ids(&self) -> String {
        let mut ids: Vec<&str> = self.slots.iter().map(|slot| &*slot.worker).collect();
        ids.sort_unstable();
        ids.join(",")
    }
}

fn shown_args(job: &Job) -> String {
    let args = job.unique_args();
    let args = args.trim_end();
    if args == "{}" || args.len() > ARGS_BYTES {
        return String::new();
    }
    args.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(args: serde_json::Value) -> Job {
        Job {
            name: "N".into(),
            id: "1".into(),
            args: serde_json::from_value(args).unwrap(),
            ..Job::default()
        }
    }

    fn workers() -> Workers {
        Workers::new(["b".into(), "a".into()])
    }

    #[test]
    fn the_first_job_of_a_worker_is_written_at_once() {
        let mut workers = workers();
        let any = job(json!({}));
        assert_eq!(workers.start(&any, 7), Some((0, true)));
        assert_eq!(workers.start(&any, 7), Some((1, true)));
        assert_eq!(workers.start(&any, 7), None);
        workers.done(0);
        assert_eq!(workers.start(&any, 8), Some((0, false)));
    }

    #[test]
    fn only_what_changed_is_written() {
        let mut workers = workers();
        assert_eq!(workers.changes(), []);
        workers.start(&job(json!({"n": 1})), 7);
        let changes = workers.changes();
        let doing = changes[0].doing.clone().unwrap();
        assert_eq!((doing.started_at, doing.args.as_str()), (7, r#"{"n":1}"#));
        workers.done(0);
        workers.written(&changes);
        let idle = workers.changes();
        assert_eq!(idle.len(), 1, "it ended after the writing began");
        assert_eq!(idle[0].doing, None);
        workers.written(&idle);
        assert_eq!(workers.changes(), []);
    }

    #[test]
    fn large_arguments_are_not_shown() {
        assert_eq!(shown_args(&job(json!({"pl": "x".repeat(5000)}))), "");
        assert_eq!(shown_args(&job(json!({}))), "");
        assert_eq!(shown_args(&job(json!(null))), "");
    }

    #[test]
    fn identifiers_are_listed_in_order() {
        assert_eq!(workers().ids(), "a,b");
    }
}
