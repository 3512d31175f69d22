//! In: registers. Out: steps, each of them accounted for.
//! Touches: the registers, through its client.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use anyhow::Result;
use fastrand::Rng;
use tokio::time::sleep;

use super::{
    NO_OLDER, ONE_MAKER,
    client::{Answer, Client},
    ledger::Ledger,
};
use crate::journal::Journal;

/// How many registers there are; the first is the one most writers want.
pub(super) const REGISTERS: usize = 8;

/// The most that a writer rests between two steps, in milliseconds.
const REST: u64 = 20;

/// And after a failure, so as not to hammer on a node that is away.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

/// What the writers share: they take turns on one task.
pub(super) struct Desk<'a> {
    pub(super) ledger: RefCell<Ledger>,
    pub(super) journal: &'a Journal,
    pub(super) over: Cell<bool>,
}

/// One of those who move registers.
pub(super) struct Writer<'a> {
    number: u8,
    client: Client,
    desk: &'a Desk<'a>,
    made: Cell<u64>,
    /// What it takes the registers to show.
    guesses: [Cell<u64>; REGISTERS],
    /// Why the last request came to nothing, for an error.
    trouble: RefCell<String>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(number: u8, client: Client, desk: &'a Desk<'a>) -> Self {
        Self {
            number,
            client,
            desk,
            made: Cell::new(0),
            guesses: Default::default(),
            trouble: RefCell::default(),
        }
    }

    /// Steps that were acknowledged to it.
    pub(super) fn made(&self) -> u64 {
        self.made.get()
    }

    /// Who it is, and why its last request came to nothing.
    pub(super) fn trouble(&self) -> String {
        format!("writer {}: {}", self.number, self.trouble.borrow())
    }

    /// Moves registers until it is over. An error is an answer that cannot be right.
    pub(super) async fn go_on(&self, mut rng: Rng) -> Result<()> {
        while !self.desk.over.get() {
            let register = if rng.bool() {
                0
            } else {
                rng.usize(..REGISTERS)
            };
            let rest = Duration::from_millis(rng.u64(..=REST));
            let answered = if rng.u8(..3) == 0 {
                self.read(register).await?
            } else {
                self.step(register).await?
            };
            sleep(if answered { rest } else { AFTER_FAILURE }).await;
        }
        Ok(())
    }

    /// Looks at a register; whether it was shown.
    async fn read(&self, register: usize) -> Result<bool> {
        let least = self.desk.ledger.borrow().least(register);
        match self.client.read(register).await {
            Ok(value) => self.shown(register, least, value)?,
            Err(error) => {
                self.failed("read", &error);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tries to move a register from where it takes it to be; whether that was answered.
    async fn step(&self, register: usize) -> Result<bool> {
        let Desk {
            ledger, journal, ..
        } = self.desk;
        let from = self.guesses[register].get();
        let least = ledger.borrow().least(register);
        ledger.borrow_mut().tries(register);
        match self.client.step(register, from).await? {
            Answer::Made => {
                journal.did("step: acknowledged");
                ledger
                    .borrow_mut()
                    .is_acknowledged(register, from + 1, self.number)?;
                journal.held(&ONE_MAKER, 1);
                self.shown(register, least, from)?;
                self.guesses[register].set(from + 1);
                self.made.set(self.made.get() + 1);
                return Ok(true);
            }
            Answer::Refused(value) => {
                journal.did("step: refused");
                self.shown(register, least, value)?;
                return Ok(true);
            }
            Answer::Unknown(error) => {
                journal.did("step: unknown");
                ledger.borrow_mut().is_unknown(register);
                self.failed("step", &error.into());
            }
            Answer::Unsent(error) => {
                journal.did("step: not sent");
                self.failed("step", &error.into());
            }
        }
        Ok(false)
    }

    /// A register showed `value` to a question that was asked when `least` was the least it could show.
    fn shown(&self, register: usize, least: u64, value: u64) -> Result<()> {
        self.desk.ledger.borrow().shows(register, least, value)?;
        self.desk.journal.held(&NO_OLDER, 1);
        self.guesses[register].set(value);
        Ok(())
    }

    fn failed(&self, what: &str, error: &anyhow::Error) {
        *self.trouble.borrow_mut() = format!("{what}: {error:#}");
    }
}
