//! The names and bytes of hint files, as drawn for the module, and the reader of their records.
//!
//! The file `delivered`:
//!
//! ```text
//! alexandra hints delivered 1
//! segment <number> <salt in hexadecimal>
//! offset <bytes>             everything of the segment before it was delivered
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```
//!
//! It holds only for the segment with this salt: numbers may be given again after a log was empty.

use crate::base::fs::File;
use crate::storage::checked_file::{CheckedState, field};
use crate::storage::files::temporary;
use crate::storage::log::{self, HEAD_BYTES, Head, Salt, SegmentReader, parse_number};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Numbers in the segment header.
pub(super) const HEADER_NUMBERS: usize = 2;

/// Bytes of the segment header.
pub(super) const HEADER_BYTES: u64 = log::header_bytes(HEADER_NUMBERS);

/// Bytes in front of the mutation in the body of a hint.
pub(super) const CREATED_BYTES: u64 = 8;

/// Bytes of the record that seals a segment.
pub(super) const SEAL_BYTES: u64 = HEAD_BYTES + 16;

/// Largest mutation: a record holds it together with the time.
pub(super) const MAX_MUTATION_BYTES: u64 = log::MAX_BODY_BYTES - CREATED_BYTES;

const MAGIC: [u8; 8] = *b"AlexHint";
const VERSION: u32 = 3;

/// The version before, which differs in what mutations may hold.
const ORIGINAL_CELLS_VERSION: u32 = 2;

/// The version whose records had tags of their own.
const HASHED_VERSION: u32 = 1;

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The number of the segment.
    pub(super) number: u64,
    /// Ties its records to the segment.
    pub(super) salt: Salt,
}

/// Why a header cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// Not written to its end.
    Unfinished,
    /// Damaged, or no header.
    Invalid,
    /// Sound, but of another version.
    Version(u32),
}

impl Header {
    /// The header of a new segment, from a random number, and its bytes.
    pub(super) fn new(number: u64, random: u64) -> (Self, Vec<u8>) {
        let header = Self { number, salt: Salt::new(random, number) };
        (header, log::encode_header(MAGIC, VERSION, &[number, random]))
    }

    /// Reads the header from the first bytes of a file.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let Some(bytes) = bytes.get(..HEADER_BYTES as usize) else {
            return Err(BadHeader::Unfinished);
        };
        match log::decode_header(MAGIC, bytes) {
            Some((VERSION | ORIGINAL_CELLS_VERSION, [number, random])) => {
                Ok(Self { number, salt: Salt::new(random, number) })
            }
            Some((HASHED_VERSION, [number, salt])) => Ok(Self { number, salt: Salt::Hashed(salt) }),
            Some((other, _)) => Err(BadHeader::Version(other)),
            // Without a sync the file may have become longer and the bytes be missing.
            None if bytes.ends_with(&[0; 4]) => Err(BadHeader::Unfinished),
            None => Err(BadHeader::Invalid),
        }
    }
}

/// The record of a hint that will stand at `offset`. The mutation has at most
/// [`MAX_MUTATION_BYTES`].
pub(super) fn encode_hint(salt: Salt, offset: u64, created_ms: u64, mutation: &[u8]) -> Vec<u8> {
    encode_record(salt, offset, false, &[&created_ms.to_le_bytes(), mutation])
}

/// Bytes that the hint of such a mutation takes.
pub(super) fn hint_bytes(mutation: &[u8]) -> u64 {
    HEAD_BYTES + CREATED_BYTES + mutation.len() as u64
}

/// Time and mutation in the body of a hint.
pub(super) fn decode_hint(body: &[u8]) -> Option<(u64, &[u8])> {
    let (created_ms, mutation) = body.split_first_chunk()?;
    Some((u64::from_le_bytes(*created_ms), mutation))
}

/// The seal of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seal {
    /// Number of hints.
    pub(super) hints: u64,
    /// Time of the newest hint, in milliseconds since the Unix epoch.
    pub(super) newest_ms: u64,
}

impl Seal {
    /// The record of the seal that will stand at `offset`.
    pub(super) fn encode(&self, salt: Salt, offset: u64) -> Vec<u8> {
        encode_record(
            salt,
            offset,
            true,
            &[&self.hints.to_le_bytes(), &self.newest_ms.to_le_bytes()],
        )
    }

    /// Reads the body of a seal.
    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let (hints, newest_ms) = body.split_first_chunk()?;
        let newest_ms = newest_ms.try_into().ok()?;
        Some(Self { hints: u64::from_le_bytes(*hints), newest_ms: u64::from_le_bytes(newest_ms) })
    }
}

fn encode_record(salt: Salt, offset: u64, is_control: bool, body: &[&[u8]]) -> Vec<u8> {
    let mut record = vec![0; HEAD_BYTES as usize];
    for part in body {
        record.extend_from_slice(part);
    }
    let (head, body) = record.split_at_mut(HEAD_BYTES as usize);
    head.copy_from_slice(&Head::of(is_control, body).encode(salt, offset));
    record
}

/// Content of a segment at one place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// A hint.
    Hint {
        /// Time of storing, in milliseconds since the Unix epoch.
        created_ms: u64,
        /// The record of the mutation.
        mutation: &'a [u8],
    },
    /// The seal: nothing follows.
    Seal,
    /// Bytes that are no record.
    Unreadable {
        /// Offset of the first byte.
        offset: u64,
        /// Their number.
        bytes: u64,
        /// Whether nothing follows them.
        is_tail: bool,
    },
}

/// Reads a segment from one of its records on, and passes over damage.
#[derive(Debug)]
pub(super) struct HintReader {
    segment: SegmentReader,
    salt: Salt,
    at: u64,
}

impl HintReader {
    /// Reads the bytes of a file from `at` to `end`.
    pub(super) fn new(file: Arc<dyn File>, salt: Salt, at: u64, end: u64) -> io::Result<Self> {
        Ok(Self { segment: SegmentReader::up_to(file, end)?, salt, at })
    }

    /// Offset of the next item. At the end: the size of the file.
    pub(super) fn offset(&self) -> u64 {
        self.at
    }

    /// The next item; none at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Item<'_>>> {
        let (offset, end) = (self.at, self.segment.size());
        if offset >= end {
            return Ok(None);
        }
        let Ok(record) = self.segment.read(offset, self.salt)? else {
            let next = self.segment.find_next(offset, self.salt)?.start;
            self.at = next.unwrap_or(end);
            let (bytes, is_tail) = (self.at - offset, next.is_none());
            return Ok(Some(Item::Unreadable { offset, bytes, is_tail }));
        };
        self.at = record.end;
        if record.is_control {
            return Ok(Some(Item::Seal));
        }
        Ok(Some(match decode_hint(self.segment.body(record)) {
            Some((created_ms, mutation)) => Item::Hint { created_ms, mutation },
            None => Item::Unreadable { offset, bytes: record.end - offset, is_tail: false },
        }))
    }
}

/// A place in a log before which everything was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// The number of the segment.
    pub(super) segment: u64,
    /// The salt of the segment.
    pub(super) salt: u64,
    /// The offset in the segment.
    pub(super) offset: u64,
}

impl CheckedState for Progress {
    const KIND: &'static str = "hints delivered";
    const VERSION: u32 = 1;

    fn encode(&self) -> String {
        let Self { segment, salt, offset } = self;
        format!("segment {segment} {salt:016x}\noffset {offset}\n")
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        let (segment, salt) = field(lines, "segment")?.split_once(' ')?;
        let salt = u64::from_str_radix(salt, 16).ok()?;
        let offset = field(lines, "offset")?.parse().ok()?;
        Some(Self { segment: segment.parse().ok()?, salt, offset })
    }
}

const SUFFIX: &str = ".hints";
const PROGRESS: &str = "delivered";
const OWNER: &str = "heir";

/// Kind of a file in the folder of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileName {
    /// The segment of this number.
    Segment(u64),
    /// Progress of the delivery.
    Progress,
    /// The owner of the hints, if that is not their target.
    Owner,
    /// One of these two, not finished.
    Unfinished,
    /// Not one of ours.
    Other,
}

impl FileName {
    /// Parses a file name.
    pub(super) fn parse(name: &str) -> Self {
        if name == PROGRESS {
            return Self::Progress;
        }
        if name == OWNER {
            return Self::Owner;
        }
        if [PROGRESS, OWNER].iter().any(|it| Path::new(name) == temporary(Path::new(it))) {
            return Self::Unfinished;
        }
        let number = name.strip_suffix(SUFFIX).and_then(parse_number);
        number.map_or(Self::Other, Self::Segment)
    }
}

/// The folder of the hints for this target.
pub(super) fn target_folder(directory: &Path, target: IpAddr) -> PathBuf {
    directory.join(target.to_string())
}

/// Returns the owner of a folder; none for a name that [`target_folder`] never gives.
pub(super) fn target_of(name: &str) -> Option<IpAddr> {
    let target: IpAddr = name.parse().ok()?;
    (target.to_canonical() == target && target.to_string() == name).then_some(target)
}

/// The segment of this number in the folder of its target.
pub(super) fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}{SUFFIX}"))
}

/// Path of the progress of the delivery.
pub(super) fn progress_path(folder: &Path) -> PathBuf {
    folder.join(PROGRESS)
}

/// The file with the owner of the hints in this folder.
pub(super) fn owner_path(folder: &Path) -> PathBuf {
    folder.join(OWNER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::checked_file::tests::check_codec;

    #[test]
    fn an_unfinished_header_is_told_from_a_damaged_one() {
        let (header, bytes) = Header::new(7, 0xFEDC_BA98_7654_3210);
        assert_eq!(bytes.len() as u64, HEADER_BYTES);
        assert_eq!(Header::decode(&bytes), Ok(header));
        assert_eq!(Header::decode(&[1; 32]), Err(BadHeader::Invalid));
        for length in 0..bytes.len() {
            let mut cut = bytes[..length].to_vec();
            assert_eq!(Header::decode(&cut), Err(BadHeader::Unfinished));
            cut.resize(100, 0);
            assert!(Header::decode(&cut).is_err(), "{length}");
        }
    }

    #[test]
    fn headers_of_all_versions_are_recognised() {
        let salt = 0x0123_4567_89AB_CDEF;
        let of_version = |version| log::encode_header(MAGIC, version, &[7, salt]);
        let old = Header { number: 7, salt: Salt::Hashed(salt) };
        assert_eq!(Header::decode(&of_version(1)), Ok(old));
        for version in [2, 3] {
            assert_eq!(Header::decode(&of_version(version)), Ok(Header::new(7, salt).0));
        }
        assert_eq!(Header::decode(&of_version(4)), Err(BadHeader::Version(4)));
    }

    #[test]
    fn hints_and_seals_come_back() {
        let hint = encode_hint(Salt::new(42, 7), 100, 1_290_000_000_123, b"abcde");
        assert_eq!(hint.len() as u64, hint_bytes(b"abcde"));
        assert_eq!(decode_hint(&hint[12..]), Some((1_290_000_000_123, &b"abcde"[..])));
        let seal = Seal { hints: 3, newest_ms: 9 };
        let record = seal.encode(Salt::new(42, 7), 100);
        assert_eq!(record.len() as u64, SEAL_BYTES);
        assert_eq!(Seal::decode(&record[12..]), Some(seal));
        assert_eq!(Seal::decode(&record[13..]), None);
    }

    #[test]
    fn progress_comes_back_and_no_changed_bit_passes() {
        check_codec(&Progress { segment: 12, salt: 0xFEDC_BA98_7654_3210, offset: 4711 });
    }

    #[test]
    fn names_are_parsed_as_they_are_built() {
        let folder = Path::new("/hints");
        for target in ["10.0.0.7", "::1", "2001:db8::7"] {
            let path = target_folder(folder, target.parse().unwrap());
            assert_eq!(path, folder.join(target));
            assert_eq!(target_of(target), Some(target.parse().unwrap()));
        }
        let parse = |path: &Path| FileName::parse(path.file_name().unwrap().to_str().unwrap());
        assert_eq!(parse(&segment_path(folder, 17)), FileName::Segment(17));
        assert_eq!(parse(&progress_path(folder)), FileName::Progress);
        assert_eq!(parse(&owner_path(folder)), FileName::Owner);
        for path in [progress_path(folder), owner_path(folder)] {
            assert_eq!(parse(&temporary(&path)), FileName::Unfinished);
        }
    }

    #[test]
    fn only_names_that_we_would_give_are_ours() {
        for other in ["0.hints", "01.hints", "+1.hints", ".hints", "1.hint", "1.hints.bak"] {
            assert_eq!(FileName::parse(other), FileName::Other, "{other}");
        }
        assert_eq!(FileName::parse("9223372036854775808.hints"), FileName::Other);
        for other in ["localhost", "10.0.0.07", "::ffff:10.0.0.7", "0:0:0:0:0:0:0:1", "10.0.0.7 "] {
            assert_eq!(target_of(other), None, "{other}");
        }
    }
}
