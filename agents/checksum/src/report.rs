//! What was found, as text. In: runs, warnings, problems, checksums. Out: lines for people and for programs. Pure.

mod programs;

use std::fmt::Write;

pub use self::programs::{
    CSV_HEAD, compared_json, error_json, finding_json, problem_json, run_json, unlisted_json,
    warning_csv, warning_json,
};
use crate::algorithm::Algorithm;
use crate::list;
use crate::merge::Mode;
use crate::path::RelativePath;
use crate::state::State;
use crate::store::{Checksum, Counts, Problem, Run, WarningRow};
use crate::verify::Finding;

/// How many of each kind are told to people; programs are told all.
pub const TOLD: u32 = 20;

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Result {
    /// Every file that was read is what was written.
    Verified,
    /// Damaged files were found.
    Damage,
    /// Not everything could be verified.
    Incomplete,
}

impl Result {
    /// Of a run that has ended.
    pub fn of(run: &Run) -> Self {
        let Counts {
            corrupt,
            unreadable,
            skipped,
            ..
        } = run.counts;
        // Of one that ended before its time, that nothing was found says nothing.
        let is_whole = run.state == State::Finished && run.ending.is_none() && run.complete;
        if corrupt > 0 {
            Self::Damage
        } else if !is_whole || unreadable > 0 || skipped > 0 || run.counts.remaining() > 0 {
            Self::Incomplete
        } else {
            Self::Verified
        }
    }

    /// For the shell.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Verified => 0,
            Self::Damage => 1,
            Self::Incomplete => 2,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Verified => "every file that was read is what was written",
            Self::Damage => "damaged files were found",
            Self::Incomplete => "not everything could be verified",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Damage => "damage",
            Self::Incomplete => "incomplete",
        }
    }
}

/// A run in a few lines.
pub fn run_text(run: &Run) -> String {
    let Counts {
        total,
        deleted,
        verified,
        new,
        changed,
        corrupt,
        unreadable,
        skipped,
        bytes_read,
        ..
    } = run.counts;
    let mode = mode(run.what.mode);
    let mut text = format!("run {} ({mode}, {}): ", run.id, run.what.algorithm);
    match (&run.ending, run.ended) {
        (_, None) => drop(write!(text, "left in state {}", run.state)),
        (Some(ending), _) => text += &ending.message,
        (None, _) if run.state == State::Aborted => text += "given up before it was finished",
        (None, _) => text += Result::of(run).words(),
    }
    let _ = write!(
        text,
        "\n  {total} files: {verified} verified, {new} new, {changed} changed, {corrupt} corrupt, \
         {unreadable} unreadable, {skipped} changed meanwhile, {} not selected, {} remaining",
        run.counts.not_selected(),
        run.counts.remaining(),
    );
    let _ = writeln!(
        text,
        "\n  {deleted} gone since the last run, {} read",
        size(bytes_read)
    );
    if run.unlisted > 0 {
        let example = run.unlisted_example.as_deref().unwrap_or_default();
        let _ = writeln!(text, "  {} not listed, such as {example}", run.unlisted);
    }
    text
}

/// Damaged files for people.
pub fn warnings_text(warnings: &[WarningRow]) -> String {
    let mut text = String::new();
    for warning in warnings.iter().take(TOLD as usize) {
        let WarningRow {
            path,
            expected,
            actual,
            discovered,
            last_read,
            state,
            ..
        } = warning;
        let _ = writeln!(
            text,
            "{state}: {path}\n  {algorithm} {expected} in run {last_read}\n  {algorithm} {actual} now, found by run {discovered}",
            state = state.name(),
            algorithm = expected.algorithm,
        );
    }
    and_more(&mut text, warnings.len(), STORED);
    text
}

/// Files that a run could not verify, for people: the first of them, and how many more there are.
pub fn problems_text(first: &[Problem], run: &Run) -> String {
    let mut text = String::new();
    for Problem { path, outcome, why } in first {
        let _ = writeln!(text, "{outcome}: {path}\n  {why}");
    }
    let all = run.counts.unreadable + run.counts.skipped;
    and_more(&mut text, usize::try_from(all).unwrap_or(0), STORED);
    text
}

/// What could not be listed, for people.
pub fn unlisted_text(problems: &list::Problems) -> String {
    let mut text = String::new();
    for list::Problem { path, what } in problems.first.iter().take(TOLD as usize) {
        let _ = writeln!(text, "not listed: {path}\n  {what}");
    }
    let total = usize::try_from(problems.total).unwrap_or(usize::MAX);
    let first = list::Problems::TOLD;
    // The store keeps their number, and one of them.
    and_more(
        &mut text,
        total,
        &format!("local --output json tells the first {first}"),
    );
    text
}

/// What a store keeps can be asked for later.
const STORED: &str = "report --format json tells all";

fn and_more(text: &mut String, total: usize, where_from: &str) {
    let more = total.saturating_sub(TOLD as usize);
    if more > 0 {
        let _ = writeln!(text, "and {more} more: {where_from}");
    }
}

/// A snapshot that a run of `local` leaves behind when it is given up where nobody can delete it.
pub fn left_snapshot(run: &Run) -> Option<String> {
    let name = run.what.snapshot.as_deref()?;
    // Whoever runs for others has his snapshots deleted by them.
    let is_left = run.what.owner.is_none() && !run.state.is_resolved();
    is_left.then(|| {
        format!(
            "the snapshot {name} of run {} stays: mmdelsnapshot FILESYSTEM {name} deletes it\n",
            run.id
        )
    })
}

fn mode(mode: Mode) -> String {
    match mode {
        Mode::Full => "full".into(),
        Mode::Incremental => "incremental".into(),
        Mode::Sample(percent) => format!("sample of {percent} %"),
    }
}

/// Bytes for people.
pub fn size(bytes: i64) -> String {
    let mut value = bytes;
    let mut rest = 0;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024 {
            break;
        }
        (value, rest, unit) = (value / 1024, value % 1024, next);
    }
    if unit == "B" || value >= 100 {
        format!("{value} {unit}")
    } else {
        format!("{value}.{} {unit}", rest * 10 / 1024)
    }
}

/// How many files of another folder are as on record, are not, and could not be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// As on record.
    pub same: u64,
    /// Something else.
    pub different: u64,
    /// Not compared.
    pub unknown: u64,
}

/// All that was compared, for people.
pub fn compared_text(compared: Compared) -> String {
    let Compared {
        same,
        different,
        unknown,
    } = compared;
    format!("{same} files are as on record, {different} are not, {unknown} could not be compared\n")
}

/// A file of another folder that is not as on record, for people; nothing of one that is.
pub fn finding_text(path: &RelativePath, finding: &Finding) -> String {
    match finding {
        Finding::Same => String::new(),
        Finding::Different { expected, actual } => {
            format!("different: {path}\n  {expected} on record, {actual} here\n")
        }
        Finding::Unknown(why) => format!("unknown: {path}\n  {why}\n"),
    }
}

/// A checksum as the tool of its algorithm prints and checks it: raw bytes, with an escape for names that hold a newline or
/// a backslash. The tool for one algorithm cannot check another's, so these are left out when `only` is another.
///
/// A name that the tool would take for its standard input is given with its folder.
pub fn manifest_line(checksum: &Checksum, only: Algorithm) -> Option<Vec<u8>> {
    let Checksum { path, digest, .. } = checksum;
    let digest = digest.as_ref().filter(|it| it.algorithm == only)?;
    let mut line = Vec::new();
    let plain: &[u8] = match path.as_bytes() {
        b"-" => b"./-",
        plain => plain,
    };
    let escaped = escape(plain, only);
    if escaped != plain {
        line.push(b'\\');
    }
    line.extend(digest.to_string().into_bytes());
    line.extend(b"  ");
    line.extend(escaped);
    line.push(b'\n');
    Some(line)
}

/// `b3sum` knows no escape for a carriage return, and takes it as it is.
fn escape(path: &[u8], algorithm: Algorithm) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(path.len());
    for byte in path {
        match byte {
            b'\n' => escaped.extend(br"\n"),
            b'\r' if algorithm != Algorithm::Blake3 => escaped.extend(br"\r"),
            b'\\' => escaped.extend(br"\\"),
            byte => escaped.push(*byte),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_given_up_has_verified_nothing() {
        let mut run = Run::example(State::Finished);
        assert_eq!(Result::of(&run), Result::Verified);
        run.state = State::Aborted;
        assert_eq!(Result::of(&run), Result::Incomplete);
        assert!(run_text(&run).contains("given up before it was finished"));
        run.ending = Some(crate::store::Ending {
            result: "DeletionGuard".into(),
            message: "too many are gone".into(),
        });
        assert!(run_text(&run).contains("too many are gone"));
        assert!(run_json(&run).contains(r#""result":"incomplete""#));
    }

    #[test]
    fn what_could_not_be_verified_is_no_success_and_no_damage() {
        let incomplete: [fn(&mut Run); 4] = [
            |run| run.counts.unreadable = 1,
            |run| run.counts.skipped = 1,
            |run| run.complete = false,
            |run| run.counts.selected += 1,
        ];
        for change in incomplete {
            let mut run = Run::example(State::Finished);
            change(&mut run);
            assert_eq!(Result::of(&run).exit_code(), 2, "{run:?}");
            run.counts.corrupt = 1;
            assert_eq!(Result::of(&run).exit_code(), 1, "{run:?}");
        }
    }

    #[test]
    fn what_is_not_told_is_promised_only_where_it_can_be_found() {
        let problem = list::Problem {
            path: RelativePath::new(*b"folder"),
            what: "permission denied (folder not listed)".into(),
        };
        let problems = |total: usize| list::Problems {
            total: total as u64,
            first: vec![problem.clone(); total.min(list::Problems::TOLD)],
        };
        let few = unlisted_text(&problems(TOLD as usize));
        assert_eq!(few.matches("not listed: folder\n").count(), TOLD as usize);
        assert!(!few.contains("more"), "{few}");
        let many = unlisted_text(&problems(1000));
        let last = many.lines().last();
        let expected = "and 980 more: local --output json tells the first 100";
        assert_eq!(last, Some(expected));
    }

    #[test]
    fn of_many_files_that_could_not_be_verified_the_first_are_told_and_how_many_more_there_are() {
        let first = vec![Problem {
            path: RelativePath::new(*b"file"),
            outcome: "unreadable".into(),
            why: "permission denied".into(),
        }];
        let mut run = Run::example(State::Finished);
        (run.counts.unreadable, run.counts.skipped) = (1_000_000, 19);
        let expected = "unreadable: file\n  permission denied\n\
            and 999999 more: report --format json tells all\n";
        assert_eq!(problems_text(&first, &run), expected);
    }

    #[test]
    fn sizes_are_told_with_three_digits() {
        let told = [0, 1023, 1024, 1536, 102_400, 5 << 30].map(size);
        assert_eq!(
            told,
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "100 KiB", "5.0 GiB"]
        );
    }

    #[test]
    fn a_manifest_is_what_the_tools_of_others_print() {
        let of = |algorithm: Algorithm, path: &[u8]| {
            let path = RelativePath::new(path);
            Checksum {
                key: path.key(),
                path,
                digest: Some(algorithm.digest(b"")),
            }
        };
        let checksum = |path: &[u8]| of(Algorithm::Crc32c, path);
        let line = |path: &[u8]| manifest_line(&checksum(path), Algorithm::Crc32c).unwrap();
        assert_eq!(line(b"a b"), b"00000000  a b\n");
        assert_eq!(line(b"a\nb\\"), b"\\00000000  a\\nb\\\\\n");
        assert_eq!(line(b"-"), b"00000000  ./-\n");
        assert_eq!(line(b"a/-"), b"00000000  a/-\n");
        assert_eq!(manifest_line(&checksum(b"a"), Algorithm::Sha1), None);
        // What b3sum prints.
        let line = manifest_line(&of(Algorithm::Blake3, b"a"), Algorithm::Blake3).unwrap();
        let expected = b"af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262  a\n";
        assert_eq!(line, expected);
    }
}
