//! Claims about PostgreSQL, the home of some peers, shown on a real server by its own client.

use anyhow::{Result, ensure};
use testbed::postgres;
use tokio::process::Command;

#[tokio::test]
async fn what_was_committed_survives_a_kill_and_not_a_wipe() -> Result<()> {
    let server = postgres::start().await?;
    ensure!(
        ask(
            &server.url(),
            "CREATE TABLE t (id int); INSERT INTO t VALUES (7)"
        )
        .await?
        .contains("INSERT")
    );
    server.server().kill().await?;
    server.server().start().await?;
    ensure!(ask(&server.url(), "SELECT id FROM t").await?.contains('7'));
    server.server().stop().await?;
    server.server().wipe()?;
    server.server().start().await?;
    ensure!(ask(&server.url(), "SELECT id FROM t").await.is_err());
    server.shutdown().await
}

#[tokio::test]
async fn a_shared_server_asks_for_the_password() -> Result<()> {
    let server = testbed::postgres().await?;
    ask(&server.url(), "SELECT 1").await?;
    let wrong = server.url().replace(":testbed@", ":wrong@");
    let refused = ask(&wrong, "SELECT 1").await.unwrap_err().to_string();
    ensure!(
        refused.contains("password authentication failed"),
        "{refused}"
    );
    Ok(())
}

async fn ask(url: &str, sql: &str) -> Result<String> {
    let output = Command::new("psql")
        .args([url, "-At", "-v", "ON_ERROR_STOP=1", "-c", sql])
        .output()
        .await?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{error}");
    Ok(String::from_utf8(output.stdout)?)
}
