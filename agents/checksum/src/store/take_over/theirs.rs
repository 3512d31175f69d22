//! What lsdf-checksum's tables hold. In: rows. Out: runs, files and warnings; or why they cannot be taken over.

use std::os::unix::ffi::OsStrExt as _;

use super::Theirs;
use crate::algorithm::Algorithm;
use crate::judge::RunId;
use crate::path::RelativePath;
use crate::state::State;
use crate::store::Error;
use crate::store::link::{Link, Row};

/// Numbers of runs beyond this are none: others are to follow.
const LAST_RUN: RunId = 1 << 48;

/// A file of theirs.
pub(super) struct File {
    pub(super) path: RelativePath,
    pub(super) mtime: i64,
    pub(super) size: i64,
    pub(super) last_seen: RunId,
    pub(super) last_read: RunId,
    pub(super) is_to_be_read: bool,
    pub(super) is_to_be_compared: bool,
    pub(super) checksum: Option<Vec<u8>>,
}

/// A warning of theirs.
pub(super) struct Warned {
    pub(super) path: RelativePath,
    pub(super) mtime: i64,
    pub(super) size: i64,
    pub(super) expected: Vec<u8>,
    pub(super) actual: Vec<u8>,
    pub(super) discovered: RunId,
    pub(super) last_read: RunId,
    pub(super) created: i64,
}

pub(super) struct TheirRun {
    pub(super) id: RunId,
    pub(super) snapshot: Option<String>,
    pub(super) began: i64,
    pub(super) mode: String,
    pub(super) state: State,
}

impl TheirRun {
    /// Files tell of it, but no row does: the next run has a higher number.
    pub(super) fn without_a_row(id: RunId) -> Self {
        Self {
            id,
            snapshot: None,
            began: 0,
            mode: "full".into(),
            state: State::Finished,
        }
    }
}

pub(super) async fn runs(link: &mut Link, prefix: &str) -> Result<Vec<TheirRun>, Error> {
    let select = format!(
        "SELECT id, snapshot_name, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', run_at), sync_mode, state
         FROM {prefix}runs ORDER BY id"
    );
    let mut runs = Vec::new();
    for mut row in link.fetch(&select, &[]).await? {
        let id = run_id(row.int()?)?;
        let snapshot = row.text_or_null()?;
        let began = row.int_or_null()?.unwrap_or_default() / 1000;
        let mode = row.text()?;
        if !["full", "incremental"].contains(&mode.as_str()) {
            return Err(Error::Theirs(format!("a run in mode {mode:?}")));
        }
        let state = row.text()?;
        let state = State::from_name(&state)
            .ok_or_else(|| Error::Theirs(format!("a run in state {state:?}")))?;
        if !state.is_resolved() {
            let state = state.to_string();
            return Err(Error::TheirRun { id, state });
        }
        runs.push(TheirRun {
            id,
            snapshot,
            began,
            mode,
            state,
        });
    }
    Ok(runs)
}

/// The number of a run, if it can be one.
fn run_id(id: i64) -> Result<RunId, Error> {
    match id {
        0..=LAST_RUN => Ok(id),
        _ => Err(Error::Theirs(format!("a run {id}"))),
    }
}

fn sha1(bytes: Vec<u8>, path: &RelativePath) -> Result<Vec<u8>, Error> {
    match bytes.len() {
        length if length == Algorithm::Sha1.length() => Ok(bytes),
        length => Err(Error::Theirs(format!(
            "a checksum of {length} bytes for {path}"
        ))),
    }
}

pub(super) fn file(row: &mut Row, from: Theirs<'_>) -> Result<File, Error> {
    let path = path(row, from)?;
    Ok(File {
        mtime: nanoseconds(row.int()?),
        size: row.int()?,
        last_seen: run_id(row.int()?)?,
        last_read: run_id(row.int_or_null()?.unwrap_or_default())?,
        is_to_be_read: row.int()? != 0,
        is_to_be_compared: row.int()? != 0,
        checksum: row.bytes_or_null()?.map(|it| sha1(it, &path)).transpose()?,
        path,
    })
}

fn path(row: &mut Row, from: Theirs<'_>) -> Result<RelativePath, Error> {
    let (path, folder) = (row.bytes()?, from.folder);
    below(&path, folder.as_os_str().as_bytes()).ok_or_else(|| {
        let path = RelativePath::new(path);
        Error::Place(format!(
            "{path} of lsdf-checksum is not below {}: all of its files are taken over, or none",
            folder.display()
        ))
    })
}

/// Theirs begin with a slash, and are those of the whole file system; ours are below what is read.
fn below(path: &[u8], folder: &[u8]) -> Option<RelativePath> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let folder = folder.strip_prefix(b"/").unwrap_or(folder);
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    if folder.is_empty() {
        return Some(RelativePath::new(path));
    }
    let rest = path.strip_prefix(folder)?.strip_prefix(b"/")?;
    Some(RelativePath::new(rest))
}

fn nanoseconds(microseconds: i64) -> i64 {
    microseconds.saturating_mul(1000)
}

impl File {
    /// The run that saw it change, as far as it matters: after the last reading, or not.
    pub(super) fn changed_run(&self) -> RunId {
        let is_outdated = self.is_to_be_read && !self.is_to_be_compared;
        if self.checksum.is_none() || is_outdated {
            self.last_seen.max(self.last_read + 1)
        } else {
            self.last_read
        }
    }
}

pub(super) fn warned(row: &mut Row, from: Theirs<'_>) -> Result<Warned, Error> {
    let path = path(row, from)?;
    Ok(Warned {
        mtime: nanoseconds(row.int()?),
        size: row.int()?,
        expected: sha1(row.bytes()?, &path)?,
        actual: sha1(row.bytes()?, &path)?,
        discovered: run_id(row.int()?)?,
        last_read: run_id(row.int()?)?,
        created: row.int()? / 1000,
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_goes_on_below_the_folder_that_is_read() {
        let path = |path: &str| Some(RelativePath::new(path.as_bytes()));
        assert_eq!(below(b"/a/b", b""), path("a/b"));
        for folder in ["a", "/a", "/a/"] {
            assert_eq!(below(b"/a/b", folder.as_bytes()), path("b"), "{folder}");
        }
        assert_eq!(below(b"/a/b/c", b"a/b"), path("c"));
        // Another folder, one whose name only begins so, and the folder itself.
        for other in ["/c/b", "/ab/c", "/a"] {
            assert_eq!(below(other.as_bytes(), b"a"), None, "{other}");
        }
    }
}
