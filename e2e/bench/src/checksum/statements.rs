#![expect(clippy::disallowed_methods, reason = "measures how long things take")]
//! What lsdf-checksum does with its tables to bring them up to a listing: its schema, its three statements, in chunks of its
//! size. In: our rows, filled already. Out: how long the statements take. Touches: a database.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sqlx::{
    ConnectOptions as _, Executor as _, MySqlConnection, Row as _, mysql::MySqlConnectOptions,
};

use super::site::SPACE;

/// Rows per statement.
const CHUNK: u64 = 100_000;

/// Room for all rows of both, as a server for so many files has it.
const ROOM: [&str; 2] = [
    "SET GLOBAL innodb_buffer_pool_size = 3221225472",
    "SET GLOBAL innodb_log_file_size = 1073741824",
];

const TABLES: [&str; 2] = [
    "CREATE TABLE files (
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
        rand DOUBLE NOT NULL,
        path VARBINARY(4096) NOT NULL,
        modification_time DATETIME(6) NOT NULL,
        file_size BIGINT UNSIGNED NOT NULL,
        last_seen BIGINT UNSIGNED NOT NULL,
        to_be_read TINYINT UNSIGNED NOT NULL DEFAULT 1,
        to_be_compared TINYINT UNSIGNED NOT NULL DEFAULT 0,
        checksum VARBINARY(64),
        last_read BIGINT UNSIGNED,
        PRIMARY KEY (id), KEY rand (rand), KEY path (path(2048))
    ) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4",
    "CREATE TABLE inserts (
        id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
        path VARBINARY(4096) NOT NULL,
        modification_time DATETIME(6) NOT NULL,
        file_size BIGINT UNSIGNED NOT NULL,
        PRIMARY KEY (id)
    ) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4",
];

/// Our rows become rows of a run that has ended well; the others are made of them.
const FILL: [&str; 3] = [
    "UPDATE orrery_files SET read_run = 1, done_run = 1, algorithm = 1,
        checksum = CONCAT(hash, hash)",
    "INSERT INTO inserts (path, modification_time, file_size)
        SELECT CONCAT('/', path), FROM_UNIXTIME(mtime / 1000000000), size FROM orrery_files",
    "INSERT INTO files (rand, path, modification_time, file_size, last_seen, to_be_read, checksum, last_read)
        SELECT RAND(), path, modification_time, file_size, 1, 0, UNHEX(SHA1(path)), 1 FROM inserts",
];

const UPDATE: &str = "UPDATE files RIGHT JOIN inserts ON files.path = inserts.path SET
        files.file_size = inserts.file_size,
        files.to_be_compared = IF(files.to_be_read = 1 AND files.to_be_compared = 0, 0,
            files.modification_time = inserts.modification_time),
        files.to_be_read = 1,
        files.modification_time = inserts.modification_time,
        files.last_seen = ?
    WHERE inserts.id > ? AND inserts.id <= ? AND files.last_seen != ?";
const DELETE: &str = "DELETE FROM files WHERE last_seen != ? AND id > ? AND id <= ?";
const INSERT: &str = "INSERT INTO files (rand, path, modification_time, file_size, last_seen)
    SELECT RAND(), inserts.path, inserts.modification_time, inserts.file_size, ?
    FROM inserts LEFT JOIN files ON files.path = inserts.path
    WHERE files.id IS NULL AND inserts.id > ? AND inserts.id <= ?";

pub(super) struct Statements {
    link: MySqlConnection,
    /// The run that was last.
    last: u64,
}

impl Statements {
    pub(super) async fn open(url: &str) -> Result<Self> {
        let options: MySqlConnectOptions = url.parse()?;
        let link = options.database(SPACE).connect().await?;
        Ok(Self { link, last: 1 })
    }

    pub(super) async fn make_room(&mut self) -> Result<()> {
        self.all(&ROOM).await
    }

    /// Makes the tables from our rows.
    pub(super) async fn fill(&mut self) -> Result<()> {
        self.all(&TABLES).await?;
        self.all(&FILL).await?;
        let analyze = "ANALYZE TABLE files, inserts, orrery_files";
        self.link.execute(sqlx::raw_sql(analyze)).await?;
        Ok(())
    }

    async fn all(&mut self, statements: &[&'static str]) -> Result<()> {
        for statement in statements {
            self.link.execute(sqlx::raw_sql(*statement)).await?;
        }
        Ok(())
    }

    /// The statements of a run in which nothing has changed, without what fills `inserts`.
    pub(super) async fn run(&mut self) -> Result<Duration> {
        self.last += 1;
        let level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
        self.link.execute(sqlx::raw_sql(level)).await?;
        let (inserts, files) = (self.highest("inserts").await?, self.highest("files").await?);
        let began = Instant::now();
        let run = self.last;
        let updated = self
            .chunks(inserts, UPDATE, |at, to| vec![run, at, to, run])
            .await?;
        let deleted = self
            .chunks(files, DELETE, |at, to| vec![run, at, to])
            .await?;
        let inserted = self
            .chunks(inserts, INSERT, |at, to| vec![run, at, to])
            .await?;
        let took = began.elapsed();
        let is_as_expected = updated >= inserts / 2 && deleted == 0 && inserted == 0;
        ensure!(
            is_as_expected,
            "{updated} rows were updated, {deleted} deleted, {inserted} inserted"
        );
        Ok(took)
    }

    async fn highest(&mut self, table: &str) -> Result<u64> {
        let select = sqlx::AssertSqlSafe(format!("SELECT MAX(id) FROM {table}"));
        let row = sqlx::query(select).fetch_one(&mut self.link).await?;
        Ok(row.try_get(0)?)
    }

    /// One transaction per chunk; how many rows were affected.
    async fn chunks(
        &mut self,
        highest: u64,
        statement: &'static str,
        values: impl Fn(u64, u64) -> Vec<u64>,
    ) -> Result<u64> {
        let (mut affected, mut at) = (0, 0);
        while at < highest {
            let to = at + CHUNK;
            let mut query = sqlx::query(statement);
            for value in values(at, to) {
                query = query.bind(value);
            }
            affected += query.execute(&mut self.link).await?.rows_affected();
            at = to;
        }
        Ok(affected)
    }
}
