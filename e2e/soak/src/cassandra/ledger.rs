//! In: what writers were told. Out: what does not fit together.
//! Pure.

use anyhow::{Result, ensure};

/// What is known of all registers. Each begins at 0 and is moved from n to n + 1.
#[derive(Debug)]
pub(super) struct Ledger(Vec<Register>);

#[derive(Clone, Debug, Default)]
struct Register {
    /// Who was told to have made the step to n + 1, by n.
    makers: Vec<Option<u8>>,
    acknowledged: u64,
    unknown: u64,
    /// Steps that were tried.
    tried: u64,
}

impl Ledger {
    pub(super) fn new(registers: usize) -> Self {
        Self(vec![Register::default(); registers])
    }

    /// The least that a register can show from now on: what was acknowledged so far.
    pub(super) fn least(&self, register: usize) -> u64 {
        self.0[register].makers.len() as u64
    }

    /// A writer is about to try a step.
    pub(super) fn tries(&mut self, register: usize) {
        self.0[register].tried += 1;
    }

    /// What became of a step is not known, and never will be.
    pub(super) fn is_unknown(&mut self, register: usize) {
        self.0[register].unknown += 1;
    }

    /// A writer was told that it made the step to `to`.
    pub(super) fn is_acknowledged(&mut self, register: usize, to: u64, writer: u8) -> Result<()> {
        let place = usize::try_from(to - 1)?;
        let known = &mut self.0[register];
        if known.makers.len() <= place {
            known.makers.resize(place + 1, None);
        }
        let earlier = known.makers[place].replace(writer);
        known.acknowledged += 1;
        if let Some(earlier) = earlier {
            anyhow::bail!(
                "register {register}: the step to {to} was acknowledged to writers {earlier} and {writer}"
            );
        }
        Ok(())
    }

    /// A register showed `value` in answer to a question that was asked when `least` was the least.
    pub(super) fn shows(&self, register: usize, least: u64, value: u64) -> Result<()> {
        ensure!(
            value >= least,
            "register {register}: shows {value} after the step to {least} was acknowledged"
        );
        let most = self.0[register].tried;
        ensure!(
            value <= most,
            "register {register}: shows {value} after {most} tries"
        );
        Ok(())
    }

    /// A register shows `value` after all writers have stopped; how many acknowledged steps that confirms.
    pub(super) fn settles(&self, register: usize, value: u64) -> Result<u64> {
        self.shows(register, self.least(register), value)?;
        let Register {
            acknowledged,
            unknown,
            ..
        } = self.0[register];
        ensure!(
            (acknowledged..=acknowledged + unknown).contains(&value),
            "register {register}: ends at {value} after {acknowledged} acknowledged and {unknown} unknown steps"
        );
        Ok(acknowledged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps to 1 and 3 acknowledged, the one to 2 unknown, another unknown.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::new(1);
        for _ in 0..4 {
            ledger.tries(0);
        }
        ledger.is_acknowledged(0, 1, 7).unwrap();
        ledger.is_acknowledged(0, 3, 8).unwrap();
        ledger.is_unknown(0);
        ledger.is_unknown(0);
        ledger
    }

    fn words<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn what_can_be_settles() {
        for value in [3, 4] {
            assert_eq!(ledger().settles(0, value).unwrap(), 2);
        }
    }

    #[test]
    fn a_step_that_two_were_told_to_have_made_is_found() {
        let words = words(ledger().is_acknowledged(0, 3, 9));
        assert_eq!(
            words,
            "register 0: the step to 3 was acknowledged to writers 8 and 9"
        );
    }

    #[test]
    fn a_step_that_was_acknowledged_and_lost_is_found() {
        let ledger = ledger();
        let lost = "register 0: shows 2 after the step to 3 was acknowledged";
        assert_eq!(words(ledger.settles(0, 2)), lost);
        assert_eq!(words(ledger.shows(0, ledger.least(0), 2)), lost);
    }

    #[test]
    fn an_answer_may_be_as_old_as_its_question() {
        let mut ledger = ledger();
        let least = ledger.least(0);
        ledger.tries(0);
        ledger.is_acknowledged(0, 4, 7).unwrap();
        ledger.shows(0, least, 3).unwrap();
    }

    #[test]
    fn a_value_nobody_can_have_made_is_found() {
        assert_eq!(
            words(ledger().shows(0, 0, 5)),
            "register 0: shows 5 after 4 tries"
        );
        let mut refused = ledger();
        refused.tries(0);
        assert_eq!(
            words(refused.settles(0, 5)),
            "register 0: ends at 5 after 2 acknowledged and 2 unknown steps"
        );
    }
}
