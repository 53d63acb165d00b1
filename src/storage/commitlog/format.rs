//! The bytes of a segment, which is one of the common [record log](crate::storage::log).
//!
//! ```text
//! segment   header | record | record | ... | zeroes up to the preallocated size
//!
//! header     0  8  magic "AlexCLog"
//!            8  4  version, 3; in version 2 mutations have no cells that 0.6 does not have
//!           12  8  segment id
//!           20  8  run: id of the first segment that this start of the program has written
//!           28  8  identity of the log, drawn when it begins, and the salt of its records; in
//!                  version 1 another number for each segment
//!           36  8  preallocated size: a file that is shorter and not sealed was truncated
//!           44  8  previous: the last segment that is known of the runs before, 0 for none
//!           52  4  CRC32 of bytes 0..52
//!
//! control    0  1  kind
//!   1 synced       8  segment, 8  offset: all of this run before that place is durable
//!   2 needed       8  id, repeated: the segments that are still needed, ascending
//!   3 sealed       8  id of the next segment, or 0 when the log was closed: nothing follows
//!   4 time         8  what follows was written at this time or later, in milliseconds since the
//!                     Unix epoch
//! ```
//!
//! A length of zero is the end.

use crate::storage::log::{self, HEAD_BYTES, Head, Salt};

/// Numbers in the segment header.
pub(super) const HEADER_NUMBERS: usize = 5;

pub(super) const HEADER_BYTES: u64 = log::header_bytes(HEADER_NUMBERS);

/// Bytes of the record that seals a segment. Each segment keeps them free.
pub(super) const SEAL_BYTES: u64 = HEAD_BYTES + 9;

/// Bytes of the record that notes the time.
pub(in crate::storage) const TIME_BYTES: u64 = HEAD_BYTES + 9;

const MAGIC: [u8; 8] = *b"AlexCLog";
const VERSION: u32 = 3;

/// The version before, which differs in what mutations may hold.
const ORIGINAL_CELLS_VERSION: u32 = 2;

/// The version whose segments do not say to which log they belong.
const NAMELESS_VERSION: u32 = 1;

// Written to disk: do not change.
const KIND_SYNCED: u8 = 1;
const KIND_NEEDED: u8 = 2;
const KIND_SEALED: u8 = 3;
const KIND_TIME: u8 = 4;

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::storage) struct Header {
    pub(in crate::storage) id: u64,
    /// Id of the first segment of the same run.
    pub(in crate::storage) run: u64,
    /// The random number from which its [`Salt`] is made.
    pub(super) random: u64,
    /// Whether that number is the identity of the log.
    pub(super) is_named: bool,
    /// Bytes that were preallocated.
    pub(super) capacity: u64,
    /// Id of the last segment that is known of the runs before, 0 for none: a reader of several
    /// runs can tell that nothing is missing between two of them.
    pub(in crate::storage) previous: u64,
}

/// Why a header cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// It is no header of ours, or damaged.
    Invalid,
    /// It is sound, but of another version.
    Version(u32),
}

impl Header {
    /// Returns the identity of the log to which the segment belongs, if it is noted.
    pub(super) fn log(&self) -> Option<u64> {
        self.is_named.then_some(self.random)
    }

    /// Returns what ties its records to the segment.
    pub(super) fn salt(&self) -> Salt {
        Salt::new(self.random, self.id)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let version = if self.is_named { VERSION } else { NAMELESS_VERSION };
        let numbers = [self.id, self.run, self.random, self.capacity, self.previous];
        log::encode_header(MAGIC, version, &numbers)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let header = log::decode_header::<HEADER_NUMBERS>(MAGIC, bytes);
        let (version, [id, run, random, capacity, previous]) = header.ok_or(BadHeader::Invalid)?;
        let is_named = match version {
            VERSION | ORIGINAL_CELLS_VERSION => true,
            NAMELESS_VERSION => false,
            other => return Err(BadHeader::Version(other)),
        };
        Ok(Self { id, run, random, is_named, capacity, previous })
    }
}

/// Appends a record. `offset` is where it will stand in the segment.
pub(super) fn encode_record(into: &mut Vec<u8>, salt: Salt, offset: u64, head: Head, body: &[u8]) {
    into.reserve(HEAD_BYTES as usize + body.len());
    into.extend_from_slice(&head.encode(salt, offset));
    into.extend_from_slice(body);
}

/// Records that the log writes about itself, between those of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Control {
    /// Everything of this run before that place is durable.
    Synced { segment: u64, offset: u64 },
    /// The segments still needed, as of now.
    Needed(Vec<u64>),
    /// Later records were written at this time or later, in milliseconds since the Unix epoch.
    Time { millis: u64 },
    /// The end of the segment. The next one is durable already; none if the log was closed.
    Sealed { next: Option<u64> },
}

impl Control {
    /// Returns the body of the control record.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, numbers) = match self {
            Self::Synced { segment, offset } => (KIND_SYNCED, &[*segment, *offset][..]),
            Self::Needed(ids) => (KIND_NEEDED, ids.as_slice()),
            Self::Time { millis } => (KIND_TIME, &[*millis][..]),
            Self::Sealed { next } => (KIND_SEALED, &[next.unwrap_or(0)][..]),
        };
        let mut body = Vec::with_capacity(1 + 8 * numbers.len());
        body.push(kind);
        for number in numbers {
            body.extend_from_slice(&number.to_le_bytes());
        }
        body
    }

    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let (kind, rest) = body.split_first()?;
        let (numbers, []) = rest.as_chunks() else { return None };
        let numbers: Vec<u64> = numbers.iter().map(|it| u64::from_le_bytes(*it)).collect();
        match (*kind, numbers.as_slice()) {
            (KIND_SYNCED, &[segment, offset]) => Some(Self::Synced { segment, offset }),
            (KIND_NEEDED, _) => Some(Self::Needed(numbers)),
            (KIND_TIME, &[millis]) => Some(Self::Time { millis }),
            (KIND_SEALED, &[next]) => Some(Self::Sealed { next: (next > 0).then_some(next) }),
            _ => None,
        }
    }

    /// Returns the size of a record that lists this many segments.
    pub(super) fn needed_bytes(segments: usize) -> u64 {
        HEAD_BYTES + 1 + 8 * segments as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_one_of_another_version_says_so() {
        let random = 0x0123_4567_89AB_CDEF;
        let (id, run, capacity, previous) = (7, 5, 1 << 27, 4);
        let nameless = Header { id, run, random, is_named: false, capacity, previous };
        let header = Header { is_named: true, ..nameless };
        for header in [nameless, header] {
            let bytes = header.encode();
            assert_eq!(bytes.len() as u64, HEADER_BYTES);
            assert_eq!(Header::decode(&bytes), Ok(header));
            assert_eq!(Header::decode(&bytes[1..]), Err(BadHeader::Invalid));
        }
        let bytes = log::encode_header(MAGIC, 2, &[7, 5, random, 1 << 27, 4]);
        assert_eq!(Header::decode(&bytes), Ok(header));
        let bytes = log::encode_header(MAGIC, 4, &[7, 5, 1, 99, 0]);
        assert_eq!(Header::decode(&bytes), Err(BadHeader::Version(4)));
    }

    #[test]
    fn controls_come_back() {
        for control in [
            Control::Synced { segment: 3, offset: 99 },
            Control::Needed(vec![]),
            Control::Needed(vec![1, 5, 9]),
            Control::Sealed { next: Some(4) },
            Control::Time { millis: 1_290_000_000_123 },
            Control::Sealed { next: None },
        ] {
            assert_eq!(Control::decode(&control.encode()), Some(control));
        }
        for bad in [&[][..], &[9], &[1], &[1, 0, 0], &[3; 8], &[3; 17]] {
            assert_eq!(Control::decode(bad), None, "{bad:?}");
        }
        let bytes = |control: Control| control.encode().len() as u64 + HEAD_BYTES;
        assert_eq!(bytes(Control::Sealed { next: None }), SEAL_BYTES);
        assert_eq!(bytes(Control::Time { millis: 1 }), TIME_BYTES);
    }
}
