//! The bytes of a segment. All numbers are little-endian.
//!
//! ```text
//! segment   header | record | record | ... | zeroes up to the preallocated size
//!
//! header     0  8  magic "AlexCLog"
//!            8  4  version, 2
//!           12  8  segment id
//!           20  8  run: id of the first segment that this start of the program has written
//!           28  8  identity of the log, drawn when it begins, and the salt of its records; in
//!                  version 1 another number for each segment
//!           36  8  preallocated size: a file that is shorter and not sealed was truncated
//!           44  8  previous: the last segment that is known of the runs before, 0 for none
//!           52  4  CRC32 of bytes 0..52
//!
//! record     0  4  length of the record with this head; the top bit marks a control record
//!            4  4  tag: high half of mix(salt, segment id, offset, length)
//!            8  4  CRC32 of the body, exclusive or with the low half of the same mix
//!           12     body
//!
//! control    0  1  kind
//!   1 synced       8  segment, 8  offset: all of this run before that place is durable
//!   2 needed       8  id, repeated: the segments that are still needed, ascending
//!   3 sealed       8  id of the next segment, or 0 when the log was closed: nothing follows
//!   4 time         8  what follows was written at this time or later, in milliseconds since the
//!                     Unix epoch
//! ```
//!
//! The mix ties a record to its place. Bytes of a deleted segment that the file system gave to
//! this one, a record image inside a client's value, or a record moved by some copying tool do
//! not pass, and a length is known to be right before anything of that length is read. A length
//! of zero is the end.

/// Bytes of the segment header.
pub(super) const HEADER_BYTES: u64 = 56;

/// Bytes in front of the body of a record.
pub(super) const HEAD_BYTES: u64 = 12;

/// Largest body of a record: what a signed 32-bit length can hold together with the head.
pub(super) const MAX_BODY_BYTES: u64 = i32::MAX as u64 - HEAD_BYTES;

/// Bytes of the record that seals a segment; each segment keeps so much free for it.
pub(super) const SEAL_BYTES: u64 = HEAD_BYTES + 9;

/// Bytes of the record that tells the time.
pub(super) const TIME_BYTES: u64 = HEAD_BYTES + 9;

const MAGIC: [u8; 8] = *b"AlexCLog";
const VERSION: u32 = 2;

/// The version whose segments do not say to which log they belong.
const NAMELESS_VERSION: u32 = 1;
const CONTROL_BIT: u32 = 1 << 31;

// Written to disk: do not change.
const KIND_SYNCED: u8 = 1;
const KIND_NEEDED: u8 = 2;
const KIND_SEALED: u8 = 3;
const KIND_TIME: u8 = 4;

/// What ties the records of one segment to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Salt(u64);

impl Salt {
    /// The salt of a segment, from the number in its header.
    pub(super) fn new(random: u64, segment: u64) -> Self {
        Self(random ^ segment.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Tag and checksum mask of a record, in this order. The steps are those of `SplitMix64`.
    fn mix(self, offset: u64, length_word: u32) -> (u32, u32) {
        let mut x = self.0 ^ offset.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9).wrapping_add(length_word.into());
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^= x >> 31;
        ((x >> 32) as u32, x as u32)
    }

    /// Whether the first eight bytes of a record could stand at this offset.
    pub(super) fn admits(self, offset: u64, length_word: u32, tag: u32) -> bool {
        u64::from(length_word & !CONTROL_BIT) >= HEAD_BYTES
            && self.mix(offset, length_word).0 == tag
    }
}

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Id of the segment.
    pub(super) id: u64,
    /// Id of the first segment of the same run.
    pub(super) run: u64,
    /// The random number behind its [`Salt`].
    pub(super) random: u64,
    /// Whether that number is the identity of the log.
    pub(super) is_named: bool,
    /// Bytes that were preallocated.
    pub(super) capacity: u64,
    /// Id of the last segment that is known of the runs before, 0 for none: who reads the log of
    /// several runs can tell that nothing is missing between two of them.
    pub(super) previous: u64,
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
    /// The identity of the log to which the segment belongs, if it says so.
    pub(super) fn log(&self) -> Option<u64> {
        self.is_named.then_some(self.random)
    }

    /// The bytes of the header.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
        bytes.extend_from_slice(&MAGIC);
        let version = if self.is_named { VERSION } else { NAMELESS_VERSION };
        bytes.extend_from_slice(&version.to_le_bytes());
        for number in [self.id, self.run, self.random, self.capacity, self.previous] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads what [`Header::encode`] has written. Later versions keep magic, version and CRC
    /// where they are, so that they are recognised as what they are.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES as usize]) -> Result<Self, BadHeader> {
        let (content, crc) = bytes.split_at(HEADER_BYTES as usize - 4);
        let (magic, rest) = content.split_at(MAGIC.len());
        let invalid = BadHeader::Invalid;
        if magic != MAGIC || take_u32(crc) != Some(crc32fast::hash(content)) {
            return Err(invalid);
        }
        let version = take_u32(rest).ok_or(invalid)?;
        let is_named = match version {
            VERSION => true,
            NAMELESS_VERSION => false,
            other => return Err(BadHeader::Version(other)),
        };
        let mut numbers = rest.get(4..).ok_or(invalid)?.chunks_exact(8).filter_map(take_u64);
        let mut next = || numbers.next().ok_or(invalid);
        Ok(Self {
            id: next()?,
            run: next()?,
            random: next()?,
            is_named,
            capacity: next()?,
            previous: next()?,
        })
    }
}

/// The head of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// All zeroes: the end, unless something behind it says otherwise.
    Zero,
    /// Not a head that could stand here.
    Invalid,
    /// A record.
    Record {
        /// Bytes of the body.
        body_bytes: u64,
        /// Whether the body is a [`Control`].
        control: bool,
        /// CRC32 that the body must have.
        crc: u32,
    },
}

impl Head {
    /// Reads the head of the record at this offset.
    pub(super) fn decode(bytes: &[u8; HEAD_BYTES as usize], salt: Salt, offset: u64) -> Self {
        let [l0, l1, l2, l3, t0, t1, t2, t3, c0, c1, c2, c3] = *bytes;
        let word = u32::from_le_bytes([l0, l1, l2, l3]);
        let tag = u32::from_le_bytes([t0, t1, t2, t3]);
        let check = u32::from_le_bytes([c0, c1, c2, c3]);
        if (word, tag, check) == (0, 0, 0) {
            return Self::Zero;
        }
        if !salt.admits(offset, word, tag) {
            return Self::Invalid;
        }
        Self::Record {
            body_bytes: u64::from(word & !CONTROL_BIT) - HEAD_BYTES,
            control: word & CONTROL_BIT != 0,
            crc: check ^ salt.mix(offset, word).1,
        }
    }
}

/// Appends a record whose body has this CRC32. `offset` is where it will stand in the segment. The
/// body is at most [`MAX_BODY_BYTES`] long.
pub(super) fn encode_record(
    into: &mut Vec<u8>,
    salt: Salt,
    offset: u64,
    control: bool,
    body: &[u8],
    crc: u32,
) {
    let word = (HEAD_BYTES as u32 + body.len() as u32) | if control { CONTROL_BIT } else { 0 };
    let (tag, mask) = salt.mix(offset, word);
    into.reserve(HEAD_BYTES as usize + body.len());
    into.extend_from_slice(&word.to_le_bytes());
    into.extend_from_slice(&tag.to_le_bytes());
    into.extend_from_slice(&(crc ^ mask).to_le_bytes());
    into.extend_from_slice(body);
}

/// What the log says about itself, between the records of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Control {
    /// Everything of this run before that place is durable.
    Synced {
        /// Id of the segment.
        segment: u64,
        /// Offset in the segment.
        offset: u64,
    },
    /// The segments still needed, as of now.
    Needed(Vec<u64>),
    /// What follows was written at this time or later.
    Time {
        /// Milliseconds since the Unix epoch.
        millis: u64,
    },
    /// The end of the segment. The next one is durable already; none if the log was closed.
    Sealed {
        /// Id of the next segment.
        next: Option<u64>,
    },
}

impl Control {
    /// The body of the control record.
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

    /// Reads what [`Control::encode`] has written.
    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let (kind, rest) = body.split_first()?;
        let numbers = rest.chunks_exact(8);
        if !numbers.remainder().is_empty() {
            return None;
        }
        let numbers: Vec<u64> = numbers.filter_map(take_u64).collect();
        match (*kind, numbers.as_slice()) {
            (KIND_SYNCED, &[segment, offset]) => Some(Self::Synced { segment, offset }),
            (KIND_NEEDED, _) => Some(Self::Needed(numbers)),
            (KIND_TIME, &[millis]) => Some(Self::Time { millis }),
            (KIND_SEALED, &[next]) => Some(Self::Sealed { next: (next > 0).then_some(next) }),
            _ => None,
        }
    }

    /// Bytes of a record that lists this many segments.
    pub(super) fn needed_bytes(segments: usize) -> u64 {
        HEAD_BYTES + 1 + 8 * segments as u64
    }
}

fn take_u32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

fn take_u64(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_no_flipped_bit_passes() {
        let random = 0x0123_4567_89AB_CDEF;
        let (id, run, capacity, previous) = (7, 5, 1 << 27, 4);
        let nameless = Header { id, run, random, is_named: false, capacity, previous };
        let header = Header { is_named: true, ..nameless };
        let [nameless_bytes, bytes] = [nameless, header].map(|it| it.encode().try_into().unwrap());
        assert_eq!(Header::decode(&nameless_bytes), Ok(nameless));
        assert_eq!(Header::decode(&bytes), Ok(header));
        let bytes: [u8; HEADER_BYTES as usize] = bytes;
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&flipped), Err(BadHeader::Invalid), "bit {bit}");
        }
    }

    #[test]
    fn a_sound_header_of_another_version_says_so() {
        let (random, is_named) = (1, true);
        let mut bytes =
            Header { id: 7, run: 5, random, is_named, capacity: 99, previous: 0 }.encode();
        bytes[8] = 3;
        let crc = crc32fast::hash(&bytes[..52]);
        bytes[52..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&bytes.try_into().unwrap()), Err(BadHeader::Version(3)));
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

    #[test]
    fn a_record_is_valid_only_where_it_was_written() {
        let salt = Salt::new(42, 7);
        let mut bytes = Vec::new();
        encode_record(&mut bytes, salt, 100, false, b"abcde", crc32fast::hash(b"abcde"));
        let head: [u8; HEAD_BYTES as usize] = bytes[..12].try_into().unwrap();
        let found = Head::decode(&head, salt, 100);
        let crc = crc32fast::hash(b"abcde");
        assert_eq!(found, Head::Record { body_bytes: 5, control: false, crc });
        assert_eq!(&bytes[12..], b"abcde");
        assert_eq!(Head::decode(&head, salt, 101), Head::Invalid, "another offset");
        assert_eq!(Head::decode(&head, Salt::new(42, 8), 100), Head::Invalid, "another segment");
        assert_eq!(Head::decode(&head, Salt::new(43, 7), 100), Head::Invalid, "another file");
    }
}
