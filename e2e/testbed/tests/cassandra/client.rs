//! Sessions for the tests beside this file.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::host_filter::AllowListHostFilter;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::unprepared::Statement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row};
use serde_json::{Value, json};
use testbed::cassandra::{Access, Proxied, STORAGE_SERVICE};
use testbed::wait::eventually;

const REQUEST_DEADLINE: Duration = Duration::from_secs(20);

/// Repairs of a few rows take a second.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// A session with the nodes of these numbers and no other.
pub(crate) async fn session(cassandra: &Access, nodes: &[usize]) -> Result<Session> {
    let addresses: Vec<_> = nodes.iter().map(|n| cassandra.cql(*n)).collect();
    let filter = AllowListHostFilter::new(addresses.clone())?;
    let builder = builder().known_nodes_addr(addresses);
    Ok(builder.host_filter(Arc::new(filter)).build().await?)
}

/// A session whose every connection goes through a proxy.
pub(crate) async fn session_via(proxied: &Proxied) -> Result<Session> {
    let builder = builder().known_nodes_addr(proxied.contact_points());
    let translator = Arc::new(proxied.translation());
    Ok(builder.address_translator(translator).build().await?)
}

/// No attempt is repeated behind the test's back.
pub(crate) fn builder() -> SessionBuilder {
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .serial_consistency(Some(SerialConsistency::Serial))
        .request_timeout(Some(REQUEST_DEADLINE))
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .build();
    SessionBuilder::new()
        .default_execution_profile_handle(profile.into_handle())
        .fetch_schema_metadata(false)
}

/// A keyspace with so many copies per data centre, and a table of numbers in it, known to all nodes.
pub(crate) async fn table(
    cassandra: &Access,
    session: &Session,
    copies: &[(&str, usize)],
) -> Result<()> {
    let copies: Vec<_> = copies
        .iter()
        .map(|(dc, n)| format!("'{dc}': {n}"))
        .collect();
    let copies = copies.join(", ");
    let keyspace = format!(
        "CREATE KEYSPACE ks WITH replication = {{'class': 'NetworkTopologyStrategy', {copies}}}"
    );
    let table = "CREATE TABLE ks.numbers (id int PRIMARY KEY, holder text)";
    for statement in [&keyspace, table] {
        session.query_unpaged(statement, ()).await?;
        // The next statement may go to another node, and on a busy machine the driver's own wait ends too early;
        // what is for a table that a node does not know, it drops.
        cassandra.all_up(SOON).await?;
    }
    Ok(())
}

pub(crate) async fn insert(session: &Session, ids: std::ops::Range<i32>) -> Result<()> {
    for id in ids {
        let insert = "INSERT INTO ks.numbers (id, holder) VALUES (?, 'somebody')";
        session.query_unpaged(insert, (id,)).await?;
    }
    Ok(())
}

/// How many of the rows a session's own node has, asked alone.
pub(crate) async fn count_at_one(session: &Session, ids: std::ops::Range<i32>) -> Result<usize> {
    let mut select = Statement::new("SELECT id FROM ks.numbers WHERE id = ?");
    select.set_consistency(Consistency::One);
    let mut found = 0;
    for id in ids {
        let rows = session.query_unpaged(select.clone(), (id,)).await?;
        found += rows.into_rows_result()?.rows_num();
    }
    Ok(found)
}

/// Takes a row for `holder` unless somebody has it; whether it was taken.
pub(crate) async fn take(
    session: &Session,
    id: i32,
    holder: &str,
    serial: SerialConsistency,
) -> Result<bool> {
    let mut insert =
        Statement::new("INSERT INTO ks.numbers (id, holder) VALUES (?, ?) IF NOT EXISTS");
    insert.set_serial_consistency(Some(serial));
    insert.set_consistency(match serial {
        SerialConsistency::Serial => Consistency::Quorum,
        SerialConsistency::LocalSerial => Consistency::LocalQuorum,
    });
    let answer = session.query_unpaged(insert, (id, holder)).await?;
    // The row that was there comes along only if there was one.
    let row: Row = answer.into_rows_result()?.first_row()?;
    match row.columns.first() {
        Some(Some(CqlValue::Boolean(taken))) => Ok(*taken),
        other => bail!("no answer to a conditional insert: {other:?}"),
    }
}

/// Repairs the table by way of a node, to the end; the last words of the node about it.
pub(crate) async fn repair(cassandra: &Access, n: usize) -> Result<Vec<String>> {
    let jolokia = cassandra.jolokia(n);
    let options =
        json!({"parallelism": "parallel", "incremental": "false", "columnFamilies": "numbers"});
    let start = "repairAsync(java.lang.String,java.util.Map)";
    let command = jolokia
        .call(STORAGE_SERVICE, start, json!(["ks", options]))
        .await?;
    ensure!(
        command.as_i64() > Some(0),
        "no repair was started: {command}"
    );
    eventually("the end of a repair", SOON, async || {
        let status = "getParentRepairStatus(int)";
        let status = jolokia
            .call(STORAGE_SERVICE, status, json!([command]))
            .await?;
        Ok(words(&status).filter(|words| words[0] != "IN_PROGRESS"))
    })
    .await
    .context("the repair does not end")
}

/// Nothing until the node has noticed its own repair.
fn words(status: &Value) -> Option<Vec<String>> {
    let words = status.as_array()?.iter();
    let words: Vec<_> = words
        .filter_map(|it| Some(it.as_str()?.to_owned()))
        .collect();
    (!words.is_empty()).then_some(words)
}
