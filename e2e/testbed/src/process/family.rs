//! In: process ids. Out: the processes that descend from them, and what they use.
//! Touches: reads /proc.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

/// These processes and all that descend from them.
pub fn family(roots: &[u32]) -> io::Result<BTreeSet<u32>> {
    let mut children = BTreeMap::<u32, Vec<u32>>::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid
            && let Some(parent) = parent(pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = BTreeSet::new();
    let mut next = roots.to_vec();
    while let Some(pid) = next.pop() {
        if found.insert(pid) {
            next.extend(children.get(&pid).into_iter().flatten());
        }
    }
    Ok(found)
}

/// The memory of these processes, in bytes. What n processes share counts as an nth of it for each.
pub fn memory(pids: &BTreeSet<u32>) -> u64 {
    pids.iter().filter_map(|pid| proportional(*pid)).sum()
}

/// None if it has ended.
fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

fn proportional(pid: u32) -> Option<u64> {
    let sums = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = sums.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::process::Launch;
    use crate::wait::eventually;

    use super::*;

    #[tokio::test]
    async fn grandchildren_belong_to_the_family_and_all_use_memory() {
        let folder = tempfile::tempdir().unwrap();
        let shell = Launch::new("shell", "sh", folder.path().join("log"))
            .args(["-c", "sh -c 'sleep 600; :'; :"])
            .spawn()
            .unwrap();
        let whole = async || Ok(Some(family(&[shell.pid()])?).filter(|it| it.len() == 3));
        let soon = Duration::from_secs(10);
        let family = eventually("a family of three", soon, whole).await.unwrap();
        let eldest = BTreeSet::from([shell.pid()]);
        assert!(memory(&eldest) > 0);
        assert!(memory(&family) > memory(&eldest));
    }
}
