//! Headers of segments and heads of records.

use super::Reason;
use crc32fast::Hasher;

/// Bytes in front of the body of a record.
pub(crate) const HEAD_BYTES: u64 = 12;

/// Largest body of a record: a signed 32-bit length holds it together with the head.
pub(crate) const MAX_BODY_BYTES: u64 = i32::MAX as u64 - HEAD_BYTES;

const CONTROL_BIT: u32 = 1 << 31;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Ties the records of one segment to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Salt {
    /// Of the present format.
    Mixed(u64),
    /// Of hints of version 1, whose lengths leave out the head and whose tag is a CRC32.
    Hashed(u64),
}

impl Salt {
    /// Salt of a segment of the present format, from the random number in its header.
    pub(crate) fn new(random: u64, segment: u64) -> Self {
        Self::Mixed(random ^ segment.wrapping_mul(GOLDEN))
    }

    /// A number that other segments do not have.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Mixed(number) | Self::Hashed(number) => number,
        }
    }

    /// Whether the first eight bytes of a record could stand at this offset.
    pub(crate) fn admits(self, offset: u64, word: u32, tag: u32) -> bool {
        self.body_bytes(word).is_some() && self.tag(offset, word) == tag
    }

    fn word(self, body_bytes: u64) -> u32 {
        match self {
            Self::Mixed(_) => (HEAD_BYTES + body_bytes) as u32,
            Self::Hashed(_) => body_bytes as u32,
        }
    }

    fn body_bytes(self, word: u32) -> Option<u64> {
        let length = u64::from(word & !CONTROL_BIT);
        match self {
            Self::Mixed(_) => length.checked_sub(HEAD_BYTES),
            Self::Hashed(_) => Some(length),
        }
    }

    fn tag(self, offset: u64, word: u32) -> u32 {
        match self {
            Self::Mixed(salt) => (mix(salt, offset, word) >> 32) as u32,
            Self::Hashed(salt) => {
                let mut hasher = Hasher::new();
                hasher.update(&salt.to_le_bytes());
                hasher.update(&offset.to_le_bytes());
                hasher.update(&word.to_le_bytes());
                hasher.finalize()
            }
        }
    }

    /// Difference between the checksum in a head and that of the body.
    fn mask(self, offset: u64, word: u32) -> u32 {
        match self {
            Self::Mixed(salt) => mix(salt, offset, word) as u32,
            // The checksum is that of the tag and the body together.
            Self::Hashed(_) => {
                let tag = self.tag(offset, word).to_le_bytes();
                let mut hasher = Hasher::new_with_initial_len(crc32fast::hash(&tag), 4);
                let body_bytes = u64::from(word & !CONTROL_BIT);
                hasher.combine(&Hasher::new_with_initial_len(0, body_bytes));
                hasher.finalize()
            }
        }
    }
}

/// The steps are those of `SplitMix64`.
fn mix(salt: u64, offset: u64, word: u32) -> u64 {
    let mut x = salt ^ offset.wrapping_mul(GOLDEN);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9).wrapping_add(word.into());
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The head of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes of the body, at most [`MAX_BODY_BYTES`].
    pub(crate) body_bytes: u64,
    /// Whether the body is something that the log says about itself.
    pub(crate) is_control: bool,
    /// CRC32 of the body.
    pub(crate) crc: u32,
}

impl Head {
    /// Head of a record with this body.
    pub(crate) fn of(is_control: bool, body: &[u8]) -> Self {
        Self { body_bytes: body.len() as u64, is_control, crc: crc32fast::hash(body) }
    }

    /// The bytes of the head of a record that will stand at this offset.
    pub(crate) fn encode(self, salt: Salt, offset: u64) -> [u8; HEAD_BYTES as usize] {
        let word = salt.word(self.body_bytes) | if self.is_control { CONTROL_BIT } else { 0 };
        let [l0, l1, l2, l3] = word.to_le_bytes();
        let [t0, t1, t2, t3] = salt.tag(offset, word).to_le_bytes();
        let [c0, c1, c2, c3] = (self.crc ^ salt.mask(offset, word)).to_le_bytes();
        [l0, l1, l2, l3, t0, t1, t2, t3, c0, c1, c2, c3]
    }

    /// Reads the head of the record at this offset.
    pub(crate) fn decode(
        bytes: &[u8; HEAD_BYTES as usize],
        salt: Salt,
        offset: u64,
    ) -> Result<Self, Reason> {
        let [l0, l1, l2, l3, t0, t1, t2, t3, c0, c1, c2, c3] = *bytes;
        let word = u32::from_le_bytes([l0, l1, l2, l3]);
        let tag = u32::from_le_bytes([t0, t1, t2, t3]);
        let check = u32::from_le_bytes([c0, c1, c2, c3]);
        if (word, tag, check) == (0, 0, 0) {
            return Err(Reason::Zeroes);
        }
        let body_bytes = salt.body_bytes(word).filter(|_| salt.tag(offset, word) == tag);
        Ok(Self {
            body_bytes: body_bytes.ok_or(Reason::RecordHeader)?,
            is_control: word & CONTROL_BIT != 0,
            crc: check ^ salt.mask(offset, word),
        })
    }
}

/// Bytes of magic and version, and of the checksum.
const FRAME_BYTES: usize = 8 + 4 + 4;

/// Size of a header with this many numbers.
pub(crate) const fn header_bytes(numbers: usize) -> u64 {
    (FRAME_BYTES + 8 * numbers) as u64
}

/// The header of a segment.
pub(crate) fn encode_header(magic: [u8; 8], version: u32, numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(header_bytes(numbers.len()) as usize);
    bytes.extend_from_slice(&magic);
    bytes.extend_from_slice(&version.to_le_bytes());
    for number in numbers {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Version and numbers of the header at the beginning of `bytes`; `None` if it is damaged or has
/// another magic. Later versions keep the length, so that they are recognised as what they are.
pub(crate) fn decode_header<const N: usize>(
    magic: [u8; 8],
    bytes: &[u8],
) -> Option<(u32, [u64; N])> {
    let header = bytes.get(..header_bytes(N) as usize)?;
    let (content, crc) = header.split_last_chunk()?;
    let (found, rest) = content.split_first_chunk()?;
    if *found != magic || u32::from_le_bytes(*crc) != crc32fast::hash(content) {
        return None;
    }
    let (version, rest) = rest.split_first_chunk()?;
    let mut numbers = [0; N];
    for (number, bytes) in numbers.iter_mut().zip(rest.chunks_exact(8)) {
        *number = u64::from_le_bytes(*bytes.first_chunk()?);
    }
    Some((u32::from_le_bytes(*version), numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_valid_only_where_it_was_written() {
        let salt = Salt::new(42, 7);
        let head = Head::of(true, b"abcde");
        let bytes = head.encode(salt, 100);
        assert_eq!(Head::decode(&bytes, salt, 100), Ok(head));
        let invalid = Err(Reason::RecordHeader);
        assert_eq!(Head::decode(&bytes, salt, 101), invalid, "another offset");
        assert_eq!(Head::decode(&bytes, Salt::new(42, 8), 100), invalid, "another segment");
        assert_eq!(Head::decode(&bytes, Salt::new(43, 7), 100), invalid, "another log");
        assert_eq!(Head::decode(&[0; 12], salt, 100), Err(Reason::Zeroes));
    }

    /// The layout is frozen: all later versions read it.
    #[test]
    fn the_bytes_are_frozen() {
        let record = |salt, offset, body: &[u8]| {
            let head = Head::of(false, body).encode(salt, offset);
            head.iter().chain(body).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
        };
        let salt = 0x0123_4567_89AB_CDEF;
        let hint = [&1_290_000_000_123u64.to_le_bytes()[..], b"abc"].concat();
        assert_eq!(record(Salt::Hashed(salt), 32, &hint), HINT_1);
        assert_eq!(record(Salt::new(salt, 7), 32, &hint), MIXED);
    }

    const HINT_1: &str = "0b0000004bf52a9ce1a269097be4fd592c010000616263";
    const MIXED: &str = "170000001ed7e65cec3ed12d7be4fd592c010000616263";

    #[test]
    fn a_header_comes_back_and_no_flipped_bit_passes() {
        let magic = *b"AlexTest";
        let numbers = [1, u64::MAX, 0x0123_4567_89AB_CDEF];
        let bytes = encode_header(magic, 7, &numbers);
        assert_eq!(bytes.len() as u64, header_bytes(3));
        assert_eq!(decode_header(magic, &bytes), Some((7, numbers)));
        assert_eq!(decode_header::<3>(*b"AlexOthr", &bytes), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_header::<3>(magic, &flipped), None, "bit {bit}");
        }
        assert_eq!(decode_header::<3>(magic, &bytes[..39]), None, "too short");
    }
}
