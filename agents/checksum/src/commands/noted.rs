//! What a person says of damage. In: paths. Out: the same in the store,.
//! Touches: the store.

use std::os::unix::ffi::OsStrExt;

use super::{Error, stores};
use crate::args::Files;
use crate::path::{BadEscape, RelativePath};
use crate::store::Store;

/// Takes what is there for right.
pub(super) async fn accept(files: &Files) -> Result<u8, Error> {
    let paths = paths(files)?;
    let store = Store::open(&stores::existing(&files.store)?, 1).await?;
    for path in paths {
        if !store.accept(&path).await? {
            return Err(Error::NoWarning(path));
        }
    }
    Ok(0)
}

/// Takes note of what is there.
pub(super) async fn acknowledge(files: &Files) -> Result<u8, Error> {
    let paths = paths(files)?;
    let store = Store::open(&stores::existing(&files.store)?, 1).await?;
    for path in paths {
        if !store.acknowledge(&path).await? {
            return Err(Error::NoWarning(path));
        }
    }
    Ok(0)
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
