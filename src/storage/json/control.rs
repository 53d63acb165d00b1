//! Raw control characters in texts of JSON, which the original writes and reads.

use std::io::{self, Read, Write};

/// Bytes read at a time.
const CHUNK_BYTES: usize = 16 << 10;

/// Escapes control characters within strings. `sstable2json` of the original writes row keys as
/// they are, a tab or a zero among them, and its `json2sstable` takes that; a strict parser does
/// not.
pub(super) struct Escaping<R> {
    text: R,
    chunk: Box<[u8]>,
    escaped: Vec<u8>,
    /// Bytes of `escaped` that were handed out.
    taken: usize,
    is_in_string: bool,
    /// Whether the last byte was a backslash that escapes the next one.
    is_after_escape: bool,
}

impl<R: Read> Escaping<R> {
    pub(super) fn new(text: R) -> Self {
        Self {
            text,
            chunk: vec![0; CHUNK_BYTES].into(),
            escaped: Vec::with_capacity(CHUNK_BYTES),
            taken: 0,
            is_in_string: false,
            is_after_escape: false,
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let length = self.text.read(&mut self.chunk)?;
        self.escaped.clear();
        self.taken = 0;
        for &byte in &self.chunk[..length] {
            let is_escaped = std::mem::take(&mut self.is_after_escape);
            if self.is_in_string && !is_escaped && byte < b' ' {
                write!(self.escaped, "\\u{byte:04x}")?;
                continue;
            }
            match byte {
                b'"' if !is_escaped => self.is_in_string = !self.is_in_string,
                b'\\' => self.is_after_escape = self.is_in_string && !is_escaped,
                _ => {}
            }
            self.escaped.push(byte);
        }
        Ok(())
    }
}

impl<R: Read> Read for Escaping<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.escaped.len() {
            self.fill()?;
        }
        let length = (&self.escaped[self.taken..]).read(buffer)?;
        self.taken += length;
        Ok(length)
    }
}
