//! Texts within JSON: row keys, hexadecimal digits, and what a strict parser does not take.

use crate::base::hex::{hex, unhex};
use std::borrow::Cow;
use std::io::{self, Read};

/// Beginning of the text of a key that is not UTF-8.
const HEX_MARK: &str = "\0hex:";

/// The text that stands for a key, which [`parse_key`] reads; not escaped yet.
pub fn key_text(key: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(key) {
        Ok(text) if !text.starts_with(HEX_MARK) => Cow::Borrowed(text),
        _ => Cow::Owned(format!("{HEX_MARK}{}", hex(key))),
    }
}

/// The key that a text stands for; `None` if it begins like hexadecimal digits and has others.
pub fn parse_key(text: &str) -> Option<Vec<u8>> {
    match text.strip_prefix(HEX_MARK) {
        Some(digits) => unhex(digits),
        None => Some(text.as_bytes().to_vec()),
    }
}

/// Bytes read at a time.
const CHUNK_BYTES: usize = 16 << 10;

/// Bytes of an escape such as `\u0009`.
const UNICODE_ESCAPE_BYTES: usize = 6;

/// Escapes control characters within strings, and backslashes that begin no escape. `sstable2json`
/// of the original writes row keys as they are, and its `json2sstable` takes that; a strict parser
/// does not.
pub(super) struct Escaping<R> {
    text: R,
    chunk: Box<[u8]>,
    escaped: Vec<u8>,
    /// Bytes of `escaped` that were handed out.
    taken: usize,
    is_in_string: bool,
    /// A backslash within a string and what follows it, as long as it may become an escape.
    begun: Vec<u8>,
}

impl<R: Read> Escaping<R> {
    pub(super) fn new(text: R) -> Self {
        Self {
            text,
            chunk: vec![0; CHUNK_BYTES].into(),
            escaped: Vec::with_capacity(CHUNK_BYTES),
            taken: 0,
            is_in_string: false,
            begun: Vec::new(),
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let length = self.text.read(&mut self.chunk)?;
        self.escaped.clear();
        self.taken = 0;
        for at in 0..length {
            self.take(self.chunk[at]);
        }
        if length == 0 {
            self.escaped.append(&mut self.begun);
        }
        Ok(())
    }

    fn take(&mut self, byte: u8) {
        match self.begun.len() {
            0 => self.take_plain(byte),
            1 if matches!(byte, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.begun.push(byte);
                self.escaped.append(&mut self.begun);
            }
            1 if byte == b'u' => self.begun.push(byte),
            2.. if byte.is_ascii_hexdigit() => {
                self.begun.push(byte);
                if self.begun.len() == UNICODE_ESCAPE_BYTES {
                    self.escaped.append(&mut self.begun);
                }
            }
            _ => {
                self.escaped.push(b'\\');
                self.escaped.append(&mut self.begun);
                self.take_plain(byte);
            }
        }
    }

    fn take_plain(&mut self, byte: u8) {
        match byte {
            b'\\' if self.is_in_string => return self.begun.push(byte),
            b'"' => self.is_in_string = !self.is_in_string,
            _ => {}
        }
        if self.is_in_string && byte < b' ' {
            self.escaped.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
        } else {
            self.escaped.push(byte);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_key_comes_back(key: Vec<u8>, marked: bool) {
            let key = if marked { [HEX_MARK.as_bytes(), &key].concat() } else { key };
            prop_assert_eq!(parse_key(&key_text(&key)), Some(key));
        }
    }

    #[test]
    fn text_stays_as_it_is() {
        assert_eq!(key_text("caf\u{e9}:\"x\"".as_bytes()), "caf\u{e9}:\"x\"");
        assert_eq!(key_text(b"\xff\x00"), "\0hex:ff00");
        assert_eq!(parse_key("\0hex:fg"), None);
    }
}
