//! A file as a listing has it. Pure data.

use crate::path::{Key, RelativePath};

/// What the file system says of a regular file. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is.
    pub path: RelativePath,
    /// Its attributes.
    pub attributes: Attributes,
}

/// The same, kept among others until it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// Its path's key.
    pub key: Key,
    /// Where it is: the bytes of a relative path.
    pub path: &'a [u8],
    /// Its attributes.
    pub attributes: Attributes,
}

/// The time of change of a file where nobody tells it: then the modification time is known to the microsecond only.
pub const UNKNOWN: i64 = i64::MIN;

/// What changes with a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Its size in bytes.
    pub size: u64,
    /// When its content was changed, or said to be.
    pub mtime: i64,
    /// When anything of it was changed.
    pub ctime: i64,
}

impl Attributes {
    /// Whether `seen` is the same file with the same modification time, as exactly as that is known here.
    pub fn has_time_of(&self, seen: &Self) -> bool {
        const MICROSECOND: i64 = 1000;
        let rough = |mtime: i64| mtime.div_euclid(MICROSECOND);
        self.mtime == seen.mtime
            || (self.ctime == UNKNOWN && rough(self.mtime) == rough(seen.mtime))
    }
}
