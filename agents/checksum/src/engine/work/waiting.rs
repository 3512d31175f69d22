//! Packs on their way to readers. In: packs. Out: the next, or the next if somebody wants one like it.

use tokio::sync::mpsc::Receiver;

use super::Pack;

/// Packs that wait for a reader.
pub(super) struct Waiting {
    packs: Receiver<Pack>,
    /// The next of them, once somebody has looked at it.
    first: Option<Pack>,
}

impl Waiting {
    pub(super) fn new(packs: Receiver<Pack>) -> Self {
        Self { packs, first: None }
    }

    /// The next one; none when there are no more.
    pub(super) fn next(&mut self) -> Option<Pack> {
        self.first.take().or_else(|| self.packs.blocking_recv())
    }

    /// The next one, if it is there, and as it is wanted.
    pub(super) fn take_if(&mut self, is_wanted: impl Fn(&Pack) -> bool) -> Option<Pack> {
        if self.first.is_none() {
            self.first = self.packs.try_recv().ok();
        }
        self.first.take_if(|pack| is_wanted(pack))
    }

    /// Nobody takes packs any more.
    pub(super) fn close(&mut self) {
        self.packs.close();
    }
}
