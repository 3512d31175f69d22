//! Files that could not be read, until they were tried often enough. In: what came of reading them. Out: what is the last word,
//! and which files are tried again. Touches nothing but its own memory.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Source;
use crate::judge::Reading;
use crate::path::Key;

/// In so many rounds a file is read that cannot be read: by another reader, or a moment later, it often can.
pub(super) const TRIES: usize = 3;
/// So many are kept for another try. Where there are more, they have one reason in common, and the others are told at once.
const KEPT: usize = 100_000;
/// So much of a reason is kept.
const WORDS: usize = 500;

/// What failed, and is to be tried again.
#[derive(Debug)]
pub(super) struct Failures {
    source: Source,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    round: usize,
    kept: HashMap<Key, Failure>,
}

#[derive(Debug, Default)]
struct Failure {
    tries: usize,
    /// Of the last try: pieces of a file may fail one by one.
    round: usize,
    why: String,
}

impl Failures {
    pub(super) fn of(source: Source) -> Self {
        Self {
            source,
            state: Mutex::default(),
        }
    }

    /// A round begins over so many files. The keys of all of them, if they are those that failed in the round before: of what
    /// failed earlier a result may have come twice, and the file may be done.
    pub(super) fn begin_round(&self, remaining: i64) -> Option<Vec<Key>> {
        let mut state = self.state();
        let failed_lately = state.kept.values().all(|it| it.round == state.round);
        let is_all = failed_lately && i64::try_from(state.kept.len()) == Ok(remaining);
        state.round += 1;
        is_all.then(|| state.kept.keys().copied().collect())
    }

    /// Leaves what is the last word about a file in this run.
    pub(super) fn settle<T>(
        &self,
        results: &mut Vec<T>,
        of: impl Fn(&mut T) -> (Key, &mut Reading),
    ) {
        let mut state = self.state();
        results.retain_mut(|result| {
            let (key, reading) = of(result);
            // Nobody changes what a snapshot has: what is not there as it was listed could not be read.
            if let (Source::Snapshot, Reading::Moving { why }) = (self.source, &*reading) {
                let why = why.clone();
                *reading = Reading::Failed { why };
            }
            match reading {
                Reading::Failed { why } => state.is_final(key, why),
                Reading::Read { .. } | Reading::Moving { .. } => {
                    state.kept.remove(&key);
                    true
                }
            }
        });
    }

    /// Why a file could not be read that was to be tried again.
    pub(super) fn why(&self, key: Key) -> Option<String> {
        self.state().kept.remove(&key).map(|failed| failed.why)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_final(&mut self, key: Key, why: &str) -> bool {
        if self.kept.len() >= KEPT && !self.kept.contains_key(&key) {
            return true;
        }
        let failed = self.kept.entry(key).or_default();
        if failed.round != self.round {
            failed.round = self.round;
            failed.tries += 1;
        }
        why[..why.floor_char_boundary(WORDS)].clone_into(&mut failed.why);
        let is_final = failed.tries >= TRIES;
        if is_final {
            self.kept.remove(&key);
        }
        is_final
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Key {
        Key::of(&n.to_le_bytes())
    }

    /// The words that are told of one reading, if it is the last.
    fn told(failures: &Failures, key: Key, reading: Reading) -> Option<Reading> {
        let mut results = vec![(key, reading)];
        failures.settle(&mut results, |(key, reading)| (*key, reading));
        results.pop().map(|(_, reading)| reading)
    }

    fn fails(failures: &Failures, key: Key, why: &str) -> bool {
        told(failures, key, Reading::Failed { why: why.into() }).is_none()
    }

    fn moving() -> Reading {
        Reading::Moving { why: "gone".into() }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_told_in_the_third_round() {
        let failures = Failures::of(Source::Live);
        for (round, is_kept) in [true, true, false].into_iter().enumerate() {
            let again = failures.begin_round(1);
            assert_eq!(again, (round > 0).then(|| vec![key(1)]));
            assert_eq!(fails(&failures, key(1), "stale"), is_kept, "{round}");
        }
        assert_eq!(failures.begin_round(0), Some(vec![]));
    }

    #[test]
    fn pieces_of_a_file_that_fail_in_one_round_are_one_try() {
        let failures = Failures::of(Source::Live);
        failures.begin_round(1);
        for _ in 0..5 {
            assert!(fails(&failures, key(1), "stale"));
        }
    }

    #[test]
    fn whoever_was_not_heard_of_is_looked_for_among_all() {
        let failures = Failures::of(Source::Live);
        failures.begin_round(3);
        assert!(fails(&failures, key(1), "stale"));
        assert_eq!(failures.begin_round(2), None);
    }

    #[test]
    fn a_failure_that_is_told_again_when_the_file_is_done_hides_no_other_file_for_long() {
        let failures = Failures::of(Source::Live);
        for _ in 0..TRIES {
            failures.begin_round(2);
            fails(&failures, key(1), "stale");
        }
        // Done by now, as a second piece of it is heard of; the other file was lost on its way.
        assert!(fails(&failures, key(1), "stale"));
        assert_eq!(failures.begin_round(1), Some(vec![key(1)]));
        assert_eq!(failures.begin_round(1), None);
    }

    #[test]
    fn whatever_else_comes_of_a_file_is_told_and_ends_what_was_before() {
        let failures = Failures::of(Source::Live);
        assert!(fails(&failures, key(1), "stale"));
        assert_eq!(told(&failures, key(1), moving()), Some(moving()));
        assert_eq!(failures.why(key(1)), None);
    }

    #[test]
    fn what_is_gone_from_a_snapshot_could_not_be_read() {
        let failures = Failures::of(Source::Snapshot);
        for _ in 1..TRIES {
            failures.begin_round(1);
            assert_eq!(told(&failures, key(1), moving()), None);
        }
        failures.begin_round(1);
        let why = "gone".into();
        let failed = Some(Reading::Failed { why });
        assert_eq!(told(&failures, key(1), moving()), failed);
    }

    #[test]
    fn the_last_reason_is_kept_for_who_gives_up() {
        let failures = Failures::of(Source::Live);
        for why in ["stale", "busy"] {
            assert!(fails(&failures, key(1), why));
        }
        assert_eq!(failures.why(key(1)), Some("busy".into()));
        assert!(fails(&failures, key(1), &"ä".repeat(1000)));
        assert!(failures.why(key(1)).unwrap().len() <= WORDS);
    }

    #[test]
    fn more_than_can_be_kept_are_told_at_once() {
        let failures = Failures::of(Source::Live);
        let mut many: Vec<_> = (0..KEPT)
            .map(|n| {
                (
                    key(n),
                    Reading::Failed {
                        why: "denied".into(),
                    },
                )
            })
            .collect();
        failures.settle(&mut many, |(key, reading)| (*key, reading));
        assert!(many.is_empty());
        assert!(!fails(&failures, key(KEPT), "denied"));
        assert!(fails(&failures, key(0), "denied"));
    }
}
