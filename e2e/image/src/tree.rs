//! In: a folder. Out: its files as a tar archive, the same wherever and whenever the folder was made.
//! Touches: reads the folder.

use std::{
    fs::{self, DirEntry, Metadata},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;

use crate::tarball::Tarball;

const RUNS: u32 = 0o755;
const IS_READ: u32 = 0o644;

/// Every file below the folder, by name. Who owns a file, when it changed and who may write it is not told: in an image
/// all belong to root.
pub fn files(folder: &Path, modified: Timestamp) -> Result<Vec<u8>> {
    let mut tarball = Tarball::new(modified);
    add(&mut tarball, folder, "").with_context(|| format!("cannot pack {}", folder.display()))?;
    let files = tarball.finish()?;
    ensure!(
        files.iter().any(|byte| *byte != 0),
        "{} is empty",
        folder.display()
    );
    Ok(files)
}

fn add(tarball: &mut Tarball, folder: &Path, prefix: &str) -> Result<()> {
    let entries = fs::read_dir(folder)?;
    let mut entries: Vec<_> = entries.collect::<Result<_, _>>()?;
    entries.sort_by_key(DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_str().context("a name is not UTF-8")?;
        let path = format!("{prefix}{name}");
        add_entry(tarball, &entry.path(), &path).with_context(|| path.clone())?;
    }
    Ok(())
}

fn add_entry(tarball: &mut Tarball, file: &Path, path: &str) -> Result<()> {
    let metadata = fs::symlink_metadata(file)?;
    let kind = metadata.file_type();
    if kind.is_dir() {
        let path = format!("{path}/");
        tarball.folder(&path)?;
        add(tarball, file, &path)
    } else if kind.is_symlink() {
        tarball.link(path, &fs::read_link(file)?)
    } else if kind.is_file() {
        tarball.file(path, mode(&metadata), &fs::read(file)?)
    } else {
        bail!("it is neither a file nor a folder nor a link")
    }
}

fn mode(metadata: &Metadata) -> u32 {
    if metadata.permissions().mode() & 0o111 == 0 {
        IS_READ
    } else {
        RUNS
    }
}

#[cfg(test)]
mod tests;
