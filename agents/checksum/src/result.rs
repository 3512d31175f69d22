//! How a run ended, in the words of the API. In: a run that has ended. Out: a reason and words. Pure.

use crds::checksum_run::reason;
use crds::condition::Reason;
use crds::report::checksum::Explained;

use crate::merge::Mode;
use crate::state::State;
use crate::store::{Counts, Run};

/// How a run ended; none while it goes on.
pub fn of(run: &Run) -> Option<Explained> {
    run.ended?;
    if let Some(ending) = &run.ending {
        return Some(explained(&ending.result, ending.message.clone()));
    }
    if run.state != State::Finished {
        let message = "given up before it was finished";
        return Some(explained(reason::CANCELLED.name, message));
    }
    let troubles = troubles(run);
    let Some((first, _)) = troubles.first() else {
        return Some(good(&run.counts));
    };
    let words: Vec<_> = troubles.iter().map(|(_, words)| words.as_str()).collect();
    Some(explained(first.name, words.join("; ")))
}

/// All that somebody should look at, the worst first.
fn troubles(run: &Run) -> Vec<(&'static Reason, String)> {
    let Counts {
        corrupt,
        unreadable,
        skipped,
        selected,
        total,
        ..
    } = run.counts;
    let remaining = run.counts.remaining();
    let mut troubles = Vec::new();
    if corrupt > 0 {
        let words = format!("{corrupt} of {total} files are not what was written");
        troubles.push((&reason::DAMAGE_FOUND, words));
    }
    if unreadable > 0 {
        let words = format!("{unreadable} of {total} files could not be read");
        troubles.push((&reason::UNREADABLE, words));
    }
    if is_mostly_skipped(run) {
        let words = format!(
            "{skipped} of {selected} files were changed or gone when they were read: see whether the volume is still there"
        );
        troubles.push((&reason::UNREADABLE, words));
    }
    if remaining != 0 {
        let words = format!("{remaining} of {total} files were not accounted for");
        troubles.push((&reason::UNREADABLE, words));
    }
    if !run.complete {
        let example = run.unlisted_example.as_deref().unwrap_or_default();
        let words = format!(
            "{} folders or files could not be listed, the first is {example}",
            run.unlisted
        );
        troubles.push((&reason::LISTING_INCOMPLETE, words));
    }
    troubles
}

/// Whether so much went away while the run went on that something else is wrong than files in use. A run over what changed
/// lately meets all files that are in use, and hardly others: there it takes a tenth of all files.
fn is_mostly_skipped(run: &Run) -> bool {
    const FEW: i64 = 10;
    let Counts {
        skipped,
        selected,
        total,
        ..
    } = run.counts;
    // What was not listed may be gone for good.
    run.complete
        && skipped > selected - skipped
        && match run.what.mode {
            Mode::Incremental => skipped > FEW.max(total / 10),
            Mode::Full | Mode::Sample(_) => true,
        }
}

/// Speaks of no file that was not read.
fn good(counts: &Counts) -> Explained {
    let (skipped, selected) = (counts.skipped, counts.selected);
    let others = match counts.not_selected() {
        0 => String::new(),
        others => format!(", {others} were not selected"),
    };
    if skipped > 0 {
        let read = selected - skipped;
        let message = format!(
            "{skipped} of {selected} files were changed or gone when they were read, the other {read} are what was written{others}"
        );
        return explained(reason::CHANGED_MEANWHILE.name, message);
    }
    let which = if others.is_empty() {
        ""
    } else {
        " that were read"
    };
    let message = format!("all {selected} files{which} are what was written{others}");
    explained(reason::VERIFIED.name, message)
}

/// A reason and words.
pub fn explained(reason: &str, message: impl Into<String>) -> Explained {
    Explained {
        reason: reason.into(),
        message: message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Ending;

    /// A run that has ended, of ten files of which so many were verified.
    fn run(verified: i64) -> Run {
        let mut run = Run::example(State::Finished);
        (run.counts.total, run.counts.selected) = (10, 10);
        run.counts.verified = verified;
        run
    }

    fn told(run: &Run) -> (String, String) {
        let Explained { reason, message } = of(run).unwrap();
        (reason, message)
    }

    fn reason_of(run: &Run) -> String {
        told(run).0
    }

    #[test]
    fn a_run_that_goes_on_has_no_result() {
        let mut run = run(0);
        run.ended = None;
        assert_eq!(of(&run), None);
    }

    #[test]
    fn a_run_that_was_given_up_has_verified_nothing() {
        // Its counts are those of a run over no file.
        let mut run = Run::example(State::Aborted);
        assert_eq!(reason_of(&run), reason::CANCELLED.name);
        run.ending = Some(Ending {
            result: reason::DELETION_GUARD.name.into(),
            message: "too many are gone".into(),
        });
        let told = told(&run);
        assert_eq!(told.0, reason::DELETION_GUARD.name);
        assert_eq!(told.1, "too many are gone");
    }

    #[test]
    fn damage_does_not_hide_what_else_is_wrong() {
        let mut run = run(6);
        (run.counts.corrupt, run.counts.unreadable) = (1, 3);
        (run.complete, run.unlisted) = (false, 2);
        run.unlisted_example = Some("photos: permission denied".into());
        let (reason, words) = told(&run);
        assert_eq!(reason, reason::DAMAGE_FOUND.name);
        let expected = "1 of 10 files are not what was written; 3 of 10 files could not be read; \
            2 folders or files could not be listed, the first is photos: permission denied";
        assert_eq!(words, expected);
    }

    #[test]
    fn files_may_change_meanwhile_but_not_most_of_them() {
        let mut run = run(5);
        run.counts.skipped = 5;
        assert_eq!(reason_of(&run), reason::CHANGED_MEANWHILE.name);
        (run.counts.verified, run.counts.skipped) = (4, 6);
        assert_eq!(reason_of(&run), reason::UNREADABLE.name);
        // What was not listed may be gone for good.
        run.complete = false;
        assert_eq!(reason_of(&run), reason::LISTING_INCOMPLETE.name);
    }

    #[test]
    fn a_run_that_reads_what_changed_may_find_all_of_it_changing_but_not_a_tenth_of_all() {
        let mut run = run(0);
        run.what.mode = Mode::Incremental;
        (run.counts.selected, run.counts.skipped) = (2, 2);
        let words = "2 of 2 files were changed or gone when they were read, the other 0 are what was written, \
            8 were not selected";
        assert_eq!(
            told(&run),
            (reason::CHANGED_MEANWHILE.name.into(), words.into())
        );
        run.counts.total = 1000;
        for (skipped, reason) in [
            (100, &reason::CHANGED_MEANWHILE),
            (101, &reason::UNREADABLE),
        ] {
            (run.counts.selected, run.counts.skipped) = (skipped, skipped);
            assert_eq!(reason_of(&run), reason.name, "{skipped}");
        }
    }

    #[test]
    fn a_sample_of_which_most_is_gone_is_not_good_however_many_files_it_left_alone() {
        let mut run = run(1);
        run.what.mode = Mode::Sample(20);
        run.counts.total = 1000;
        (run.counts.selected, run.counts.skipped) = (10, 9);
        assert_eq!(reason_of(&run), reason::UNREADABLE.name);
    }

    #[test]
    fn what_is_good_says_of_how_many_files() {
        let mut run = run(10);
        assert_eq!(told(&run).1, "all 10 files are what was written");
        (run.counts.verified, run.counts.selected) = (4, 4);
        let words = "all 4 files that were read are what was written, 6 were not selected";
        assert_eq!(told(&run), (reason::VERIFIED.name.into(), words.into()));
    }
}
