//! Reading a segment, be it damaged.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::base::fs::File;

use super::error::Reason;
use super::flipped;
use super::format::{Control, HEAD_BYTES, HEADER_BYTES, Head, Salt};

/// How much is read at a time; more for a larger record.
const WINDOW_BYTES: u64 = 1 << 20;

/// Length and tag of a record, by which a place is recognised where one may begin.
const MARK_BYTES: usize = 8;

/// Where the checksum stands in the head of a record.
const CHECKSUM_AT: usize = 8;

/// A segment file with a window on it.
#[derive(Debug)]
pub(super) struct SegmentReader {
    file: Arc<dyn File>,
    size: u64,
    window: Vec<u8>,
    window_at: u64,
}

/// What stands at an offset.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// A record of the caller.
    Record {
        /// Where it ends.
        end: u64,
        /// Its body.
        body: &'a [u8],
    },
    /// A record of the log itself.
    Control {
        /// Where it ends.
        end: u64,
        /// What it says.
        control: Control,
    },
    /// Nothing that can be read: the end of what was written, or damage.
    Nothing(Reason),
}

/// What lies behind an unreadable place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Behind {
    /// Where the next valid record begins.
    pub(super) next: Option<u64>,
    /// Where the bytes end that are not zero, looking no further than the next valid record.
    pub(super) used_end: u64,
}

impl SegmentReader {
    /// A reader of this file.
    pub(super) fn new(file: Arc<dyn File>) -> io::Result<Self> {
        let size = file.size()?;
        Ok(Self { file, size, window: Vec::new(), window_at: 0 })
    }

    /// Size of the file.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The bytes of the segment header; none if the file is shorter.
    pub(super) fn header(&mut self) -> io::Result<Option<[u8; HEADER_BYTES as usize]>> {
        Ok(self.bytes(0, HEADER_BYTES)?.and_then(|bytes| bytes.first_chunk().copied()))
    }

    /// Reads what stands at `offset`. Memory is taken only for lengths that are known to be right
    /// and lie within the file.
    pub(super) fn read(&mut self, offset: u64, salt: Salt) -> io::Result<Found<'_>> {
        let Some(head) = self.bytes(offset, HEAD_BYTES)?.and_then(|bytes| bytes.first_chunk())
        else {
            return Ok(Found::Nothing(Reason::CutShort));
        };
        let (body_bytes, control, crc) = match Head::decode(head, salt, offset) {
            Head::Zero => return Ok(Found::Nothing(Reason::Zeroes)),
            Head::Invalid => return Ok(Found::Nothing(Reason::RecordHeader)),
            Head::Record { body_bytes, control, crc } => (body_bytes, control, crc),
        };
        let end = offset + HEAD_BYTES + body_bytes;
        let Some(body) = self.bytes(offset + HEAD_BYTES, body_bytes)? else {
            return Ok(Found::Nothing(Reason::CutShort));
        };
        if crc32fast::hash(body) != crc {
            return Ok(Found::Nothing(Reason::Checksum));
        }
        if !control {
            return Ok(Found::Record { end, body });
        }
        Ok(match Control::decode(body) {
            Some(control) => Found::Control { end, control },
            None => Found::Nothing(Reason::UnknownRecord),
        })
    }

    /// Whether one flipped bit is all that keeps a record from being read at `offset`.
    pub(super) fn has_flipped_bit(&mut self, offset: u64, salt: Salt) -> io::Result<bool> {
        let Some(head) = self.bytes(offset, HEAD_BYTES)?.and_then(|bytes| bytes.first_chunk())
        else {
            return Ok(false);
        };
        let head = *head;
        if let Head::Record { body_bytes, crc, .. } = Head::decode(&head, salt, offset) {
            let Some(record) = self.bytes(offset, HEAD_BYTES + body_bytes)? else {
                return Ok(false);
            };
            let body = &record[HEAD_BYTES as usize..];
            let difference = crc32fast::hash(body) ^ crc;
            let byte = if difference.is_power_of_two() {
                Some(CHECKSUM_AT + difference.trailing_zeros() as usize / 8)
            } else {
                flipped::one_bit_off(body, difference).map(|at| HEAD_BYTES as usize + at)
            };
            return Ok(byte.is_some_and(|byte| !flipped::may_be_torn(record, offset, byte)));
        }
        for (byte, neighbour) in flipped::neighbours(head, salt, offset) {
            let Head::Record { body_bytes, crc, .. } = neighbour else { continue };
            let Some(record) = self.bytes(offset, HEAD_BYTES + body_bytes)? else { continue };
            if crc32fast::hash(&record[HEAD_BYTES as usize..]) == crc
                && !flipped::may_be_torn(record, offset, byte)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks for the next valid record at or behind `from`. A record may begin at any byte.
    pub(super) fn look_behind(&mut self, from: u64, salt: Salt) -> io::Result<Behind> {
        let mut at = from;
        let mut used_end = from;
        while at < self.size {
            let length = WINDOW_BYTES.min(self.size - at);
            let Some(bytes) = self.bytes(at, length)? else { break };
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let candidate = candidate(bytes.get(..used + MARK_BYTES).unwrap_or(bytes), at, salt);
            match candidate.map(|within| at + within as u64) {
                Some(next) if !matches!(self.read(next, salt)?, Found::Nothing(_)) => {
                    return Ok(Behind { next: Some(next), used_end: next });
                }
                Some(mistaken) => at = mistaken + 1,
                None => {
                    if used > 0 {
                        used_end = used_end.max(at + used as u64);
                    }
                    // A mark may lie across the border of two windows.
                    let whole = at + length == self.size;
                    at += if whole { length } else { length - MARK_BYTES as u64 };
                }
            }
        }
        Ok(Behind { next: None, used_end })
    }

    /// The bytes at `offset`; none if the file ends before their end.
    fn bytes(&mut self, offset: u64, length: u64) -> io::Result<Option<&[u8]>> {
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            return Ok(None);
        }
        if self.within(offset, length).is_none() {
            let wanted = length.max(WINDOW_BYTES).min(self.size - offset);
            self.window.resize(wanted as usize, 0);
            self.window_at = offset;
            if let Err(error) = self.file.read_exact_at(&mut self.window, offset) {
                self.window.clear();
                return Err(error);
            }
        }
        Ok(self.within(offset, length).and_then(|range| self.window.get(range)))
    }

    fn within(&self, offset: u64, length: u64) -> Option<Range<usize>> {
        let start = offset.checked_sub(self.window_at)?;
        let end = start.checked_add(length)?;
        (end <= self.window.len() as u64).then_some(start as usize..end as usize)
    }
}

/// The first place in `bytes`, which stand at `offset`, where a record may begin.
fn candidate(bytes: &[u8], offset: u64, salt: Salt) -> Option<usize> {
    bytes.windows(MARK_BYTES).enumerate().position(|(at, mark)| {
        let (word, tag) = mark.split_at(MARK_BYTES / 2);
        let number = |bytes: &[u8]| bytes.first_chunk().map(|four| u32::from_le_bytes(*four));
        let (Some(word), Some(tag)) = (number(word), number(tag)) else { return false };
        word != 0 && salt.admits(offset + at as u64, word, tag)
    })
}
