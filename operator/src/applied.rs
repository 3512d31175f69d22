//! What was applied to which child. In: the answers to writes. Out: whether a child is still what was asked for.
//! Touches memory only, so that a pass over children that nobody changed costs no request.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// How many children are remembered; beyond that the memory starts anew, which costs a request for each.
const REMEMBERED: usize = 100_000;

/// The last write to each child. Lives as long as the process: a new leader applies everything once.
#[derive(Clone, Debug, Default)]
pub struct Applied(Arc<Mutex<HashMap<Box<str>, Note>>>);

#[derive(Clone, Debug)]
struct Note {
    stamp: u64,
    digest: String,
}

impl Applied {
    /// The child with that UID was asked to be what has that digest, and has that stamp since.
    pub fn note(&self, uid: &str, stamp: u64, digest: String) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() >= REMEMBERED {
            notes.clear();
        }
        notes.insert(uid.into(), Note { stamp, digest });
    }

    /// The digest of what the child was asked to be, if nobody has changed it since.
    pub fn unchanged(&self, uid: &str, stamp: u64) -> Option<String> {
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let note = notes.get(uid).filter(|note| note.stamp == stamp)?;
        Some(note.digest.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_somebody_changed_is_not_what_was_asked_for() {
        let applied = Applied::default();
        assert_eq!(applied.unchanged("u", 1), None);
        applied.note("u", 1, "wanted".into());
        assert_eq!(applied.unchanged("u", 1).as_deref(), Some("wanted"));
        assert_eq!(applied.unchanged("u", 2), None);
        assert_eq!(applied.unchanged("v", 1), None);
    }
}
