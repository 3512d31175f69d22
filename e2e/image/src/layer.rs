//! In: the files of an image, as a tar archive. Out: its one layer, compressed or as it is.

use std::io::Write;

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use oci_spec::image::MediaType;

/// What the header of a gzip stream tells when it does not tell the system.
const UNKNOWN_SYSTEM: u8 = 255;

/// Every file that a container sees.
#[derive(Debug)]
pub enum Layer {
    /// For an image that travels. Every container runtime reads gzip.
    Compressed(Vec<u8>),
    /// For a large image that never leaves its machine: nobody waits for gzip, neither here nor on the node.
    Plain(Vec<u8>),
}

impl Layer {
    /// The tar archive.
    pub(crate) fn plain(&self) -> &[u8] {
        let (Self::Compressed(files) | Self::Plain(files)) = self;
        files
    }

    /// Bytes of the files in a container.
    pub(crate) fn unpacked(&self) -> usize {
        self.plain().len()
    }

    /// What manifests call it.
    pub(crate) fn media_type(&self) -> MediaType {
        match self {
            Self::Compressed(_) => MediaType::ImageLayerGzip,
            Self::Plain(_) => MediaType::ImageLayer,
        }
    }

    /// As it is stored.
    pub(crate) fn packed(self) -> Result<Vec<u8>> {
        match self {
            Self::Compressed(files) => compress(&files),
            Self::Plain(files) => Ok(files),
        }
    }
}

fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    let header = GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM);
    let mut encoder = header.write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}
