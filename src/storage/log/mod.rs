//! Record log: the format and the reader that the commit log and the hints share.
//!
//! A segment is one file. All numbers are little-endian.
//!
//! ```text
//! segment   header | record | record | ...
//!
//! header     0  8  magic
//!            8  4  version
//!           12  8  number, repeated: how many there are, magic and version say
//!           ..  4  CRC32 of all bytes before
//!
//! record     0  4  length of the record with this head; the top bit marks a control record
//!            4  4  tag: high half of mix(salt, offset, length)
//!            8  4  CRC32 of the body, exclusive or with the low half of the same mix
//!           12     body
//! ```
//!
//! The tag ties a record to its place: the salt is drawn from a random number of the log and the
//! number of the segment. Bytes of a deleted segment that the file system gave to this one, a
//! record image inside a client's value, and a record that a copying tool has moved do not pass,
//! and a length is known to be right before anything of that length is read.
//!
//! What an unreadable part means is not decided here: the commit log refuses to start over damage
//! that had been synced, the hints skip it, count it and warn.

mod frame;
mod reader;

pub(crate) use frame::{
    HEAD_BYTES, Head, MAX_BODY_BYTES, Salt, decode_header, encode_header, header_bytes,
};
pub(crate) use reader::SegmentReader;

/// Largest number of a segment; so far below the end of the numbers that counting up from any file
/// cannot overflow.
const MAX_NUMBER: u64 = i64::MAX as u64;

/// The number of a segment whose file name has these digits; none for digits that are written in
/// another way than numbers of segments are.
pub(crate) fn parse_number(digits: &str) -> Option<u64> {
    let number: u64 = digits.parse().ok()?;
    ((1..=MAX_NUMBER).contains(&number) && number.to_string() == digits).then_some(number)
}

/// Why there is no record at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum Reason {
    /// The file should be there and is not.
    #[display("the segment is missing")]
    Missing,
    /// The segment does not begin with a valid header.
    #[display("the segment header is invalid")]
    Header,
    /// There is no valid record header.
    #[display("no valid record header")]
    RecordHeader,
    /// The record header is valid and the body is not what was written.
    #[display("the checksum of a record does not match")]
    Checksum,
    /// One bit of a record is not what was written.
    #[display("one bit of a record has flipped")]
    FlippedBit,
    /// Zeroes, where a record had been written.
    #[display("zeroes in place of a record")]
    Zeroes,
    /// The file is shorter than it was made.
    #[display("the file is shorter than it was made, and may have lost acknowledged writes")]
    Truncated,
    /// The file ends, or seems to end, before what had been synced.
    #[display("the segment ends before what had been synced")]
    CutShort,
    /// The checksum is right but the content is not known to this program.
    #[display("a control record of unknown content")]
    UnknownRecord,
}
