//! In: programs. Out: the one layer of the image, plain and compressed.

use std::io::Write;

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use jiff::Timestamp;

use crate::{program::Program, tarball::Tarball};

/// Who programs run as, and what a pod's `runAsUser` says.
pub const USER: &str = "65532:65532";

const PASSWD: &str = include_str!("../files/etc/passwd");
const GROUP: &str = include_str!("../files/etc/group");

/// What the header of a gzip stream tells when it does not tell the system.
const UNKNOWN_SYSTEM: u8 = 255;

/// Every file that a container sees, as a tar archive. There is no shell, no library, and nothing that can be written.
pub fn layer(programs: &[Program], created: Timestamp) -> Result<Vec<u8>> {
    let mut files = Tarball::new(created);
    files.folder("etc/")?;
    files.file("etc/group", 0o644, GROUP.as_bytes())?;
    files.file("etc/passwd", 0o644, PASSWD.as_bytes())?;
    files.folder("usr/")?;
    files.folder("usr/bin/")?;
    for program in programs {
        files.file(
            program.path().trim_start_matches('/'),
            0o755,
            program.bytes(),
        )?;
    }
    files.finish()
}

/// With gzip, which every container runtime reads.
pub fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    let header = GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM);
    let mut encoder = header.write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use tar::Archive;

    use super::*;
    use crate::program::{Architecture, tests::minimal_program};

    #[test]
    fn a_container_sees_its_user_and_the_programs_and_nothing_else() {
        let program = Program::checked("one", minimal_program(), Architecture::Amd64).unwrap();
        let created = Timestamp::from_second(1_700_000_000).unwrap();
        let packed = compress(&layer(&[program], created).unwrap()).unwrap();

        let mut archive = Archive::new(GzDecoder::new(packed.as_slice()));
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            assert_eq!(entry.header().mtime().unwrap(), 1_700_000_000, "{path}");
            assert_eq!(entry.header().uid().unwrap(), 0, "{path}");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            seen.push((path, entry.header().mode().unwrap(), bytes));
        }
        let expected = [
            ("etc/", 0o755, Vec::new()),
            ("etc/group", 0o644, GROUP.into()),
            ("etc/passwd", 0o644, PASSWD.into()),
            ("usr/", 0o755, Vec::new()),
            ("usr/bin/", 0o755, Vec::new()),
            ("usr/bin/one", 0o755, minimal_program()),
        ]
        .map(|(path, mode, bytes)| (path.to_owned(), mode, bytes));
        assert_eq!(seen, expected);
    }

    #[test]
    fn the_user_is_known_by_name() {
        assert!(PASSWD.contains(&format!(":x:{USER}:")));
        assert!(GROUP.contains(":x:65532:"));
    }
}
