//! What was found, for programs. In: runs, warnings, problems, findings. Out: lines of JSON and CSV, with fields named as those
//! of the API. Pure.

use jiff::Timestamp;
use serde::Serialize;

use super::{Compared, Result, mode};
use crate::list;
use crate::path::RelativePath;
use crate::store::{Counts, Problem, Run, WarningRow};
use crate::verify::Finding;

#[derive(Serialize)]
#[serde(
    tag = "kind",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
enum Line<'a> {
    Run {
        id: i64,
        mode: String,
        algorithm: &'static str,
        state: &'static str,
        result: Option<&'static str>,
        began: String,
        ended: Option<String>,
        complete: bool,
        unlisted: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        unlisted_example: Option<&'a str>,
        #[serde(flatten)]
        counts: Counts,
        not_selected: i64,
        remaining: i64,
    },
    Warning {
        path: String,
        state: &'static str,
        size: u64,
        mtime: String,
        algorithm: &'static str,
        expected: String,
        actual: String,
        discovered: i64,
        last_read: i64,
        created: String,
    },
    Problem {
        path: String,
        outcome: &'a str,
        why: &'a str,
    },
    Unlisted {
        path: String,
        why: &'a str,
    },
    Different {
        path: String,
        why: &'a str,
    },
    Unknown {
        path: String,
        why: &'a str,
    },
    Verify {
        same: u64,
        different: u64,
        unknown: u64,
    },
    Error {
        message: &'a str,
        exit_code: u8,
    },
}

fn line(line: &Line<'_>) -> String {
    // Strings and numbers can always be written.
    serde_json::to_string(line).unwrap_or_default() + "\n"
}

/// A run for programs.
pub fn run_json(run: &Run) -> String {
    line(&Line::Run {
        id: run.id,
        mode: mode(run.what.mode),
        algorithm: run.what.algorithm.name(),
        state: run.state.name(),
        result: run.ended.map(|_| Result::of(run).name()),
        began: run.began.to_string(),
        ended: run.ended.map(|it| it.to_string()),
        complete: run.complete,
        unlisted: run.unlisted,
        unlisted_example: run.unlisted_example.as_deref(),
        counts: run.counts,
        not_selected: run.counts.not_selected(),
        remaining: run.counts.remaining(),
    })
}

/// Why a command failed, for programs.
pub fn error_json(message: &str, exit_code: u8) -> String {
    line(&Line::Error { message, exit_code })
}

/// All that was compared, for programs.
pub fn compared_json(compared: Compared) -> String {
    let Compared {
        same,
        different,
        unknown,
    } = compared;
    line(&Line::Verify {
        same,
        different,
        unknown,
    })
}

/// A file of another folder that is not as on record, for programs; nothing of one that is.
pub fn finding_json(path: &RelativePath, finding: &Finding) -> String {
    let path = path.to_string();
    match finding {
        Finding::Same => String::new(),
        Finding::Different { expected, actual } => {
            let why = &format!("{expected} on record, {actual} here");
            line(&Line::Different { path, why })
        }
        Finding::Unknown(why) => line(&Line::Unknown { path, why }),
    }
}

/// A damaged file for programs. Paths are escaped as for people.
pub fn warning_json(warning: &WarningRow) -> String {
    line(&Line::Warning {
        path: warning.path.to_string(),
        state: warning.state.name(),
        size: warning.size,
        mtime: time(warning.mtime),
        algorithm: warning.expected.algorithm.name(),
        expected: warning.expected.to_string(),
        actual: warning.actual.to_string(),
        discovered: warning.discovered,
        last_read: warning.last_read,
        created: warning.created.to_string(),
    })
}

/// A file that could not be verified, for programs.
pub fn problem_json(problem: &Problem) -> String {
    line(&Line::Problem {
        path: problem.path.to_string(),
        outcome: &problem.outcome,
        why: &problem.why,
    })
}

/// What could not be listed, for programs.
pub fn unlisted_json(problem: &list::Problem) -> String {
    line(&Line::Unlisted {
        path: problem.path.to_string(),
        why: &problem.what,
    })
}

/// The first line of [`warning_csv`]'s.
pub const CSV_HEAD: &str =
    "path,state,size,mtime,algorithm,expected,actual,discovered,lastRead,created\n";

/// A damaged file as comma-separated values.
pub fn warning_csv(warning: &WarningRow) -> String {
    let path = warning.path.to_string().replace('"', "\"\"");
    format!(
        "\"{path}\",{},{},{},{},{},{},{},{},{}\n",
        warning.state.name(),
        warning.size,
        time(warning.mtime),
        warning.expected.algorithm,
        warning.expected,
        warning.actual,
        warning.discovered,
        warning.last_read,
        warning.created,
    )
}

fn time(nanoseconds: i64) -> String {
    Timestamp::from_nanosecond(nanoseconds.into())
        .map_or_else(|_| nanoseconds.to_string(), |it| it.to_string())
}
