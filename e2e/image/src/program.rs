//! In: files that cargo built. Out: programs that run without any other file, on the machines they are meant for.
//! Touches: reads those files.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use memchr::memmem;
use object::{
    Endianness, elf,
    read::elf::{FileHeader, ProgramHeader},
};
use oci_spec::image::Arch;

/// The machines we build for, by their names in image manifests.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Architecture {
    /// `x86_64`.
    Amd64,
    /// `aarch64`.
    Arm64,
}

impl Architecture {
    /// As manifests tell it.
    pub fn in_manifests(self) -> Arch {
        match self {
            Self::Amd64 => Arch::Amd64,
            Self::Arm64 => Arch::ARM64,
        }
    }

    fn in_programs(self) -> elf::Machine {
        match self {
            Self::Amd64 => elf::EM_X86_64,
            Self::Arm64 => elf::EM_AARCH64,
        }
    }
}

/// A program of the image.
#[derive(Clone, Debug)]
pub struct Program {
    name: String,
    bytes: Vec<u8>,
}

impl Program {
    /// Reads the file and checks it.
    pub fn read(path: &Path, architecture: Architecture) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{} is no file's name", path.display()))?;
        Self::checked(name, bytes, architecture)
            .with_context(|| format!("cannot ship {}", path.display()))
    }

    /// Refuses what an image without libraries could not run.
    pub fn checked(name: &str, bytes: Vec<u8>, architecture: Architecture) -> Result<Self> {
        let data = bytes.as_slice();
        let header =
            elf::FileHeader64::<Endianness>::parse(data).context("it is no 64 bit program")?;
        let endian = header.endian()?;
        ensure!(
            header.e_machine(endian) == architecture.in_programs(),
            "it is built for other machines than {architecture:?}"
        );
        for segment in header.program_headers(endian, data)? {
            ensure!(
                segment.interpreter(endian, data)?.is_none(),
                "it is linked dynamically: build it for a musl target"
            );
        }
        Ok(Self {
            name: name.to_owned(),
            bytes,
        })
    }

    /// Refuses a program that tells where or when it was built: nobody else could build the same.
    pub fn ensure_without(&self, words: &[String]) -> Result<()> {
        for word in words {
            ensure!(
                memmem::find(&self.bytes, word.as_bytes()).is_none(),
                "cannot ship {}: it holds {word:?}, which differs from build to build",
                self.name
            );
        }
        Ok(())
    }

    /// Where it is in the image.
    pub fn path(&self) -> String {
        format!("/usr/bin/{}", self.name)
    }

    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The head of a program for `x86_64` that has no segments.
    pub(crate) fn minimal_program() -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16..20].copy_from_slice(&[2, 0, 62, 0]);
        bytes[20] = 1;
        bytes[52] = 64;
        bytes
    }

    #[test]
    fn a_missing_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error =
            Program::read(&folder.path().join("orrery-operator"), Architecture::Amd64).unwrap_err();
        assert!(
            format!("{error:#}").contains("orrery-operator"),
            "{error:#}"
        );
    }

    #[test]
    fn a_program_for_other_machines_is_refused() {
        assert!(Program::checked("it", minimal_program(), Architecture::Amd64).is_ok());
        let error = Program::checked("it", minimal_program(), Architecture::Arm64).unwrap_err();
        assert!(
            error.to_string().contains("other machines than Arm64"),
            "{error}"
        );
    }

    #[test]
    fn a_program_that_needs_a_loader_is_refused() {
        let mut bytes = minimal_program();
        bytes[32] = 64; // where its table of segments begins,
        bytes[54] = 56; // how long each of them is,
        bytes[56] = 1; // and how many there are
        let mut segment = vec![0; 56];
        segment[0] = 3; // the loader's path,
        segment[8] = 120; // at this place,
        segment[32] = 4; // this long
        bytes.extend(segment);
        bytes.extend(b"/ld\0");
        let error = Program::checked("it", bytes, Architecture::Amd64).unwrap_err();
        assert!(error.to_string().contains("linked dynamically"), "{error}");
    }

    #[test]
    fn a_program_that_tells_where_or_when_it_was_built_is_refused() {
        let words = ["/home/me/orrery/", "Nov 18 2026"].map(String::from);
        let mut bytes = minimal_program();
        let program = |bytes: &[u8]| Program::checked("it", bytes.to_vec(), Architecture::Amd64);
        assert!(program(&bytes).unwrap().ensure_without(&words).is_ok());
        bytes.extend(b"mimalloc, built Nov 18 2026\0");
        let error = program(&bytes).unwrap().ensure_without(&words).unwrap_err();
        assert!(error.to_string().contains("\"Nov 18 2026\""), "{error}");
    }

    #[test]
    fn a_script_is_refused() {
        let error =
            Program::checked("it", b"#!/bin/sh\n".to_vec(), Architecture::Amd64).unwrap_err();
        assert!(error.to_string().contains("no 64 bit program"), "{error}");
    }
}
