//! The command line. In: arguments. Out: what to do, checked. Pure.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::algorithm::Algorithm;
use crate::engine::Lister;
use crate::gpfs::Gpfs;
use crate::merge::Mode;
use crate::read::Medium;
use crate::{coordinator, worker};

const EXIT_CODES: &str = "\
Exit codes:
  0    local, verify: every file that was read is what was written; report: no damage that nobody has taken note of,
       whatever the last run could not verify; the others: done
  1    damaged files were found; report: and nobody has taken note of them
  2    local, verify: not everything could be verified: files unreadable or changed meanwhile, folders not listed, too many
       files gone, or ended after the listing as it was told to; report --format manifest: files were left out
  3    an error; nothing is lost, and an interrupted run can be resumed
  141  whoever read the output has left";

/// Finds files that are no longer what was written.
#[derive(Debug, Parser)]
#[command(name = "orrery-checksum", version, after_help = EXIT_CODES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub task: Task,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// What a person waits for.
    #[command(flatten)]
    Command(Command),
    /// Carry out a ChecksumRun: what the operator starts in a pod.
    Coordinator(Box<coordinator::Args>),
    /// Read files for a coordinator: what the operator starts in pods of its own.
    Worker(Box<worker::Args>),
}

/// What a person waits for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read the files of a folder, compare them with what was read before, and keep what was read for the next time.
    Local(Box<Local>),
    /// Tell what is known: damaged files, files that could not be verified, runs; or print all checksums as a manifest.
    Report(Report),
    /// Compare another folder, such as a restored backup, with the checksums on record. Changes nothing.
    Verify(Verify),
    /// Take the content of damaged files, as it was read last, for right.
    Accept(Files),
    /// Take note of damaged files: they stay damaged, but are told apart from new ones.
    Acknowledge(Files),
    /// Give up a run that was interrupted, so that another can begin.
    Abort(StoreOf),
    /// Take over all that lsdf-checksum has kept: checksums, runs and warnings.
    TakeOver(TakeOver),
}

/// Which store. Without a file, the one that `local` makes for a folder.
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(false)))]
pub struct StoreOf {
    /// The folder whose checksums are meant.
    #[arg(long = "of", value_name = "FOLDER", group = "which")]
    pub folder: Option<PathBuf>,
    /// The file where checksums are kept.
    #[arg(long, value_name = "FILE", group = "which")]
    pub store: Option<PathBuf>,
    /// The database where checksums are kept; `ORRERY_STORE_USERNAME` and `ORRERY_STORE_PASSWORD` say who logs in.
    #[arg(long, value_name = "HOST:PORT/DATABASE", group = "which")]
    pub mysql: Option<String>,
    /// Which file system, where the store holds several.
    #[arg(long, value_name = "NAME")]
    pub file_system: Option<String>,
    /// Authorities for the database's certificate, in PEM; absent means no TLS.
    #[arg(long, value_name = "FILE", requires = "mysql")]
    pub tls_ca: Option<PathBuf>,
}

/// Arguments of `local`.
#[derive(Debug, Args)]
pub struct Local {
    /// The folder to read.
    pub path: PathBuf,
    /// Where checksums are kept between runs [default: a file in the state folder of the user, named after the folder]
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// Which files are read.
    #[arg(long, value_enum, default_value_t)]
    pub mode: ModeName,
    /// With `--mode sample`: how many of the unchanged files are read, in percent.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99),
          required_if_eq("mode", "sample"))]
    pub sample_percent: Option<u8>,
    /// How files are hashed. A change compares by the old one and stores the new one.
    #[arg(long, value_enum, default_value_t)]
    pub algorithm: Algorithm,
    /// Leave out what matches; `*` stays within a name, `**` does not; without a slash at any depth. May be given often.
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// How many files are read at once [default: as many as the storage likes, from one per processor to 64; of large ones twice as many with sha1 and sha256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub readers: Option<u16>,
    /// Read at most so many bytes per second: a number, or with Ki, Mi, Gi.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_throughput: Option<u64>,
    /// Refuse to forget more files than this share of all, in percent, in one run.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub deletion_guard: u8,
    /// Take the files from this list instead of walking: paths that end with a NUL each.
    #[arg(long, value_name = "FILE")]
    pub files_from: Option<PathBuf>,
    /// Take the files from this list that the policy engine of Spectrum Scale wrote.
    #[arg(long, value_name = "FILE", conflicts_with = "files_from")]
    pub policy_list: Option<PathBuf>,
    /// A file system with snapshots of its own.
    #[command(flatten)]
    pub gpfs: Gpfs,
    /// Where content is read from: `device` goes past the page cache, where the file system can do that.
    #[arg(long, value_enum, default_value_t)]
    pub medium: Medium,
    /// End after this, before the end.
    #[arg(long, value_enum)]
    pub stop_after: Option<StopAfter>,
    /// Go on with the run that was interrupted, in its mode and with its algorithm. Name the same --exclude, --files-from and
    /// --stop-after again.
    #[arg(long, conflicts_with = "abort")]
    pub resume: bool,
    /// Give up the run that was interrupted, and begin another.
    #[arg(long)]
    pub abort: bool,
    /// How to tell what goes on and what was found.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
    /// Tell only what was found.
    #[arg(long, short)]
    pub quiet: bool,
}

impl Command {
    /// Whether it speaks to a program.
    pub fn tells_json(&self) -> bool {
        match self {
            Self::Local(args) => args.output == Output::Json,
            Self::Verify(args) => args.output == Output::Json,
            Self::Report(args) => args.format == Format::Json,
            Self::Accept(_) | Self::Acknowledge(_) | Self::Abort(_) | Self::TakeOver(_) => false,
        }
    }
}

impl Local {
    /// How files are found.
    pub fn lister(&self) -> Lister {
        match (&self.files_from, &self.policy_list) {
            (Some(list), _) => Lister::Paths(list.clone()),
            (None, Some(list)) => {
                Lister::Policy(list.clone(), self.path.as_os_str().as_bytes().into())
            }
            (None, None) => Lister::Walk,
        }
    }

    /// Which files are read; nothing if there is a share without a sample.
    pub fn mode(&self) -> Option<Mode> {
        match (self.mode, self.sample_percent) {
            (ModeName::Full, None) => Some(Mode::Full),
            (ModeName::Incremental, None) => Some(Mode::Incremental),
            (ModeName::Sample, percent) => Some(Mode::Sample(percent.unwrap_or(100))),
            (ModeName::Full | ModeName::Incremental, Some(_)) => None,
        }
    }
}

/// Which files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// Every file.
    #[default]
    Full,
    /// Files that are new, changed or suspicious.
    Incremental,
    /// The same, and a random share of the others.
    Sample,
}

/// Where a run ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StopAfter {
    /// The files are listed, and the store knows of them.
    Sync,
}

/// How to tell something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct Report {
    /// Which store.
    #[command(flatten)]
    pub store: StoreOf,
    /// In which form.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Also tell of damage that was mended since.
    #[arg(long)]
    pub all: bool,
}

/// The form of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
    /// Damaged files as comma-separated values.
    Csv,
    /// All checksums, as `b3sum`, `sha1sum` and their like print and check them.
    Manifest,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// The folder to compare.
    pub path: PathBuf,
    /// Which store.
    #[command(flatten)]
    pub store: StoreOf,
    /// Where content is read from: `device` goes past the page cache, where what was just restored still is.
    #[arg(long, value_enum, default_value_t)]
    pub medium: Medium,
    /// How to tell what was found.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `take-over`.
#[derive(Debug, Args)]
pub struct TakeOver {
    /// The database of lsdf-checksum; `ORRERY_FROM_USERNAME` and `ORRERY_FROM_PASSWORD` say who logs in.
    #[arg(long, value_name = "HOST:PORT/DATABASE")]
    pub from: String,
    /// What the names of its tables begin with.
    #[arg(long, default_value = "")]
    pub table_prefix: String,
    /// The folder of its file system that is read from now on, such as its `filesystemsubpath` [default: all of it]
    #[arg(long, value_name = "FOLDER")]
    pub sub_path: Option<PathBuf>,
    /// Where to.
    #[command(flatten)]
    pub store: StoreOf,
}

/// Arguments of `accept` and `acknowledge`.
#[derive(Debug, Args)]
pub struct Files {
    /// Which store.
    #[command(flatten)]
    pub store: StoreOf,
    /// Paths are as `report` prints them, with what it escapes: \\\\, \\n, \\xff, \\u{200b}.
    #[arg(long)]
    pub escaped: bool,
    /// Paths relative to the folder, as they are on disk.
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
}

fn bytes(text: &str) -> Result<u64, String> {
    let units = [
        ("Ki", 1_u64 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
    ];
    let found = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = found.unwrap_or((text, 1));
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|it| it.checked_mul(factor));
    match bytes {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("not a number of bytes above 0, such as 104857600, 100Mi or 1Gi".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn bytes_are_read_with_their_unit_and_nonsense_is_refused() {
        assert_eq!(bytes("100"), Ok(100));
        assert_eq!(bytes("10Mi"), Ok(10 << 20));
        for wrong in ["", "0", "-1", "10MB", "1e3", "99999999999Gi"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
