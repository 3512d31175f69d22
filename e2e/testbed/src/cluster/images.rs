//! In: busybox as Debian ships it. Out: an image with it, for sandboxes and for pods of tests.
//! Touches: writes the archive.

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

/// Writes the archive, in the format of `docker save`. Without a command it sleeps, which is what a sandbox does.
pub(super) fn write_busybox(archive: &Path) -> Result<()> {
    let busybox = tools::installed("busybox", "busybox-static")?;
    let layer = layer(&fs::read(busybox)?)?;
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    });
    let manifest =
        json!([{"Config": "config.json", "RepoTags": [BUSYBOX], "Layers": ["layer.tar"]}]);
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

fn layer(busybox: &[u8]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for (folder, mode) in [("bin/", 0o755), ("etc/", 0o755), ("tmp/", 0o1777)] {
        let mut header = header(EntryType::Directory, mode, 0);
        tar.append_data(&mut header, folder, std::io::empty())?;
    }
    let users = "root:x:0:0::/:/bin/sh\nnonroot:x:65532:65532::/:/bin/sh\n";
    file(&mut tar, "etc/passwd", users.as_bytes(), 0o644)?;
    file(&mut tar, "bin/busybox", busybox, 0o755)?;
    for command in COMMANDS {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        tar.append_link(&mut header, format!("bin/{command}"), "busybox")?;
    }
    Ok(tar.into_inner()?)
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
