//! What a person says of damage. In: paths. Out: the same in the store, of all that are damaged, whatever the others are.
//! Touches: the store.

use std::os::unix::ffi::OsStrExt;

use super::{Error, stores};
use crate::args::Files;
use crate::path::{BadEscape, RelativePath};
use crate::store::{self, Store};

/// Takes what is there for right.
pub(super) async fn accept(files: &Files) -> Result<u8, Error> {
    of_each(files, async |store, path| store.accept(path).await).await
}

/// Takes note of what is there.
pub(super) async fn acknowledge(files: &Files) -> Result<u8, Error> {
    of_each(files, async |store, path| store.acknowledge(path).await).await
}

async fn of_each(
    files: &Files,
    note: impl AsyncFn(&Store, &RelativePath) -> Result<bool, store::Error>,
) -> Result<u8, Error> {
    let paths = paths(files)?;
    let store = Store::open(&stores::existing(&files.store)?, 1).await?;
    let (mut done, mut refused) = (0, Vec::new());
    for path in paths {
        if note(&store, &path).await? {
            done += 1;
        } else {
            refused.push(path);
        }
    }
    if refused.is_empty() {
        return Ok(0);
    }
    Err(Error::NoWarning {
        paths: refused,
        done,
    })
}

/// All of them, or none if one cannot be read.
fn paths(files: &Files) -> Result<Vec<RelativePath>, BadEscape> {
    let bytes = files.paths.iter().map(|path| path.as_os_str().as_bytes());
    if files.escaped {
        bytes.map(RelativePath::from_printed).collect()
    } else {
        Ok(bytes.map(RelativePath::new).collect())
    }
}
