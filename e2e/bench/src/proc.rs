//! In: the text of files in `/proc`. Out: their numbers.
//! Pure; `meter` reads the files.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

/// Ticks per second in `/proc`: `USER_HZ`, which is 100 on every architecture there are builds for.
pub const TICKS_PER_SECOND: u64 = 100;

/// One line of `/proc/stat`: the time of all cores together, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Spent on anything, or taken away by the host.
    pub busy: u64,
    /// Spent on anything or nothing.
    pub capacity: u64,
}

/// Reads `/proc/stat`.
pub fn machine(text: &str) -> Result<Machine> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let line = line.context("/proc/stat has no line for all cores")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .context("/proc/stat has a field that is not a number")?;
    // user nice system idle iowait irq softirq steal; what guests use is part of user.
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
        bail!("/proc/stat has too few fields");
    };
    let busy = user + nice + system + irq + softirq + steal;
    Ok(Machine {
        busy,
        capacity: busy + idle + iowait,
    })
}

/// What `/proc/<pid>/stat` tells of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Who started it.
    pub parent: u32,
    /// The first characters of the program's name.
    pub name: String,
    /// When it started: tells it from an earlier process of the same id.
    pub started: u64,
    /// CPU time of all its threads and of the children it has waited for, in ticks.
    pub ticks: u64,
}

/// Reads `/proc/<pid>/stat`.
pub fn process(text: &str) -> Result<Process> {
    // The name may hold anything, but ends with the last parenthesis; the state comes after it.
    let (head, rest) = text.rsplit_once(") ").context("no name")?;
    let (pid, name) = head.split_once(" (").context("no pid")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| -> Result<u64> {
        let text = fields.get(number - 3).context("too few fields")?;
        text.parse()
            .with_context(|| format!("field {number} is {text:?}"))
    };
    Ok(Process {
        pid: pid.parse().context("the pid is not a number")?,
        parent: u32::try_from(field(4)?)?,
        name: name.into(),
        started: field(22)?,
        ticks: field(14)? + field(15)? + field(16)? + field(17)?,
    })
}

/// All processes of the machine by id.
pub type Processes = BTreeMap<u32, Process>;

/// The roots that are running, and all that descend from them.
pub fn family(processes: &Processes, roots: &[u32]) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut next: Vec<u32> = roots.to_vec();
    while let Some(pid) = next.pop() {
        if processes.contains_key(&pid) && found.insert(pid) {
            let children = processes.values().filter(|process| process.parent == pid);
            next.extend(children.map(|child| child.pid));
        }
    }
    found
}

/// The CPU time of a family in ticks. It does not shrink when a child ends: then its parent has it.
pub fn ticks(processes: &Processes, roots: &[u32]) -> u64 {
    let members = family(processes, roots);
    let members = members.iter().filter_map(|pid| processes.get(pid));
    members.map(|process| process.ticks).sum()
}

/// Resident memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Now.
    pub resident: u64,
    /// The most there ever was.
    pub peak: u64,
}

/// Reads `/proc/<pid>/status`.
pub fn memory(text: &str) -> Result<Memory> {
    Ok(Memory {
        resident: kilobytes(text, "VmRSS:")?,
        peak: kilobytes(text, "VmHWM:")?,
    })
}

fn kilobytes(text: &str, field: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(number.with_context(|| format!("no {field}"))? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_not_busy_and_what_the_host_takes_away_is() {
        let text = "cpu  100 1 20 1000 50 2 3 4 90 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let expected = Machine {
            busy: 130,
            capacity: 1180,
        };
        assert_eq!(machine(text).unwrap(), expected);
    }

    #[test]
    fn a_file_that_is_something_else_is_refused() {
        assert!(machine("intr 1 2 3\n").is_err());
        assert!(machine("cpu  1 2 three 4\n").is_err());
        assert!(process("12 (sh) S 1").is_err());
        assert!(memory("Name:\tkworker\n").is_err());
    }

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "77 (a) b (c) S 12 77 77 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 8 0 555 1000 200";
        let expected = Process {
            pid: 77,
            parent: 12,
            name: "a) b (c".into(),
            started: 555,
            ticks: 100,
        };
        assert_eq!(process(stat).unwrap(), expected);
    }

    fn processes(all: &[(u32, u32, u64)]) -> Processes {
        let process = |&(pid, parent, ticks): &(u32, u32, u64)| Process {
            pid,
            parent,
            name: String::new(),
            started: 1,
            ticks,
        };
        all.iter().map(|it| (it.0, process(it))).collect()
    }

    #[test]
    fn a_family_is_its_roots_and_all_below() {
        let all = processes(&[
            (1, 0, 0),
            (5, 1, 0),
            (6, 5, 0),
            (7, 6, 0),
            (8, 1, 0),
            (9, 8, 0),
        ]);
        assert_eq!(family(&all, &[5, 404]), [5, 6, 7].into());
        assert_eq!(family(&all, &[5, 9]), [5, 6, 7, 9].into());
    }

    #[test]
    fn time_is_not_lost_with_the_child_that_used_it() {
        let before = processes(&[(1, 0, 99), (5, 1, 10), (6, 5, 20)]);
        let after = processes(&[(1, 0, 99), (5, 1, 30)]);
        assert_eq!(ticks(&before, &[5]), 30);
        assert_eq!(ticks(&after, &[5]), 30);
    }

    #[test]
    fn memory_is_told_in_bytes() {
        let text = "Name:\tx\nVmHWM:\t    2020 kB\nVmRSS:\t    1010 kB\n";
        let expected = Memory {
            resident: 1010 * 1024,
            peak: 2020 * 1024,
        };
        assert_eq!(memory(text).unwrap(), expected);
    }
}
