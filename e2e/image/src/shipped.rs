//! In: our programs. Out: the image that is shipped.

use std::collections::HashMap;

use anyhow::{Context, Result};
use jiff::Timestamp;
use oci_spec::image::{
    ANNOTATION_CREATED, ANNOTATION_LICENSES, ANNOTATION_REVISION, ANNOTATION_SOURCE,
    ANNOTATION_TITLE, ANNOTATION_VERSION,
};

use crate::{
    layer::Layer,
    layout::{Archive, Image, Start},
    name::ImageName,
    program::{Architecture, Program},
    tarball::Tarball,
};

/// Who programs run as, and what a pod's `runAsUser` says.
pub const USER: &str = "65532:65532";

const PASSWD: &str = include_str!("../files/etc/passwd");
const GROUP: &str = include_str!("../files/etc/group");

/// What the image is made of.
#[derive(Clone, Debug)]
pub struct Shipped {
    /// What it is called.
    pub name: ImageName,
    /// Where its programs run.
    pub architecture: Architecture,
    /// When, for everything that asks: the time of the source, not of the build.
    pub created: Timestamp,
    /// The commit it was built from, if that is known.
    pub revision: Option<String>,
    /// What it holds. The first is what a container runs unless it is told otherwise.
    pub programs: Vec<Program>,
}

impl Shipped {
    /// Packs it.
    pub fn archive(&self) -> Result<Archive> {
        let entrypoint = self.programs.first().context("an image needs a program")?;
        let image = Image {
            name: self.name.clone(),
            architecture: self.architecture,
            created: self.created,
            labels: self.labels(),
            start: Start {
                entrypoint: vec![entrypoint.path()],
                user: USER.to_owned(),
                env: vec!["PATH=/usr/bin".to_owned()],
            },
        };
        image.archive(Layer::Compressed(self.files()?))
    }

    /// Every file that a container sees. There is no shell, no library, and nothing that can be written.
    fn files(&self) -> Result<Vec<u8>> {
        let mut files = Tarball::new(self.created);
        files.folder("etc/")?;
        files.file("etc/group", 0o644, GROUP.as_bytes())?;
        files.file("etc/passwd", 0o644, PASSWD.as_bytes())?;
        files.folder("usr/")?;
        files.folder("usr/bin/")?;
        for program in &self.programs {
            files.file(
                program.path().trim_start_matches('/'),
                0o755,
                program.bytes(),
            )?;
        }
        files.finish()
    }

    fn labels(&self) -> HashMap<String, String> {
        let mut labels = HashMap::from([
            (ANNOTATION_TITLE.to_owned(), "orrery".to_owned()),
            (
                ANNOTATION_VERSION.to_owned(),
                env!("CARGO_PKG_VERSION").to_owned(),
            ),
            (
                ANNOTATION_SOURCE.to_owned(),
                env!("CARGO_PKG_REPOSITORY").to_owned(),
            ),
            (
                ANNOTATION_LICENSES.to_owned(),
                env!("CARGO_PKG_LICENSE").to_owned(),
            ),
            (ANNOTATION_CREATED.to_owned(), self.created.to_string()),
        ]);
        labels.extend(
            self.revision
                .clone()
                .map(|revision| (ANNOTATION_REVISION.to_owned(), revision)),
        );
        labels
    }
}

#[cfg(test)]
mod tests;
