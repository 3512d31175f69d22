//! In: processes, and work that keeps them busy. Out: the CPU time and memory of them and all that descend from
//! them, and who else used the machine. Touches: reads `/proc`.

use std::{fs, pin::pin, time::Duration};

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;

use crate::{
    proc::{self, Machine, Memory, Processes, TICKS_PER_SECOND},
    quiet::Load,
    stats::number,
};

/// How often memory is looked at. A process's own peak is told by the kernel and needs no luck.
const SAMPLE: Duration = Duration::from_millis(200);

/// How often memory is looked at that should come to rest, and how many times at most.
const REST: Duration = Duration::from_millis(500);
const RESTLESS: usize = 60;

/// What a group of processes used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU seconds, of those too that ended meanwhile.
    pub cpu: f64,
    /// The most resident memory that all had at one time, in bytes, as far as it was seen.
    pub together: u64,
    /// The peak of each one's whole life, added up, in bytes.
    pub peaks: u64,
}

/// What happened during some work.
#[derive(Debug)]
pub struct Measured<T, const N: usize> {
    /// What the work returned.
    pub output: T,
    /// What each group used.
    pub usage: [Usage; N],
    /// Who used the machine. This process and all that descend from it take part.
    pub load: Load,
}

/// Does some work and measures groups of processes, each given by its roots, meanwhile.
pub async fn during<T, const N: usize>(
    groups: [&[u32]; N],
    work: impl Future<Output = Result<T>>,
) -> Result<Measured<T, N>> {
    let before = Look::take()?;
    let mut usage = [Usage::default(); N];
    let mut work = pin!(work);
    let output = loop {
        tokio::select! {
            biased;
            output = &mut work => break output?,
            () = sleep(SAMPLE), if N > 0 => look_at_memory(&groups, &mut usage)?,
        }
    };
    look_at_memory(&groups, &mut usage)?;
    let after = Look::take()?;
    for (roots, usage) in groups.iter().zip(&mut usage) {
        after.expect(roots)?;
        usage.cpu = seconds(after.ticks(roots).saturating_sub(before.ticks(roots)));
    }
    Ok(Measured {
        output,
        usage,
        load: before.load_until(&after),
    })
}

fn seconds(ticks: u64) -> f64 {
    number(ticks) / number(TICKS_PER_SECOND)
}

fn look_at_memory(groups: &[&[u32]], usage: &mut [Usage]) -> Result<()> {
    let processes = processes()?;
    for (roots, usage) in groups.iter().zip(usage) {
        let members = proc::family(&processes, roots);
        // One that ended since it was listed has no memory.
        let memory: Vec<_> = members.iter().filter_map(|pid| memory(*pid).ok()).collect();
        let together = memory.iter().map(|memory| memory.resident).sum();
        let peaks = memory.iter().map(|memory| memory.peak).sum();
        usage.together = usage.together.max(together);
        usage.peaks = usage.peaks.max(peaks);
    }
    Ok(())
}

/// The processes of this name among those that descend from this one.
pub fn descendants_named(name: &str) -> Result<Vec<u32>> {
    let processes = processes()?;
    let members = proc::family(&processes, &[std::process::id()]);
    let named = members.into_iter().filter(|pid| {
        let process = processes.get(pid);
        process.is_some_and(|process| process.name == name)
    });
    Ok(named.collect())
}

/// The resident memory of a process once it has stood still for five looks, or at the last look.
pub async fn at_rest(pid: u32) -> Result<u64> {
    let mut looks: Vec<u64> = Vec::new();
    for _ in 0..RESTLESS {
        sleep(REST).await;
        looks.push(memory(pid)?.resident);
        if let [.., a, b, c, d, e] = looks[..]
            && [b, c, d, e].iter().all(|look| *look == a)
        {
            break;
        }
    }
    looks.last().copied().context("no look was taken")
}

/// The most resident memory that a process ever had, in bytes.
pub fn peak(pid: u32) -> Result<u64> {
    Ok(memory(pid)?.peak)
}

fn memory(pid: u32) -> Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"));
    let text = text.with_context(|| format!("process {pid} has ended"))?;
    proc::memory(&text)
}

/// The machine and its processes at one moment.
struct Look {
    machine: Machine,
    processes: Processes,
}

impl Look {
    fn take() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("failed to read /proc/stat")?;
        Ok(Self {
            machine: proc::machine(&text)?,
            processes: processes()?,
        })
    }

    fn ticks(&self, roots: &[u32]) -> u64 {
        proc::ticks(&self.processes, roots)
    }

    fn expect(&self, roots: &[u32]) -> Result<()> {
        for pid in roots {
            let running = self.processes.contains_key(pid);
            ensure!(running, "process {pid} ended while it was measured");
        }
        Ok(())
    }

    fn load_until(&self, after: &Self) -> Load {
        let this = [std::process::id()];
        let involved = after.ticks(&this).saturating_sub(self.ticks(&this));
        let others = [self, after].map(|look| look.others(&this));
        Load::between([self.machine, after.machine], involved, others.each_ref())
    }

    /// The processes that do not descend from these.
    fn others(&self, these: &[u32]) -> Processes {
        let family = proc::family(&self.processes, these);
        let mut others = self.processes.clone();
        others.retain(|pid, _| !family.contains(pid));
        others
    }
}

fn processes() -> Result<Processes> {
    let mut found = Processes::new();
    for entry in fs::read_dir("/proc").context("failed to read /proc")? {
        let entry = entry?;
        let name = entry.file_name();
        if !name.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        // It may end while we look.
        let Ok(text) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let process =
            proc::process(&text).with_context(|| format!("not the stat of a process: {text}"))?;
        found.insert(process.pid, process);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A shell that counts to a number in a child, waits for it, and then for its input to end.
    const BUSY: &str =
        "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo done; read x";

    #[tokio::test]
    async fn a_child_that_has_ended_is_counted() {
        let mut shell = Command::new("sh")
            .args(["-c", BUSY])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let output = shell.stdout.take().unwrap();
        let roots = [shell.id()];
        let measured = during([&roots[..]], async {
            let read = || std::io::BufRead::lines(std::io::BufReader::new(output)).next();
            tokio::task::spawn_blocking(read)
                .await?
                .context("a line")??;
            Ok(())
        });
        let measured = measured.await.unwrap();
        drop(shell.stdin.take());
        shell.wait().unwrap();
        let [usage] = measured.usage;
        assert!(usage.cpu > 0.0, "{usage:?}");
        assert!(
            usage.together > 0 && usage.peaks >= usage.together,
            "{usage:?}"
        );
        let used = measured.load.involved;
        assert!(
            seconds(used) >= usage.cpu,
            "{used} of all, {usage:?} of the shell"
        );
    }

    #[tokio::test]
    async fn a_process_that_is_gone_is_an_error() {
        let mut shell = Command::new("true").spawn().unwrap();
        shell.wait().unwrap();
        let pid = shell.id();
        let error = during([&[pid][..]], async { Ok(()) }).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("process {pid} ended while it was measured")
        );
    }
}
