//! What a run has still to read, some files at a time. In: all that is not done, or keys. Out: files. Reads the store.

use crate::path::Key;
use crate::store::{Error, Pending, Run, View};

/// Rows that are asked for at once.
const PAGE: usize = 4000;

/// Files that are still to be read.
pub(super) struct Left<'a> {
    view: &'a View,
    run: &'a Run,
    whence: Whence,
}

enum Whence {
    /// All, after this key.
    After(Option<Key>),
    /// These.
    Keys(Vec<Key>),
    Nowhere,
}

impl<'a> Left<'a> {
    /// All that the run has not done; or of these, if it is known which they are.
    pub(super) fn of(view: &'a View, run: &'a Run, keys: Option<Vec<Key>>) -> Self {
        let whence = keys.map_or(Whence::After(None), Whence::Keys);
        Self { view, run, whence }
    }

    /// Some more of them, perhaps none; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Pending>>, Error> {
        let (pending, rest) = match std::mem::replace(&mut self.whence, Whence::Nowhere) {
            Whence::Nowhere => return Ok(None),
            Whence::After(after) => {
                let (pending, last) = self.view.pending(self.run, after, PAGE).await?;
                let rest = last.map(|last| Whence::After(Some(last)));
                (pending, rest)
            }
            Whence::Keys(mut keys) => {
                let some = keys.split_off(keys.len().saturating_sub(PAGE));
                let pending = self.view.pending_of(self.run, &some).await?;
                (pending, (!keys.is_empty()).then_some(Whence::Keys(keys)))
            }
        };
        self.whence = rest.unwrap_or(Whence::Nowhere);
        Ok(Some(pending))
    }
}
