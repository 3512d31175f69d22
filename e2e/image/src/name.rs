//! In: what a user calls the image. Out: a name that containerd, Docker and registries read alike.

use std::{fmt, str::FromStr};

use anyhow::{Error, Result, ensure};
use oci_spec::distribution::Reference;

/// A name with nothing left to guess: host, repository and tag.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageName {
    whole: String,
    tag: String,
}

impl ImageName {
    /// The part behind the last colon.
    pub fn tag(&self) -> &str {
        &self.tag
    }
}

impl FromStr for ImageName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let reference = Reference::from_str(text).ok();
        let complete = reference.filter(|it| it.whole() == text && it.digest().is_none());
        let tag = complete.as_ref().and_then(Reference::tag);
        // Without a host it would be looked up on Docker Hub, without a tag as `latest`.
        ensure!(
            tag.is_some(),
            "{text:?} is no name for an image: expected HOST/NAME:TAG, such as localhost/orrery:dev"
        );
        Ok(Self {
            whole: text.to_owned(),
            tag: tag.unwrap_or_default().to_owned(),
        })
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_host_and_a_tag() {
        for (text, tag) in [
            ("localhost/orrery:dev", "dev"),
            ("localhost:5000/orrery:1", "1"),
            ("ghcr.io/orrery-dev/orrery:0.1.0", "0.1.0"),
        ] {
            let name: ImageName = text.parse().unwrap();
            assert_eq!((name.to_string().as_str(), name.tag()), (text, tag));
        }
    }

    #[test]
    fn any_other_name_is_refused_with_what_is_expected() {
        for text in [
            "",
            "orrery",
            "orrery:dev",
            "dev/orrery:1",
            "localhost/orrery",
            "localhost/Orrery:dev",
            "localhost/orrery:",
            "localhost/orrery:a b",
            "localhost/orrery:1@sha256:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        ] {
            let error = text.parse::<ImageName>().unwrap_err().to_string();
            assert!(error.contains("HOST/NAME:TAG"), "{text}: {error}");
            assert!(error.contains(&format!("{text:?}")), "{text}: {error}");
        }
    }
}
