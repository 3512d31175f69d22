//! The tables of lsdf-checksum, as version 0.4 makes them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use anyhow::Result;
use sqlx::{ConnectOptions as _, Executor as _, MySqlConnection};

use super::Place;

const TABLES: &str = "
CREATE TABLE files (id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, rand double NOT NULL,
  path varbinary(4096) NOT NULL, modification_time datetime(6) NOT NULL, file_size bigint unsigned NOT NULL,
  last_seen bigint unsigned NOT NULL, to_be_read tinyint unsigned NOT NULL DEFAULT 1,
  to_be_compared tinyint unsigned NOT NULL DEFAULT 0, checksum varbinary(64), last_read bigint unsigned,
  KEY rand (rand), KEY path (path(2048)));
CREATE TABLE inserts (id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, path varbinary(4096) NOT NULL,
  modification_time datetime(6) NOT NULL, file_size bigint unsigned NOT NULL);
CREATE TABLE runs (id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, snapshot_name varchar(256),
  snapshot_id bigint unsigned, run_at datetime(6), sync_mode varchar(20) NOT NULL, state varchar(20) NOT NULL);
CREATE TABLE dblock (id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY);
CREATE TABLE checksum_warnings (id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  file_id bigint unsigned NOT NULL, path varbinary(4096) NOT NULL, modification_time datetime(6) NOT NULL,
  file_size bigint unsigned NOT NULL, expected_checksum varbinary(64) NOT NULL, actual_checksum varbinary(64) NOT NULL,
  discovered bigint unsigned NOT NULL, last_read bigint unsigned NOT NULL, created datetime(6) NOT NULL);
INSERT INTO runs (snapshot_name, snapshot_id, run_at, sync_mode, state) VALUES
  ('lsdf-checksum-master-run-1-abcdefgh', 7, '2023-06-23 03:00:00', 'full', 'finished'),
  ('lsdf-checksum-master-run-2-ijklmnop', 8, '2023-07-23 03:00:00', 'full', 'finished');
";

async fn connect(place: &Place) -> Result<MySqlConnection> {
    let server = place.mysql()?;
    let url = format!(
        "mysql://testbed:testbed@{}:{}/{}",
        server.host, server.port, server.database
    );
    Ok(url
        .parse::<sqlx::mysql::MySqlConnectOptions>()?
        .connect()
        .await?)
}

pub(crate) async fn create(place: &Place) -> Result<()> {
    connect(place).await?.execute(sqlx::raw_sql(TABLES)).await?;
    Ok(())
}

/// As it is where several share a database: the names of all tables begin with this.
pub(crate) async fn rename(place: &Place, prefix: &str) -> Result<()> {
    let tables = ["files", "inserts", "runs", "dblock", "checksum_warnings"];
    let renames = tables.map(|table| format!("{table} TO {prefix}{table}"));
    let rename = sqlx::AssertSqlSafe(format!("RENAME TABLE {}", renames.join(", ")));
    let mut link = connect(place).await?;
    link.execute(sqlx::raw_sql(rename)).await?;
    Ok(())
}

/// A run that nobody has ended.
pub(crate) async fn unresolved(place: &Place) -> Result<()> {
    let insert = "INSERT INTO runs (sync_mode, state) VALUES ('full', 'workqueue')";
    let mut link = connect(place).await?;
    link.execute(sqlx::raw_sql(insert)).await?;
    Ok(())
}

/// Changes something there.
pub(crate) async fn change(place: &Place, statement: &'static str) -> Result<()> {
    connect(place)
        .await?
        .execute(sqlx::raw_sql(statement))
        .await?;
    Ok(())
}

/// A file that was read in a run.
pub(crate) async fn file(place: &Place, path: &str, checksum: &[u8], last_read: i64) -> Result<()> {
    let seen = fs::metadata(place.root().join(path))?;
    let insert = "INSERT INTO files (rand, path, modification_time, file_size, last_seen, to_be_read, checksum, last_read)
        VALUES (RAND(), ?, TIMESTAMPADD(MICROSECOND, ?, '1970-01-01'), ?, 2, 0, ?, ?)";
    sqlx::query(insert)
        .bind(format!("/{path}").into_bytes())
        .bind(seen.mtime() * 1_000_000 + seen.mtime_nsec() / 1000)
        .bind(seen.size())
        .bind(checksum)
        .bind(last_read)
        .execute(&mut connect(place).await?)
        .await?;
    Ok(())
}

/// Somebody wrote the file since it was read, as a run saw that was then given up.
pub(crate) async fn outdate(place: &Place, path: &str) -> Result<()> {
    let update = "UPDATE files SET to_be_read = 1, to_be_compared = 0 WHERE path = ?";
    sqlx::query(update)
        .bind(format!("/{path}").into_bytes())
        .execute(&mut connect(place).await?)
        .await?;
    Ok(())
}

/// Damage that the second run found.
pub(crate) async fn warning(
    place: &Place,
    path: &str,
    expected: &[u8],
    actual: &[u8],
) -> Result<()> {
    let insert = "INSERT INTO checksum_warnings (file_id, path, modification_time, file_size, expected_checksum,
        actual_checksum, discovered, last_read, created)
        SELECT id, path, modification_time, file_size, ?, ?, 2, 1, '2023-07-23 04:00:00' FROM files WHERE path = ?";
    sqlx::query(insert)
        .bind(expected)
        .bind(actual)
        .bind(format!("/{path}").into_bytes())
        .execute(&mut connect(place).await?)
        .await?;
    Ok(())
}
