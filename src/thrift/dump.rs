//! The text of a struct that lacks a required field, as the original prints it.

use std::fmt::Write;

use super::codec::Decode;

/// Longest binary value that is printed whole; the original prints this many bytes and ` ...`.
const MAX_BINARY_BYTES: usize = 128;

/// Longest dump. The original printed everything, also a batch of many megabytes.
pub const MAX_DUMP_BYTES: usize = 4096;

/// Prints one struct as `Name(field:value, field:value)`.
#[derive(Debug, Default)]
pub struct Dump {
    text: String,
}

impl Dump {
    /// Starts a struct.
    pub fn begin(&mut self, name: &str) {
        self.text(name);
        self.text("(");
    }

    /// Prints a field. An absent one prints as the type's absent value, an absent optional one
    /// (`optional`) not at all.
    pub fn field<'a, T: Decode<'a>>(&mut self, name: &str, optional: bool, value: Option<&T>) {
        if optional && value.is_none() {
            return;
        }
        if !self.text.ends_with('(') {
            self.text(", ");
        }
        self.text(name);
        self.text(":");
        match value {
            Some(value) => value.dump(self),
            None => self.text(T::ABSENT),
        }
    }

    /// Ends a struct.
    pub fn end(&mut self) {
        self.text(")");
    }

    /// Prints text as it is, up to the limit.
    pub fn text(&mut self, text: &str) {
        let room = MAX_DUMP_BYTES.saturating_sub(self.text.len());
        let mut end = text.len().min(room);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.text.push_str(text.get(..end).unwrap_or_default());
    }

    /// Prints bytes as upper-case hex, separated by spaces.
    pub fn binary(&mut self, bytes: &[u8]) {
        for (i, byte) in bytes.iter().take(MAX_BINARY_BYTES).enumerate() {
            if self.is_full() {
                return;
            }
            let separator = if i == 0 { "" } else { " " };
            write!(self.text, "{separator}{byte:02X}").expect("a String takes any text");
        }
        if bytes.len() > MAX_BINARY_BYTES {
            self.text(" ...");
        }
    }

    /// Whether nothing more fits, so that callers can leave off the rest of a long list.
    pub fn is_full(&self) -> bool {
        self.text.len() >= MAX_DUMP_BYTES
    }

    /// The text `Required field … Struct: …`.
    pub fn into_missing(self, field: &str, numeric: bool) -> Box<str> {
        let what = if numeric { "found in serialized data" } else { "present" };
        format!("Required field '{field}' was not {what}! Struct: {}", self.text).into_boxed_str()
    }
}
