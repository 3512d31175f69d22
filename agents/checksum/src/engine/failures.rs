//! Files that could not be read, until they were tried often enough. In: what came of reading them. Out: whether that is the
//! last word. Pure.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::judge::Reading;
use crate::path::Key;

/// So often a file is read that cannot be read: by another reader, or a moment later, it often can.
pub(super) const TRIES: usize = 3;
/// So many are kept for another try. Where there are more, they have one reason in common, and the others are told at once.
const KEPT: usize = 100_000;
/// So much of a reason is kept.
const WORDS: usize = 500;

/// What failed, and is to be tried again.
#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<Key, Failure>);

#[derive(Debug)]
struct Failure {
    tries: usize,
    why: String,
}

impl Failures {
    /// Whether this is the last word about a file in this run.
    pub(super) fn is_final(&mut self, key: Key, reading: &Reading) -> bool {
        let Reading::Failed { why } = reading else {
            self.0.remove(&key);
            return true;
        };
        let is_full = self.0.len() >= KEPT;
        let why = why[..why.floor_char_boundary(WORDS)].to_owned();
        match self.0.entry(key) {
            Entry::Vacant(_) if is_full => true,
            Entry::Vacant(free) => {
                free.insert(Failure { tries: 1, why });
                false
            }
            Entry::Occupied(failed) if failed.get().tries + 1 >= TRIES => {
                failed.remove();
                true
            }
            Entry::Occupied(mut failed) => {
                let tries = failed.get().tries + 1;
                failed.insert(Failure { tries, why });
                false
            }
        }
    }

    /// Why a file could not be read that was to be tried again.
    pub(super) fn why(&mut self, key: Key) -> Option<String> {
        self.0.remove(&key).map(|failed| failed.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(why: &str) -> Reading {
        Reading::Failed { why: why.into() }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_told_when_it_was_tried_often_enough() {
        let (mut failures, key) = (Failures::default(), Key::of(b"a"));
        let mut told = || failures.is_final(key, &failed("stale"));
        assert_eq!([told(), told(), told()], [false, false, true]);
        assert_eq!(failures.why(key), None);
    }

    #[test]
    fn whatever_else_comes_of_a_file_is_told_and_ends_what_was_before() {
        let (mut failures, key) = (Failures::default(), Key::of(b"a"));
        assert!(!failures.is_final(key, &failed("stale")));
        let moving = Reading::Moving { why: "gone".into() };
        assert!(failures.is_final(key, &moving));
        assert_eq!(failures.why(key), None);
    }

    #[test]
    fn the_last_reason_is_kept_for_who_gives_up() {
        let (mut failures, key) = (Failures::default(), Key::of(b"a"));
        for why in ["stale", "busy"] {
            assert!(!failures.is_final(key, &failed(why)));
        }
        assert_eq!(failures.why(key), Some("busy".into()));
        assert!(!failures.is_final(key, &failed(&"ä".repeat(1000))));
        assert!(failures.why(key).unwrap().len() <= WORDS);
    }

    #[test]
    fn more_than_can_be_kept_are_told_at_once() {
        let mut failures = Failures::default();
        let key = |n: usize| Key::of(&n.to_le_bytes());
        for n in 0..KEPT {
            assert!(!failures.is_final(key(n), &failed("denied")));
        }
        assert!(failures.is_final(key(KEPT), &failed("denied")));
        assert!(!failures.is_final(key(0), &failed("denied")));
    }
}
