//! How a run ended, in the words of the API. In: a run that has ended. Out: a reason and words. Pure.

use crds::checksum_run::reason;
use crds::report::checksum::Explained;

use crate::store::{Counts, Run};

/// How a run ended; none while it goes on.
pub fn of(run: &Run) -> Option<Explained> {
    run.ended?;
    if let Some(ending) = &run.ending {
        return Some(explained(&ending.result, ending.message.clone()));
    }
    let Counts {
        corrupt,
        unreadable,
        skipped,
        total,
        ..
    } = run.counts;
    let (not_selected, remaining) = (run.counts.not_selected(), run.counts.remaining());
    Some(if corrupt > 0 {
        let message = format!("{corrupt} of {total} files are not what was written");
        explained(reason::DAMAGE_FOUND.name, message)
    } else if unreadable > 0 {
        let message = format!("{unreadable} of {total} files could not be read");
        explained(reason::UNREADABLE.name, message)
    } else if !run.complete {
        let example = run.unlisted_example.as_deref().unwrap_or_default();
        let message = format!(
            "{} folders or files could not be listed, the first is {example}",
            run.unlisted
        );
        explained(reason::LISTING_INCOMPLETE.name, message)
    } else if remaining != 0 {
        let message = format!("{remaining} of {total} files were not accounted for");
        explained(reason::UNREADABLE.name, message)
    } else if skipped > 0 {
        let message = format!(
            "{skipped} of {total} files were changed meanwhile, all others are what was written"
        );
        explained(reason::CHANGED_MEANWHILE.name, message)
    } else if not_selected > 0 {
        let message = format!(
            "all {} files that were read are what was written, {not_selected} were not selected",
            run.counts.selected
        );
        explained(reason::VERIFIED.name, message)
    } else {
        explained(
            reason::VERIFIED.name,
            format!("all {total} files are what was written"),
        )
    })
}

/// A reason and words.
pub fn explained(reason: &str, message: impl Into<String>) -> Explained {
    Explained {
        reason: reason.into(),
        message: message.into(),
    }
}
