//! The bytes of a segment, as drawn for the module.

use crate::storage::log::{self, HEAD_BYTES, Head, Salt};

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
const VERSION: u32 = 2;

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
    /// It was never written to its end.
    Unfinished,
    /// It is no header of ours, or damaged.
    Invalid,
    /// It is sound, but of another version.
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
            Some((VERSION, [number, random])) => {
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

/// The seal of a segment: what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seal {
    /// Number of hints.
    pub(super) hints: u64,
    /// When the newest was stored, in milliseconds since the Unix epoch.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_header_is_told_from_a_damaged_one() {
        let (header, bytes) = Header::new(7, 0x0123_4567_89AB_CDEF);
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
        assert_eq!(Header::decode(&of_version(2)), Ok(Header::new(7, salt).0));
        assert_eq!(Header::decode(&of_version(3)), Err(BadHeader::Version(3)));
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
}
