//! Snapshots and listings of Spectrum Scale (GPFS), by its own commands. In: the name of a file system. Out: a snapshot, and a
//! list of its files. Touches: runs `mm*` commands that are found on PATH; writes rules and the list into a folder.

mod answer;

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use thiserror::Error;
use tokio::process::Command;
use tokio::time::sleep;

use crate::engine::{Lister, Shared};

/// How often it is looked whether all is to end.
const LOOK: Duration = Duration::from_millis(200);

/// The list has size and time of each file, and names as `list::policy` reads them.
const RULES: &str = "\
RULE EXTERNAL LIST 'orrery' EXEC '' ESCAPE '%|/,:; @#'
RULE 'files' LIST 'orrery' SHOW('|' || VARCHAR(FILE_SIZE) || '|' || VARCHAR(MODIFICATION_TIME) || '|')
";

/// A file system, and how its policy engine is to work.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Gpfs {
    /// Read a snapshot of this Spectrum Scale file system, listed by its policy engine; the folder is where it is mounted, or
    /// below that. The snapshot is made for the run and deleted after it.
    #[arg(long = "gpfs", value_name = "NAME", conflicts_with_all = ["files_from", "policy_list"])]
    pub file_system: Option<String>,
    /// The class of service that the policy engine works in [default: the product's, which is maintenance]
    #[arg(long = "gpfs-qos", value_name = "CLASS", requires = "file_system")]
    pub qos: Option<String>,
    /// Nodes on which the policy engine works.
    #[arg(long = "gpfs-nodes", value_name = "NODES", requires = "global")]
    pub nodes: Option<String>,
    /// A folder that all these nodes see.
    #[arg(long = "gpfs-global-folder", value_name = "FOLDER", requires = "nodes")]
    pub global: Option<PathBuf>,
    /// A folder for what the policy engine sorts.
    #[arg(
        long = "gpfs-temporary-folder",
        value_name = "FOLDER",
        requires = "file_system"
    )]
    pub temporary: Option<PathBuf>,
}

/// Why a file system could not be used.
#[derive(Debug, Error)]
pub enum Error {
    /// The command is not there.
    #[error(
        "failed to run {command}: is Spectrum Scale installed here, and are its commands on PATH?"
    )]
    Start {
        /// Which.
        command: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It does not know the file system.
    #[error("there is no Spectrum Scale file system {0}: `mmlsfs all` tells which there are")]
    Unknown(String),
    /// It failed.
    #[error("{command} failed: {said}")]
    Failed {
        /// Which.
        command: &'static str,
        /// What it said.
        said: String,
    },
    /// It answered something else than asked for.
    #[error("{command} did not tell {what}")]
    Answer {
        /// Which.
        command: &'static str,
        /// What is missing.
        what: &'static str,
    },
    /// A folder that is not on the file system.
    #[error(
        "{path} is not on the file system, which is mounted at {mount}: name that folder or one below it"
    )]
    Outside {
        /// Which.
        path: PathBuf,
        /// Where it is mounted.
        mount: PathBuf,
    },
    /// The rules or the list.
    #[error("failed to use {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A run that was begun another way.
    #[error("run {0} was begun without a snapshot: go on with it without --gpfs, or give it up")]
    NoSnapshot(i64),
    /// The same the other way round.
    #[error("run {0} reads a snapshot: go on with it with --gpfs, or give it up")]
    HasSnapshot(i64),
    /// All is to end.
    #[error("stopped; --resume goes on")]
    Stopped,
}

/// A file system whose commands answer.
#[derive(Debug)]
pub struct FileSystem<'a> {
    name: &'a str,
    options: &'a Gpfs,
    shared: &'a Shared,
    /// Where snapshots appear.
    snapshots: PathBuf,
    /// The folder of the run, as seen from where the file system is mounted.
    below: PathBuf,
}

impl<'a> FileSystem<'a> {
    /// Finds out where `folder` is in the file system, if one is meant.
    pub async fn find(
        options: &'a Gpfs,
        folder: &Path,
        shared: &'a Shared,
    ) -> Result<Option<Self>, Error> {
        let Some(name) = options.file_system.as_deref() else {
            return Ok(None);
        };
        let mut found = Self {
            name,
            options,
            shared,
            snapshots: PathBuf::new(),
            below: PathBuf::new(),
        };
        let said = found.ask("mmlsfs", &[name, "-T", "-Y"]).await?;
        let mount = answer::field(&said, "defaultMountPoint").ok_or(Error::Answer {
            command: "mmlsfs",
            what: "where the file system is mounted",
        })?;
        let mount = PathBuf::from(mount);
        let said = found.ask("mmsnapdir", &[name, "-q"]).await?;
        let folder_name = answer::snapshot_folder(&said).ok_or(Error::Answer {
            command: "mmsnapdir",
            what: "where snapshots appear",
        })?;
        let outside = |_| Error::Outside {
            path: folder.into(),
            mount: mount.clone(),
        };
        found.below = folder.strip_prefix(&mount).map_err(outside)?.into();
        found.snapshots = mount.join(folder_name);
        Ok(Some(found))
    }

    /// Makes a snapshot. One of this name may be there if the run is resumed.
    pub async fn create(&self, snapshot: &str) -> Result<(), Error> {
        match self.ask("mmcrsnapshot", &[self.name, snapshot]).await {
            Err(Error::Failed { said, .. }) if answer::has_code(&said, "6027-2601") => Ok(()),
            made => made.map(drop),
        }
    }

    /// Deletes one; that there is none is as good.
    pub async fn delete(&self, snapshot: &str) -> Result<(), Error> {
        let gone = ["6027-2683", "6027-2684", "6027-2612"];
        match self.ask("mmdelsnapshot", &[self.name, snapshot]).await {
            Err(Error::Failed { said, .. })
                if gone.iter().any(|code| answer::has_code(&said, code)) =>
            {
                Ok(())
            }
            deleted => deleted.map(drop),
        }
    }

    /// The folder of the run in a snapshot.
    pub fn root(&self, snapshot: &str) -> PathBuf {
        // Without a slash at the end, which the paths of the list do not have either.
        let root = self.snapshots.join(snapshot);
        if self.below.as_os_str().is_empty() {
            root
        } else {
            root.join(&self.below)
        }
    }

    /// Has the policy engine list a snapshot into a folder, which is made.
    pub async fn list(&self, snapshot: &str, folder: &Path) -> Result<Lister, Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { path, source }
        };
        let rules = folder.join("rules");
        fs::create_dir_all(folder).map_err(failed(folder))?;
        fs::write(&rules, RULES).map_err(failed(&rules))?;
        let root = self.root(snapshot);
        let what = if self.below.as_os_str().is_empty() {
            Path::new(self.name)
        } else {
            &root
        };
        let output = folder.join("files");
        let mut command = Command::new("mmapplypolicy");
        command.arg(what).arg("-P").arg(&rules);
        command
            .args(["-S", snapshot, "-I", "defer", "-f"])
            .arg(&output);
        let Gpfs {
            qos,
            nodes,
            global,
            temporary,
            ..
        } = self.options;
        let options = [
            ("--qos", qos.as_ref().map(Path::new)),
            ("-N", nodes.as_ref().map(Path::new)),
            ("-g", global.as_deref()),
            ("-s", temporary.as_deref()),
        ];
        for (name, value) in options {
            if let Some(value) = value {
                command.arg(name).arg(value);
            }
        }
        self.run("mmapplypolicy", command).await?;
        let list = folder.join("files.list.orrery");
        // A file system without files has no list.
        if !list.exists() {
            fs::write(&list, "").map_err(failed(&list))?;
        }
        Ok(Lister::Policy(list, root.as_os_str().as_bytes().into()))
    }

    async fn ask(&self, command: &'static str, args: &[&str]) -> Result<String, Error> {
        let mut asking = Command::new(command);
        asking.args(args);
        self.run(command, asking).await
    }

    /// However long it takes: the commands have their own limits, and policies of large file systems take hours.
    async fn run(&self, name: &'static str, mut command: Command) -> Result<String, Error> {
        command.stdin(Stdio::null()).kill_on_drop(true);
        let stopped = async {
            while !self.shared.is_stopped() {
                sleep(LOOK).await;
            }
        };
        let Output {
            status,
            stdout,
            stderr,
        } = tokio::select! {
            ended = command.output() => ended.map_err(|source| Error::Start { command: name, source })?,
            () = stopped => return Err(Error::Stopped),
        };
        if status.success() {
            return Ok(String::from_utf8_lossy(&stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&stderr).trim().to_owned();
        Err(if answer::has_code(&said, "6027-1388") {
            Error::Unknown(self.name.into())
        } else {
            Error::Failed {
                command: name,
                said,
            }
        })
    }
}
