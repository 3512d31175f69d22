//! A tar archive in memory that depends on nothing but what is put in: no owner, no clock, no order of a folder.

use std::path::Path;

use anyhow::Result;
use jiff::Timestamp;
use tar::{Builder, EntryType, Header};

pub(crate) struct Tarball {
    builder: Builder<Vec<u8>>,
    modified: u64,
}

impl Tarball {
    pub(crate) fn new(modified: Timestamp) -> Self {
        Self {
            builder: Builder::new(Vec::new()),
            modified: modified.as_second().try_into().unwrap_or_default(),
        }
    }

    pub(crate) fn folder(&mut self, path: &str) -> Result<()> {
        self.entry(EntryType::Directory, path, 0o755, &[])
    }

    pub(crate) fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.entry(EntryType::Regular, path, mode, bytes)
    }

    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        Ok(self.builder.into_inner()?)
    }

    pub(crate) fn link(&mut self, path: &str, target: &Path) -> Result<()> {
        let mut header = self.header(EntryType::Symlink, 0o777, 0);
        Ok(self.builder.append_link(&mut header, path, target)?)
    }

    fn entry(&mut self, kind: EntryType, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        let mut header = self.header(kind, mode, bytes.len().try_into()?);
        Ok(self.builder.append_data(&mut header, path, bytes)?)
    }

    fn header(&self, kind: EntryType, mode: u32, size: u64) -> Header {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(self.modified);
        header.set_size(size);
        header
    }
}
