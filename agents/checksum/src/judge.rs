//! What a reading means. In: what the store knows of a file, and what was read. Out: an outcome, and what to store. Pure:
//! the rules by which damage is told from an edit are here and nowhere else.

use crate::algorithm::{Algorithm, Digest};

/// The number of a run; later runs have higher ones, and none is 0.
pub type RunId = i64;

/// What the store knows of a file when its reading comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The run that saw it new or with another modification time.
    pub changed_run: RunId,
    /// The run that read it last and found it good; 0 if none did.
    pub read_run: RunId,
    /// What it was then.
    pub checksum: Option<Digest>,
}

impl Known {
    /// Whether somebody changed the file after it was read last: then nobody knows what it should be.
    pub fn is_outdated(&self) -> bool {
        self.changed_run > self.read_run
    }
}

/// What came of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It was read from end to end, and nobody touched it meanwhile. One digest per algorithm that was asked for.
    Read {
        /// The digests.
        digests: Vec<Digest>,
        /// How many bytes that were.
        bytes: u64,
    },
    /// It was changed or removed since it was listed, so what was read is of no file that ever was.
    Moving {
        /// How.
        why: String,
    },
    /// It could not be read.
    Failed {
        /// What the system said, and where.
        why: String,
    },
}

/// What became of a file in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Read, and as it was.
    Verified,
    /// Read for the first time.
    New,
    /// Read for the first time since somebody changed it.
    Changed,
    /// Not what was written.
    Corrupt,
    /// Could not be read.
    Unreadable,
    /// Changed while the run went on.
    Skipped,
}

/// What to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What became of the file.
    pub outcome: Outcome,
    /// The checksum it has from now on; none leaves the one it had.
    pub checksum: Option<Digest>,
    /// What becomes of warnings about it.
    pub warning: Warning,
    /// Why it was not verified, for people.
    pub why: Option<String>,
}

/// What becomes of warnings about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Nothing.
    Keep,
    /// One is open from now on; the same damage found again is the same warning.
    Open {
        /// What the file should be.
        expected: Digest,
        /// What it is.
        actual: Digest,
    },
    /// It is again what it was.
    Restored,
    /// Somebody has written it anew.
    Replaced,
}

/// Judges a reading. `algorithm` is the run's: what is stored from now on.
pub fn judge(known: &Known, reading: &Reading, algorithm: Algorithm) -> Verdict {
    let digests = match reading {
        Reading::Read { digests, .. } => digests,
        Reading::Moving { why } => return unverified(Outcome::Skipped, why.clone()),
        Reading::Failed { why } => return unverified(Outcome::Unreadable, why.clone()),
    };
    let find = |wanted: Algorithm| digests.iter().find(|it| it.algorithm == wanted);
    let Some(new) = find(algorithm) else {
        return unverified(
            Outcome::Unreadable,
            format!("no {algorithm} digest came back"),
        );
    };
    let good = |outcome, warning| Verdict {
        outcome,
        checksum: Some(new.clone()),
        warning,
        why: None,
    };
    let Some(expected) = &known.checksum else {
        return good(Outcome::New, Warning::Keep);
    };
    if known.is_outdated() {
        return good(Outcome::Changed, Warning::Replaced);
    }
    match find(expected.algorithm) {
        Some(actual) if actual == expected => good(Outcome::Verified, Warning::Restored),
        Some(actual) => Verdict {
            outcome: Outcome::Corrupt,
            checksum: None,
            warning: Warning::Open {
                expected: expected.clone(),
                actual: actual.clone(),
            },
            why: None,
        },
        None => unverified(
            Outcome::Unreadable,
            format!("no {} digest to compare with came back", expected.algorithm),
        ),
    }
}

fn unverified(outcome: Outcome, why: String) -> Verdict {
    Verdict {
        outcome,
        checksum: None,
        warning: Warning::Keep,
        why: Some(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Algorithm = Algorithm::Blake3;
    const OLD: Algorithm = Algorithm::Sha1;

    fn known(changed_run: RunId, read_run: RunId, content: Option<&str>) -> Known {
        Known {
            changed_run,
            read_run,
            checksum: content.map(|it| OLD.digest(it.as_bytes())),
        }
    }

    fn read(content: &str) -> Reading {
        let content = content.as_bytes();
        Reading::Read {
            digests: vec![NEW.digest(content), OLD.digest(content)],
            bytes: 1,
        }
    }

    fn outcome(known: &Known, content: &str) -> Outcome {
        judge(known, &read(content), NEW).outcome
    }

    #[test]
    fn a_file_is_compared_only_with_what_was_read_since_it_was_changed() {
        assert_eq!(outcome(&known(1, 0, None), "a"), Outcome::New);
        assert_eq!(outcome(&known(1, 1, Some("a")), "a"), Outcome::Verified);
        assert_eq!(outcome(&known(1, 1, Some("a")), "b"), Outcome::Corrupt);
        assert_eq!(outcome(&known(2, 1, Some("a")), "b"), Outcome::Changed);
        assert_eq!(outcome(&known(2, 1, Some("a")), "a"), Outcome::Changed);
    }

    #[test]
    fn the_last_good_checksum_outlives_damage() {
        let verdict = judge(&known(1, 1, Some("good")), &read("bad"), NEW);
        assert_eq!(verdict.checksum, None);
        let (expected, actual) = (OLD.digest(b"good"), OLD.digest(b"bad"));
        assert_eq!(verdict.warning, Warning::Open { expected, actual });
    }

    #[test]
    fn another_algorithm_compares_by_the_old_and_stores_the_new() {
        let verdict = judge(&known(1, 1, Some("a")), &read("a"), NEW);
        assert_eq!(verdict.outcome, Outcome::Verified);
        assert_eq!(verdict.checksum, Some(NEW.digest(b"a")));
        let only_new = Reading::Read {
            digests: vec![NEW.digest(b"a")],
            bytes: 1,
        };
        let verdict = judge(&known(1, 1, Some("a")), &only_new, NEW);
        assert_eq!(verdict.outcome, Outcome::Unreadable);
    }

    #[test]
    fn what_could_not_be_read_changes_nothing_that_is_stored() {
        let failed = Reading::Failed { why: "EIO".into() };
        for (reading, outcome) in [
            (failed, Outcome::Unreadable),
            (Reading::Moving { why: "gone".into() }, Outcome::Skipped),
        ] {
            let verdict = judge(&known(1, 1, Some("a")), &reading, NEW);
            assert_eq!(verdict.outcome, outcome);
            assert_eq!((verdict.checksum, verdict.warning), (None, Warning::Keep));
        }
    }
}
