//! In: jumps of the wall clock. Out: environment variables that let a child process live by that clock.
//! Touches: one small file, read by libfaketime in the child, and what libfaketime leaves in `/dev/shm`.

use std::env::consts::ARCH;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const SHARED_MEMORY: &str = "/dev/shm";

/// Where libfaketime is, if it is installed (Debian: package `libfaketime`).
pub fn library() -> Option<PathBuf> {
    let folders = [
        format!("/usr/lib/{ARCH}-linux-gnu/faketime"),
        "/usr/lib64/faketime".into(),
        "/usr/lib/faketime".into(),
    ];
    let files = folders.map(|folder| Path::new(&folder).join("libfaketimeMT.so.1"));
    files.into_iter().find(|file| file.is_file())
}

/// A wall clock that jumps on demand, for child processes only. Their monotonic clock stays true.
///
/// Works for programs linked to libc dynamically; Go and static programs ask the kernel themselves.
#[derive(Debug)]
pub struct FakeClock {
    library: PathBuf,
    file: PathBuf,
    offset: i64,
}

impl FakeClock {
    /// A clock that shows the true time, controlled by `file`, which every clock has for itself.
    pub fn new(file: impl Into<PathBuf>) -> Result<Self> {
        let library = library().context("libfaketime is missing: apt-get install libfaketime")?;
        remove_litter();
        let clock = Self {
            library,
            file: file.into(),
            offset: 0,
        };
        clock.write()?;
        Ok(clock)
    }

    /// The variables for a child; it can be given them at any time, also after a jump.
    pub fn envs(&self) -> [(&'static str, OsString); 4] {
        [
            ("LD_PRELOAD", self.library.clone().into()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.clone().into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }

    /// Moves the clock by so many seconds, for running children too.
    pub fn jump(&mut self, seconds: i64) -> Result<()> {
        self.offset += seconds;
        self.write()
    }

    /// Seconds between this clock and the true one.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// In one step: a child may read at any moment, and ends if it cannot make sense of what it reads.
    fn write(&self) -> Result<()> {
        let draft = self.file.with_extension("draft");
        let failed = || format!("failed to write {}", self.file.display());
        fs::write(&draft, format!("{:+}\n", self.offset)).with_context(failed)?;
        fs::rename(&draft, &self.file).with_context(failed)
    }
}

impl Drop for FakeClock {
    fn drop(&mut self) {
        remove_litter();
    }
}

/// libfaketime cannot clean up in a process that is killed; a later process with that pid would fail.
fn remove_litter() {
    let Ok(entries) = fs::read_dir(SHARED_MEMORY) else {
        return;
    };
    for entry in entries.flatten() {
        let owner = entry.file_name().to_str().and_then(owner_of_litter);
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn owner_of_litter(file: &str) -> Option<u32> {
    let prefixes = ["faketime_shm_", "sem.faketime_sem_"];
    let pid = prefixes.iter().find_map(|prefix| file.strip_prefix(prefix));
    pid?.parse().ok()
}
