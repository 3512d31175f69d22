//! Patterns of paths that a run leaves out. In: what users wrote. Out: a glob, or what is wrong with it. Pure.

use globset::{Glob, GlobBuilder};

/// A pattern that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad exclude pattern {pattern:?}: {why}")]
pub struct BadPattern {
    /// As it was given.
    pub pattern: String,
    /// What is wrong with it.
    pub why: String,
}

/// Reads a pattern. A leading slash is allowed, and anchors like any other. `*` and `?` stay within a name.
pub fn read(pattern: &str) -> Result<Glob, BadPattern> {
    let bad = |why: String| BadPattern {
        pattern: pattern.to_owned(),
        why,
    };
    let anchored = pattern.strip_prefix('/').unwrap_or(pattern);
    if anchored.is_empty() {
        return Err(bad("it is empty".into()));
    }
    if anchored.ends_with('/') {
        let why = "it ends with a slash: a folder is meant without one, what is in it with `/**`";
        return Err(bad(why.into()));
    }
    if anchored
        .split('/')
        .any(|part| matches!(part, "" | "." | ".."))
    {
        let why = "it has an empty, `.` or `..` part, which no path has";
        return Err(bad(why.into()));
    }
    GlobBuilder::new(anchored)
        .literal_separator(true)
        .build()
        .map_err(|error| bad(error.kind().to_string()))
}
