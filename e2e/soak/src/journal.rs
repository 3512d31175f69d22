//! In: what happens in a run, from wherever it happens. Out: the counts.
//! Touches nothing.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What a topic says of the real parts, whatever is done to them.
#[derive(Debug, PartialEq, Eq)]
pub struct Claim {
    /// In a few words; the same in every record.
    pub name: &'static str,
    /// What exactly is meant, and what one time is.
    pub meaning: &'static str,
}

/// What was done, how often, and how often each claim held.
#[derive(Debug, Default)]
pub struct Journal(Mutex<Counts>);

/// The counts, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Actions.
    pub done: BTreeMap<&'static str, u64>,
    /// Claims.
    pub held: BTreeMap<&'static str, u64>,
}

impl Journal {
    /// Something was done.
    pub fn did(&self, action: &'static str) {
        *self.counts().done.entry(action).or_default() += 1;
    }

    /// A claim held so many times more.
    pub fn held(&self, claim: &Claim, times: u64) {
        *self.counts().held.entry(claim.name).or_default() += times;
    }

    /// The counts so far.
    pub fn so_far(&self) -> Counts {
        self.counts().clone()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Whether nothing happened: such a run says nothing.
    pub fn is_empty(&self) -> bool {
        self.done.is_empty() && self.held.is_empty()
    }

    /// How often a claim held.
    pub fn times(&self, claim: &Claim) -> u64 {
        self.held.get(claim.name).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: Claim = Claim {
        name: "nothing was lost",
        meaning: "",
    };

    #[test]
    fn what_is_done_and_what_holds_is_counted() {
        let journal = Journal::default();
        assert!(journal.so_far().is_empty());
        journal.did("kill");
        journal.did("kill");
        journal.held(&CLAIM, 3);
        journal.held(&CLAIM, 4);
        let counts = journal.so_far();
        assert_eq!(counts.done, BTreeMap::from([("kill", 2)]));
        assert_eq!(counts.times(&CLAIM), 7);
        assert!(!counts.is_empty());
    }
}
