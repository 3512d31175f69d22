//! What coordinators and workers send each other: MessagePack, as lsdf-checksum writes it, and what we add.
//! In and out: bytes. Pure.
//!
//! A pack of lsdf-checksum has names and numbers of files, and is answered with SHA-1 sums; who could not be read is not in
//! the answer. Ours say more, in fields that the original skips, and are answered with all that came of each file.

mod fields;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rmp::encode as put;
use rmpv::ValueRef;
use thiserror::Error;

use crate::algorithm::{Algorithm, Digest};
use crate::entry::{Attributes, UNKNOWN};
use crate::judge::Reading;
use crate::path::Key;
use crate::split::{PieceSum, Span};
use crate::store::FileResult;
use fields::{
    algorithm, array, binary, bytes, find, key, list, map, number, raw, read, signed, string, text,
    unwrapped, whole, word,
};

/// Files to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkPack {
    /// The name of the file system.
    pub file_system: String,
    /// The name of the snapshot.
    pub snapshot: String,
    /// How to hash; none in packs of lsdf-checksum, which mean SHA-1.
    pub algorithm: Option<Algorithm>,
    /// The files.
    pub files: Vec<PackFile>,
}

/// A file to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackFile {
    /// Its number: the first half of its key.
    pub id: u64,
    /// Its path, which begins with a slash.
    pub path: Vec<u8>,
    /// Its key; none in packs of lsdf-checksum.
    pub key: Option<Key>,
    /// What it was when it was listed.
    pub attributes: Option<Attributes>,
    /// What its checksum on record was computed with, if that is something else.
    pub other: Option<Algorithm>,
    /// The piece to be read, if not all of it.
    pub span: Option<Span>,
}

/// What came of a pack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackPack {
    /// Numbers and SHA-1 sums, as lsdf-checksum answers.
    pub files: Vec<(u64, Vec<u8>)>,
    /// All that came of each file of a pack of ours.
    pub results: Vec<FileResult>,
    /// What pieces of files hashed to.
    pub pieces: Vec<(Key, PieceSum)>,
}

impl BackPack {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.results.is_empty() && self.pieces.is_empty()
    }
}

/// Why bytes are no pack.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// Not what jobs carry.
    #[error("the payload is not base64 without padding")]
    Base64,
    /// Not MessagePack.
    #[error("the payload is not MessagePack")]
    MessagePack,
    /// Something is behind it.
    #[error("{0} bytes follow the payload")]
    Trailing(usize),
    /// A field is missing or of another kind.
    #[error("the field {0} is missing or of another kind")]
    Field(&'static str),
}

/// The number that a key is known by where numbers are needed.
pub fn id_of(key: Key) -> u64 {
    let mut id = [0; 8];
    id.copy_from_slice(&key.as_bytes()[..8]);
    u64::from_be_bytes(id)
}

impl WorkPack {
    /// As a job carries it.
    pub fn encode(&self) -> String {
        let mut out = Vec::new();
        map(&mut out, 3 + u32::from(self.algorithm.is_some()));
        text(&mut out, "FileSystemName", self.file_system.as_bytes());
        text(&mut out, "SnapshotName", self.snapshot.as_bytes());
        if let Some(algorithm) = self.algorithm {
            number(&mut out, "Algorithm", algorithm.id().unsigned_abs());
        }
        list(&mut out, "Files", self.files.len());
        for file in &self.files {
            file.encode(&mut out);
        }
        STANDARD_NO_PAD.encode(out)
    }

    /// Reads what a job carries.
    pub fn decode(payload: &str) -> Result<Self, Error> {
        let bytes = unwrapped(payload)?;
        let value = read(&bytes)?;
        let mut files = Vec::new();
        for file in array(&value, "Files")? {
            files.push(PackFile::decode(file)?);
        }
        Ok(Self {
            file_system: string(&value, "FileSystemName")?,
            snapshot: string(&value, "SnapshotName")?,
            algorithm: algorithm(&value, "Algorithm")?,
            files,
        })
    }
}

impl PackFile {
    fn encode(&self, out: &mut Vec<u8>) {
        let more = u32::from(self.key.is_some())
            + 2 * u32::from(self.attributes.is_some())
            + u32::from(self.is_rough())
            + u32::from(self.other.is_some())
            + 2 * u32::from(self.span.is_some());
        map(out, 2 + more);
        number(out, "ID", self.id);
        text(out, "Path", &self.path);
        if let Some(key) = self.key {
            binary(out, "Key", key.as_bytes());
        }
        if let Some(attributes) = self.attributes {
            number(out, "Size", attributes.size);
            word(out, "Mtime");
            let _ = put::write_sint(out, attributes.mtime);
        }
        if self.is_rough() {
            word(out, "Rough");
            let _ = put::write_bool(out, true);
        }
        if let Some(other) = self.other {
            number(out, "Other", other.id().unsigned_abs());
        }
        if let Some(span) = self.span {
            encode_span(out, span);
        }
    }

    /// Whether the modification time is known to the microsecond only. Of the time of change readers want to know no more.
    fn is_rough(&self) -> bool {
        self.attributes.is_some_and(|it| it.ctime == UNKNOWN)
    }

    fn decode(value: &ValueRef<'_>) -> Result<Self, Error> {
        let size = find(value, "Size").and_then(ValueRef::as_u64);
        let mtime = find(value, "Mtime").and_then(signed);
        let is_rough = matches!(find(value, "Rough"), Some(ValueRef::Boolean(true)));
        Ok(Self {
            id: whole(value, "ID")?,
            path: bytes(value, "Path")?,
            key: key(value)?,
            attributes: size.zip(mtime).map(|(size, mtime)| Attributes {
                size,
                mtime,
                ctime: if is_rough { UNKNOWN } else { mtime },
            }),
            other: algorithm(value, "Other")?,
            span: match find(value, "Offset") {
                Some(_) => Some(decode_span(value)?),
                None => None,
            },
        })
    }
}

impl BackPack {
    /// As a job carries it.
    pub fn encode(&self) -> String {
        let mut out = Vec::new();
        let more = [self.results.is_empty(), self.pieces.is_empty()];
        map(
            &mut out,
            1 + more.map(|empty| u32::from(!empty)).iter().sum::<u32>(),
        );
        list(&mut out, "Files", self.files.len());
        for (id, checksum) in &self.files {
            map(&mut out, 2);
            number(&mut out, "ID", *id);
            binary(&mut out, "Checksum", checksum);
        }
        if !self.results.is_empty() {
            list(&mut out, "Results", self.results.len());
            for (key, reading) in &self.results {
                encode_result(&mut out, *key, reading);
            }
        }
        if !self.pieces.is_empty() {
            list(&mut out, "Pieces", self.pieces.len());
            for (key, sum) in &self.pieces {
                let PieceSum {
                    span,
                    size,
                    ctime,
                    node,
                } = sum;
                map(&mut out, 6);
                binary(&mut out, "Key", key.as_bytes());
                encode_span(&mut out, *span);
                number(&mut out, "Size", *size);
                word(&mut out, "Ctime");
                let _ = put::write_sint(&mut out, *ctime);
                binary(&mut out, "Node", node);
            }
        }
        STANDARD_NO_PAD.encode(out)
    }

    /// Reads what a job carries.
    pub fn decode(payload: &str) -> Result<Self, Error> {
        let unwrapped = unwrapped(payload)?;
        let value = read(&unwrapped)?;
        let mut pack = Self::default();
        for file in array(&value, "Files")? {
            pack.files
                .push((whole(file, "ID")?, bytes(file, "Checksum")?));
        }
        if find(&value, "Results").is_some() {
            for result in array(&value, "Results")? {
                let key = key(result)?.ok_or(Error::Field("Key"))?;
                pack.results.push((key, decode_reading(result)?));
            }
        }
        if find(&value, "Pieces").is_some() {
            for piece in array(&value, "Pieces")? {
                let key = key(piece)?.ok_or(Error::Field("Key"))?;
                pack.pieces.push((key, decode_piece(piece)?));
            }
        }
        Ok(pack)
    }
}

fn encode_span(out: &mut Vec<u8>, span: Span) {
    number(out, "Offset", span.offset);
    number(out, "Length", span.length);
}

fn decode_span(value: &ValueRef<'_>) -> Result<Span, Error> {
    Ok(Span {
        offset: whole(value, "Offset")?,
        length: whole(value, "Length")?,
    })
}

fn decode_piece(value: &ValueRef<'_>) -> Result<PieceSum, Error> {
    let node = bytes(value, "Node")?;
    let ctime = find(value, "Ctime").and_then(signed);
    Ok(PieceSum {
        span: decode_span(value)?,
        size: whole(value, "Size")?,
        ctime: ctime.ok_or(Error::Field("Ctime"))?,
        node: node.try_into().map_err(|_| Error::Field("Node"))?,
    })
}

fn encode_result(out: &mut Vec<u8>, key: Key, reading: &Reading) {
    map(
        out,
        if matches!(reading, Reading::Read { .. }) {
            3
        } else {
            2
        },
    );
    binary(out, "Key", key.as_bytes());
    match reading {
        Reading::Read { digests, bytes } => {
            number(out, "Bytes", *bytes);
            list(out, "Digests", digests.len());
            for digest in digests {
                let _ = put::write_array_len(out, 2);
                let _ = put::write_uint(out, digest.algorithm.id().unsigned_abs());
                let _ = put::write_bin(out, digest.as_bytes());
            }
        }
        Reading::Moving { why } => text(out, "Moving", why.as_bytes()),
        Reading::Failed { why } => text(out, "Failed", why.as_bytes()),
    }
}

fn decode_reading(value: &ValueRef<'_>) -> Result<Reading, Error> {
    if find(value, "Moving").is_some() {
        let why = string(value, "Moving")?;
        return Ok(Reading::Moving { why });
    }
    if find(value, "Failed").is_some() {
        let why = string(value, "Failed")?;
        return Ok(Reading::Failed { why });
    }
    let mut digests = Vec::new();
    for digest in array(value, "Digests")? {
        let wrong = || Error::Field("Digests");
        let [id, bytes] = digest.as_array().map(Vec::as_slice).ok_or_else(wrong)? else {
            return Err(wrong());
        };
        let id = signed(id).and_then(Algorithm::from_id).ok_or_else(wrong)?;
        let bytes = raw(bytes).filter(|it| it.len() == id.length());
        digests.push(Digest::new(id, bytes.ok_or_else(wrong)?));
    }
    Ok(Reading::Read {
        digests,
        bytes: whole(value, "Bytes")?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As the original writes it: `{"FileSystemName":"fs","SnapshotName":"s","Files":[{"ID":300,"Path":"/a\xff"}]}`.
    const THEIRS: &[u8] = b"\x83\xaeFileSystemName\xa2fs\xacSnapshotName\xa1s\xa5Files\x91\x82\xa2ID\xcd\x01\x2c\xa4Path\xa3/a\xff";

    fn pack() -> WorkPack {
        let key = Key::of(b"a\xff");
        WorkPack {
            file_system: "home".into(),
            snapshot: "run-1".into(),
            algorithm: Some(Algorithm::Blake3),
            files: vec![PackFile {
                id: id_of(key),
                path: b"/a\xff".to_vec(),
                key: Some(key),
                attributes: Some(Attributes {
                    size: 5,
                    mtime: -7,
                    ctime: -7,
                }),
                other: Some(Algorithm::Sha1),
                span: Some(Span {
                    offset: 1 << 30,
                    length: 1 << 20,
                }),
            }],
        }
    }

    #[test]
    fn a_pack_of_the_original_is_read_and_written_byte_for_byte() {
        let theirs = WorkPack::decode(&STANDARD_NO_PAD.encode(THEIRS)).unwrap();
        assert_eq!(theirs.files[0].path, b"/a\xff");
        assert_eq!((theirs.files[0].id, theirs.algorithm), (300, None));
        assert_eq!(theirs.encode(), STANDARD_NO_PAD.encode(THEIRS));
        let answer = BackPack {
            files: vec![(300, vec![1, 2])],
            ..BackPack::default()
        };
        let bytes = b"\x81\xa5Files\x91\x82\xa2ID\xcd\x01\x2c\xa8Checksum\xc4\x02\x01\x02";
        assert_eq!(answer.encode(), STANDARD_NO_PAD.encode(bytes));
    }

    #[test]
    fn what_we_add_comes_back() {
        assert_eq!(WorkPack::decode(&pack().encode()), Ok(pack()));
        let mut rough = pack();
        for attributes in rough.files.iter_mut().flat_map(|it| &mut it.attributes) {
            attributes.ctime = UNKNOWN;
        }
        assert_eq!(WorkPack::decode(&rough.encode()), Ok(rough));
        let key = Key::of(b"a");
        let digests = vec![Algorithm::Blake3.digest(b"x"), Algorithm::Sha1.digest(b"x")];
        let back = BackPack {
            files: vec![],
            results: vec![
                (key, Reading::Read { digests, bytes: 9 }),
                (key, Reading::Moving { why: "gone".into() }),
                (key, Reading::Failed { why: "EIO".into() }),
            ],
            pieces: vec![(
                key,
                PieceSum {
                    span: Span {
                        offset: 0,
                        length: 1 << 20,
                    },
                    size: 1 << 40,
                    ctime: -7,
                    node: [7; 32],
                },
            )],
        };
        assert_eq!(BackPack::decode(&back.encode()), Ok(back));
    }

    #[test]
    fn what_is_no_pack_is_refused_with_the_reason() {
        assert_eq!(WorkPack::decode("=="), Err(Error::Base64));
        assert_eq!(
            WorkPack::decode(&STANDARD_NO_PAD.encode(b"\xda")),
            Err(Error::MessagePack)
        );
        assert_eq!(
            WorkPack::decode(&STANDARD_NO_PAD.encode(b"\x80")),
            Err(Error::Field("Files"))
        );
        let mut more = THEIRS.to_vec();
        more.push(0);
        assert_eq!(
            WorkPack::decode(&STANDARD_NO_PAD.encode(more)),
            Err(Error::Trailing(1))
        );
        let deep = [vec![0x91; 4000], vec![0xc0]].concat();
        assert!(WorkPack::decode(&STANDARD_NO_PAD.encode(deep)).is_err());
    }

    #[test]
    fn digests_are_as_long_as_those_of_their_algorithm() {
        for algorithm in Algorithm::ALL {
            for (more, is_good) in [(0, true), (1, false)] {
                let bytes = vec![7; algorithm.length() + more];
                let digests = vec![Digest::new(algorithm, &bytes)];
                let read = Reading::Read { digests, bytes: 9 };
                let pack = BackPack {
                    results: vec![(Key::of(b"a"), read)],
                    ..BackPack::default()
                };
                let decoded = BackPack::decode(&pack.encode());
                assert_eq!(decoded.is_ok(), is_good, "{algorithm}: {decoded:?}");
            }
            let real = algorithm.digest(b"x");
            assert_eq!(real.as_bytes().len(), algorithm.length());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = WorkPack::decode(&STANDARD_NO_PAD.encode(&bytes));
            let _ = BackPack::decode(&STANDARD_NO_PAD.encode(&bytes));
        }

        #[test]
        fn no_change_of_a_good_pack_makes_it_panic(at in 0..60_usize, to in any::<u8>()) {
            let mut bytes = STANDARD_NO_PAD.decode(pack().encode()).unwrap();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
            let _ = WorkPack::decode(&STANDARD_NO_PAD.encode(&bytes));
        }
    }
}
