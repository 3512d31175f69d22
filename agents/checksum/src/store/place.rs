//! Where a store is. In: what users say. Out: how to connect. Pure but for reading certificates.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use super::link::Place;

/// How long one connection to SQLite waits for another to finish writing.
const BUSY: Duration = Duration::from_secs(30);

/// Rows that may wait for who asked for them.
const PAGE: usize = 512;

/// Where a store is, and which of the file systems in it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file.
    Sqlite {
        /// Which.
        path: PathBuf,
        /// The name of the file system.
        file_system: String,
    },
    /// A server.
    Mysql {
        /// Which.
        server: Mysql,
        /// The name of the file system.
        file_system: String,
    },
}

/// A database of a MySQL or MariaDB server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mysql {
    /// Its host name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Which database.
    pub database: String,
    /// Who logs in.
    pub username: String,
    /// With what.
    pub password: Password,
    /// TLS, if it is to be used: then the server must have a good certificate.
    pub tls: Option<Tls>,
}

/// A password. It is never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// How TLS is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Authorities that the server's certificate is checked against, in PEM; none means those of the system.
    pub authorities: Option<PathBuf>,
    /// A certificate to show, and its key, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Location {
    /// A file, and the one file system that `orrery-checksum local` keeps in it.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::Sqlite {
            path: path.into(),
            file_system: "files".into(),
        }
    }

    /// The name of the file system that is meant.
    pub fn file_system(&self) -> &str {
        match self {
            Self::Sqlite { file_system, .. } | Self::Mysql { file_system, .. } => file_system,
        }
    }

    pub(super) fn place(&self) -> Place {
        match self {
            Self::Sqlite { path, .. } => Place::Sqlite(
                SqliteConnectOptions::new()
                    .filename(path)
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    // With the machine's power the newest transactions may be lost, of any kind, but none of them in
                    // part: the run goes on from there, and reads again what it had stored since.
                    .synchronous(SqliteSynchronous::Normal)
                    .busy_timeout(BUSY)
                    // Rows of a page come at once, not in turns of two threads.
                    .row_buffer_size(PAGE)
                    // A row has some 150 bytes, and most pages get new ones: fewer and larger ones cost less.
                    .page_size(8192)
                    .pragma("cache_size", "-16384")
                    // Pages go from the log to the file, and both to the disk, after 16 MiB; in a
                    // store that was made with smaller pages, after 8.
                    .pragma("wal_autocheckpoint", "2048")
                    // A pod has no folder for temporary files, and what is sorted is small.
                    .pragma("temp_store", "MEMORY")
                    .disable_statement_logging(),
            ),
            Self::Mysql { server, .. } => Place::Mysql(server.options()),
        }
    }
}

impl Mysql {
    fn options(&self) -> MySqlConnectOptions {
        let options = MySqlConnectOptions::new()
            .host(&self.host)
            .port(self.port)
            .database(&self.database)
            .username(&self.username)
            .password(&self.password.0)
            .disable_statement_logging();
        let Some(tls) = &self.tls else {
            return options.ssl_mode(MySqlSslMode::Disabled);
        };
        let mut options = options.ssl_mode(MySqlSslMode::VerifyIdentity);
        if let Some(authorities) = &tls.authorities {
            options = options.ssl_ca(authorities);
        }
        if let Some((certificate, key)) = &tls.identity {
            options = options.ssl_client_cert(certificate).ssl_client_key(key);
        }
        options
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite { path, .. } => write!(f, "{}", path.display()),
            Self::Mysql {
                server,
                file_system,
            } => {
                let Mysql {
                    host,
                    port,
                    database,
                    ..
                } = server;
                write!(f, "{file_system} in database {database} of {host}:{port}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_in_no_text() {
        let location = Location::Mysql {
            server: Mysql {
                host: "db".into(),
                port: 3306,
                database: "sums".into(),
                username: "me".into(),
                password: Password("sesame".into()),
                tls: None,
            },
            file_system: "home".into(),
        };
        let text = format!("{location:?} {location}");
        assert!(!text.contains("sesame"), "{text}");
        assert_eq!(location.to_string(), "home in database sums of db:3306");
    }
}
