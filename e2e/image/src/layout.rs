//! In: the files of an image, and what it is called. Out: an OCI image layout as a tar archive.

use std::{collections::HashMap, fmt::Write};

use anyhow::Result;
use jiff::Timestamp;
use oci_spec::image::{
    ANNOTATION_REF_NAME, ConfigBuilder, Descriptor, DescriptorBuilder, Digest, HistoryBuilder,
    ImageConfiguration, ImageConfigurationBuilder, ImageIndexBuilder, ImageManifestBuilder,
    MediaType, OciLayoutBuilder, Os, PlatformBuilder, RootFsBuilder, SCHEMA_VERSION,
};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{layer::Layer, name::ImageName, program::Architecture, tarball::Tarball};

/// Where containerd looks for the whole name; the annotation of the standard holds the tag only.
const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// What the image is made of.
#[derive(Clone, Debug)]
pub struct Image {
    /// What it is called.
    pub name: ImageName,
    /// Where its programs run.
    pub architecture: Architecture,
    /// When, for everything that asks: the time of the source, not of the build.
    pub created: Timestamp,
    /// What is told about it.
    pub labels: HashMap<String, String>,
    /// What a container starts unless it is told otherwise.
    pub start: Start,
}

/// A program, and what it is given.
#[derive(Clone, Debug)]
pub struct Start {
    /// The program and its arguments.
    pub entrypoint: Vec<String>,
    /// UID:GID.
    pub user: String,
    /// NAME=VALUE.
    pub env: Vec<String>,
}

/// An image, ready to be written.
#[derive(Debug)]
pub struct Archive {
    /// The tar archive.
    pub bytes: Vec<u8>,
    /// Of the manifest: what a registry calls the image.
    pub digest: Digest,
    /// Bytes of its files in a container.
    pub unpacked: usize,
}

impl Image {
    /// Packs it with its one layer. The same image always gives the same bytes.
    pub fn archive(&self, files: Layer) -> Result<Archive> {
        let unpacked = files.unpacked();
        let config = Blob::new(json(&self.config(&digest(files.plain())?)?)?)?;
        let kind = files.media_type();
        let layer = Blob::new(files.packed()?)?;
        let manifest = ImageManifestBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageManifest)
            .config(config.descriptor(MediaType::ImageConfig))
            .layers([layer.descriptor(kind)])
            .build()?;
        let manifest = Blob::new(json(&manifest)?)?;

        let mut tarball = Tarball::new(self.created);
        let version = OciLayoutBuilder::default()
            .image_layout_version("1.0.0")
            .build()?;
        tarball.file("oci-layout", 0o644, &json(&version)?)?;
        tarball.file("index.json", 0o644, &self.index(&manifest)?)?;
        tarball.file("manifest.json", 0o644, &self.for_docker(&config, &layer)?)?;
        tarball.folder("blobs/")?;
        tarball.folder("blobs/sha256/")?;
        for blob in [&config, &manifest, &layer] {
            tarball.file(&blob.path(), 0o644, &blob.bytes)?;
        }
        Ok(Archive {
            bytes: tarball.finish()?,
            digest: manifest.digest,
            unpacked,
        })
    }

    fn config(&self, files: &Digest) -> Result<ImageConfiguration> {
        let created = self.created.to_string();
        let config = ConfigBuilder::default()
            .user(self.start.user.clone())
            .env(self.start.env.clone())
            .entrypoint(self.start.entrypoint.clone())
            .working_dir("/")
            .labels(self.labels.clone())
            .build()?;
        let history = HistoryBuilder::default()
            .created(created.clone())
            .created_by("make image")
            .build()?;
        Ok(ImageConfigurationBuilder::default()
            .created(created)
            .architecture(self.architecture.in_manifests())
            .os(Os::Linux)
            .config(config)
            .rootfs(
                RootFsBuilder::default()
                    .typ("layers")
                    .diff_ids([files.to_string()])
                    .build()?,
            )
            .history([history])
            .build()?)
    }

    fn index(&self, manifest: &Blob) -> Result<Vec<u8>> {
        let platform = PlatformBuilder::default()
            .architecture(self.architecture.in_manifests())
            .os(Os::Linux)
            .build()?;
        let descriptor = DescriptorBuilder::default()
            .media_type(MediaType::ImageManifest)
            .digest(manifest.digest.clone())
            .size(manifest.size())
            .platform(platform)
            .annotations(HashMap::from([
                (CONTAINERD_NAME.to_owned(), self.name.to_string()),
                (ANNOTATION_REF_NAME.to_owned(), self.name.tag().to_owned()),
            ]))
            .build()?;
        json(
            &ImageIndexBuilder::default()
                .schema_version(SCHEMA_VERSION)
                .media_type(MediaType::ImageIndex)
                .manifests([descriptor])
                .build()?,
        )
    }

    /// What `docker load` reads where Docker does not keep its images in containerd.
    fn for_docker(&self, config: &Blob, layer: &Blob) -> Result<Vec<u8>> {
        json(&json!([{
            "Config": config.path(),
            "RepoTags": [self.name.to_string()],
            "Layers": [layer.path()],
        }]))
    }
}

struct Blob {
    digest: Digest,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Result<Self> {
        Ok(Self {
            digest: digest(&bytes)?,
            bytes,
        })
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn descriptor(&self, kind: MediaType) -> Descriptor {
        Descriptor::new(kind, self.size(), self.digest.clone())
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest.digest())
    }
}

fn digest(bytes: &[u8]) -> Result<Digest> {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}")?;
    }
    Ok(text.parse()?)
}

/// Sorted: the types of the standard keep labels and annotations in hash maps.
fn json(document: &impl Serialize) -> Result<Vec<u8>> {
    let mut value = serde_json::to_value(document)?;
    value.sort_all_objects();
    Ok(serde_json::to_vec(&value)?)
}

#[cfg(test)]
mod tests;
