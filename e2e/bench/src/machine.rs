//! In: what Linux tells of the machine. Out: a line that lets a reader judge the figures.
//! Touches: reads `/proc` and `/etc/os-release`.

use std::fs;

use anyhow::{Context, Result};

/// This machine in words.
pub fn machine() -> Result<String> {
    let read = |path| fs::read_to_string(path).with_context(|| format!("failed to read {path}"));
    describe(
        &read("/proc/cpuinfo")?,
        &read("/proc/meminfo")?,
        &read("/etc/os-release")?,
        &read("/proc/sys/kernel/osrelease")?,
    )
}

fn describe(cpus: &str, memory: &str, system: &str, kernel: &str) -> Result<String> {
    let cores = cpus.lines().filter(|line| line.starts_with("processor"));
    let model = cpus.lines().find_map(|line| value(line, "model name", ':'));
    let model = model.map_or_else(String::new, |model| format!(" ({model})"));
    let memory = memory.lines().find_map(|line| value(line, "MemTotal", ':'));
    let memory = memory.and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok());
    let gibibytes = (memory.context("no MemTotal")? + (1 << 19)) >> 20;
    let system = system
        .lines()
        .find_map(|line| value(line, "PRETTY_NAME", '='));
    let system = system.map_or("Linux", |name| name.trim_matches('"'));
    let kernel: Vec<_> = kernel.trim().splitn(3, '.').take(2).collect();
    Ok(format!(
        "{} cores{model}, {gibibytes} GiB, {system}, kernel {}",
        cores.count(),
        kernel.join(".")
    ))
}

fn value<'a>(line: &'a str, name: &str, separator: char) -> Option<&'a str> {
    let (key, value) = line.split_once(separator)?;
    (key.trim() == name).then_some(value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_told_in_a_line() {
        let cpus =
            "processor\t: 0\nmodel name\t: Fast One\n\nprocessor\t: 1\nmodel name\t: Fast One\n";
        let memory = "MemTotal:       24684112 kB\nMemFree: 1 kB\n";
        let system = "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(
            describe(cpus, memory, system, "6.18.44-cloud\n").unwrap(),
            "2 cores (Fast One), 24 GiB, Debian GNU/Linux 12 (bookworm), kernel 6.18"
        );
    }

    #[test]
    fn a_machine_that_does_not_tell_its_model_is_fine() {
        let line = describe("processor : 0\n", "MemTotal: 1048576 kB\n", "", "6.1.2").unwrap();
        assert_eq!(line, "1 cores, 1 GiB, Linux, kernel 6.1");
    }
}
