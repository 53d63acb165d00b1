//! Which rows the cells of a data block belong to.
//!
//! Data blocks say so themselves, besides the row index: they alone hold everything that was
//! written, and everything else in a file can be derived from them. For each row that has cells
//! in the block, and for each that has none anywhere but is deleted, in their order:
//!
//! ```text
//! varint: 4 times the number of its cells in this block,
//!         plus 1 if the row is deleted, plus 2 if it has cells in blocks before this one
//! varint length, row key
//! [i64 marked for delete at, i32 local deletion time]     if deleted
//! ```

use super::block::Block;
use super::entry::{decode_deletion, encode_deletion};
use crate::base::bytes::{ByteReader, ByteWriter, Malformed};
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use std::ops::Range;

const IS_DELETED: u64 = 1;
const IS_CONTINUED: u64 = 2;

/// The part of a row that is in one data block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPart<'a> {
    /// The row key.
    pub key: &'a [u8],
    /// Deletion of the whole row.
    pub deletion: Deletion,
    /// Cells of the row in this block.
    pub cells: u32,
    /// Whether the row has cells in blocks before this one.
    pub is_continued: bool,
}

impl<'a> RowPart<'a> {
    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let deleted = if self.deletion.is_none() { 0 } else { IS_DELETED };
        let continued = if self.is_continued { IS_CONTINUED } else { 0 };
        out.put_varint(u64::from(self.cells) << 2 | deleted | continued);
        out.put_varint(self.key.len() as u64);
        out.extend_from_slice(self.key);
        encode_deletion(self.deletion, out);
    }

    /// Reads the stored form.
    pub fn decode(reader: &mut ByteReader<'a>) -> Result<Self, Malformed> {
        let at = reader.position();
        let (head, length) = (reader.varint()?, reader.varint()?);
        let cells = u32::try_from(head >> 2).map_err(|_| Malformed(at))?;
        // No longer than a key can be.
        let key = reader.take(u16::try_from(length).map_err(|_| Malformed(at))?.into())?;
        let deletion = decode_deletion(head & IS_DELETED != 0, reader)?;
        Ok(Self { key, deletion, cells, is_continued: head & IS_CONTINUED != 0 })
    }
}

/// The rows of a data block, each with the numbers of its entries, after a look at all that is in
/// the block: its cells must follow each other without a gap, and belong to a row each.
pub fn parts_of(block: &Block) -> Result<Vec<(RowPart<'_>, Range<usize>)>, &'static str> {
    let mut at = 0;
    for index in 0..block.len() {
        if block.entry(index) != Some(at) {
            return Err("the cells of a block do not follow each other");
        }
        let cell = Cell::decode(block.bytes(), at).ok_or("a cell cannot be read")?;
        at += cell.encoded_length();
    }
    let between = block.bytes().get(..block.directory()).unwrap_or_default();
    let mut reader = ByteReader::at(between, at);
    let (mut parts, mut first) = (Vec::new(), 0);
    while !reader.is_empty() {
        let part = RowPart::decode(&mut reader);
        let part = part.map_err(|_| "a data block does not tell its rows")?;
        let end = first + part.cells as usize;
        parts.push((part, first..end));
        first = end;
    }
    if first != block.len() {
        return Err("a data block tells rows of more or fewer cells than it has");
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_stored_form_is_read_back(
            key: Vec<u8>, cells: u32, is_continued: bool, deletion: Option<(i64, i32)>,
        ) {
            let deletion = deletion.map_or(Deletion::NONE, |(at, time)| Deletion::at(at, time));
            let part = RowPart { key: &key, deletion, cells, is_continued };
            let mut stored = Vec::new();
            part.encode(&mut stored);
            let mut reader = ByteReader::new(&stored);
            prop_assert_eq!(RowPart::decode(&mut reader), Ok(part));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(bytes: Vec<u8>) {
            let mut reader = ByteReader::new(&bytes);
            while RowPart::decode(&mut reader).is_ok() {}
        }
    }
}
