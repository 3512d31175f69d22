//! How a run ended, in the words of the API. In: a run that has ended. Out: a reason and words. Pure.

use crds::checksum_run::reason;
use crds::condition::Reason;
use crds::report::checksum::Explained;

use crate::state::State;
use crate::store::{Counts, Run};

/// What a run reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Files that others may change meanwhile.
    Live,
    /// A consistent view: what is not as it was listed is not what it should be.
    Snapshot,
}

/// How a run ended; none while it goes on.
pub fn of(run: &Run, source: Source) -> Option<Explained> {
    run.ended?;
    if let Some(ending) = &run.ending {
        return Some(explained(&ending.result, ending.message.clone()));
    }
    if run.state != State::Finished {
        let message = "given up before it was finished";
        return Some(explained(reason::CANCELLED.name, message));
    }
    let troubles = troubles(run, source);
    let Some((first, _)) = troubles.first() else {
        return Some(good(&run.counts));
    };
    let words: Vec<_> = troubles.iter().map(|(_, words)| words.as_str()).collect();
    Some(explained(first.name, words.join("; ")))
}

/// All that somebody should look at, the worst first.
fn troubles(run: &Run, source: Source) -> Vec<(&'static Reason, String)> {
    let Counts {
        corrupt,
        unreadable,
        skipped,
        total,
        verified,
        new,
        changed,
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
    if skipped > 0 && source == Source::Snapshot {
        let words = format!(
            "{skipped} of {total} files were changed or gone when they were read, which a snapshot does not allow"
        );
        troubles.push((&reason::UNREADABLE, words));
    } else if skipped > verified + new + changed {
        let words = format!(
            "{skipped} of {total} files were changed or gone when they were read, more than were verified: see whether the volume is still there"
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

fn good(counts: &Counts) -> Explained {
    let Counts {
        skipped,
        total,
        selected,
        ..
    } = counts;
    if *skipped > 0 {
        let message = format!(
            "{skipped} of {total} files were changed meanwhile, all others are what was written"
        );
        return explained(reason::CHANGED_MEANWHILE.name, message);
    }
    let message = match counts.not_selected() {
        0 => format!("all {total} files are what was written"),
        others => format!(
            "all {selected} files that were read are what was written, {others} were not selected"
        ),
    };
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

    fn told(run: &Run, source: Source) -> (String, String) {
        let Explained { reason, message } = of(run, source).unwrap();
        (reason, message)
    }

    fn reason_of(run: &Run, source: Source) -> String {
        told(run, source).0
    }

    #[test]
    fn a_run_that_goes_on_has_no_result() {
        let mut run = run(0);
        run.ended = None;
        assert_eq!(of(&run, Source::Live), None);
    }

    #[test]
    fn a_run_that_was_given_up_has_verified_nothing() {
        // Its counts are those of a run over no file.
        let mut run = Run::example(State::Aborted);
        assert_eq!(reason_of(&run, Source::Live), reason::CANCELLED.name);
        run.ending = Some(Ending {
            result: reason::DELETION_GUARD.name.into(),
            message: "too many are gone".into(),
        });
        let told = told(&run, Source::Live);
        assert_eq!(told.0, reason::DELETION_GUARD.name);
        assert_eq!(told.1, "too many are gone");
    }

    #[test]
    fn damage_does_not_hide_what_else_is_wrong() {
        let mut run = run(6);
        (run.counts.corrupt, run.counts.unreadable) = (1, 3);
        (run.complete, run.unlisted) = (false, 2);
        run.unlisted_example = Some("photos: permission denied".into());
        let (reason, words) = told(&run, Source::Live);
        assert_eq!(reason, reason::DAMAGE_FOUND.name);
        let expected = "1 of 10 files are not what was written; 3 of 10 files could not be read; \
            2 folders or files could not be listed, the first is photos: permission denied";
        assert_eq!(words, expected);
    }

    #[test]
    fn files_may_change_on_a_live_volume_but_not_most_of_them_and_never_in_a_snapshot() {
        let mut run = run(5);
        run.counts.skipped = 5;
        assert_eq!(
            reason_of(&run, Source::Live),
            reason::CHANGED_MEANWHILE.name
        );
        assert_eq!(reason_of(&run, Source::Snapshot), reason::UNREADABLE.name);
        (run.counts.verified, run.counts.skipped) = (4, 6);
        assert_eq!(reason_of(&run, Source::Live), reason::UNREADABLE.name);
        (run.counts.verified, run.counts.skipped) = (0, 10);
        assert_eq!(reason_of(&run, Source::Live), reason::UNREADABLE.name);
    }

    #[test]
    fn what_is_good_says_of_how_many_files() {
        let mut run = run(10);
        assert_eq!(
            told(&run, Source::Live).1,
            "all 10 files are what was written"
        );
        (run.counts.verified, run.counts.selected) = (4, 4);
        let words = "all 4 files that were read are what was written, 6 were not selected";
        assert_eq!(
            told(&run, Source::Snapshot),
            (reason::VERIFIED.name.into(), words.into())
        );
    }
}
