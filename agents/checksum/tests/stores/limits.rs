//! The longest names and paths there are.

use std::os::fd::OwnedFd;

use anyhow::Result;
use checksum::merge::Mode;
use checksum::store::View;
use rustix::fs::{CWD, Mode as Rights, OFlags, mkdirat, openat};

use super::everywhere;
use super::place::Place;

#[tokio::test]
async fn a_file_system_may_have_the_longest_name_of_a_claim() -> Result<()> {
    everywhere(async |place: Place| {
        place.files(20)?;
        let name = "n".repeat(252);
        for end in ["a", "b"] {
            let named = place.named(&format!("{name}{end}"));
            let first = named.run(Mode::Full).await?;
            assert_eq!((first.id, first.counts.new), (1, 20), "{end}");
            assert_eq!(named.run(Mode::Full).await?.counts.verified, 20);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_longest_path_that_is_listed_is_kept_whole() -> Result<()> {
    everywhere(async |place: Place| {
        let name = "d".repeat(255);
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at: OwnedFd = openat(CWD, place.root(), flags, Rights::empty())?;
        // The path of the last folder has 64 KiB but one byte.
        for _ in 0..256 {
            mkdirat(&at, &name, Rights::RWXU)?;
            at = openat(&at, &name, flags, Rights::empty())?;
        }
        openat(&at, &name, OFlags::CREATE | OFlags::WRONLY, Rights::RUSR)?;
        assert_eq!(place.run(Mode::Full).await?.counts.new, 1);
        assert_eq!(place.run(Mode::Full).await?.counts.verified, 1);
        let stored = View::open(&place.location)
            .await?
            .checksums(None, 10)
            .await?;
        let lengths: Vec<_> = stored.iter().map(|it| it.path.as_bytes().len()).collect();
        assert_eq!(lengths, [65_535 + 1 + 255]);
        Ok(())
    })
    .await
}
