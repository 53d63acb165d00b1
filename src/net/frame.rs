//! Frames: how messages stand one after the other on a connection.
//!
//! ```text
//! u32 magic       ca 55 2d fa
//! u32 header int  bit 3: a file follows, up to the end of the connection
//!                 bit 4: the payload ends in a checksum (an extension)
//!                 bits 8 to 15: version, always 1
//! i32 length, payload         unless a file follows
//! ```
//!
//! A node of 0.6 looks only at the magic and at bit 3. It sends the whole of its buffer, so a
//! payload is a message and often some zeroes after it, which it ignores. So it ignores the
//! checksum too: the CRC-32 of all of the payload before it.

use crate::base::bytes::ByteReader;

/// Advice about nodes of releases that speak otherwise.
pub(super) const WAY_OUT: &str = "such a node cannot share a ring with this server. Stop the whole \
     ring and take all its nodes over together: docs/takeover.md";

/// First bytes of a message of 0.4 or 0.5.
const OLD_MAGIC: u32 = 0x541c_095f;

/// First two bytes of a connection of TLS.
const TLS_HANDSHAKE: u32 = 0x1603;

/// First bytes of every frame.
const MAGIC: u32 = 0xca55_2dfa;

/// Version 1 and no bits.
const HEADER: u32 = 0x0100;

/// A file follows, without length.
const FILE_STREAM: u32 = 0x08;

/// The last four bytes of the payload are a checksum.
const CHECKSUMMED: u32 = 0x10;

/// First bytes of a connection that carries a file and nothing else.
pub const FILE_HEAD: [u8; 8] = [0xca, 0x55, 0x2d, 0xfa, 0, 0, 0x01, 0x08];

/// Longest payload that is sent or accepted, in bytes. A node of 0.6 allocates any announced
/// length, and ends if that fails.
pub const MAX_FRAME_BYTES: usize = 128 << 20;

/// Longest message that is sent: its payload may end with a checksum.
pub const MAX_MESSAGE_BYTES: usize = MAX_FRAME_BYTES - CHECKSUM_BYTES;

/// Bytes in front of a payload.
pub const HEAD_BYTES: usize = 12;

/// The largest frame, which is all that a buffer has to hold.
const MOST_BYTES: usize = HEAD_BYTES + MAX_FRAME_BYTES;

const CHECKSUM_BYTES: usize = 4;

/// Room for reading that a connection keeps. Memory of longer messages is given back.
pub const INITIAL_BYTES: usize = 64 << 10;

/// Appends a message in its frame. With a checksum only for a peer that announced that it checks
/// them, though any would read the message.
///
/// Appends nothing, and returns false, if no frame can hold the message.
pub fn put_frame(out: &mut Vec<u8>, message: &[u8], checksummed: bool) -> bool {
    let length = message.len() + if checksummed { CHECKSUM_BYTES } else { 0 };
    if length > MAX_FRAME_BYTES {
        return false;
    }
    let header = if checksummed { HEADER | CHECKSUMMED } else { HEADER };
    out.reserve(HEAD_BYTES + length);
    out.extend_from_slice(&MAGIC.to_be_bytes());
    out.extend_from_slice(&header.to_be_bytes());
    out.extend_from_slice(&(length as u32).to_be_bytes());
    out.extend_from_slice(message);
    if checksummed {
        out.extend_from_slice(&crc32fast::hash(message).to_be_bytes());
    }
    true
}

/// The next item of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A message, perhaps with meaningless bytes after it.
    Message(&'a [u8]),
    /// All further bytes of the connection are a file: see [`FrameReader::rest`].
    FileStream,
}

/// Why a connection cannot be read any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// No node speaks here.
    #[error("wrong magic {0:08x}")]
    Magic(u32),
    /// A handshake begins where plain text is spoken.
    #[error("it speaks TLS, and StorageTls is off here")]
    Tls,
    /// Nodes of 0.4 and 0.5 speak another protocol.
    #[error("Cassandra 0.4 or 0.5 runs there: {WAY_OUT}")]
    Old,
    /// The length is negative or too large.
    #[error("a payload of {0} bytes is announced, of at most {MAX_FRAME_BYTES}")]
    Length(i32),
    /// The bytes were damaged.
    #[error("the checksum of a message is wrong: it was damaged on its way")]
    Checksum,
    /// A connection of messages turns into one of a file.
    #[error("a file stream begins on a connection of messages")]
    Mixed,
}

/// Splits the bytes of a connection into frames. Its memory grows only with bytes that have
/// arrived, never with an announced length.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// All of it is initialised; unused bytes that were read stand in `start..end`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether a message was read: then the connection carries no file.
    is_of_messages: bool,
}

impl FrameReader {
    /// A reader of a new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for the next bytes. Never empty after [`FrameReader::next_frame`] has returned `None`.
    pub fn space(&mut self) -> &mut [u8] {
        let used = self.end - self.start;
        if used == 0 {
            (self.start, self.end) = (0, 0);
        }
        if self.buffer.len() > INITIAL_BYTES && used <= INITIAL_BYTES / 2 && !self.is_long() {
            let mut smaller = vec![0; INITIAL_BYTES];
            smaller[..used].copy_from_slice(&self.buffer[self.start..self.end]);
            (self.buffer, self.start, self.end) = (smaller, 0, used);
        }
        let growth = self.growth();
        if growth > 0 {
            let mut larger = vec![0; self.buffer.len() + growth];
            larger[..used].copy_from_slice(&self.buffer[self.start..self.end]);
            (self.buffer, self.start, self.end) = (larger, 0, used);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, used);
        }
        &mut self.buffer[self.end..]
    }

    /// By how many bytes the next [`FrameReader::space`] enlarges the memory. It at most doubles,
    /// only when arrived bytes take most of it, and not beyond the frame.
    pub fn growth(&self) -> usize {
        let (used, length) = (self.end - self.start, self.buffer.len());
        if length == 0 {
            return INITIAL_BYTES;
        }
        if self.end < length || used <= length / 2 {
            return 0;
        }
        let frame = self.told_length().map_or(MOST_BYTES, |told| told.max(used + 1));
        length.min(frame.max(length + INITIAL_BYTES) - length).min(MOST_BYTES - length)
    }

    /// Announced length of the next frame.
    fn told_length(&self) -> Option<usize> {
        let told = self.rest().get(8..HEAD_BYTES)?.first_chunk()?;
        Some(HEAD_BYTES.saturating_add(u32::from_be_bytes(*told) as usize))
    }

    /// Whether the next frame needs more than the room that a connection keeps.
    fn is_long(&self) -> bool {
        self.told_length().is_some_and(|told| told > INITIAL_BYTES)
    }

    /// Says that `count` bytes were put into [`FrameReader::space`].
    ///
    /// # Panics
    /// If the room is smaller than `count`.
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.buffer.len() - self.end, "more bytes than there was room for");
        self.end += count;
    }

    /// Bytes of memory that it holds.
    pub fn held(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes that arrived and are not used yet. Behind [`Frame::FileStream`], the beginning of the
    /// file.
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The next frame; `None` if more bytes have to come first. After an error the connection is of
    /// no use.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let mut reader = ByteReader::new(self.rest());
        let Ok(magic) = reader.u32() else { return Ok(None) };
        if magic != MAGIC {
            return Err(match magic {
                OLD_MAGIC => FrameError::Old,
                _ if magic >> 16 == TLS_HANDSHAKE => FrameError::Tls,
                _ => FrameError::Magic(magic),
            });
        }
        let Ok(header) = reader.u32() else { return Ok(None) };
        if header & FILE_STREAM != 0 {
            if self.is_of_messages {
                return Err(FrameError::Mixed);
            }
            self.start += 8;
            return Ok(Some(Frame::FileStream));
        }
        let Ok(told) = reader.i32() else { return Ok(None) };
        let length = usize::try_from(told).ok().filter(|&length| length <= MAX_FRAME_BYTES);
        let length = length.ok_or(FrameError::Length(told))?;
        if reader.rest().len() < length {
            return Ok(None);
        }
        self.is_of_messages = true;
        let payload = self.start + HEAD_BYTES;
        self.start = payload + length;
        let payload = &self.buffer[payload..self.start];
        if header & CHECKSUMMED == 0 {
            return Ok(Some(Frame::Message(payload)));
        }
        let (message, checksum) =
            payload.split_last_chunk::<CHECKSUM_BYTES>().ok_or(FrameError::Checksum)?;
        if crc32fast::hash(message) != u32::from_be_bytes(*checksum) {
            return Err(FrameError::Checksum);
        }
        Ok(Some(Frame::Message(message)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn feed(reader: &mut FrameReader, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = reader.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            reader.filled(count);
            bytes = &bytes[count..];
        }
    }

    fn framed(message: &[u8], checksummed: bool) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(put_frame(&mut out, message, checksummed));
        out
    }

    #[test]
    fn a_frame_has_its_bytes() {
        let head = [0xca, 0x55, 0x2d, 0xfa, 0, 0, 1, 0, 0, 0, 0, 2];
        assert_eq!(framed(b"ab", false), [&head[..], b"ab"].concat());
        let head = [0xca, 0x55, 0x2d, 0xfa, 0, 0, 1, 0x10, 0, 0, 0, 6];
        let checksum = crc32fast::hash(b"ab").to_be_bytes();
        assert_eq!(framed(b"ab", true), [&head[..], b"ab", &checksum].concat());
    }

    #[test]
    fn what_cannot_be_read_is_told_apart() {
        let read = |bytes: &[u8]| {
            let mut reader = FrameReader::new();
            feed(&mut reader, bytes);
            reader.next_frame().map(|frame| frame.is_some())
        };
        let with_length =
            |length: [u8; 4]| [&[0xca, 0x55, 0x2d, 0xfa, 0, 0, 1, 0], &length[..]].concat();
        assert_eq!(read(b"GET / HTTP/1.1"), Err(FrameError::Magic(0x4745_5420)));
        assert_eq!(read(&OLD_MAGIC.to_be_bytes()), Err(FrameError::Old));
        assert_eq!(read(&[0x16, 3, 1, 2, 0]), Err(FrameError::Tls));
        assert_eq!(read(&with_length([0xff; 4])), Err(FrameError::Length(-1)));
        assert_eq!(read(&with_length([0x7f, 0, 0, 0])), Err(FrameError::Length(0x7f00_0000)));
        // The largest that is accepted takes no room before it is there.
        let mut reader = FrameReader::new();
        feed(&mut reader, &with_length((MAX_FRAME_BYTES as u32).to_be_bytes()));
        assert_eq!(reader.next_frame(), Ok(None));
        assert_eq!(reader.held(), INITIAL_BYTES);

        let mut damaged = framed(b"message", true);
        damaged[HEAD_BYTES + 2] ^= 1;
        assert_eq!(read(&damaged), Err(FrameError::Checksum));
        damaged[11] = 3;
        assert_eq!(read(&damaged), Err(FrameError::Checksum));
        let large = vec![0; MAX_FRAME_BYTES - 3];
        assert!(!put_frame(&mut Vec::new(), &large, true));
    }

    #[test]
    fn a_file_stream_is_the_rest_of_its_connection() {
        let file = [&FILE_HEAD[..], &[1, 2, 3]].concat();
        let mut reader = FrameReader::new();
        feed(&mut reader, &file);
        assert_eq!(reader.next_frame(), Ok(Some(Frame::FileStream)));
        assert_eq!(reader.rest(), [1, 2, 3]);
        let mut reader = FrameReader::new();
        feed(&mut reader, &framed(b"a", false));
        feed(&mut reader, &file);
        assert_eq!(reader.next_frame(), Ok(Some(Frame::Message(b"a"))));
        assert_eq!(reader.next_frame(), Err(FrameError::Mixed));
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(
            messages in vec((vec(0u8.., 0..200), any::<bool>()), 0..20),
            large in 0usize..9 * INITIAL_BYTES,
            place in any::<prop::sample::Index>(),
            piece in 1usize..5000,
        ) {
            let mut messages = messages;
            messages.insert(place.index(messages.len() + 1), (vec![7; large], true));
            let bytes: Vec<u8> = messages.iter().flat_map(|(m, sum)| framed(m, *sum)).collect();
            let (mut reader, mut read) = (FrameReader::new(), Vec::new());
            for piece in bytes.chunks(piece) {
                feed(&mut reader, piece);
                while let Some(frame) = reader.next_frame().unwrap() {
                    let Frame::Message(payload) = frame else { panic!("no file was sent") };
                    read.push(payload.to_vec());
                }
                prop_assert!(reader.held() <= INITIAL_BYTES.max(4 * bytes.len()));
            }
            prop_assert!(reader.rest().is_empty());
            reader.space();
            prop_assert!(reader.held() <= INITIAL_BYTES);
            prop_assert!(read.iter().eq(messages.iter().map(|(message, _)| message)));
        }

        #[test]
        fn any_bytes_are_read_without_panic(
            magic in any::<bool>(), bytes in vec(0u8.., 0..40), piece in 1usize..9,
        ) {
            let mut reader = FrameReader::new();
            if magic {
                feed(&mut reader, &MAGIC.to_be_bytes());
            }
            for piece in bytes.chunks(piece) {
                feed(&mut reader, piece);
                while let Ok(Some(Frame::Message(_))) = reader.next_frame() {}
            }
            prop_assert!(reader.held() <= INITIAL_BYTES);
        }
    }
}
