//! Work that threads hand to each other until none is left: the last in is the first out, which walks a tree depth first.
//! In: pieces of work. Out: the same pieces, each to one thread. Touches: nothing outside.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Two stacks, one lock. Urgent work goes first and is bounded; the rest holds siblings of what is on the way down.
pub(super) struct Queue<U, W> {
    state: Mutex<State<U, W>>,
    changed: Condvar,
    closed: AtomicBool,
    /// Changed under the lock; read without it where a guess is enough.
    waiting: AtomicUsize,
    most_urgent: usize,
}

struct State<U, W> {
    urgent: Vec<U>,
    rest: Vec<W>,
    busy: usize,
}

/// A piece of work.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<U, W> {
    Urgent(U),
    Rest(W),
}

/// A thread's promise that it is at work and may still add some. Ends when dropped, also by a panic: nobody waits for a
/// thread that is dead.
pub(super) struct Busy<'a, U, W>(&'a Queue<U, W>);

impl<U, W> Queue<U, W> {
    pub(super) fn new(first: W, most_urgent: usize) -> Self {
        let state = State {
            urgent: Vec::new(),
            rest: vec![first],
            busy: 0,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            closed: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            most_urgent,
        }
    }

    /// The next piece, as soon as there is one. Nothing when there is none and nobody could add any, or after `close`.
    pub(super) fn take(&self) -> Option<(Piece<U, W>, Busy<'_, U, W>)> {
        let mut state = self.lock();
        loop {
            if self.is_closed() {
                return None;
            }
            if let Some(piece) = state.pop() {
                state.busy += 1;
                return Some((piece, Busy(self)));
            }
            if state.busy == 0 {
                return None;
            }
            self.waiting.fetch_add(1, Ordering::Relaxed);
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Adds work. Only who is busy may: else nobody might be left to do it.
    pub(super) fn add(&self, work: impl IntoIterator<Item = W>) {
        let mut state = self.lock();
        state.rest.extend(work);
        self.wake(&state);
    }

    /// Adds urgent work, or gives it back when there is enough of it already.
    pub(super) fn add_urgent(&self, work: U) -> Result<(), U> {
        let mut state = self.lock();
        if state.urgent.len() >= self.most_urgent {
            return Err(work);
        }
        state.urgent.push(work);
        self.wake(&state);
        Ok(())
    }

    /// Ends it: nobody gets work any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let _state = self.lock();
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether somebody waits for work right now.
    pub(super) fn is_hungry(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn wake(&self, state: &State<U, W>) {
        match self
            .waiting
            .load(Ordering::Relaxed)
            .min(state.urgent.len() + state.rest.len())
        {
            0 => {}
            1 => self.changed.notify_one(),
            _ => self.changed.notify_all(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<U, W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<U, W> State<U, W> {
    fn pop(&mut self) -> Option<Piece<U, W>> {
        self.urgent
            .pop()
            .map(Piece::Urgent)
            .or_else(|| self.rest.pop().map(Piece::Rest))
    }
}

impl<U, W> Drop for Busy<'_, U, W> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.busy -= 1;
        if state.busy == 0 {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_work_goes_first_and_has_a_bound() {
        let queue = Queue::new("rest", 1);
        assert_eq!(queue.add_urgent("urgent"), Ok(()));
        assert_eq!(queue.add_urgent("more"), Err("more"));
        let mut taken = Vec::new();
        while let Some((piece, _busy)) = queue.take() {
            taken.push(piece);
        }
        assert_eq!(taken, [Piece::Urgent("urgent"), Piece::Rest("rest")]);
    }

    #[test]
    fn nobody_waits_for_a_thread_that_died() {
        let queue: Queue<(), ()> = Queue::new((), 0);
        std::thread::scope(|scope| {
            let dying = scope.spawn(|| {
                let _held = queue.take();
                panic!("this thread dies with work in hand");
            });
            assert!(dying.join().is_err());
            assert!(queue.take().is_none());
        });
    }
}
