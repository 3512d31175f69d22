//! Claims about Cassandra that everything built on it relies on, shown on real clusters that are really broken.

mod client;
mod login;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use scylla::statement::SerialConsistency::{LocalSerial, Serial};
use serde_json::json;
use testbed::Cassandra;
use testbed::cassandra::{Jolokia, Options, STORAGE_SERVICE};

use client::{SOON, count_at_one, insert, repair, session, table, take};

/// A killed node comes back within this, also beside other tests.
const BACK: Duration = Duration::from_mins(2);

#[tokio::test]
async fn a_replica_that_was_down_misses_rows_until_it_is_repaired() -> Result<()> {
    let cassandra = Cassandra::start(Options::new(3)).await?;
    let majority = session(&cassandra, &[0, 1]).await?;
    table(&cassandra, &majority, &[("dc1", 3)]).await?;
    ensure!(
        take(&majority, 0, "a", Serial).await?,
        "three nodes: the row is free"
    );

    cassandra.node(2).kill().await?;
    for survivor in [0, 1] {
        // Who does not know yet keeps what it sends for ten seconds, and delivers it to a node that is back by then.
        cassandra.sees_alive(survivor, &[0, 1], SOON).await?;
    }
    ensure!(
        !take(&majority, 0, "b", Serial).await?,
        "two nodes still know who has it"
    );
    ensure!(
        take(&majority, 1, "b", Serial).await?,
        "and agree on the next one"
    );
    insert(&majority, 100..200).await?;

    let refused = repair(&cassandra, 0).await?;
    ensure!(refused[0] == "FAILED", "{refused:?}");
    ensure!(
        refused.iter().any(|it| it.contains("Endpoint not alive")),
        "{refused:?}"
    );

    cassandra.node(2).start()?;
    cassandra.all_up(BACK).await?;
    let third = session(&cassandra, &[2]).await?;
    ensure!(
        count_at_one(&third, 100..200).await? == 0,
        "nobody has told it"
    );
    let repaired = repair(&cassandra, 0).await?;
    ensure!(repaired[0] == "COMPLETED", "{repaired:?}");
    ensure!(count_at_one(&third, 100..200).await? == 100);
    cassandra.shutdown().await
}

#[tokio::test]
async fn data_centres_cut_apart_agree_locally_and_not_globally() -> Result<()> {
    let cassandra = Cassandra::start(Options::new([1, 1]).in_namespaces()).await?;
    let (one, two) = (
        session(&cassandra, &[0]).await?,
        session(&cassandra, &[1]).await?,
    );
    table(&cassandra, &one, &[("dc1", 1), ("dc2", 1)]).await?;
    ensure!(cassandra.datacenter(1) == "dc2");
    ensure!(take(&one, 0, "one", Serial).await?);
    ensure!(!take(&two, 0, "two", Serial).await?, "one holder over both");

    cassandra.network()?.cut(&[0], &[1]).await?;
    cassandra.sees_alive(0, &[0], SOON).await?;
    cassandra.sees_alive(1, &[1], SOON).await?;
    ensure!(
        take(&one, 1, "one", Serial).await.is_err(),
        "no majority of both"
    );
    ensure!(take(&two, 1, "two", Serial).await.is_err());
    ensure!(take(&one, 2, "one", LocalSerial).await?);
    ensure!(take(&two, 2, "two", LocalSerial).await?, "a holder in each");

    cassandra.network()?.heal().await?;
    cassandra.all_up(BACK).await?;
    ensure!(take(&one, 3, "one", Serial).await?);
    ensure!(!take(&two, 3, "two", Serial).await?);
    cassandra.shutdown().await
}

#[tokio::test]
async fn a_node_that_lost_its_disk_takes_its_place_again() -> Result<()> {
    let cassandra = Cassandra::start(Options::new(2)).await?;
    let both = session(&cassandra, &[0, 1]).await?;
    table(&cassandra, &both, &[("dc1", 2)]).await?;
    insert(&both, 0..20).await?;

    cassandra.node(1).kill().await?;
    cassandra.node(1).wipe()?;
    cassandra.node(1).start()?;
    cassandra.all_up(BACK).await?;
    let wiped = session(&cassandra, &[1]).await?;
    ensure!(count_at_one(&wiped, 0..20).await? == 0);
    let repaired = repair(&cassandra, 0).await?;
    ensure!(repaired[0] == "COMPLETED", "{repaired:?}");
    ensure!(count_at_one(&wiped, 0..20).await? == 20);
    cassandra.shutdown().await
}

#[tokio::test]
async fn clients_are_asked_for_a_password_and_spoken_to_in_secret() -> Result<()> {
    let cassandra = Cassandra::start(Options::new(1).with_passwords().with_tls()).await?;
    let right = cassandra.credentials().context("credentials")?;
    let authority = cassandra.authority().context("an authority")?;
    let node = cassandra.cql(0);
    login::over_tls(node, authority, right).await?;
    let wrong = login::over_tls(node, authority, (right.0, "wrong")).await;
    let wrong = wrong.unwrap_err().to_string();
    ensure!(wrong.contains("password are incorrect"), "{wrong}");
    ensure!(login::in_the_clear(node, right).await.is_err(), "no TLS");

    let stranger = Jolokia::new(cassandra.jolokia_address(0), "testbed", "wrong");
    let refused = stranger
        .read(STORAGE_SERVICE, &["OperationMode"])
        .await
        .unwrap_err();
    ensure!(refused.to_string().contains("401"), "{refused:#}");
    cassandra.shutdown().await
}

#[tokio::test]
async fn a_shared_cluster_can_be_reached_through_faulty_connections() -> Result<()> {
    let (cassandra, same) = tokio::try_join!(testbed::cassandra(1), testbed::cassandra(1))?;
    if std::env::var_os(testbed::VARIABLE).is_some() {
        ensure!(cassandra.cql(0) == same.cql(0), "one for all");
    }
    let proxied = cassandra.behind_proxies().await?;
    let session = client::session_via(&proxied).await?;
    let question = "SELECT release_version FROM system.local";
    session.query_unpaged(question, ()).await?;
    proxied.proxy(0).cut();
    ensure!(session.query_unpaged(question, ()).await.is_err());
    proxied.proxy(0).pass();
    let again = async || Ok(session.query_unpaged(question, ()).await.map(Some)?);
    testbed::wait::eventually("the driver to come back", SOON, again).await?;
    Ok(())
}

#[tokio::test]
async fn jolokia_names_what_it_cannot_do() -> Result<()> {
    let cassandra = testbed::cassandra(1).await?;
    let jolokia = cassandra.jolokia(0);
    let unknown = jolokia
        .read(STORAGE_SERVICE, &["NoSuchAttribute"])
        .await
        .unwrap_err();
    ensure!(
        unknown.to_string().contains("NoSuchAttribute"),
        "{unknown:#}"
    );
    let senseless = jolokia.ask(&json!({"type": "nonsense"})).await.unwrap_err();
    ensure!(senseless.to_string().contains("400"), "{senseless:#}");
    Ok(())
}
