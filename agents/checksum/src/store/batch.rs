//! Readings become what is to be written. In: rows and readings. Out: a batch. Pure.

use super::{Counts, Pending};
use crate::algorithm::{Algorithm, Digest};
use crate::entry::Attributes;
use crate::judge::{Outcome, Reading, RunId, Verdict, Warning, judge};
use crate::path::Key;

/// So much of a reason is stored: it may come from afar.
const WORDS: usize = 1000;

/// What came of reading a file.
pub type FileResult = (Key, Reading);

/// What is written together.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) good: Vec<(Key, Digest)>,
    pub(super) bad: Vec<Key>,
    pub(super) problems: Vec<Unverified>,
    pub(super) opened: Vec<Opened>,
    pub(super) closed: Vec<(Key, &'static str)>,
    pub(super) counts: Counts,
}

/// A file that was not verified, and why.
pub(super) struct Unverified {
    pub(super) key: Key,
    pub(super) path: Vec<u8>,
    pub(super) outcome: &'static str,
    pub(super) why: String,
}

/// Damage that was found.
pub(super) struct Opened {
    pub(super) key: Key,
    pub(super) path: Vec<u8>,
    pub(super) attributes: Attributes,
    pub(super) last_read: RunId,
    pub(super) expected: Digest,
    pub(super) actual: Digest,
}

impl Batch {
    /// Judges a reading. `algorithm` is the run's.
    pub(super) fn add(&mut self, file: &Pending, reading: &Reading, algorithm: Algorithm) {
        let Pending { key, task, known } = file;
        let (key, path) = (*key, || task.path.as_bytes().to_vec());
        let Verdict {
            outcome,
            checksum,
            warning,
            why,
        } = match reading {
            // Whoever reads sees to it; who says so nevertheless has not read this file.
            Reading::Read { bytes, .. } if *bytes != file.attributes().size => {
                let size = file.attributes().size;
                let why = format!("{bytes} bytes came back of {size}");
                judge(known, &Reading::Failed { why }, algorithm)
            }
            Reading::Read { bytes, .. } => {
                let bytes = bytes.cast_signed();
                self.counts.bytes_read = self.counts.bytes_read.saturating_add(bytes);
                judge(known, reading, algorithm)
            }
            Reading::Moving { .. } | Reading::Failed { .. } => judge(known, reading, algorithm),
        };
        self.count(outcome);
        match checksum {
            Some(checksum) => self.good.push((key, checksum)),
            None => self.bad.push(key),
        }
        if let Some(mut why) = why {
            why.truncate(why.floor_char_boundary(WORDS));
            self.problems.push(Unverified {
                key,
                path: path(),
                outcome: name(outcome),
                why,
            });
        }
        match warning {
            Warning::Keep => {}
            Warning::Restored => self.closed.push((key, "restored")),
            Warning::Replaced => self.closed.push((key, "replaced")),
            Warning::Open { expected, actual } => self.opened.push(Opened {
                key,
                path: path(),
                attributes: file.attributes(),
                last_read: known.read_run,
                expected,
                actual,
            }),
        }
    }

    fn count(&mut self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Verified => &mut self.counts.verified,
            Outcome::New => &mut self.counts.new,
            Outcome::Changed => &mut self.counts.changed,
            Outcome::Corrupt => &mut self.counts.corrupt,
            Outcome::Unreadable => &mut self.counts.unreadable,
            Outcome::Skipped => &mut self.counts.skipped,
        };
        *count += 1;
    }
}

fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Skipped => "skipped",
        Outcome::Verified
        | Outcome::New
        | Outcome::Changed
        | Outcome::Corrupt
        | Outcome::Unreadable => "unreadable",
    }
}
