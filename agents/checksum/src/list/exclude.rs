//! What a run leaves out. In: patterns of the user. Out: whether a path is meant. Pure.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crds::pattern;
pub use crds::pattern::BadPattern;
use globset::{Candidate, Glob, GlobSet, GlobSetBuilder};

/// Patterns of paths to leave out. One without a slash is matched with every name; one with a slash with the whole path from
/// the root. `*` and `?` stay within a name, `**` does not. Limit: in a pattern with a slash, a class that has a slash in
/// it, as `[!x]` does, matches one.
#[derive(Clone, Debug, Default)]
pub struct Excludes {
    names: GlobSet,
    paths: GlobSet,
}

impl Excludes {
    /// Reads the patterns.
    pub fn new<P: AsRef<str>>(patterns: impl IntoIterator<Item = P>) -> Result<Self, BadPattern> {
        let (mut names, mut paths) = (Vec::new(), Vec::new());
        for pattern in patterns {
            let pattern = pattern.as_ref();
            let glob = pattern::read(pattern)?;
            if pattern.contains('/') {
                &mut paths
            } else {
                &mut names
            }
            .push(glob);
        }
        Ok(Self {
            names: together(&names)?,
            paths: together(&paths)?,
        })
    }

    /// Whether this very path is meant.
    pub fn matches(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        self.names.is_match_candidate(&candidate(name))
            || self.paths.is_match_candidate(&candidate(path))
    }

    /// Whether the path is meant, or a folder that it is in.
    pub fn covers(&self, path: &[u8]) -> bool {
        let ends = path
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
            .map(|(end, _)| end);
        !self.is_empty()
            && (ends.into_iter().any(|end| self.matches(&path[..end])) || self.matches(path))
    }

    /// Whether there is no pattern at all.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }
}

fn candidate(path: &[u8]) -> Candidate<'_> {
    Candidate::new(OsStr::from_bytes(path))
}

fn together(globs: &[Glob]) -> Result<GlobSet, BadPattern> {
    let mut builder = GlobSetBuilder::new();
    for glob in globs {
        builder.add(glob.clone());
    }
    builder.build().map_err(|error| BadPattern {
        pattern: error.glob().unwrap_or("all of them together").to_owned(),
        why: error.kind().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, path: &[u8]) -> bool {
        Excludes::new([pattern]).unwrap().matches(path)
    }

    #[test]
    fn a_pattern_without_a_slash_matches_a_name_at_any_depth() {
        assert!(matches("*.tmp", b"a.tmp") && matches("*.tmp", b"a/b/c.tmp"));
        assert!(!matches("*.tmp", b"a.tmp/b"));
        assert!(matches(".snapshot", b"x/.snapshot"));
    }

    #[test]
    fn a_pattern_with_a_slash_is_anchored_at_the_root() {
        assert!(matches("a/b", b"a/b") && !matches("a/b", b"x/a/b"));
        assert!(matches("/a", b"a") && !matches("/a", b"x/a"));
    }

    #[test]
    fn one_star_stays_within_a_name_and_two_do_not() {
        assert!(matches("a/*", b"a/b") && !matches("a/*", b"a/b/c"));
        assert!(!matches("a/?/c", b"a//c"));
        assert!(
            matches("a/**", b"a/b/c") && matches("a/**/d", b"a/b/c/d") && matches("a/**/d", b"a/d")
        );
        assert!(matches("**/d", b"d") && matches("**/d", b"a/b/d"));
    }

    #[test]
    fn what_is_in_a_folder_that_is_left_out_is_covered() {
        let excludes = Excludes::new(["tmp", "a/b"]).unwrap();
        assert!(
            excludes.covers(b"x/tmp/y/z") && excludes.covers(b"a/b/c") && excludes.covers(b"tmp")
        );
        assert!(!excludes.covers(b"x/a/b/c") && !excludes.matches(b"tmp/y"));
    }

    #[test]
    fn names_that_are_not_text_are_matched() {
        assert!(
            matches("*.tmp", b"\xff\n.tmp") && matches("a/?", b"a/\xff") && !matches("b", b"\xff")
        );
    }

    #[test]
    fn a_bad_pattern_is_named_with_the_reason() {
        let error = Excludes::new(["good", "a[b"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "bad exclude pattern \"a[b\": unclosed character class; missing ']'"
        );
        for pattern in ["", "/", "a/", "a//b", "./a", "../a", "{a", "a\\"] {
            assert_eq!(Excludes::new([pattern]).unwrap_err().pattern, pattern);
        }
    }

    proptest! {
        #[test]
        fn no_pattern_and_no_path_panics(patterns in prop::collection::vec(".{0,16}", 0..4), path: Vec<u8>) {
            if let Ok(excludes) = Excludes::new(&patterns) {
                excludes.covers(&path);
            }
        }

        #[test]
        fn no_pattern_of_special_characters_panics(pattern in r"[*?{}\[\]!/,a\\-]{0,24}", path in "[a/.]{0,12}") {
            if let Ok(excludes) = Excludes::new([&pattern]) {
                excludes.covers(path.as_bytes());
            }
        }

        #[test]
        fn a_name_excludes_itself(name in "[a-z0-9.]{1,20}") {
            prop_assume!(name != "." && name != "..");
            let path = format!("x/{name}");
            prop_assert!(matches(&name, path.as_bytes()));
        }
    }
}
