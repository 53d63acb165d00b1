//! Reading a segment, damaged or not.

use super::frame::{HEAD_BYTES, Head, Salt};
use super::{Reason, header_bytes};
use crate::base::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are read at first: enough for a look at a header or a seal.
const FIRST_BYTES: u64 = 4 << 10;

/// Bytes that are read at a time when reading goes on; more for a larger record.
const WINDOW_BYTES: u64 = 256 << 10;

/// Length and tag of a record, by which a place is recognised where one may begin.
const MARK_BYTES: usize = 8;

/// A segment file with a window on it. Memory is bounded by the size of the file, because the
/// length of a record is believed only if its tag is right and the file is long enough.
#[derive(Debug)]
pub(crate) struct SegmentReader {
    file: Arc<dyn File>,
    size: u64,
    window: Vec<u8>,
    window_at: u64,
    /// Least size of the next read.
    ahead: u64,
}

/// A sound record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// Start of its body.
    pub(crate) body_at: u64,
    /// Its end.
    pub(crate) end: u64,
    /// Whether the body is something that the log says about itself.
    pub(crate) is_control: bool,
}

/// Search result for the next valid record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NextRecord {
    /// Its start; none if there is no record.
    pub(crate) start: Option<u64>,
    /// End of the bytes that are not zero, looking no further than the next valid record.
    pub(crate) used_end: u64,
}

impl SegmentReader {
    /// A reader of a whole file.
    pub(crate) fn new(file: Arc<dyn File>) -> io::Result<Self> {
        Self::up_to(file, u64::MAX)
    }

    /// A reader of a file that takes what lies from `end` on for not written yet.
    pub(crate) fn up_to(file: Arc<dyn File>, end: u64) -> io::Result<Self> {
        let size = file.size()?.min(end);
        Ok(Self { file, size, window: Vec::new(), window_at: 0, ahead: FIRST_BYTES })
    }

    /// Size of what is read.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The bytes of a header with this many numbers, or those that there are of it.
    pub(crate) fn header(&mut self, numbers: usize) -> io::Result<&[u8]> {
        let length = header_bytes(numbers).min(self.size);
        Ok(self.bytes(0, length)?.unwrap_or_default())
    }

    /// Reads the record at `offset`, or says why there is none. Memory is taken only for lengths
    /// that are known to be right and lie within the file.
    pub(crate) fn read(&mut self, offset: u64, salt: Salt) -> io::Result<Result<Record, Reason>> {
        let Some(head) = self.head(offset)? else { return Ok(Err(Reason::CutShort)) };
        let Head { body_bytes, is_control, crc } = match Head::decode(&head, salt, offset) {
            Ok(head) => head,
            Err(reason) => return Ok(Err(reason)),
        };
        let body_at = offset + HEAD_BYTES;
        Ok(match self.bytes(body_at, body_bytes)? {
            None => Err(Reason::CutShort),
            Some(body) if crc32fast::hash(body) != crc => Err(Reason::Checksum),
            Some(_) => Ok(Record { body_at, end: body_at + body_bytes, is_control }),
        })
    }

    /// The body of the record that was read last.
    pub(crate) fn body(&self, record: Record) -> &[u8] {
        let range = self.within(record.body_at, record.end - record.body_at);
        range.and_then(|range| self.window.get(range)).unwrap_or_default()
    }

    /// The head at `offset`; none if the file ends before its end.
    pub(crate) fn head(&mut self, offset: u64) -> io::Result<Option<[u8; HEAD_BYTES as usize]>> {
        Ok(self.bytes(offset, HEAD_BYTES)?.and_then(|bytes| bytes.first_chunk().copied()))
    }

    /// Looks for the next valid record at or after `from`. A record may begin at any byte.
    pub(crate) fn find_next(&mut self, from: u64, salt: Salt) -> io::Result<NextRecord> {
        let mut at = from;
        let mut used_end = from;
        while at < self.size {
            let length = WINDOW_BYTES.min(self.size - at);
            let Some(bytes) = self.bytes(at, length)? else { break };
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let candidate = candidate(bytes.get(..used + MARK_BYTES).unwrap_or(bytes), at, salt);
            match candidate.map(|within| at + within as u64) {
                Some(next) if self.read(next, salt)?.is_ok() => {
                    return Ok(NextRecord { start: Some(next), used_end: next });
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
        Ok(NextRecord { start: None, used_end })
    }

    /// The bytes at `offset`; none if the file ends before their end.
    pub(crate) fn bytes(&mut self, offset: u64, length: u64) -> io::Result<Option<&[u8]>> {
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            return Ok(None);
        }
        if self.within(offset, length).is_none() {
            let wanted = length.max(self.ahead).min(self.size - offset);
            self.ahead = (2 * self.ahead).min(WINDOW_BYTES);
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
