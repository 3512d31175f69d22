//! What the file system says of one name. In: a folder's descriptor and a name. Out: a kind, and attributes. Touches: statx.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use crate::entry::Attributes;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File(Attributes),
    Folder,
    /// A link, FIFO, socket or device.
    Other,
}

/// Asks for a name in a folder; follows and mounts nothing.
pub(super) fn kind(folder: BorrowedFd<'_>, name: &CStr) -> Result<Kind, Errno> {
    let asked = StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::MTIME | StatxFlags::CTIME;
    let seen = rustix::fs::statx(
        folder,
        name,
        AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT,
        asked,
    )?;
    Ok(match FileType::from_raw_mode(seen.stx_mode.into()) {
        FileType::RegularFile => Kind::File(attributes(&seen)),
        FileType::Directory => Kind::Folder,
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Kind::Other,
    })
}

/// The file system that an open folder is on.
pub(super) fn device(folder: impl AsFd) -> Result<(u32, u32), Errno> {
    let seen = rustix::fs::statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
    Ok((seen.stx_dev_major, seen.stx_dev_minor))
}

/// What the kernel said of a file.
pub(crate) fn attributes(seen: &Statx) -> Attributes {
    let time = |time: StatxTimestamp| nanoseconds(time.tv_sec, time.tv_nsec.into());
    Attributes {
        size: seen.stx_size,
        mtime: time(seen.stx_mtime),
        ctime: time(seen.stx_ctime),
    }
}

/// Since 1970.
pub(crate) fn nanoseconds(seconds: i64, fraction: i64) -> i64 {
    saturated(i128::from(seconds) * 1_000_000_000 + i128::from(fraction))
}

/// The years 1677 to 2262 fit; what is outside is the nearest that does.
pub(super) fn saturated(nanoseconds: i128) -> i64 {
    let clamped = nanoseconds.clamp(i64::MIN.into(), i64::MAX.into());
    i64::try_from(clamped).unwrap_or_default()
}

/// An error's meaning in the system's words, as part of a sentence: `permission denied`.
pub(super) fn meaning(errno: Errno) -> String {
    let text = io::Error::from(errno).to_string();
    let words = text.split(" (os error").next().unwrap_or_default();
    let mut characters = words.chars();
    let first = characters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_in_words() {
        assert_eq!(meaning(Errno::ACCESS), "permission denied");
        assert_eq!(meaning(Errno::NOTDIR), "not a directory");
    }

    #[test]
    fn a_time_that_does_not_fit_is_the_nearest_that_does() {
        assert_eq!(saturated(i128::MAX), i64::MAX);
        assert_eq!(saturated(i128::MIN), i64::MIN);
        assert_eq!(saturated(-1), -1);
        // The year 1600, half a second later.
        assert_eq!(nanoseconds(-11_676_096_000, 500_000_000), i64::MIN);
    }
}
