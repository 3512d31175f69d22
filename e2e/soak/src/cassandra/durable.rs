//! In: a cluster that has just started. Out: the same, with commit logs that are synced before an answer.
//! Touches: the settings of its nodes, and their processes.
//!
//! By default a commit log is synced now and then, and a node that is killed forgets what it promised and
//! accepted just before. If another node was cut off before, and the third is away after, the two that are
//! left do not know of steps that were acknowledged.

use std::{fs, time::Duration};

use anyhow::{Context, Result};
use testbed::{Cassandra, cassandra::Node};

use super::plan::NODES;

const NOW_AND_THEN: &str = "commitlog_sync: periodic\ncommitlog_sync_period: 1000ms\n";
const BEFORE_AN_ANSWER: &str = "commitlog_sync: batch\n";

/// Changes the settings and starts every node again; does nothing if they are right already.
pub(super) async fn make_durable(cassandra: &Cassandra, within: Duration) -> Result<()> {
    let mut changed = false;
    for n in 0..NODES {
        changed |= change(cassandra.node(n))?;
    }
    if !changed {
        return Ok(());
    }
    for n in 0..NODES {
        cassandra.node(n).stop().await?;
    }
    for n in 0..NODES {
        cassandra.node(n).start()?;
    }
    cassandra.all_up(within).await
}

fn change(node: &Node) -> Result<bool> {
    let folder = node.data();
    let file = folder.with_file_name("cassandra.yaml");
    let failed = || {
        format!(
            "failed to change the settings of {}",
            node.component().name()
        )
    };
    let settings = fs::read_to_string(&file).with_context(failed)?;
    let durable = settings.replace(NOW_AND_THEN, BEFORE_AN_ANSWER);
    fs::write(&file, &durable).with_context(failed)?;
    Ok(settings != durable)
}
