//! In: whose turn it is. Out: what its controller and its control plane used.
//! Touches: a control plane and a controller of its own, gone when the turn is over.

use std::path::Path;

use anyhow::{Context, Result};
use testbed::{Kubernetes, Part, repository_crds};

use super::{
    CLUSTER_CPU, CLUSTER_PEAK, CPU_PER_CHANGES, CPU_PER_RECONCILES, PARENTS, PEAK, RECONCILES,
    REQUESTS, RESIDENT,
    contender::{Contender, Counters},
    load::Load,
};
use crate::{
    meter::{self, Usage},
    rounds::{Side, Turn},
    row::Sample,
    stats::number,
};

/// How often every parent is changed: enough for seconds of CPU time, which is counted in hundredths.
const ROUNDS: usize = 5;

/// One turn, from an empty control plane to the end of it.
pub(super) async fn take(side: Side, peer: &Path) -> Result<Turn<Sample>> {
    let cluster = Kubernetes::start(repository_crds()?.named("bench")).await?;
    let contender = Contender::start(side, &cluster, peer).await?;
    let turn = measure(&cluster, &contender).await?;
    contender.stop().await?;
    cluster.shutdown().await?;
    Ok(turn)
}

async fn measure(cluster: &Kubernetes, contender: &Contender) -> Result<Turn<Sample>> {
    let namespace = cluster.namespace("bench").await?;
    let load = Load::new(cluster, &namespace).await?;
    load.create().await?;
    let resident = meter::at_rest(contender.pid()).await?;
    let before = contender.counters().await?;
    let (controller, servers) = ([contender.pid()], pids(cluster)?);
    let measured = meter::during([&controller, &servers], async {
        for round in 1..=ROUNDS {
            load.change(round).await?;
        }
        Ok(())
    });
    let measured = measured.await?;
    let after = contender.counters().await?;
    load.verify(ROUNDS).await.context("the work was not done")?;
    Ok(Turn {
        sample: sample(resident, measured.usage, before, after),
        load: measured.load,
    })
}

fn pids(cluster: &Kubernetes) -> Result<[u32; 3]> {
    let pid = |part| Ok::<_, anyhow::Error>(cluster.part(part).process()?.pid());
    Ok([
        pid(Part::Etcd)?,
        pid(Part::ApiServer)?,
        pid(Part::ControllerManager)?,
    ])
}

fn sample(
    resident: u64,
    [controller, cluster]: [Usage; 2],
    before: Counters,
    after: Counters,
) -> Sample {
    let megabytes = |bytes: u64| number(bytes) / 1e6;
    let changes = number(u64::try_from(PARENTS * ROUNDS).unwrap_or(u64::MAX)) / 1000.0;
    let reconciles = (after.reconciles - before.reconciles) / 1000.0;
    let requests = (after.requests - before.requests) / changes;
    Sample::from([
        (RESIDENT.name, megabytes(resident)),
        (PEAK.name, megabytes(controller.peaks)),
        (CPU_PER_RECONCILES.name, controller.cpu / reconciles),
        (CPU_PER_CHANGES.name, controller.cpu / changes),
        (RECONCILES.name, reconciles * 1000.0 / changes),
        (REQUESTS.name, requests),
        (CLUSTER_CPU.name, cluster.cpu / changes),
        (CLUSTER_PEAK.name, megabytes(cluster.together)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_told_per_thousand() {
        let counters = |n| Counters {
            reconciles: 50.0 + 2.0 * n,
            requests: 70.0 + 3.0 * n,
        };
        let usage = |cpu, together, peaks| Usage {
            cpu,
            together,
            peaks,
        };
        let usage = [usage(5.0, 1, 30_000_000), usage(50.0, 900_000_000, 1)];
        let sample = sample(20_000_000, usage, counters(0.0), counters(5000.0));
        let expected = [
            (RESIDENT, 20.0),
            (PEAK, 30.0),
            (CPU_PER_RECONCILES, 0.5),
            (CPU_PER_CHANGES, 1.0),
            (RECONCILES, 2000.0),
            (REQUESTS, 3000.0),
            (CLUSTER_CPU, 10.0),
            (CLUSTER_PEAK, 900.0),
        ];
        let expected = expected.map(|(measure, value)| (measure.name, value));
        assert_eq!(sample, Sample::from(expected));
    }
}
