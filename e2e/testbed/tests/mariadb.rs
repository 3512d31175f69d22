//! Claims about MariaDB that a store on top of it relies on, shown on a real server.

use std::time::Duration;

use anyhow::{Result, ensure};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{Connection, MySqlConnection, MySqlPool};
use testbed::mariadb;
use testbed::proxy::Proxy;

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_kill_keeps_what_was_committed_and_nothing_else() -> Result<()> {
    let mariadb = mariadb::start().await?;
    let pool = connect(&mariadb.url()).await?;
    sqlx::query("CREATE TABLE t (id INT PRIMARY KEY)")
        .execute(&pool)
        .await?;
    let mut committed = pool.begin().await?;
    sqlx::query("INSERT INTO t VALUES (1), (2)")
        .execute(&mut *committed)
        .await?;
    committed.commit().await?;
    let mut open = pool.begin().await?;
    sqlx::query("INSERT INTO t VALUES (3)")
        .execute(&mut *open)
        .await?;

    mariadb.server().kill().await?;
    ensure!(open.commit().await.is_err(), "nobody is there to commit");
    mariadb.server().start().await?;
    let pool = connect(&mariadb.url()).await?;
    let ids: Vec<(i32,)> = sqlx::query_as("SELECT id FROM t ORDER BY id")
        .fetch_all(&pool)
        .await?;
    ensure!(ids == [(1,), (2,)], "{ids:?}");

    mariadb.server().stop().await?;
    mariadb.server().wipe()?;
    mariadb.server().start().await?;
    let mut fresh = MySqlConnection::connect(&mariadb.url()).await?;
    let tables: Vec<(String,)> = sqlx::query_as("SHOW TABLES").fetch_all(&mut fresh).await?;
    ensure!(tables.is_empty(), "{tables:?}");
    mariadb.shutdown().await
}

#[tokio::test]
async fn a_shared_server_has_room_for_databases_and_a_proxy() -> Result<()> {
    let mariadb = testbed::mariadb().await?;
    let proxy = Proxy::start(mariadb.address()).await?;
    let pool = connect(&mariadb.url_via(proxy.address())).await?;
    sqlx::query("CREATE DATABASE mine").execute(&pool).await?;
    proxy.cut();
    ensure!(sqlx::query("SELECT 1").execute(&pool).await.is_err());
    proxy.pass();
    sqlx::query("DROP DATABASE mine").execute(&pool).await?;
    Ok(())
}

async fn connect(url: &str) -> Result<MySqlPool> {
    let options = MySqlPoolOptions::new()
        .max_connections(2)
        .acquire_timeout(SOON);
    Ok(options.connect(url).await?)
}
