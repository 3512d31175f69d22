//! A path below the root of a run. In: raw bytes. Out: a key for the store, and text for people. Pure.

use std::fmt;

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

    /// What the store finds it by.
    pub fn key(&self) -> Key {
        Key::of(&self.0)
    }
}

/// For people: what is not printable text is escaped as `\xff`, and a backslash is doubled, so that two paths never look
/// alike.
impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => f.write_str(r"\\")?,
                    _ if character.is_control() => write!(f, "{}", character.escape_default())?,
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
    use super::*;

    #[test]
    fn what_is_not_text_is_escaped_and_two_paths_never_look_alike() {
        let shown = |bytes: &[u8]| RelativePath::new(bytes).to_string();
        assert_eq!(shown(b"a/\xff\n"), r"a/\xff\n");
        assert_eq!(shown(br"a\xff"), r"a\\xff");
        assert_eq!(shown("ü".as_bytes()), "ü");
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
