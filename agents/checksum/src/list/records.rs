//! Records of a list, and the paths in them. In: bytes that another program wrote. Out: records of a bounded size, and paths
//! below the root. Touches: reads the list.

use std::io::{self, BufRead, Read};

/// The longest record. A path has at most 16384 bytes on GPFS, three times as many when every byte is escaped.
pub(super) const LONGEST: usize = 64 << 10;

/// Reads record after record, each into the same memory.
pub(super) struct Records<R> {
    list: R,
    end: u8,
    record: Vec<u8>,
    /// How many were read.
    pub(super) count: u64,
}

/// A record without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    Whole(&'a [u8]),
    /// Too long: this is its beginning, and the rest was passed over.
    TooLong(&'a [u8]),
    /// The list ended before the record did: it may have been cut anywhere.
    Cut(&'a [u8]),
}

impl<'a> Record<'a> {
    /// All of it; else its beginning, and why there is no more.
    pub(super) fn whole(self) -> Result<&'a [u8], (&'a [u8], &'static str)> {
        match self {
            Self::Whole(bytes) => Ok(bytes),
            Self::TooLong(start) => Err((start, "too long")),
            Self::Cut(start) => Err((start, "not ended: the list may be cut off")),
        }
    }
}

impl<R: BufRead> Records<R> {
    /// Records that end with this byte.
    pub(super) fn new(list: R, end: u8) -> Self {
        Self {
            list,
            end,
            record: Vec::new(),
            count: 0,
        }
    }

    /// What records end with.
    pub(super) fn end(&self) -> u8 {
        self.end
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Record<'_>>> {
        self.record.clear();
        self.list
            .by_ref()
            .take(LONGEST as u64 + 1)
            .read_until(self.end, &mut self.record)?;
        if self.record.is_empty() {
            return Ok(None);
        }
        self.count += 1;
        if self.record.last() == Some(&self.end) {
            self.record.pop();
            return Ok(Some(Record::Whole(&self.record)));
        }
        if self.record.len() <= LONGEST {
            return Ok(Some(Record::Cut(&self.record)));
        }
        self.list.skip_until(self.end)?;
        Ok(Some(Record::TooLong(&self.record)))
    }
}

/// The path below the root. A path that begins with the prefix goes on after it, and so must an absolute one; any other is
/// below the root as it is, if the prefix is absolute.
pub(super) fn below_root(path: &[u8], prefix: &[u8]) -> Result<Vec<u8>, &'static str> {
    let rest = match path.strip_prefix(without_slash(prefix)) {
        Some(rest) if rest.starts_with(b"/") => rest,
        _ if path.starts_with(b"/") => return Err("not below the prefix"),
        _ if prefix.starts_with(b"/") || prefix.is_empty() => path,
        _ => return Err("not below the prefix"),
    };
    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
    if is_plain(rest) {
        return Ok(rest.to_vec());
    }
    cleaned(rest)
}

/// Whether a path is that of the root itself, with which `find` begins.
pub(super) fn is_root(path: &[u8], prefix: &[u8]) -> bool {
    let path = without_slash(path);
    let is_here = path == b"." && (prefix.starts_with(b"/") || prefix.is_empty());
    is_here || (!path.is_empty() && path == without_slash(prefix))
}

/// Whether nothing of a path is to be cleaned. Looks at all of it, however it begins: many bytes at once take as long as one.
fn is_plain(path: &[u8]) -> bool {
    let ([first, rest @ ..], Some(last)) = (path, path.last()) else {
        return false;
    };
    let is_odd = |pair| matches!(pair, (0, _) | (b'/', b'/' | b'.'));
    let pairs = path.iter().copied().zip(rest.iter().copied());
    let has_odd = pairs.fold(false, |has, pair| has | is_odd(pair));
    !has_odd && !matches!(first, b'/' | b'.') && !matches!(last, b'/' | 0)
}

/// Without names that stay where they are.
fn cleaned(path: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut clean = Vec::with_capacity(path.len());
    for name in path
        .split(|byte| *byte == b'/')
        .filter(|name| !matches!(*name, b"" | b"."))
    {
        if name == b".." {
            return Err("a path with `..` could lead out of the root");
        }
        if !clean.is_empty() {
            clean.push(b'/');
        }
        clean.extend_from_slice(name);
    }
    if clean.is_empty() {
        return Err("no path below the root");
    }
    if clean.contains(&0) {
        return Err("a path with a NUL, which no file has");
    }
    Ok(clean)
}

fn without_slash(mut path: &[u8]) -> &[u8] {
    while let [before @ .., b'/'] = path {
        path = before;
    }
    path
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_that_is_too_long_is_passed_over_and_the_next_is_read() {
        let mut list = vec![b'a'; 3 * LONGEST];
        list.extend_from_slice(b"\nb\n");
        let mut records = Records::new(&*list, b'\n');
        assert!(matches!(records.next().unwrap(), Some(Record::TooLong(_))));
        assert_eq!(records.next().unwrap(), Some(Record::Whole(b"b")));
        assert_eq!(records.next().unwrap(), None);
        assert_eq!(records.count, 2);
    }

    #[test]
    fn the_longest_record_is_whole() {
        let mut list = vec![b'a'; LONGEST];
        list.push(0);
        let mut records = Records::new(&*list, 0);
        assert_eq!(
            records.next().unwrap(),
            Some(Record::Whole(&list[..LONGEST]))
        );
    }

    #[test]
    fn a_last_record_without_an_end_is_cut() {
        let mut records = Records::new(&b"a\0b"[..], 0);
        assert_eq!(records.next().unwrap(), Some(Record::Whole(b"a")));
        assert_eq!(records.next().unwrap(), Some(Record::Cut(b"b")));
    }

    #[test]
    fn a_prefix_is_taken_off_at_the_end_of_a_name_only() {
        assert_eq!(
            below_root(b"/fs/snap/a//b/./c", b"/fs/snap/"),
            Ok(b"a/b/c".to_vec())
        );
        assert_eq!(
            below_root(b"/fs/snapshot/a", b"/fs/snap"),
            Err("not below the prefix")
        );
        assert_eq!(below_root(b"data/a", b"data"), Ok(b"a".to_vec()));
        assert_eq!(below_root(b"other/a", b"data"), Err("not below the prefix"));
        assert_eq!(below_root(b"./a", b"/fs"), Ok(b"a".to_vec()));
        assert_eq!(below_root(b"/a", b"/"), Ok(b"a".to_vec()));
    }

    #[test]
    fn the_root_is_known_by_its_path_and_by_a_point() {
        for (path, prefix) in [("/fs/a", "/fs/a"), ("/fs/a/", "/fs/a"), ("a", "a/")] {
            assert!(is_root(path.as_bytes(), prefix.as_bytes()), "{path}");
        }
        assert!(is_root(b".", b"/fs") && is_root(b"./", b""));
        for (path, prefix) in [
            ("/fs", "/fs/a"),
            (".", "a"),
            ("", ""),
            ("/", ""),
            ("..", "/fs"),
        ] {
            assert!(!is_root(path.as_bytes(), prefix.as_bytes()), "{path}");
        }
    }

    #[test]
    fn what_leads_nowhere_or_out_of_the_root_is_refused() {
        assert!(below_root(b"/fs/a/../../etc", b"/fs").is_err());
        assert!(below_root(b"..", b"").is_err());
        assert!(below_root(b"/fs/", b"/fs").is_err());
        assert!(below_root(b"", b"").is_err());
        assert!(below_root(b"a\0b", b"").is_err());
        assert_eq!(below_root(b"a../..b", b""), Ok(b"a../..b".to_vec()));
    }

    proptest! {
        #[test]
        fn what_is_plain_is_what_cleaning_it_makes(path in "[./a\\x00]{0,12}") {
            if is_plain(path.as_bytes()) {
                prop_assert_eq!(cleaned(path.as_bytes()), Ok(path.into_bytes()));
            }
        }

        #[test]
        fn no_path_leads_out_of_the_root(path in "[./a]{0,12}", prefix in "[./a]{0,4}") {
            if let Ok(clean) = below_root(path.as_bytes(), prefix.as_bytes()) {
                prop_assert!(clean.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b"..")));
            }
        }
    }
}
