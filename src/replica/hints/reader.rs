//! The records of one segment, whatever state the file is in.

use std::io;
use std::sync::Arc;

use crate::base::fs::File;
use crate::storage::log::{Salt, SegmentReader};

use super::format::decode_hint;

/// Content of a segment at one place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// A hint.
    Hint {
        /// When it was stored, in milliseconds since the Unix epoch.
        created_ms: u64,
        /// The record of the mutation.
        mutation: &'a [u8],
    },
    /// The seal: nothing follows.
    Seal,
    /// Bytes that are no record.
    Unreadable {
        /// Where they begin.
        offset: u64,
        /// Their number.
        bytes: u64,
        /// Whether nothing follows them.
        is_tail: bool,
    },
}

/// Reads a segment from one of its records on, and passes over damage.
#[derive(Debug)]
pub(super) struct HintReader {
    segment: SegmentReader,
    salt: Salt,
    at: u64,
}

impl HintReader {
    /// Reads the bytes of a file from `at` to `end`.
    pub(super) fn new(file: Arc<dyn File>, salt: Salt, at: u64, end: u64) -> io::Result<Self> {
        Ok(Self { segment: SegmentReader::up_to(file, end)?, salt, at })
    }

    /// Where the next item begins. At the end: how far the file goes.
    pub(super) fn offset(&self) -> u64 {
        self.at
    }

    /// The next item; none at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Item<'_>>> {
        let (offset, end) = (self.at, self.segment.size());
        if offset >= end {
            return Ok(None);
        }
        let Ok(record) = self.segment.read(offset, self.salt)? else {
            let next = self.segment.find_next(offset, self.salt)?.start;
            self.at = next.unwrap_or(end);
            let (bytes, is_tail) = (self.at - offset, next.is_none());
            return Ok(Some(Item::Unreadable { offset, bytes, is_tail }));
        };
        self.at = record.end;
        if record.is_control {
            return Ok(Some(Item::Seal));
        }
        Ok(Some(match decode_hint(self.segment.body(record)) {
            Some((created_ms, mutation)) => Item::Hint { created_ms, mutation },
            None => Item::Unreadable { offset, bytes: record.end - offset, is_tail: false },
        }))
    }
}
