//! In: built programs, a folder, or bills of materials. Out: an archive, or one bill, and a few lines about it.
//! Touches: reads and writes the files it is told.

use std::{
    collections::HashMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser};
use image::{
    layer::Layer,
    layout::{self, Image, Start},
    name::ImageName,
    program::{Architecture, Program},
    sbom,
    shipped::Shipped,
    tree,
};
use jiff::Timestamp;

/// What an archive may have at most: everybody who tries us waits for it.
const MOST_BYTES: usize = 60_000_000;

/// Writes a container image without a container runtime.
#[derive(Parser)]
enum Command {
    /// Says nothing if an image can be called that.
    Name { name: ImageName },
    /// Packs programs into an OCI image.
    Archive(ArchiveArgs),
    /// Packs a folder into an OCI image that stays on this machine.
    Tree(TreeArgs),
    /// Joins the bills of materials of programs into one for the image.
    Sbom(SbomArgs),
}

#[derive(Args)]
struct ArchiveArgs {
    /// HOST/NAME:TAG.
    #[arg(long)]
    name: ImageName,
    #[arg(long, value_enum)]
    arch: Architecture,
    /// Time of the source in seconds since 1970.
    #[arg(long, env = "SOURCE_DATE_EPOCH")]
    created: i64,
    /// The commit of the source.
    #[arg(long)]
    revision: Option<String>,
    #[arg(long)]
    out: PathBuf,
    /// What no program may hold, such as the folder or the day in which it was built; may be given more than once.
    #[arg(long)]
    without: Vec<String>,
    /// Programs; the first is the entrypoint.
    #[arg(required = true)]
    programs: Vec<PathBuf>,
}

#[derive(Args)]
struct TreeArgs {
    /// HOST/NAME:TAG.
    #[arg(long)]
    name: ImageName,
    #[arg(long, value_enum)]
    arch: Architecture,
    /// The program that a container starts.
    #[arg(long)]
    entrypoint: String,
    /// UID:GID.
    #[arg(long)]
    user: String,
    /// NAME=VALUE; may be given more than once.
    #[arg(long)]
    env: Vec<String>,
    #[arg(long)]
    out: PathBuf,
    /// What a container sees as `/`.
    folder: PathBuf,
}

#[derive(Args)]
struct SbomArgs {
    /// Where the sources were when the documents were made.
    #[arg(long)]
    root: String,
    /// Crates or programs that must be listed.
    #[arg(long)]
    require: Vec<String>,
    #[arg(long)]
    out: PathBuf,
    #[arg(required = true)]
    bills: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("image: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Name { name: _ } => Ok(()),
        Command::Archive(args) => archive(args),
        Command::Tree(args) => pack(args),
        Command::Sbom(args) => join(&args),
    }
}

fn archive(args: ArchiveArgs) -> Result<()> {
    let programs = args.programs.iter().map(|path| {
        let program = Program::read(path, args.arch)?;
        program.ensure_without(&args.without)?;
        Ok(program)
    });
    let image = Shipped {
        architecture: args.arch,
        created: Timestamp::from_second(args.created)?,
        revision: args.revision,
        programs: programs.collect::<Result<_>>()?,
        name: args.name,
    };
    let archive = image.archive()?;
    let size = archive.bytes.len();
    ensure!(
        size <= MOST_BYTES,
        "the image has {size} bytes, at most {MOST_BYTES} are allowed"
    );
    keep(&archive, &image.name, &args.out)
}

fn pack(args: TreeArgs) -> Result<()> {
    // What it holds was made elsewhere, at many times.
    let created = Timestamp::UNIX_EPOCH;
    let image = Image {
        name: args.name,
        architecture: args.arch,
        created,
        labels: HashMap::new(),
        start: Start {
            entrypoint: vec![args.entrypoint],
            user: args.user,
            env: args.env,
        },
    };
    let archive = image.archive(Layer::Plain(tree::files(&args.folder, created)?))?;
    keep(&archive, &image.name, &args.out)
}

fn keep(archive: &layout::Archive, name: &ImageName, path: &Path) -> Result<()> {
    write(path, &archive.bytes)?;
    let mut out = std::io::stdout();
    writeln!(out, "{}: {name}", path.display())?;
    writeln!(
        out,
        "  size    {} packed, {} unpacked",
        megabytes(archive.bytes.len()),
        megabytes(archive.unpacked)
    )?;
    Ok(writeln!(out, "  digest  {}", archive.digest)?)
}

fn join(args: &SbomArgs) -> Result<()> {
    let read = |path: &PathBuf| {
        fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
    };
    let bills: Vec<_> = args.bills.iter().map(read).collect::<Result<_>>()?;
    let bill = sbom::merge(&bills, &args.root)?;
    sbom::require(&bill, &args.require)?;
    write(&args.out, &serde_json::to_vec_pretty(&bill)?)?;
    let count = bill["components"].as_array().map_or(0, Vec::len);
    Ok(writeln!(
        std::io::stdout(),
        "{}: {count} crates",
        args.out.display()
    )?)
}

/// The file appears whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let partial = path.with_added_extension("partial");
    let written = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, path));
    written.with_context(|| format!("failed to write {}", path.display()))
}

fn megabytes(bytes: usize) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}
