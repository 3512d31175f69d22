//! Claims about Redis that a queue on top of it relies on, shown on a real server.

use std::time::Duration;

use anyhow::{Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::{Client, Script};
use testbed::proxy::Proxy;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(30);

/// Takes a number from one list to another, as a queue does with its work.
const MOVE: &str = "return redis.call('RPOPLPUSH', KEYS[1], KEYS[2])";

#[tokio::test]
async fn a_script_goes_on_after_a_restart_with_the_data_there_was() -> Result<()> {
    let server = testbed::redis::start().await?;
    let script = Script::new(MOVE);
    let mut connection = connect(&server.url()).await?;
    let _: () = redis::cmd("RPUSH")
        .arg("todo")
        .arg(&[1, 2, 3])
        .query_async(&mut connection)
        .await?;
    ensure!(step(&script, &mut connection).await? == Some(3));

    // The script is not part of the data: a client has to bring it again.
    server.server().stop().await?;
    server.server().start().await?;
    let mut connection = connect(&server.url()).await?;
    let known: Vec<bool> = redis::cmd("SCRIPT")
        .arg("EXISTS")
        .arg(script.get_hash())
        .query_async(&mut connection)
        .await?;
    ensure!(known == [false]);
    ensure!(step(&script, &mut connection).await? == Some(2));
    let doing: Vec<u32> = redis::cmd("LRANGE")
        .arg("doing")
        .arg(0)
        .arg(-1)
        .query_async(&mut connection)
        .await?;
    ensure!(doing == [2, 3], "{doing:?}");

    server.server().stop().await?;
    server.server().wipe()?;
    server.server().start().await?;
    let mut connection = connect(&server.url()).await?;
    ensure!(step(&script, &mut connection).await?.is_none());
    server.shutdown().await
}

#[tokio::test]
async fn a_paused_server_is_silent_and_then_answers() -> Result<()> {
    let server = testbed::redis::start().await?;
    let mut connection = connect(&server.url()).await?;
    server.server().pause().await?;
    let ping = async || {
        let mut connection = connection.clone();
        redis::cmd("PING")
            .query_async::<String>(&mut connection)
            .await
    };
    ensure!(
        timeout(Duration::from_millis(200), ping()).await.is_err(),
        "it stands still"
    );
    server.server().resume()?;
    let answer: String = redis::cmd("PING").query_async(&mut connection).await?;
    ensure!(answer == "PONG");
    server.shutdown().await
}

#[tokio::test]
async fn a_shared_server_can_be_reached_through_a_proxy_and_asks_for_the_password() -> Result<()> {
    let server = testbed::redis().await?;
    let proxy = Proxy::start(server.address()).await?;
    let mut connection = connect(&server.url_via(proxy.address())).await?;
    let _: () = redis::cmd("SET")
        .arg("mine")
        .arg(1)
        .query_async(&mut connection)
        .await?;
    let stranger = connect(&format!("redis://{}/0", server.address())).await;
    ensure!(
        stranger.is_err() || {
            let refused: Result<String, _> = redis::cmd("GET")
                .arg("mine")
                .query_async(&mut stranger?)
                .await;
            refused.is_err()
        }
    );
    Ok(())
}

async fn step(script: &Script, connection: &mut MultiplexedConnection) -> Result<Option<u32>> {
    let mut step = script.key("todo");
    Ok(step.key("doing").invoke_async(connection).await?)
}

async fn connect(url: &str) -> Result<MultiplexedConnection> {
    let client = Client::open(url)?;
    Ok(timeout(SOON, client.get_multiplexed_async_connection()).await??)
}
