//! The bytes of a segment, as drawn for the module.

use crc32fast::Hasher;

/// Bytes of the segment header.
pub(super) const HEADER_BYTES: u64 = 32;

/// Bytes in front of the body of a record.
pub(super) const HEAD_BYTES: u64 = 12;

/// Bytes in front of the mutation in the body of a hint.
pub(super) const CREATED_BYTES: u64 = 8;

/// Bytes of the record that seals a segment.
pub(super) const SEAL_BYTES: u64 = HEAD_BYTES + SEAL_BODY_BYTES;

/// Largest mutation: what a length of 31 bits can hold together with the time.
pub(super) const MAX_MUTATION_BYTES: u64 = i32::MAX as u64 - CREATED_BYTES;

const SEAL_BODY_BYTES: u64 = 16;
const MAGIC: [u8; 8] = *b"AlexHint";
const VERSION: u32 = 1;
const SEAL_BIT: u32 = 1 << 31;
/// Where the checksum of a header stands.
const CRC_AT: usize = HEADER_BYTES as usize - 4;

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The number of the segment.
    pub(super) number: u64,
    /// What ties its records to it.
    pub(super) salt: u64,
}

/// Why a header cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// It was never written to its end.
    Unfinished,
    /// It is no header of ours, or damaged.
    Invalid,
    /// It is sound, but of another version.
    Version(u32),
}

impl Header {
    /// The bytes of the header.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.salt.to_le_bytes());
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads what [`Header::encode`] has written, from the first bytes of a file. Later versions
    /// keep magic, version and CRC where they are, so that they are recognised as what they are.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let Some(bytes) = bytes.first_chunk::<{ HEADER_BYTES as usize }>() else {
            return Err(BadHeader::Unfinished);
        };
        let (content, crc) = bytes.split_at(CRC_AT);
        let crc = u32_at(crc, 0);
        if content.starts_with(&MAGIC) && crc == Some(crc32fast::hash(content)) {
            let [version, number, salt] =
                [u32_at(content, 8).map(u64::from), u64_at(content, 12), u64_at(content, 20)]
                    .map(|number| number.expect("the header has a fixed length"));
            return match version as u32 {
                VERSION => Ok(Self { number, salt }),
                other => Err(BadHeader::Version(other)),
            };
        }
        // Without a sync the file may have become longer and the bytes be missing.
        Err(if crc == Some(0) { BadHeader::Unfinished } else { BadHeader::Invalid })
    }
}

/// What tells the two kinds of records apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A mutation with its time.
    Hint,
    /// The end of the segment.
    Seal,
}

/// The head of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// What the record is.
    pub(super) kind: Kind,
    /// Bytes of the body.
    pub(super) body_bytes: u64,
    tag: u32,
    crc: u32,
}

impl Head {
    /// Reads the head of a record at this offset. None if none can stand there, of which at most
    /// `room` bytes follow the head.
    pub(super) fn decode(bytes: &[u8], salt: u64, offset: u64, room: u64) -> Option<Self> {
        let (word, tag, crc) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?, u32_at(bytes, 8)?);
        let body_bytes = u64::from(word & !SEAL_BIT);
        let kind = if word & SEAL_BIT == 0 { Kind::Hint } else { Kind::Seal };
        let is_possible = match kind {
            Kind::Hint => body_bytes > CREATED_BYTES,
            Kind::Seal => body_bytes == SEAL_BODY_BYTES,
        };
        let is_head = is_possible && body_bytes <= room && tag == tag_of(salt, offset, word);
        is_head.then_some(Self { kind, body_bytes, tag, crc })
    }

    /// Whether this is the body that belongs to the head.
    pub(super) fn accepts(&self, body: &[u8]) -> bool {
        body_crc(self.tag, &[body]) == self.crc
    }
}

/// The record of a hint that will stand at `offset`. The mutation has at most
/// [`MAX_MUTATION_BYTES`].
pub(super) fn encode_hint(salt: u64, offset: u64, created_ms: u64, mutation: &[u8]) -> Vec<u8> {
    encode_record(salt, offset, Kind::Hint, &created_ms.to_le_bytes(), mutation)
}

/// Bytes that the hint of such a mutation takes.
pub(super) fn hint_bytes(mutation: &[u8]) -> u64 {
    HEAD_BYTES + CREATED_BYTES + mutation.len() as u64
}

/// What the body of a hint holds: when it was stored, and the mutation.
pub(super) fn decode_hint(body: &[u8]) -> Option<(u64, &[u8])> {
    Some((u64_at(body, 0)?, body.get(CREATED_BYTES as usize..)?))
}

/// What a seal says about its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seal {
    /// Number of hints.
    pub(super) hints: u64,
    /// When the newest was stored, in milliseconds since the Unix epoch.
    pub(super) newest_ms: u64,
}

impl Seal {
    /// The record of the seal that will stand at `offset`.
    pub(super) fn encode(&self, salt: u64, offset: u64) -> Vec<u8> {
        let (hints, newest) = (self.hints.to_le_bytes(), self.newest_ms.to_le_bytes());
        encode_record(salt, offset, Kind::Seal, &hints, &newest)
    }

    /// Reads the record of a seal that ends the segment.
    pub(super) fn decode(bytes: &[u8], salt: u64, offset: u64) -> Option<Self> {
        let (head, body) = bytes.split_at_checked(HEAD_BYTES as usize)?;
        let head = Head::decode(head, salt, offset, SEAL_BODY_BYTES)?;
        let is_seal = head.kind == Kind::Seal && head.accepts(body);
        is_seal.then_some(Self { hints: u64_at(body, 0)?, newest_ms: u64_at(body, 8)? })
    }
}

fn encode_record(salt: u64, offset: u64, kind: Kind, first: &[u8], second: &[u8]) -> Vec<u8> {
    let length = first.len() + second.len();
    let word = length as u32 | if kind == Kind::Seal { SEAL_BIT } else { 0 };
    let tag = tag_of(salt, offset, word);
    let mut record = Vec::with_capacity(HEAD_BYTES as usize + length);
    record.extend_from_slice(&word.to_le_bytes());
    record.extend_from_slice(&tag.to_le_bytes());
    record.extend_from_slice(&body_crc(tag, &[first, second]).to_le_bytes());
    record.extend_from_slice(first);
    record.extend_from_slice(second);
    record
}

fn tag_of(salt: u64, offset: u64, word: u32) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(&word.to_le_bytes());
    hasher.finalize()
}

fn body_crc(tag: u32, parts: &[&[u8]]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&tag.to_le_bytes());
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_no_flipped_bit_passes() {
        let header = Header { number: 7, salt: 0x0123_4567_89AB_CDEF };
        let bytes = header.encode();
        assert_eq!(bytes.len() as u64, HEADER_BYTES);
        assert_eq!(Header::decode(&bytes), Ok(header));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&flipped), Err(BadHeader::Invalid), "bit {bit}");
        }
        for length in 0..bytes.len() {
            let mut cut = bytes[..length].to_vec();
            assert_eq!(Header::decode(&cut), Err(BadHeader::Unfinished));
            cut.resize(100, 0);
            assert!(Header::decode(&cut).is_err(), "{length}");
        }
    }

    #[test]
    fn a_sound_header_of_another_version_says_so() {
        let mut bytes = Header { number: 7, salt: 1 }.encode();
        bytes[8] = 2;
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&bytes), Err(BadHeader::Version(2)));
    }

    #[test]
    fn a_record_is_valid_only_where_it_was_written() {
        let record = encode_hint(42, 100, 1_290_000_000_123, b"abcde");
        assert_eq!(record.len() as u64, hint_bytes(b"abcde"));
        let (head, body) = record.split_at(HEAD_BYTES as usize);
        let found = Head::decode(head, 42, 100, 13).unwrap();
        assert_eq!((found.kind, found.body_bytes), (Kind::Hint, 13));
        assert!(found.accepts(body) && !found.accepts(&body[1..]));
        assert_eq!(decode_hint(body), Some((1_290_000_000_123, &b"abcde"[..])));
        assert_eq!(Head::decode(head, 42, 101, 13), None, "another offset");
        assert_eq!(Head::decode(head, 43, 100, 13), None, "another segment");
        assert_eq!(Head::decode(head, 42, 100, 12), None, "longer than what is there");
    }

    #[test]
    fn a_seal_comes_back() {
        let seal = Seal { hints: 3, newest_ms: 9 };
        let record = seal.encode(42, 100);
        assert_eq!(record.len() as u64, SEAL_BYTES);
        assert_eq!(Seal::decode(&record, 42, 100), Some(seal));
        assert_eq!(Seal::decode(&record, 42, 99), None);
        assert_eq!(Seal::decode(&record[1..], 42, 100), None);
        let hint = encode_hint(42, 100, 3, b"12345678");
        assert_eq!(hint.len() as u64, SEAL_BYTES);
        assert_eq!(Seal::decode(&hint, 42, 100), None);
    }

    /// The layout is frozen: hints of this version have to be read by all later ones.
    #[test]
    fn the_bytes_are_those_of_version_1() {
        let header = Header { number: 7, salt: 0x0123_4567_89AB_CDEF }.encode();
        let hint = encode_hint(0x0123_4567_89AB_CDEF, 32, 1_290_000_000_123, b"abc");
        let seal = Seal { hints: 1, newest_ms: 1_290_000_000_123 };
        let seal = seal.encode(0x0123_4567_89AB_CDEF, 55);
        for (bytes, expected) in [(header, HEADER_1), (hint, HINT_1), (seal, SEAL_1)] {
            let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex.concat(), expected);
        }
    }

    const HEADER_1: &str = "416c657848696e74010000000700000000000000efcdab8967452301553c4eca";
    const HINT_1: &str = "0b0000004bf52a9ce1a269097be4fd592c010000616263";
    const SEAL_1: &str = "1000008086a20a8eaf5b9f1e01000000000000007be4fd592c010000";
}
