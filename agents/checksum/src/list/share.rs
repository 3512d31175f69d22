//! Shares the records of a list among threads. In: the list, and who takes a record. Out: those who took them.
//! Touches: reads the list.

use std::io::BufRead;
use std::num::NonZeroUsize;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::Error;
use super::collect::Collector;
use super::queue::{Piece, Queue};
use super::records::{LONGEST, Record, Records};

/// How many bytes of records are handed to a thread at once.
const HANDFUL: usize = 64 << 10;

/// How much of a record that cannot be understood is told.
pub(super) const TOLD: usize = 200;

/// Takes records, on a thread of its own.
pub(super) trait Clerk<'a>: Send {
    /// What people call a record.
    const WORD: &'static str;

    /// Takes one; why not, if it is left out. `Break` when no more are wanted.
    fn take(&mut self, record: &[u8]) -> Result<ControlFlow<()>, &'static str>;

    /// Where files go.
    fn out(&mut self) -> &mut Collector<'a>;

    /// Tells of a record that is left out, by its number.
    fn leave_out(&mut self, record: &[u8], number: u64, why: &str) {
        let word = Self::WORD;
        self.out().found.problems.add(
            &record[..record.len().min(TOLD)],
            format!("{word} {number}: {why} ({word} left out)"),
        );
    }
}

/// Reads the list on this thread, and hands out what it has, unless the others have enough to do. All clerks, when all is taken.
pub(super) fn share<'a, C: Clerk<'a>>(
    list: Records<impl BufRead>,
    threads: NonZeroUsize,
    stop: &AtomicBool,
    clerk: impl Fn() -> C + Sync,
) -> Result<Vec<C>, Error> {
    let desk = Desk {
        queue: Queue::new((), 2 * threads.get()),
        end: list.end(),
        stop,
    };
    // Taken before there are other threads: the caller's own reads the list.
    let reading = desk.queue.take();
    thread::scope(|scope| {
        let work = || desk.work(clerk());
        let spawn = |_| {
            thread::Builder::new()
                .name("list".into())
                .spawn_scoped(scope, work)
                .ok()
        };
        let others: Vec<_> = (1..threads.get()).filter_map(spawn).collect();
        let mut own = clerk();
        let outcome = desk.read(list, &mut own);
        drop(reading);
        let mut clerks = vec![desk.work(own)];
        for other in others {
            let joined = other.join();
            clerks.push(joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        outcome.map(|()| clerks)
    })
}

/// Records that follow each other, each with its end.
#[derive(Default)]
struct Handful {
    bytes: Vec<u8>,
    /// The number of the first.
    first: u64,
}

/// What all threads share.
struct Desk<'a> {
    queue: Queue<Handful, ()>,
    end: u8,
    stop: &'a AtomicBool,
}

impl Desk<'_> {
    fn read<'a>(
        &self,
        mut list: Records<impl BufRead>,
        own: &mut impl Clerk<'a>,
    ) -> Result<(), Error> {
        let mut handful = Handful::default();
        loop {
            if self.go_on(own).is_break() {
                self.queue.close();
                return Ok(());
            }
            let (after, number) = (list.count, list.count + 1);
            let record = list.next().map_err(|source| {
                self.queue.close();
                Error::List { after, source }
            })?;
            let go_on = match record.map(Record::whole) {
                None => break,
                Some(Ok(record)) => self.gather(&mut handful, record, number, own),
                Some(Err((start, why))) => {
                    own.leave_out(start, number, why);
                    self.hand_out(&mut handful, own)
                }
            };
            if go_on.is_break() {
                self.queue.close();
            }
        }
        if self.serve(&handful, own).is_break() {
            self.queue.close();
        }
        Ok(())
    }

    fn gather<'a>(
        &self,
        handful: &mut Handful,
        record: &[u8],
        number: u64,
        own: &mut impl Clerk<'a>,
    ) -> ControlFlow<()> {
        if handful.bytes.is_empty() {
            handful.bytes.reserve(HANDFUL + LONGEST);
            handful.first = number;
        }
        handful.bytes.extend_from_slice(record);
        handful.bytes.push(self.end);
        if handful.bytes.len() < HANDFUL {
            return Continue(());
        }
        self.hand_out(handful, own)
    }

    fn hand_out<'a>(&self, handful: &mut Handful, own: &mut impl Clerk<'a>) -> ControlFlow<()> {
        if handful.bytes.is_empty() {
            return Continue(());
        }
        match self.queue.add_urgent(std::mem::take(handful)) {
            Ok(()) => Continue(()),
            Err(full) => self.serve(&full, own),
        }
    }

    fn work<'a, C: Clerk<'a>>(&self, mut clerk: C) -> C {
        while let Some((piece, _busy)) = self.queue.take() {
            if let Piece::Urgent(handful) = piece
                && self.serve(&handful, &mut clerk).is_break()
            {
                self.queue.close();
            }
        }
        if !self.queue.is_closed() {
            let _ = clerk.out().flush();
        }
        clerk
    }

    fn serve<'a>(&self, handful: &Handful, clerk: &mut impl Clerk<'a>) -> ControlFlow<()> {
        let ends = memchr::memchr_iter(self.end, &handful.bytes);
        let mut begin = 0;
        for (number, end) in (handful.first..).zip(ends) {
            let record = &handful.bytes[begin..end];
            begin = end + 1;
            self.go_on(clerk)?;
            match clerk.take(record) {
                Ok(go_on) => go_on?,
                Err(why) => clerk.leave_out(record, number, why),
            }
        }
        Continue(())
    }

    /// `Break` when somebody wants no more.
    fn go_on<'a>(&self, clerk: &mut impl Clerk<'a>) -> ControlFlow<()> {
        if self.stop.load(Ordering::Relaxed) || self.queue.is_closed() {
            clerk.out().found.stopped = true;
            return Break(());
        }
        Continue(())
    }
}
