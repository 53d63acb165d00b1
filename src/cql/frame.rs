//! Frames of the native protocol.
//!
//! ```text
//!   version 1   flags 1   stream 2   opcode 1   length of the body 4   body
//! ```
//!
//! The high bit of the version marks a response. Until version 2 a stream has one byte. A
//! compressed body is its length before compression, 4 bytes, and a block of LZ4.

use super::wire::Malformed;

/// The supported versions, as the option of SUPPORTED has them.
pub(super) const VERSIONS: [(u8, &str); 2] = [(3, "3/v3"), (4, "4/v4")];

/// The version in which clients of others are answered.
pub(super) const GREATEST_VERSION: u8 = 4;

/// Bit of the version that marks a response.
const RESPONSE: u8 = 0x80;

/// Longest body of the protocol.
pub(super) const LONGEST_BODY: usize = 256 << 20;

/// Bytes of the head of versions 3 and later.
pub(super) const HEAD_BYTES: usize = 9;

/// Bodies of answers from this size on are compressed. Less gains nothing.
const LEAST_COMPRESSED: usize = 512;

/// Bytes of the length before a block of LZ4.
const PLAIN_LENGTH: usize = size_of::<u32>();

/// Flags of a frame.
pub(super) mod flag {
    pub(crate) const COMPRESSED: u8 = 1;
    pub(crate) const CUSTOM_PAYLOAD: u8 = 4;
    pub(crate) const WARNING: u8 = 8;
}

/// Opcodes. The numbers are part of the protocol: never change them.
pub(super) mod opcode {
    pub(crate) const ERROR: u8 = 0x00;
    pub(crate) const STARTUP: u8 = 0x01;
    pub(crate) const READY: u8 = 0x02;
    pub(crate) const AUTHENTICATE: u8 = 0x03;
    pub(crate) const OPTIONS: u8 = 0x05;
    pub(crate) const SUPPORTED: u8 = 0x06;
    pub(crate) const QUERY: u8 = 0x07;
    pub(crate) const RESULT: u8 = 0x08;
    pub(crate) const PREPARE: u8 = 0x09;
    pub(crate) const EXECUTE: u8 = 0x0A;
    pub(crate) const REGISTER: u8 = 0x0B;
    pub(crate) const EVENT: u8 = 0x0C;
    pub(crate) const BATCH: u8 = 0x0D;
    pub(crate) const AUTH_RESPONSE: u8 = 0x0F;
    pub(crate) const AUTH_SUCCESS: u8 = 0x10;

    /// Requests by name.
    const REQUESTS: [(u8, &str); 8] = [
        (STARTUP, "STARTUP"),
        (OPTIONS, "OPTIONS"),
        (QUERY, "QUERY"),
        (PREPARE, "PREPARE"),
        (EXECUTE, "EXECUTE"),
        (REGISTER, "REGISTER"),
        (BATCH, "BATCH"),
        (AUTH_RESPONSE, "AUTH_RESPONSE"),
    ];

    /// Name of a request; `None` for what is none.
    pub(crate) fn request_name(opcode: u8) -> Option<&'static str> {
        REQUESTS.iter().find(|(code, _)| *code == opcode).map(|(_, name)| *name)
    }
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// First byte, with the mark of responses.
    pub(super) version: u8,
    pub(super) flags: u8,
    pub(super) stream: i16,
    pub(super) opcode: u8,
    /// Bytes of the body.
    pub(super) length: u32,
}

impl Head {
    /// The head at the start of these bytes; `None` if they are too few.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        match *bytes.first_chunk::<HEAD_BYTES>().map_or(bytes, |head| head.as_slice()) {
            [version, flags, stream, opcode, a, b, c, d, ..] if Self::is_narrow(version) => {
                let length = u32::from_be_bytes([a, b, c, d]);
                Some(Self { version, flags, stream: i16::from(stream as i8), opcode, length })
            }
            [version, flags, stream_high, stream_low, opcode, a, b, c, d] => {
                let stream = i16::from_be_bytes([stream_high, stream_low]);
                let length = u32::from_be_bytes([a, b, c, d]);
                Some(Self { version, flags, stream, opcode, length })
            }
            _ => None,
        }
    }

    /// Whether streams of this version have one byte.
    fn is_narrow(version: u8) -> bool {
        matches!(version & !RESPONSE, 1 | 2)
    }

    /// Bytes of the head itself.
    pub(super) fn own_length(&self) -> usize {
        if Self::is_narrow(self.version) { HEAD_BYTES - 1 } else { HEAD_BYTES }
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Why a frame is no request of a supported version.
    pub(super) fn fault(&self) -> Option<Malformed> {
        let Self { version, opcode, .. } = *self;
        if version & RESPONSE != 0 {
            let why = format!(
                "Wrong protocol direction (expected REQUEST, got RESPONSE) for opcode {opcode}"
            );
            return Some(Malformed::new(why));
        }
        if !VERSIONS.iter().any(|(supported, _)| *supported == version) {
            let supported = VERSIONS.map(|(_, name)| name).join(", ");
            let why = format!(
                "Invalid or unsupported protocol version ({version}); supported versions are \
                 ({supported})"
            );
            return Some(Malformed::new(why));
        }
        if opcode::request_name(opcode).is_none() {
            return Some(Malformed::new(format!("Unknown opcode {opcode}")));
        }
        None
    }

    /// Version of the answer: that of the request, as far as its client can read it.
    pub(super) fn answer_version(&self) -> u8 {
        (self.version & !RESPONSE).clamp(1, GREATEST_VERSION)
    }
}

/// Begins a response: its head, whose flags and length [`end`] sets.
pub(super) fn begin(version: u8, stream: i16, opcode: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[RESPONSE | version, 0]);
    if Head::is_narrow(version) {
        out.push(stream as u8);
    } else {
        out.extend_from_slice(&stream.to_be_bytes());
    }
    out.push(opcode);
    out.extend_from_slice(&[0; 4]);
}

/// Sets flags and length of the response that these bytes are, and compresses its body if that is
/// asked for and gains something.
pub(super) fn end(mut flags: u8, compresses: bool, out: &mut Vec<u8>) {
    let is_narrow = out.first().is_some_and(|version| Head::is_narrow(*version));
    let body_at = if is_narrow { HEAD_BYTES - 1 } else { HEAD_BYTES };
    let body = out.get(body_at..).unwrap_or_default();
    if compresses && body.len() >= LEAST_COMPRESSED {
        let mut packed = (body.len() as u32).to_be_bytes().to_vec();
        packed.extend_from_slice(&lz4_flex::block::compress(body));
        if packed.len() < body.len() {
            flags |= flag::COMPRESSED;
            out.truncate(body_at);
            out.append(&mut packed);
        }
    }
    let length = (out.len().saturating_sub(body_at) as u32).to_be_bytes();
    if let Some(place) = out.get_mut(body_at - length.len()..body_at) {
        place.copy_from_slice(&length);
    }
    if let Some(place) = out.get_mut(1) {
        *place = flags;
    }
}

/// Length of a compressed body before compression.
pub(super) fn plain_length(compressed: &[u8]) -> Result<usize, Malformed> {
    let Some((length, _)) = compressed.split_first_chunk::<PLAIN_LENGTH>() else {
        return Err(Malformed::new("The compressed body is too short"));
    };
    Ok(u32::from_be_bytes(*length) as usize)
}

/// Decompresses a body, whose length before compression was accepted.
pub(super) fn decompress(compressed: &[u8]) -> Result<Vec<u8>, Malformed> {
    let plain = plain_length(compressed)?;
    let block = compressed.get(PLAIN_LENGTH..).unwrap_or_default();
    let failed = |error| Malformed::new(format!("The body cannot be decompressed: {error}"));
    let body = lz4_flex::block::decompress(block, plain).map_err(failed)?;
    if body.len() != plain {
        return Err(Malformed::new("The body is shorter than it was before compression"));
    }
    Ok(body)
}
