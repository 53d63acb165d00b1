//! The records of one segment, whatever state the file is in.

use std::io;
use std::sync::Arc;

use crate::base::fs::File;

use super::format::{HEAD_BYTES, Head, Kind, decode_hint};

/// How much is read from the disk at once, if no record is larger.
const READ_BYTES: u64 = 256 << 10;

/// What stands at a place of a segment.
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
        /// How many they are.
        bytes: u64,
        /// Whether nothing follows them.
        is_tail: bool,
    },
}

/// Reads a segment from some record on. Memory is bounded by the size of the file, because the
/// length of a record is believed only if its tag is right and the file is long enough.
#[derive(Debug)]
pub(super) struct SegmentReader {
    file: Arc<dyn File>,
    salt: u64,
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
}

/// What could be a record.
enum Candidate {
    Sound(Head),
    /// The length is right, the rest is not.
    BadBody(u64),
    None,
}

impl SegmentReader {
    /// Reads the bytes of a file from `at` to `end`.
    pub(super) fn new(file: Arc<dyn File>, salt: u64, at: u64, end: u64) -> Self {
        Self { file, salt, at, end, window: Vec::new(), window_at: at }
    }

    /// Where the next item begins. At the end: how far the file goes.
    pub(super) fn offset(&self) -> u64 {
        self.at
    }

    /// The next item; none at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Item<'_>>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let start = self.at;
        let head = match self.candidate()? {
            Candidate::Sound(head) => head,
            bad => return self.pass_over(start, bad).map(Some),
        };
        self.at = start + HEAD_BYTES + head.body_bytes;
        let body_at = (start + HEAD_BYTES - self.window_at) as usize;
        let body = self.window.get(body_at..).unwrap_or_default();
        let body = body.get(..head.body_bytes as usize).unwrap_or_default();
        Ok(Some(match (head.kind, decode_hint(body)) {
            (Kind::Hint, Some((created_ms, mutation))) => Item::Hint { created_ms, mutation },
            _ => Item::Seal,
        }))
    }

    /// Goes on to the next sound record, or to the end.
    fn pass_over(&mut self, start: u64, mut bad: Candidate) -> io::Result<Item<'static>> {
        loop {
            self.at += match bad {
                Candidate::Sound(_) => break,
                Candidate::BadBody(bytes) => bytes,
                Candidate::None => 1,
            };
            if self.at >= self.end {
                break;
            }
            bad = self.candidate()?;
        }
        let is_tail = self.at >= self.end;
        Ok(Item::Unreadable { offset: start, bytes: self.at - start, is_tail })
    }

    /// What stands at the present place. A sound record is in the window then.
    fn candidate(&mut self) -> io::Result<Candidate> {
        let (salt, at) = (self.salt, self.at);
        let room = (self.end - at).saturating_sub(HEAD_BYTES);
        let head = self.load(HEAD_BYTES)?.and_then(|bytes| Head::decode(bytes, salt, at, room));
        let Some(head) = head else { return Ok(Candidate::None) };
        let length = HEAD_BYTES + head.body_bytes;
        let body = self.load(length)?.and_then(|record| record.get(HEAD_BYTES as usize..));
        Ok(match body {
            Some(body) if head.accepts(body) => Candidate::Sound(head),
            _ => Candidate::BadBody(length),
        })
    }

    /// So many bytes from the present place on, if the file has them.
    fn load(&mut self, length: u64) -> io::Result<Option<&[u8]>> {
        if length > self.end - self.at {
            return Ok(None);
        }
        let window_end = self.window_at + self.window.len() as u64;
        if self.at < self.window_at || self.at + length > window_end {
            self.fill(length.max(READ_BYTES).min(self.end - self.at))?;
            if length > self.end - self.at {
                return Ok(None);
            }
        }
        let from = (self.at - self.window_at) as usize;
        Ok(self.window.get(from..from + length as usize))
    }

    /// Reads so many bytes from the present place on. A file that is shorter than it was ends
    /// early.
    fn fill(&mut self, length: u64) -> io::Result<()> {
        self.window_at = self.at;
        self.window.clear();
        self.window.resize(length as usize, 0);
        let mut got = 0;
        while got < self.window.len() {
            match self.file.read_at(&mut self.window[got..], self.at + got as u64) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    // What was not read is not content.
                    self.window.clear();
                    return Err(e);
                }
            }
        }
        self.window.truncate(got);
        if (got as u64) < length {
            self.end = self.at + got as u64;
        }
        Ok(())
    }
}
