//! A path below the root of a run. In: raw bytes, or text for people. Out: a key for the store, and text for people. Pure.

use std::fmt;

use thiserror::Error;

/// A path relative to the root, without a leading slash: raw bytes, as the file system has them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelativePath(Box<[u8]>);

impl RelativePath {
    /// The path of these bytes; the lister makes no others than relative ones.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path that is printed as this text. What it takes for a backslash is one of our escapes, or an error.
    pub fn from_printed(text: &[u8]) -> Result<Self, BadEscape> {
        let (mut path, mut rest) = (Vec::with_capacity(text.len()), text);
        while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
            path.extend(&rest[..at]);
            let wrong = || BadEscape {
                text: String::from_utf8_lossy(text).into_owned(),
                at: text.len() - rest.len() + at + 1,
            };
            let (bytes, length) = escape(&rest[at + 1..]).ok_or_else(wrong)?;
            path.extend(bytes);
            rest = &rest[at + 1 + length..];
        }
        path.extend(rest);
        Ok(Self::new(path))
    }

    /// What the store finds it by.
    pub fn key(&self) -> Key {
        Key::of(&self.0)
    }
}

/// Why a text is no path as it is printed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    r"{text} is no path as `report` prints it: what follows the backslash at byte {at} is none of \\, \n, \r, \t, \xff and \u{{200b}}"
)]
pub struct BadEscape {
    text: String,
    at: usize,
}

/// What the escape at the beginning of a text stands for, and how long it is without its backslash.
fn escape(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let one = |byte: u8| Some((vec![byte], 1));
    match text.first()? {
        b'\\' => one(b'\\'),
        b'n' => one(b'\n'),
        b'r' => one(b'\r'),
        b't' => one(b'\t'),
        b'x' => Some((vec![u8::try_from(hexadecimal(text.get(1..3)?)?).ok()?], 3)),
        b'u' => {
            let inner = text.get(1..)?.strip_prefix(b"{")?;
            let length = inner.iter().take(7).position(|byte| *byte == b'}')?;
            let character = char::from_u32(hexadecimal(&inner[..length])?)?;
            Some((character.to_string().into_bytes(), length + 3))
        }
        _ => None,
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    let digits = str::from_utf8(digits).ok()?;
    // A sign would be taken, too.
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    are_digits.then(|| u32::from_str_radix(digits, 16).ok())?
}

/// Whether a character is seen, and only as itself: not what directs, joins or separates others.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    // Behind a letter, because what is combined with one is printed.
    let text = format!("x{character}");
    text.escape_debug().nth(1) == Some(character)
}

/// For people: what is not printable text is escaped, as `\xff` or `\u{200b}`, and a backslash is doubled, so that two paths
/// never look alike, and none reorders the line it is in.
impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => f.write_str(r"\\")?,
                    _ if !is_printable(character) => write!(f, "{}", character.escape_default())?,
                    _ => fmt::Write::write_char(f, character)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, r"\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// 128 bits of a path's BLAKE3 digest. Nobody can make two paths with the same key, and its order is as good as random: reads
/// in this order are spread over the whole tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 16]);

impl Key {
    /// The key of a path.
    pub fn of(path: &[u8]) -> Self {
        let mut key = [0; 16];
        key.copy_from_slice(&blake3::hash(path).as_bytes()[..16]);
        Self(key)
    }

    /// A key as the store has it.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// As the store has it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key after this one.
    pub fn following(self) -> Option<Self> {
        let next = u128::from_be_bytes(self.0).checked_add(1)?;
        Some(Self(next.to_be_bytes()))
    }

    /// One of 256 equal parts of all keys.
    pub fn partition(self) -> u8 {
        self.0[0]
    }

    /// One of so many equal pieces of its partition.
    pub fn piece(self, of: u32) -> u32 {
        let [_, a, b, c, d, ..] = self.0;
        let place = u32::from_be_bytes([a, b, c, d]);
        let piece = (u64::from(place) * u64::from(of)) >> 32;
        u32::try_from(piece).unwrap_or(0)
    }

    /// The first and the last key of a piece of a partition.
    pub fn range_of(partition: u8, piece: u32, of: u32) -> (Self, Self) {
        let first_of = |piece: u32| (u64::from(piece) << 32).div_ceil(u64::from(of.max(1)));
        let key = |place: u64, rest: u8| {
            let mut key = [rest; 16];
            key[0] = partition;
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            key[1..5].copy_from_slice(&place.to_be_bytes());
            Self(key)
        };
        let (first, next) = (first_of(piece), first_of(piece + 1));
        (key(first, 0), key(next - 1, 0xff))
    }

    /// A number below `bound` that depends on the key and on `salt` alone, each as likely as any other.
    pub fn draw(self, salt: i64, bound: u64) -> u64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&salt.to_le_bytes()).update(&self.0);
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(bytes) % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_text_is_escaped_and_two_paths_never_look_alike() {
        let shown = |bytes: &[u8]| RelativePath::new(bytes).to_string();
        assert_eq!(shown(b"a/\xff\n"), r"a/\xff\n");
        assert_eq!(shown(br"a\xff"), r"a\\xff");
        assert_eq!(shown("ü".as_bytes()), "ü");
        assert_eq!(shown(b"it's \"it\""), r#"it's "it""#);
        assert_eq!(shown("e\u{301} 漢字 🙂".as_bytes()), "e\u{301} 漢字 🙂");
        let sly = "a\u{200b}b\u{202e}gpj\u{a0}\u{85}\x07";
        let seen = r"a\u{200b}b\u{202e}gpj\u{a0}\u{85}\u{7}";
        assert_eq!(shown(sly.as_bytes()), seen);
    }

    #[test]
    fn a_wrong_escape_is_refused_with_its_place() {
        let read = |text: &str| RelativePath::from_printed(text.as_bytes());
        let path = |bytes: &[u8]| Ok(RelativePath::new(bytes));
        assert_eq!(read(r"a\\xff\xff\n"), path(b"a\\xff\xff\n"));
        assert_eq!(read(r"\u{200b}\u{7}x"), path("\u{200b}\x07x".as_bytes()));
        for wrong in [
            r"\",
            r"\a",
            r"\0",
            r"\x",
            r"\xf",
            r"\x+f",
            r"\xfg",
            r"\u",
            r"\u{",
            r"\u{}",
            r"\u200b",
            r"\u{d800}",
            r"\u{110000}",
            r"\u{0000041}",
            r"\u{+41}",
            r"\'",
        ] {
            let error = read(&format!("fine{wrong}")).unwrap_err();
            assert_eq!(error.at, 5, "{wrong}");
            assert!(error.to_string().starts_with("fine\\"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_of_any_path_is_read_as_that_path(bytes: Vec<u8>, text in "\\PC{0,8}|.{0,8}") {
            for path in [RelativePath::new(bytes), RelativePath::new(text.as_bytes())] {
                let printed = path.to_string();
                prop_assert!(!printed.contains(char::is_control));
                prop_assert_eq!(RelativePath::from_printed(printed.as_bytes()), Ok(path));
            }
        }

        #[test]
        fn no_text_with_backslashes_panics(text in r"[\\xunrt{}0-9a-f\xff]{0,16}", bytes: Vec<u8>) {
            let _ = RelativePath::from_printed(text.as_bytes());
            let _ = RelativePath::from_printed(&bytes);
        }
    }

    #[test]
    fn pieces_of_a_partition_meet_without_a_gap() {
        for of in [1, 2, 3, 7, 1000] {
            let mut next = [9; 16];
            next[1..].fill(0);
            for piece in 0..of {
                let (first, last) = Key::range_of(9, piece, of);
                assert_eq!(first.0, next);
                assert_eq!((first.piece(of), last.piece(of)), (piece, piece));
                next = (u128::from_be_bytes(last.0) + 1).to_be_bytes();
            }
            assert_eq!(next[0], 10);
        }
    }

    #[test]
    fn the_key_after_the_last_of_a_piece_is_the_first_of_the_next() {
        let after = |part, piece| Key::range_of(part, piece, 7).1.following();
        assert_eq!(after(3, 1), Some(Key::range_of(3, 2, 7).0));
        assert_eq!(after(3, 6), Some(Key::range_of(4, 0, 7).0));
        assert_eq!(after(u8::MAX, 6), None);
    }

    #[test]
    fn a_draw_depends_on_key_and_salt_and_stays_below_its_bound() {
        let key = Key::of(b"a");
        assert_eq!(key.draw(1, 100), key.draw(1, 100));
        assert!((0..64).any(|salt| key.draw(salt, 100) != key.draw(0, 100)));
        assert!((0..64).all(|salt| key.draw(salt, 7) < 7));
    }
}
