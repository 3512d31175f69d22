//! How far a run is, and what may follow. Pure: the state machine of a run.

use std::fmt;

/// What a run does next. A state is stored after the work of the one before it, so a run that died goes on where it was.
///
/// ```text
/// initialised → snapshot → medasync → workqueue → cleanup → finished
///      │            │          │           │          │
///      │            │          ▼           │          │
///      │            │   aborting-medasync  │          │
///      │            ▼          ▼           │          │
///      │          aborting-snapshot ◄──────┴──────────┘
///      ▼                ▼
///           aborted
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing was begun.
    Initialised,
    /// A consistent view is made.
    Snapshot,
    /// Files are listed and compared with the store.
    MetadataSync,
    /// Files are read.
    WorkQueue,
    /// What the run left behind is removed.
    CleanUp,
    /// Done.
    Finished,
    /// What an aborted listing left behind is removed.
    AbortingMetadataSync,
    /// What an aborted run left behind is removed.
    AbortingSnapshot,
    /// Given up, by somebody's decision.
    Aborted,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Initialised,
        Self::Snapshot,
        Self::MetadataSync,
        Self::WorkQueue,
        Self::CleanUp,
        Self::Finished,
        Self::AbortingMetadataSync,
        Self::AbortingSnapshot,
        Self::Aborted,
    ];

    /// As stores have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Initialised => "initialised",
            Self::Snapshot => "snapshot",
            Self::MetadataSync => "medasync",
            Self::WorkQueue => "workqueue",
            Self::CleanUp => "cleanup",
            Self::Finished => "finished",
            Self::AbortingMetadataSync => "aborting-medasync",
            Self::AbortingSnapshot => "aborting-snapshot",
            Self::Aborted => "aborted",
        }
    }

    /// The state that a store means.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// The state after this one's work; the last ones have none.
    pub fn next(self) -> Option<Self> {
        match self {
            Self::Initialised => Some(Self::Snapshot),
            Self::Snapshot => Some(Self::MetadataSync),
            Self::MetadataSync => Some(Self::WorkQueue),
            Self::WorkQueue => Some(Self::CleanUp),
            Self::CleanUp => Some(Self::Finished),
            Self::AbortingMetadataSync => Some(Self::AbortingSnapshot),
            Self::AbortingSnapshot => Some(Self::Aborted),
            Self::Finished | Self::Aborted => None,
        }
    }

    /// The state of a run that is to be given up. What has ended stays as it is.
    #[must_use]
    pub fn aborted(self) -> Self {
        match self {
            Self::Initialised => Self::Aborted,
            Self::MetadataSync => Self::AbortingMetadataSync,
            Self::Snapshot | Self::WorkQueue | Self::CleanUp => Self::AbortingSnapshot,
            Self::AbortingMetadataSync
            | Self::AbortingSnapshot
            | Self::Finished
            | Self::Aborted => self,
        }
    }

    /// Whether nothing is left to do.
    pub fn is_resolved(self) -> bool {
        self.next().is_none()
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of(mut state: State) -> State {
        for _ in 0..State::ALL.len() {
            state = state.next().unwrap_or(state);
        }
        state
    }

    #[test]
    fn every_run_ends_and_every_aborted_one_ends_aborted() {
        for state in State::ALL {
            assert!(end_of(state).is_resolved());
            let given_up = end_of(state.aborted());
            let expected = if state == State::Finished {
                state
            } else {
                State::Aborted
            };
            assert_eq!(given_up, expected, "{state}");
        }
        assert_eq!(end_of(State::Initialised), State::Finished);
    }

    #[test]
    fn every_name_is_read_as_what_it_was_written_for() {
        for state in State::ALL {
            assert_eq!(State::from_name(state.name()), Some(state));
        }
        assert_eq!(State::from_name("Finished"), None);
    }
}
