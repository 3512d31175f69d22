//! What is computed over a file's content. In: bytes. Out: digests. Pure.

use std::fmt;

use clap::ValueEnum;
use sha2::Digest as _;
use twox_hash::XxHash3_128;

/// How files are hashed. The ids are in stores: they never change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum)]
pub enum Algorithm {
    /// BLAKE3, 256 bits.
    #[default]
    Blake3,
    /// SHA-1, for comparison with older catalogues.
    Sha1,
    /// SHA-256.
    Sha256,
    /// XXH3, 128 bits: fast, finds accidents but no forgery.
    #[value(name = "xxh3-128")]
    Xxh3,
    /// CRC-32C: fastest, finds accidents only.
    Crc32c,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Blake3,
        Self::Sha1,
        Self::Sha256,
        Self::Xxh3,
        Self::Crc32c,
    ];

    /// As stores have it.
    pub fn id(self) -> i64 {
        match self {
            Self::Blake3 => 1,
            Self::Sha1 => 2,
            Self::Sha256 => 3,
            Self::Xxh3 => 4,
            Self::Crc32c => 5,
        }
    }

    /// How many bytes its digests have.
    pub fn length(self) -> usize {
        match self {
            Self::Blake3 | Self::Sha256 => 32,
            Self::Sha1 => 20,
            Self::Xxh3 => 16,
            Self::Crc32c => 4,
        }
    }

    /// The algorithm that a store means.
    pub fn from_id(id: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.id() == id)
    }

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blake3 => "blake3",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Xxh3 => "xxh3-128",
            Self::Crc32c => "crc32c",
        }
    }

    /// Begins a digest.
    pub fn hasher(self) -> Hasher {
        match self {
            Self::Blake3 => Hasher::Blake3(Box::default()),
            Self::Sha1 => Hasher::Sha1(sha1::Sha1::default()),
            Self::Sha256 => Hasher::Sha256(sha2::Sha256::default()),
            Self::Xxh3 => Hasher::Xxh3(Box::new(XxHash3_128::new())),
            Self::Crc32c => Hasher::Crc32c(0),
        }
    }

    /// Whether two digests are sooner computed in step than one after the other. Many processors have instructions for a round
    /// of these, and each waits for the one before; meanwhile there is room for another file's.
    pub fn gains_in_step(self) -> bool {
        matches!(self, Self::Sha1 | Self::Sha256) && has_instructions()
    }

    /// The digest of these bytes.
    pub fn digest(self, bytes: &[u8]) -> Digest {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finish()
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A digest that is being computed.
pub enum Hasher {
    /// See [`Algorithm::Blake3`].
    Blake3(Box<blake3::Hasher>),
    /// See [`Algorithm::Sha1`].
    Sha1(sha1::Sha1),
    /// See [`Algorithm::Sha256`].
    Sha256(sha2::Sha256),
    /// See [`Algorithm::Xxh3`].
    Xxh3(Box<XxHash3_128>),
    /// See [`Algorithm::Crc32c`].
    Crc32c(u32),
}

impl Hasher {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Self::Sha1(hasher) => hasher.update(bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Xxh3(hasher) => hasher.write(bytes),
            Self::Crc32c(sum) => *sum = crc32c::crc32c_append(*sum, bytes),
        }
    }

    /// Adds the next bytes of two files to a digest each.
    pub fn update_in_step(&mut self, bytes: &[u8], other: &mut Self, others: &[u8]) {
        match (self, other) {
            (Self::Sha1(hasher), Self::Sha1(other)) => in_step(hasher, bytes, other, others),
            (Self::Sha256(hasher), Self::Sha256(other)) => in_step(hasher, bytes, other, others),
            (hasher, other) => {
                hasher.update(bytes);
                other.update(others);
            }
        }
    }

    /// The digest of all bytes so far, in the byte order in which it is usually printed.
    pub fn finish(self) -> Digest {
        match self {
            Self::Blake3(it) => Digest::new(Algorithm::Blake3, it.finalize().as_bytes()),
            Self::Sha1(it) => Digest::new(Algorithm::Sha1, &it.finalize()),
            Self::Sha256(it) => Digest::new(Algorithm::Sha256, &it.finalize()),
            Self::Xxh3(it) => Digest::new(Algorithm::Xxh3, &it.finish_128().to_be_bytes()),
            Self::Crc32c(sum) => Digest::new(Algorithm::Crc32c, &sum.to_be_bytes()),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_instructions() -> bool {
    std::arch::is_x86_feature_detected!("sha")
}

#[cfg(target_arch = "aarch64")]
fn has_instructions() -> bool {
    std::arch::is_aarch64_feature_detected!("sha2")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has_instructions() -> bool {
    false
}

/// One block of each in turn: the processor works on both at once, because neither waits for the other.
fn in_step<H: sha2::Digest>(hasher: &mut H, bytes: &[u8], other: &mut H, others: &[u8]) {
    const BLOCK: usize = 64;
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let (other_blocks, _) = others.as_chunks::<BLOCK>();
    for (block, other_block) in blocks.iter().zip(other_blocks) {
        hasher.update(block);
        other.update(other_block);
    }
    let both = blocks.len().min(other_blocks.len()) * BLOCK;
    hasher.update(&bytes[both..]);
    other.update(&others[both..]);
}

/// What a file's content was hashed to. Prints as hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Digest {
    /// By which algorithm.
    pub algorithm: Algorithm,
    bytes: Box<[u8]>,
}

impl Digest {
    /// A digest as a store has it.
    pub fn new(algorithm: Algorithm, bytes: &[u8]) -> Self {
        Self {
            algorithm,
            bytes: bytes.into(),
        }
    }

    /// As a store has it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{self}", self.algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_everybody_else() {
        let empty = |algorithm: Algorithm| algorithm.digest(b"").to_string();
        assert_eq!(
            empty(Algorithm::Blake3),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
        assert_eq!(
            empty(Algorithm::Sha1),
            "da39a3ee5e6b4b0d3255bfef95601890afd80709"
        );
        assert_eq!(
            empty(Algorithm::Sha256),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(empty(Algorithm::Xxh3), "99aa06d3014798d86001c324468d497f");
        let digits = |algorithm: Algorithm| algorithm.digest(b"123456789").to_string();
        assert_eq!(digits(Algorithm::Crc32c), "e3069283");
    }

    #[test]
    fn files_that_are_hashed_in_step_have_the_digests_that_each_has_alone() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        for algorithm in Algorithm::ALL {
            for (first, second) in [
                (0, 0),
                (0, 77),
                (64, 64),
                (63, 129),
                (9_999, 128),
                (1, 6_400),
            ] {
                let [mut one, mut other] = [algorithm.hasher(), algorithm.hasher()];
                // What was hashed before does not end with a block.
                one.update(b"before");
                one.update_in_step(&bytes[..first], &mut other, &bytes[1..=second]);
                other.update_in_step(&bytes[..second], &mut one, &bytes[..first]);
                let before = [b"before", &bytes[..first], &bytes[..first]].concat();
                assert_eq!(one.finish(), algorithm.digest(&before), "{algorithm}");
                let others = [&bytes[1..=second], &bytes[..second]].concat();
                assert_eq!(other.finish(), algorithm.digest(&others), "{algorithm}");
            }
        }
    }

    #[test]
    fn pieces_hash_to_what_the_whole_does() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        for algorithm in Algorithm::ALL {
            let mut hasher = algorithm.hasher();
            for piece in bytes.chunks(7_001) {
                hasher.update(piece);
            }
            assert_eq!(hasher.finish(), algorithm.digest(&bytes));
        }
    }

    #[test]
    fn every_id_is_read_as_what_it_was_written_for() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::from_id(algorithm.id()), Some(algorithm));
            let value = algorithm.to_possible_value().unwrap();
            assert_eq!(value.get_name(), algorithm.name());
        }
        assert_eq!(Algorithm::from_id(0), None);
    }
}
