//! Who has begun on which store, until the caches tell. In: runs that are about to make their first object. Out: which of them
//! was first. Touches memory only.
//!
//! Passes over several runs go on at once, and a cache tells of a Job only when it is stored: by the caches alone two runs
//! could find the same store free. This memory adds to what caches say and takes nothing away, so that a new leader can do
//! without: the passes of the last one had ended before it began.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use runtime::clock::Clock;
use tokio::time::Instant;

use super::config::{Place, Validated};
use crate::{object::Key, watch::WATCH_TIMEOUT};

/// How long a turn lasts of which no cache tells: a pass whose requests are all late, and a watch that has to notice that
/// its connection is dead.
const UNTOLD: Duration = WATCH_TIMEOUT.saturating_add(Duration::from_mins(2));

/// How many turns are remembered. While there are as many nobody else begins, and tries again in a moment.
const REMEMBERED: usize = 10_000;

/// A store: a namespace, and where in it.
type Where = (String, Place);

/// The runs that have begun and of whose Job no cache has told.
#[derive(Clone, Debug)]
pub struct Turns {
    taken: Arc<Mutex<HashMap<Where, Turn>>>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct Turn {
    run: String,
    uid: String,
    until: Instant,
}

impl Turns {
    /// Nobody has begun yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            taken: Arc::default(),
            clock,
        }
    }

    /// Takes the store for a run; `false` if another was faster.
    pub(super) fn take(&self, run: &Validated) -> bool {
        let mut taken = self.still_taken();
        let store = (run.key.namespace.clone(), run.place.clone());
        let is_free = match taken.get(&store) {
            // Of that name there is one run: another UID is that of a run which is gone.
            Some(turn) => turn.run == run.key.name,
            None => taken.len() < REMEMBERED,
        };
        if is_free {
            let turn = Turn {
                run: run.key.name.clone(),
                uid: run.uid.clone(),
                until: self.clock.monotonic() + UNTOLD,
            };
            taken.insert(store, turn);
        }
        is_free
    }

    /// Whether the run with that UID has taken the store.
    pub(super) fn has(&self, namespace: &str, place: &Place, uid: &str) -> bool {
        let store = (namespace.to_owned(), place.clone());
        let taken = self.still_taken();
        taken.get(&store).is_some_and(|turn| turn.uid == uid)
    }

    /// The run is gone or over, or a cache tells of its Job: nobody needs the memory any more.
    pub(super) fn forget(&self, run: &Key) {
        let is_of = |store: &Where, turn: &Turn| store.0 == run.namespace && turn.run == run.name;
        self.still_taken().retain(|store, turn| !is_of(store, turn));
    }

    fn still_taken(&self) -> MutexGuard<'_, HashMap<Where, Turn>> {
        let now = self.clock.monotonic();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|_, turn| turn.until > now);
        taken
    }
}

#[cfg(test)]
mod tests {
    use runtime::clock::SystemClock;
    use serde_json::json;

    use super::{super::fixture::validated, *};

    fn turns() -> Turns {
        Turns::new(Arc::new(SystemClock))
    }

    /// A run of that name on that store.
    fn run(name: &str, store: &str) -> Validated {
        let mut run = validated(json!({"store": {"embedded": {"claimName": store}}}));
        run.key.name = name.into();
        run.uid = format!("uid of {name}");
        run
    }

    fn has(turns: &Turns, run: &Validated) -> bool {
        turns.has(&run.key.namespace, &run.place, &run.uid)
    }

    #[tokio::test]
    async fn of_two_runs_on_one_store_the_first_has_begun_and_the_other_has_not() {
        let (turns, first, second) = (turns(), run("a", "sums"), run("b", "sums"));
        assert!(turns.take(&first) && turns.take(&first));
        assert!(!turns.take(&second));
        assert!(has(&turns, &first) && !has(&turns, &second));
        turns.forget(&first.key);
        assert!(turns.take(&second));
    }

    #[tokio::test]
    async fn a_run_that_is_made_again_does_not_wait_for_itself() {
        let (turns, before) = (turns(), run("a", "sums"));
        assert!(turns.take(&before));
        let mut again = run("a", "sums");
        again.uid = "another uid".into();
        assert!(!has(&turns, &again) && turns.take(&again));
        assert!(has(&turns, &again) && !has(&turns, &before));
    }

    #[tokio::test]
    async fn other_stores_and_other_namespaces_are_free() {
        let turns = turns();
        let mut elsewhere = run("b", "sums");
        elsewhere.key.namespace = "elsewhere".into();
        assert!(turns.take(&run("a", "sums")));
        assert!(turns.take(&run("b", "other")) && turns.take(&elsewhere));
        turns.forget(&run("b", "other").key);
        assert!(has(&turns, &elsewhere));
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_of_which_no_cache_tells_does_not_last_for_ever() {
        let (turns, first) = (turns(), run("a", "sums"));
        assert!(turns.take(&first));
        tokio::time::advance(UNTOLD).await;
        assert!(!has(&turns, &first));
        assert!(turns.take(&run("b", "sums")));
    }

    #[tokio::test]
    async fn what_is_remembered_has_a_bound() {
        let turns = turns();
        for number in 0..REMEMBERED {
            let store = (String::new(), Place::Claim(number.to_string()));
            let turn = Turn {
                run: String::new(),
                uid: String::new(),
                until: turns.clock.monotonic() + UNTOLD,
            };
            turns.taken.lock().unwrap().insert(store, turn);
        }
        assert!(!turns.take(&run("a", "sums")));
    }
}
