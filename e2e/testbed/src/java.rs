//! In: the jars of a server. Out: the command line of its JVM, made to start fast and stay small.
//! Touches: runs the scripts that fetch jars and find Java; writes class archives beside the jars.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::layout::Layout;
use crate::process::{Launch, Process};
use crate::tools;
use crate::wait::eventually;

/// One compiler tier and one collector thread: a test's JVM lives for a minute on a shared core.
const FAST_START: [&str; 3] = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+PerfDisableSharedMem",
];

/// A JVM loads its classes faster from an archive, which it writes at its end.
const ARCHIVE_DEADLINE: Duration = Duration::from_mins(5);

/// A Java server as it was fetched.
#[derive(Clone, Debug)]
pub(crate) struct Jvm {
    java: PathBuf,
    home: PathBuf,
    class_path: OsString,
    archive: PathBuf,
}

/// What a JVM does with the archive of its classes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Archive {
    /// Read it, if it is there and fits.
    Use,
    /// Write it at the end, to a draft.
    Make,
}

impl Jvm {
    /// The JVM for what `script` has fetched.
    pub(crate) async fn find(script: &'static str) -> Result<Self> {
        let java = tools::printed("java.sh").await?;
        let home = tools::printed(script).await?;
        Ok(Self {
            class_path: class_path(&home.join("lib"))?,
            archive: home.join(format!("classes-{}.jsa", fingerprint(&java)?)),
            java,
            home,
        })
    }

    /// Where the jars are.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The command for a main class; arguments of the program come after this.
    pub(crate) fn launch(
        &self,
        name: &str,
        layout: &Layout,
        archive: Archive,
        options: Vec<OsString>,
        main: &str,
    ) -> Launch {
        Launch::new(name, &self.java, layout.log(name))
            .args(FAST_START)
            .args([self.archive_option(archive, layout)])
            .args(options)
            .args(["-classpath".into(), self.class_path.clone(), main.into()])
    }

    /// Whether there is an archive for these jars and this Java.
    pub(crate) fn has_archive(&self) -> bool {
        self.archive.is_file()
    }

    /// Ends a server that was launched to [`Archive::Make`], once it has said `started`.
    pub(crate) async fn keep_archive(
        &self,
        layout: &Layout,
        server: &Process,
        started: &str,
    ) -> Result<()> {
        eventually("the server to be up", ARCHIVE_DEADLINE, async || {
            let log = server.log()?;
            ensure!(server.is_running(), "it ended:\n{log}");
            Ok(log.contains(started).then_some(()))
        })
        .await?;
        server.stop(ARCHIVE_DEADLINE).await?;
        // In one step: others may be about to read it. The draft may be on another disk.
        let copy = self.archive.with_extension("partial");
        fs::copy(draft(layout), &copy).context("the JVM wrote no archive")?;
        fs::rename(copy, &self.archive).context("failed to keep the archive")
    }

    fn archive_option(&self, archive: Archive, layout: &Layout) -> OsString {
        let (option, file) = match archive {
            Archive::Use => ("-XX:SharedArchiveFile=", self.archive.clone()),
            Archive::Make => ("-XX:ArchiveClassesAtExit=", draft(layout)),
        };
        [option.as_ref(), file.as_os_str()].into_iter().collect()
    }
}

fn draft(layout: &Layout) -> PathBuf {
    layout.root().join("classes.jsa")
}

/// Jar by jar: an archive is of use only to a JVM with the very same class path, and takes no folders.
fn class_path(folder: &Path) -> Result<OsString> {
    let read = || format!("failed to read {}", folder.display());
    let mut jars = Vec::new();
    for entry in fs::read_dir(folder).with_context(read)? {
        jars.push(entry.with_context(read)?.path());
    }
    jars.sort();
    ensure!(!jars.is_empty(), "no jars in {}", folder.display());
    std::env::join_paths(jars).context("a path with a colon")
}

/// Tells one installation of Java from another and from its next version.
fn fingerprint(java: &Path) -> Result<String> {
    let java = java.canonicalize()?;
    let changed = fs::metadata(&java)?.modified()?;
    let name = java.to_string_lossy().replace('/', "_");
    let seconds = changed.duration_since(UNIX_EPOCH)?.as_secs();
    Ok(format!("{}-{seconds}", name.trim_start_matches('_')))
}
