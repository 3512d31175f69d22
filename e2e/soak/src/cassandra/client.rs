//! In: the nodes to talk to. Out: reads and steps of registers, with no attempt that nobody asked for.
//! Touches: the nodes, by CQL.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use scylla::{
    client::{
        execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder,
    },
    errors::ExecutionError,
    policies::{host_filter::AllowListHostFilter, retry::FallthroughRetryPolicy},
    response::query_result::QueryResult,
    statement::{Consistency, SerialConsistency, prepared::PreparedStatement},
    value::{CqlValue, Row},
};
use testbed::cassandra::Access;

/// Shorter than the ten seconds in which nodes give up: some of what we take for unknown is made later.
const REQUEST_DEADLINE: Duration = Duration::from_secs(5);

/// A connection that is silent for about twice this is replaced.
const KEEPALIVE: Duration = Duration::from_secs(3);

const KEYSPACE: &str =
    "CREATE KEYSPACE soak WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}";
const TABLE: &str = "CREATE TABLE soak.registers (id int PRIMARY KEY, value bigint)";
const BEGIN: &str = "INSERT INTO soak.registers (id, value) VALUES (?, 0) IF NOT EXISTS";
const READ: &str = "SELECT value FROM soak.registers WHERE id = ?";
const STEP: &str = "UPDATE soak.registers SET value = ? WHERE id = ? IF value = ?";

/// What became of a step.
#[derive(Debug)]
pub(super) enum Answer {
    /// It was made.
    Made,
    /// It was not: the register shows something else.
    Refused(u64),
    /// Nobody can say.
    Unknown(ExecutionError),
    /// There was no connection to send it on.
    Unsent(ExecutionError),
}

/// A connection to some of the nodes.
pub(super) struct Client {
    session: Session,
    read: PreparedStatement,
    step: PreparedStatement,
}

/// Makes the registers, all at 0, known to all nodes.
pub(super) async fn make_registers(
    cassandra: &Access,
    registers: usize,
    within: Duration,
) -> Result<()> {
    let session = session(cassandra, &[0, 1, 2]).await?;
    for make in [KEYSPACE, TABLE] {
        session.query_unpaged(make, ()).await?;
        // A node drops what is for a table it does not know.
        cassandra.all_up(within).await?;
    }
    for register in 0..registers {
        let id = i32::try_from(register)?;
        session.query_unpaged(BEGIN, (id,)).await?;
    }
    Ok(())
}

impl Client {
    /// Talks to the nodes of these numbers and to no other.
    pub(super) async fn connect(cassandra: &Access, nodes: &[usize]) -> Result<Self> {
        let session = session(cassandra, nodes).await?;
        let mut read = session.prepare(READ).await?;
        read.set_consistency(Consistency::Serial);
        let step = session.prepare(STEP).await?;
        Ok(Self {
            session,
            read,
            step,
        })
    }

    /// What a register shows.
    pub(super) async fn read(&self, register: usize) -> Result<u64> {
        let id = i32::try_from(register)?;
        let answer = self.session.execute_unpaged(&self.read, (id,)).await?;
        value(&row(answer)?, 0)
    }

    /// Moves a register from `from` to the next number, if it is there.
    pub(super) async fn step(&self, register: usize, from: u64) -> Result<Answer> {
        let (id, from) = (i32::try_from(register)?, i64::try_from(from)?);
        let answer = self
            .session
            .execute_unpaged(&self.step, (from + 1, id, from));
        match answer.await {
            Ok(answer) => {
                let row = row(answer)?;
                match row.columns.first() {
                    Some(Some(CqlValue::Boolean(true))) => Ok(Answer::Made),
                    Some(Some(CqlValue::Boolean(false))) => Ok(Answer::Refused(value(&row, 1)?)),
                    other => bail!("no answer to a conditional update: {other:?}"),
                }
            }
            Err(error) if was_never_sent(&error) => Ok(Answer::Unsent(error)),
            Err(error) => Ok(Answer::Unknown(error)),
        }
    }
}

/// Even an unavailable majority may have been found out only after a first attempt: all else is unknown.
fn was_never_sent(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::EmptyPlan | ExecutionError::ConnectionPoolError(_)
    )
}

fn row(answer: QueryResult) -> Result<Row> {
    Ok(answer.into_rows_result()?.first_row()?)
}

fn value(row: &Row, column: usize) -> Result<u64> {
    let value = row.columns.get(column).cloned().flatten();
    let value = value.as_ref().and_then(CqlValue::as_bigint);
    Ok(u64::try_from(value.context("a register without a value")?)?)
}

async fn session(cassandra: &Access, nodes: &[usize]) -> Result<Session> {
    let addresses: Vec<_> = nodes.iter().map(|n| cassandra.cql(*n)).collect();
    let filter = AllowListHostFilter::new(addresses.clone())?;
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .serial_consistency(Some(SerialConsistency::Serial))
        .request_timeout(Some(REQUEST_DEADLINE))
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .build();
    let builder = SessionBuilder::new()
        .known_nodes_addr(addresses)
        .host_filter(Arc::new(filter))
        .default_execution_profile_handle(profile.into_handle())
        .fetch_schema_metadata(false)
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE);
    Ok(builder.build().await?)
}
