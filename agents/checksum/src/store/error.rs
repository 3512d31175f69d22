//! Why a store cannot be used, and what that means for who uses it. Pure.

use std::io;
use std::path::PathBuf;

use sqlx::mysql::MySqlDatabaseError;
use thiserror::Error;

/// Why the store cannot be used.
#[derive(Debug, Error)]
pub enum Error {
    /// Somebody else writes to it.
    #[error("another process writes to {0}: wait until it has ended")]
    InUse(String),
    /// The lock file.
    #[error("failed to lock {path}")]
    Lock {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Made by a later version.
    #[error(
        "{store} was written by a newer version (its schema is {found}, this one knows {known}): use that version"
    )]
    Newer {
        /// Which.
        store: String,
        /// The version of its schema.
        found: i64,
        /// The newest that is known here.
        known: usize,
    },
    /// There is none.
    #[error("there is no store at {0}: a run makes one")]
    Absent(PathBuf),
    /// It has nothing of that name.
    #[error("the store knows nothing of {0:?}: a run over these files makes it known")]
    Unknown(String),
    /// What it takes to reach it cannot be used.
    #[error("{0}")]
    Place(String),
    /// Somebody else has opened it for writing since.
    #[error("another process has taken the store over; nothing of this was written")]
    Fenced,
    /// An earlier run was neither finished nor aborted.
    #[error(
        "run {id}{by} was interrupted in state {state}: go on with it (--resume), or give it up (--abort)"
    )]
    Unresolved {
        /// Which.
        id: i64,
        /// Whose it is, in words, if somebody said.
        by: String,
        /// How far it is.
        state: String,
    },
    /// A take-over of the file system was begun and has not ended.
    #[error(
        "what lsdf-checksum has kept was taken over in part only: run orrery-checksum take-over again, or give it up with orrery-checksum abort"
    )]
    HalfTaken,
    /// The database that is taken over has a run that goes on.
    #[error(
        "run {id} of lsdf-checksum was interrupted in state {state}: complete or abort it there"
    )]
    TheirRun {
        /// Which.
        id: i64,
        /// How far it is.
        state: String,
    },
    /// The database that is taken over has something that cannot be taken over.
    #[error(
        "the tables that are taken over hold {0}, which lsdf-checksum does not write: see whether they are the right ones"
    )]
    Theirs(String),
    /// What was listed is not what was kept of it.
    #[error(
        "a path in the listing is not what it was when it was listed, and nothing of it was stored: see to the memory and the disk of this machine, and begin again"
    )]
    Listing,
    /// Something in it that nobody wrote.
    #[error("the store holds {0}, which no version writes: restore it from a backup")]
    Damaged(String),
    /// It takes too long.
    #[error("the store did not answer in time")]
    Slow,
    /// The database itself.
    #[error("failed to use the store")]
    Database(#[from] sqlx::Error),
}

/// What a failure means for who uses the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is somebody else's for now.
    InUse,
    /// An earlier run is in the way.
    Unresolved,
    /// It does not answer: later it may.
    Unreachable,
    /// It answers, and refuses.
    Refused,
    /// It has no room.
    Full,
    /// Two transactions met: the same again works.
    Clash,
    /// Nothing that goes away by itself.
    Broken,
}

impl Error {
    /// What it means.
    pub fn trouble(&self) -> Trouble {
        match self {
            Self::InUse(_) | Self::Fenced => Trouble::InUse,
            Self::Unresolved { .. } | Self::HalfTaken => Trouble::Unresolved,
            Self::Slow => Trouble::Unreachable,
            Self::Lock { source, .. } => of_file(source),
            Self::Absent(_)
            | Self::Unknown(_)
            | Self::Place(_)
            | Self::TheirRun { .. }
            | Self::Theirs(_) => Trouble::Refused,
            Self::Newer { .. } | Self::Damaged(_) | Self::Listing => Trouble::Broken,
            Self::Database(error) => of_database(error),
        }
    }

    /// Whether it says that a column is there already. A server commits each change of its tables by itself, so one that
    /// died has perhaps added it.
    pub(super) fn is_known_column(&self) -> bool {
        let Self::Database(sqlx::Error::Database(error)) = self else {
            return false;
        };
        let mysql = error.try_downcast_ref::<MySqlDatabaseError>();
        mysql.is_some_and(|it| it.number() == 1060)
    }

    /// Whether it says that a table is not there.
    pub(super) fn is_missing_table(&self) -> bool {
        let Self::Database(sqlx::Error::Database(error)) = self else {
            return false;
        };
        error.code().as_deref() == Some("42S02") || error.message().contains("no such table")
    }
}

fn of_file(error: &io::Error) -> Trouble {
    let is = |kinds: &[io::ErrorKind]| kinds.contains(&error.kind());
    if is(&[io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded]) {
        Trouble::Full
    } else if is(&[
        io::ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied,
        io::ErrorKind::ReadOnlyFilesystem,
    ]) {
        Trouble::Refused
    } else {
        Trouble::Unreachable
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the driver adds kinds as it likes, and none of them goes away by itself"
)]
fn of_database(error: &sqlx::Error) -> Trouble {
    match error {
        // A certificate that nobody trusted has signed, or of another name.
        sqlx::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => Trouble::Refused,
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Protocol(_) => Trouble::Unreachable,
        sqlx::Error::Tls(_) | sqlx::Error::Configuration(_) => Trouble::Refused,
        sqlx::Error::Database(error) => match error.try_downcast_ref::<MySqlDatabaseError>() {
            Some(mysql) => of_mysql(mysql.number()),
            None => of_sqlite(error.code().as_deref().unwrap_or_default()),
        },
        _ => Trouble::Broken,
    }
}

fn of_mysql(number: u16) -> Trouble {
    match number {
        // Lock wait time-out, deadlock.
        1205 | 1213 => Trouble::Clash,
        // No rights, no such database, a user or a password that is not known, read-only.
        1044 | 1045 | 1049 | 1142 | 1143 | 1227 | 1290 | 1698 | 1836 | 1820 => Trouble::Refused,
        // Disk full, table full, quota.
        1021 | 1041 | 1114 | 3675 => Trouble::Full,
        // Shutting down, too many connections, blocked for now, a cluster without a majority, killed, gone.
        1040
        | 1047
        | 1053
        | 1077
        | 1080
        | 1129
        | 1130
        | 1152
        | 1158..=1161
        | 1180
        | 1184
        | 1203
        | 1226
        | 1317
        | 1927
        | 1969
        | 2006
        | 2013
        | 3024 => Trouble::Unreachable,
        _ => Trouble::Broken,
    }
}

/// By the primary code, which is the lowest byte.
fn of_sqlite(code: &str) -> Trouble {
    match code.parse::<u32>().map(|code| code & 0xff) {
        // Busy, locked.
        Ok(5 | 6) => Trouble::Clash,
        // Permission, read-only, cannot open.
        Ok(3 | 8 | 14) => Trouble::Refused,
        Ok(13) => Trouble::Full,
        // Input or output.
        Ok(10) => Trouble::Unreachable,
        _ => Trouble::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_away_by_itself_is_told_from_what_does_not() {
        assert_eq!(of_sqlite("13"), Trouble::Full);
        assert_eq!(of_sqlite("2570"), Trouble::Unreachable); // an extended code of 10
        assert_eq!(of_sqlite("11"), Trouble::Broken);
        assert_eq!(of_mysql(1045), Trouble::Refused);
        assert_eq!(of_mysql(1213), Trouble::Clash);
        assert_eq!(Error::Slow.trouble(), Trouble::Unreachable);
    }
}
