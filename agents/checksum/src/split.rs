//! Large files in pieces that several workers read at once. BLAKE3 is a tree, so what its pieces hash to makes the same digest
//! as the whole file does. In: sizes, and what pieces hashed to. Out: pieces, and a digest. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};

use blake3::hazmat::{HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::algorithm::{Algorithm, Digest, Hasher};
use crate::path::Key;

/// A piece is as large as so many full packs, rounded up to a power of two.
const PACKS: u64 = 32;
/// No piece is smaller: each costs a message.
const SMALLEST: u64 = 1 << 20;
/// No file has more: what came back of them is kept until it is whole, and a file may claim to be larger than any disk.
const MOST: u64 = 4096;

/// What a piece hashes to: the node of the tree above it.
pub type Node = [u8; 32];

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
}

/// What came of reading a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceSum {
    /// Which.
    pub span: Span,
    /// How large the file is.
    pub size: u64,
    /// When anything of it was changed last: pieces of one reading have this in common.
    pub ctime: i64,
    /// What it hashed to.
    pub node: Node,
}

/// The pieces of a file of this size; none if it is not worth the while.
pub fn spans(size: u64, pack_bytes: u64) -> Option<Vec<Span>> {
    let piece = pack_bytes.saturating_mul(PACKS);
    let piece = piece.max(SMALLEST).max(size.div_ceil(MOST));
    let piece = piece.checked_next_power_of_two()?;
    if size <= piece.checked_mul(2)? {
        return None;
    }
    let pieces = (0..size.div_ceil(piece)).map(|n| Span {
        offset: n * piece,
        length: piece.min(size - n * piece),
    });
    Some(pieces.collect())
}

/// Hashes a piece that begins there.
pub fn hasher(offset: u64) -> Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(offset);
    Hasher::Blake3(Box::new(hasher))
}

/// What a piece hashed to; none of another kind of hasher.
pub fn node(hasher: &Hasher) -> Option<Node> {
    match hasher {
        Hasher::Blake3(hasher) => Some(hasher.finalize_non_root()),
        Hasher::Sha1(_) | Hasher::Sha256(_) | Hasher::Xxh3(_) | Hasher::Crc32c(_) => None,
    }
}

/// What a piece makes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// Others are missing.
    Part,
    /// It was the last: the digest of the file, and its size.
    Whole(Digest, u64),
    /// The others were read before somebody changed the file, or after.
    Changed,
}

/// Pieces that have come back, of files that are not whole yet.
#[derive(Debug, Default)]
pub struct Pieces {
    files: HashMap<Key, BTreeMap<u64, PieceSum>>,
    /// Files of which the store has pieces, too.
    kept: HashSet<Key>,
}

impl Pieces {
    /// Whether this piece has come back.
    pub fn has(&self, key: Key, span: Span) -> bool {
        let file = self.files.get(&key);
        file.is_some_and(|it| it.get(&span.offset).is_some_and(|sum| sum.span == span))
    }

    /// Adds a piece. Of a file that is whole, or comes to nothing, no piece is kept.
    pub fn add(&mut self, key: Key, sum: PieceSum) -> Came {
        let file = self.files.entry(key).or_default();
        let (size, ctime) = (sum.size, sum.ctime);
        if file.values().any(|it| (it.size, it.ctime) != (size, ctime)) {
            self.files.remove(&key);
            return Came::Changed;
        }
        file.insert(sum.span.offset, sum);
        if !is_whole(file, size) {
            return Came::Part;
        }
        let nodes: Vec<Node> = file.values().map(|it| it.node).collect();
        self.files.remove(&key);
        root(&nodes).map_or(Came::Part, |root| {
            Came::Whole(Digest::new(Algorithm::Blake3, &root), size)
        })
    }

    /// The store keeps a piece of this file from now on.
    pub fn keep(&mut self, key: Key) {
        self.kept.insert(key);
    }

    /// Adds what the store has kept. Should it be of no use, the file is read again.
    pub fn load(&mut self, pieces: Vec<(Key, PieceSum)>) {
        for (key, sum) in pieces {
            self.keep(key);
            self.add(key, sum);
        }
    }

    /// Forgets a file; whether the store has pieces of it.
    pub fn forget(&mut self, key: Key) -> bool {
        self.files.remove(&key);
        self.kept.remove(&key)
    }
}

/// Whether pieces of one length meet from the beginning to the end, of which only the last may be shorter.
fn is_whole(file: &BTreeMap<u64, PieceSum>, size: u64) -> bool {
    let Some(first) = file.get(&0) else {
        return false;
    };
    let piece = first.span.length;
    let mut next = 0;
    for (offset, sum) in file {
        let is_last = Some(size) == offset.checked_add(sum.span.length);
        if *offset != next || !(sum.span.length == piece || is_last) {
            return false;
        }
        next = offset.saturating_add(sum.span.length);
    }
    next == size && piece.is_power_of_two() && piece >= SMALLEST
}

/// The root of the tree above nodes of equal pieces, two at least.
fn root(nodes: &[Node]) -> Option<Node> {
    let (left, right) = halves(nodes)?;
    let hash = merge_subtrees_root(&above(left)?, &above(right)?, Mode::Hash);
    Some(*hash.as_bytes())
}

fn above(nodes: &[Node]) -> Option<Node> {
    if let [one] = nodes {
        return Some(*one);
    }
    let (left, right) = halves(nodes)?;
    let (left, right) = (above(left)?, above(right)?);
    Some(merge_subtrees_non_root(&left, &right, Mode::Hash))
}

/// On the left is the largest power of two that leaves something on the right.
fn halves(nodes: &[Node]) -> Option<(&[Node], &[Node])> {
    let left = nodes.len().checked_next_power_of_two()? / 2;
    (nodes.len() >= 2).then(|| nodes.split_at(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = SMALLEST;

    fn sums(content: &[u8]) -> Vec<PieceSum> {
        let size = content.len() as u64;
        let spans = spans(size, 1).unwrap();
        let sums = spans.into_iter().map(|span| {
            let mut hasher = hasher(span.offset);
            let from = usize::try_from(span.offset).unwrap();
            let length = usize::try_from(span.length).unwrap();
            hasher.update(&content[from..from + length]);
            let node = node(&hasher).unwrap();
            let ctime = 7;
            PieceSum {
                span,
                size,
                ctime,
                node,
            }
        });
        sums.collect()
    }

    #[test]
    fn pieces_in_any_order_make_the_digest_of_the_whole() {
        let key = Key::of(b"a");
        for size in [
            2 * PIECE + 1,
            3 * PIECE,
            4 * PIECE,
            4 * PIECE + 7,
            7 * PIECE - 1,
        ] {
            let content: Vec<u8> = (0..size).map(|n| n.to_le_bytes()[1]).collect();
            let mut sums = sums(&content);
            sums.reverse();
            let last = sums.pop().unwrap();
            let mut pieces = Pieces::default();
            for sum in sums {
                assert_eq!(pieces.add(key, sum.clone()), Came::Part);
                assert!(pieces.has(key, sum.span));
                assert_eq!(pieces.add(key, sum), Came::Part, "twice is once");
            }
            let whole = Algorithm::Blake3.digest(&content);
            assert_eq!(pieces.add(key, last), Came::Whole(whole, size));
        }
    }

    #[test]
    fn pieces_of_different_states_of_a_file_never_meet() {
        let key = Key::of(b"a");
        let mut pieces = Pieces::default();
        let old = sums(&vec![1; 3 << 20]);
        let larger = sums(&vec![1; (3 << 20) + 1]);
        // Written again, and the modification time put back.
        let mut rewritten = old.clone();
        for sum in &mut rewritten {
            sum.ctime += 1;
        }
        for new in [larger, rewritten] {
            assert_eq!(pieces.add(key, old[0].clone()), Came::Part);
            assert_eq!(pieces.add(key, old[1].clone()), Came::Part);
            assert_eq!(pieces.add(key, new[2].clone()), Came::Changed);
            assert!(!pieces.has(key, old[0].span), "none is kept");
        }
    }

    #[test]
    fn what_was_kept_is_not_asked_for_again_and_goes_with_the_file() {
        let key = Key::of(b"a");
        let content = vec![1; 3 << 20];
        let mut sums = sums(&content);
        let last = sums.pop().unwrap();
        let mut pieces = Pieces::default();
        pieces.load(sums.iter().map(|it| (key, it.clone())).collect());
        assert!(sums.iter().all(|it| pieces.has(key, it.span)));
        let whole = Algorithm::Blake3.digest(&content);
        assert_eq!(pieces.add(key, last), Came::Whole(whole, 3 << 20));
        assert!(pieces.forget(key), "the store has some");
        assert!(!pieces.forget(key));
    }

    #[test]
    fn what_does_not_fit_makes_no_digest() {
        let key = Key::of(b"a");
        let mut pieces = Pieces::default();
        let sum = |offset, length| PieceSum {
            span: Span { offset, length },
            size: u64::MAX,
            ctime: 7,
            node: [0; 32],
        };
        for (offset, length) in [(u64::MAX, 1), (0, 0), (0, u64::MAX), (1, u64::MAX - 1)] {
            assert_eq!(pieces.add(key, sum(offset, length)), Came::Part);
        }
    }

    #[test]
    fn only_large_files_are_split() {
        assert_eq!(spans(64 << 20, 1 << 20), None);
        let split = spans((64 << 20) + 1, 1 << 20).unwrap();
        assert_eq!(split.len(), 3);
        assert_eq!(
            split[2],
            Span {
                offset: 64 << 20,
                length: 1
            }
        );
        assert_eq!(spans(u64::MAX, u64::MAX), None);
    }

    #[test]
    fn a_file_of_any_size_has_a_bounded_number_of_pieces() {
        // A hole may be as large as the file system says.
        for size in [1 << 40, (1 << 50) + 1, u64::MAX >> 1] {
            let split = spans(size, 5 << 20).unwrap();
            assert!(split.len() as u64 <= MOST, "{}", split.len());
            assert!(split[0].length.is_power_of_two());
            assert_eq!(split.iter().map(|it| it.length).sum::<u64>(), size);
        }
    }
}
