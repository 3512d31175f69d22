//! A file as a listing has it. Pure data.

use crate::path::RelativePath;

/// What the file system says of a regular file. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is.
    pub path: RelativePath,
    /// Its attributes.
    pub attributes: Attributes,
}

/// What changes with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its size in bytes.
    pub size: u64,
    /// When its content was changed, or said to be.
    pub mtime: i64,
    /// When anything of it was changed.
    pub ctime: i64,
}
