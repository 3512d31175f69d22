//! In: who used the machine while something was measured. Out: whether the measurement counts.
//! Pure; `meter` looks at the machine.

use std::{collections::BTreeMap, fmt};

use crate::{
    proc::{Machine, Process, Processes},
    stats::number,
};

/// The share of the machine that others may use. With more, a measurement is void.
const LIMIT: f64 = 0.1;

/// How many of the others are named.
const NAMED: usize = 3;

/// Who used the machine, in ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// All cores in all that time.
    pub capacity: u64,
    /// What was used of it.
    pub busy: u64,
    /// What those used that take part.
    pub involved: u64,
    /// The busiest of the others, the busiest first.
    pub others: Vec<(String, u64)>,
}

impl Load {
    /// The load between two looks. `involved` is what those used that take part, `others` are the
    /// processes at the first and at the second look that do not.
    pub fn between(machines: [Machine; 2], involved: u64, others: [&Processes; 2]) -> Self {
        let [before, after] = machines;
        Self {
            capacity: after.capacity.saturating_sub(before.capacity),
            busy: after.busy.saturating_sub(before.busy),
            involved,
            others: busiest(others),
        }
    }

    /// Whether too much of the machine went to others for the measurement to count.
    pub fn is_void(&self) -> bool {
        self.share_of_others() > LIMIT
    }

    /// What the others used, as a share of the machine.
    ///
    /// Kernel threads count as others, and so does what the host of a virtual machine takes away.
    pub fn share_of_others(&self) -> f64 {
        self.share(self.busy.saturating_sub(self.involved))
    }

    fn share(&self, ticks: u64) -> f64 {
        number(ticks) / number(self.capacity.max(1))
    }
}

/// Who of the others used how much. A process that has ended is seen in the time of the parent that
/// waited for it, less what it had used before.
fn busiest([before, after]: [&Processes; 2]) -> Vec<(String, u64)> {
    let lives = |process: &Process| {
        let now = after.get(&process.pid);
        now.is_some_and(|now| now.started == process.started)
    };
    let mut earlier: BTreeMap<u32, u64> = BTreeMap::new();
    for process in before.values() {
        let mut bearer = Some(process);
        while let Some(dead) = bearer.filter(|bearer| !lives(bearer)) {
            bearer = before.get(&dead.parent);
        }
        if let Some(bearer) = bearer {
            *earlier.entry(bearer.pid).or_default() += process.ticks;
        }
    }
    let used = after.values().map(|process| {
        let earlier = earlier.get(&process.pid).copied().unwrap_or_default();
        let name = format!("{} ({})", process.name, process.pid);
        (name, process.ticks.saturating_sub(earlier))
    });
    let mut used: Vec<_> = used.filter(|(_, ticks)| *ticks > 0).collect();
    used.sort_by_key(|(name, ticks)| (u64::MAX - ticks, name.clone()));
    used.truncate(NAMED);
    used
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| share * 100.0;
        let share = percent(self.share_of_others());
        write!(
            f,
            "others used {share:.1} % of the CPU, {:.0} % are allowed",
            percent(LIMIT)
        )?;
        for (n, (name, ticks)) in self.others.iter().enumerate() {
            let begin = if n == 0 { "; busiest: " } else { ", " };
            write!(f, "{begin}{name} {:.1} %", percent(self.share(*ticks)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(busy: u64, involved: u64) -> Load {
        let machine = |busy, capacity| Machine { busy, capacity };
        let looks = [machine(500, 1000), machine(500 + busy, 2000)];
        let nobody = Processes::new();
        Load::between(looks, involved, [&nobody, &nobody])
    }

    /// Processes by name, pid, parent, start and ticks.
    fn processes(all: &[(&str, u32, u32, u64, u64)]) -> Processes {
        let process = |&(name, pid, parent, started, ticks): &(&str, u32, u32, u64, u64)| Process {
            pid,
            parent,
            name: name.into(),
            started,
            ticks,
        };
        all.iter().map(process).map(|it| (it.pid, it)).collect()
    }

    fn named(before: &Processes, after: &Processes) -> Vec<(String, u64)> {
        busiest([before, after])
    }

    #[test]
    fn who_takes_part_may_use_the_whole_machine() {
        assert!(!load(1000, 1000).is_void());
        assert!(!load(1000, 950).is_void());
    }

    #[test]
    fn more_than_a_tenth_for_others_is_void() {
        assert!(!load(400, 300).is_void());
        assert!(load(400, 299).is_void());
    }

    #[test]
    fn who_takes_part_may_seem_to_use_more_than_was_used() {
        // Ticks of processes and of the machine are counted apart, and may differ by one or two.
        assert!(!load(100, 102).is_void());
    }

    #[test]
    fn the_busiest_others_are_named_with_what_they_used_meanwhile() {
        let before = processes(&[("rustc", 7, 1, 1, 900), ("sshd", 8, 1, 1, 50)]);
        let after = processes(&[
            ("rustc", 7, 1, 2, 40),
            ("sshd", 8, 1, 1, 51),
            ("idle", 9, 1, 1, 0),
            ("cargo", 10, 1, 3, 200),
        ]);
        let expected = [("cargo (10)", 200), ("rustc (7)", 40), ("sshd (8)", 1)];
        let expected = expected.map(|(name, ticks)| (name.to_owned(), ticks));
        assert_eq!(named(&before, &after), expected);
    }

    #[test]
    fn who_has_ended_is_seen_in_its_parent_without_its_past() {
        let (shell, make, rustc) = (
            ("sh", 2, 1, 1, 5),
            ("make", 3, 2, 1, 10),
            ("rustc", 4, 3, 1, 900),
        );
        let before = processes(&[shell, make, rustc]);
        // Its parent is gone too: the shell has the time of both.
        let after = processes(&[("sh", 2, 1, 1, 5 + 12 + 930)]);
        assert_eq!(named(&before, &after), [("sh (2)".to_owned(), 32)]);
    }

    #[test]
    fn a_void_measurement_says_why_in_one_line() {
        let mut load = load(700, 300);
        load.others = vec![("cargo (10)".into(), 200), ("rustc (7)".into(), 40)];
        assert_eq!(
            load.to_string(),
            "others used 40.0 % of the CPU, 10 % are allowed; busiest: cargo (10) 20.0 %, rustc (7) 4.0 %"
        );
    }
}
