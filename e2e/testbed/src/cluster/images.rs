//! In: programs without libraries. Out: images that hold them: busybox for sandboxes and for pods of tests, and others.
//! Touches: writes archives.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::BUSYBOX;
use crate::tools;

/// What tests may call in a pod.
const COMMANDS: [&str; 15] = [
    "cat", "chmod", "cp", "date", "dd", "httpd", "id", "ls", "mkdir", "nslookup", "rm", "sh",
    "sleep", "touch", "wget",
];

/// Writes an image with busybox. Without a command it sleeps, which is what a sandbox does.
pub(super) fn write_busybox(archive: &Path) -> Result<()> {
    let busybox = tools::installed("busybox", "busybox-static")?;
    let mut layer = layer("bin/busybox", &fs::read(busybox)?)?;
    for command in COMMANDS {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        layer.append_link(&mut header, format!("bin/{command}"), "busybox")?;
    }
    write(archive, BUSYBOX, &["/bin/sleep", "2147483647"], layer)
}

/// Writes an image that runs one program.
pub(super) fn write_program(archive: &Path, name: &str, program: &Path) -> Result<()> {
    let bytes = fs::read(program).with_context(|| format!("no {}", program.display()))?;
    write(
        archive,
        name,
        &["/bin/program"],
        layer("bin/program", &bytes)?,
    )
}

/// In the format of `docker save`.
fn write(archive: &Path, name: &str, run: &[&str], layer: Builder<Vec<u8>>) -> Result<()> {
    let layer = layer.into_inner()?;
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {"Entrypoint": run, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    let mut tar = Builder::new(File::create(archive)?);
    for (name, bytes) in [
        ("manifest.json", manifest.to_string().as_bytes()),
        ("config.json", config.to_string().as_bytes()),
        ("layer.tar", &layer),
    ] {
        file(&mut tar, name, bytes, 0o644)?;
    }
    tar.finish().context("failed to write an image")
}

fn digest(bytes: &[u8]) -> String {
    let mut digest = String::from("sha256:");
    for byte in Sha256::digest(bytes) {
        let _ = write!(digest, "{byte:02x}"); // to a string, which never fails
    }
    digest
}

/// Folders, users, and one program.
fn layer(path: &str, program: &[u8]) -> Result<Builder<Vec<u8>>> {
    let mut tar = Builder::new(Vec::new());
    for (folder, mode) in [("bin/", 0o755), ("etc/", 0o755), ("tmp/", 0o1777)] {
        let mut header = header(EntryType::Directory, mode, 0);
        tar.append_data(&mut header, folder, std::io::empty())?;
    }
    let users = "root:x:0:0::/:/bin/sh\nnonroot:x:65532:65532::/:/bin/sh\n";
    file(&mut tar, "etc/passwd", users.as_bytes(), 0o644)?;
    file(&mut tar, path, program, 0o755)?;
    Ok(tar)
}

fn file(tar: &mut Builder<impl Write>, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
    let mut header = header(EntryType::Regular, mode, u64::try_from(bytes.len())?);
    Ok(tar.append_data(&mut header, path, bytes)?)
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header
}
