//! Entries of the row index and of the column index.
//!
//! A row's entry:
//!
//! ```text
//! u16 length, row key | token as ring::DecoratedKey::encode_token
//! u8 flags: 1 the row is deleted, 2 the extents are in a column index
//! [i64 marked for delete at, i32 local deletion time]     if deleted
//! varint number of cells | i64 greatest timestamp of cells and row deletion
//! u16 length, super column name, u16 length, column name of the last cell
//! varint number of extents, the extents                   or, with a column index:
//! u8 number of its levels | varint offset, varint length of its root block
//! ```
//!
//! An extent: varint offset and varint length of a block, varint number of its first entry that
//! belongs to the row, varint number of such entries, u16 length, super column name, u16 length,
//! column name of the first cell. Above the lowest level of a column index the block is one of
//! extents.

use super::block::{Block, BlockHandle};
use crate::base::bytes::{ByteReader, ByteWriter, Malformed};
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::ring::{DecoratedKey, Partitioner};
use std::cmp::Ordering;
use std::ops::Range;

const IS_DELETED: u8 = 1;
const HAS_COLUMN_INDEX: u8 = 2;

/// What the row index says of a row.
#[derive(Debug, Clone)]
pub struct RowEntry {
    /// Deletion of the whole row.
    pub deletion: Deletion,
    /// Number of cells, tombstones included.
    pub cells: u64,
    /// Greatest timestamp of its cells and its deletion.
    pub max_timestamp: i64,
    /// The index block, which holds the names and the key.
    block: Block,
    key: Range<usize>,
    last: PlaceRange,
    pub(super) extents: Extents,
}

/// Where the cells of a row are.
#[derive(Debug, Clone)]
pub(super) enum Extents {
    None,
    One(Extent),
    Few(Vec<Extent>),
    ColumnIndex(IndexRoot),
}

/// The top of a column index.
#[derive(Debug, Clone, Copy)]
pub(super) struct IndexRoot {
    pub block: BlockHandle,
    /// Blocks from the root down to a data block, that one not included; at least 1.
    pub levels: u8,
}

/// A run of cells of one row in one data block.
#[derive(Debug, Clone)]
pub(super) struct Extent {
    pub block: BlockHandle,
    pub first_entry: u32,
    pub entries: u32,
    /// The place of the first cell, in the bytes that the extent was read from.
    place: PlaceRange,
}

/// Where the two names of a place stand in some bytes.
#[derive(Debug, Clone)]
struct PlaceRange {
    super_name: Range<u32>,
    name: Range<u32>,
}

impl PlaceRange {
    fn decode(reader: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        let mut name = || {
            let length = reader.u16()?;
            let start = reader.position() as u32;
            reader.take(length as usize)?;
            Ok(start..start + u32::from(length))
        };
        Ok(Self { super_name: name()?, name: name()? })
    }

    fn resolve<'a>(&self, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let part = |range: &Range<u32>| &bytes[range.start as usize..range.end as usize];
        (part(&self.super_name), part(&self.name))
    }
}

impl Extent {
    /// Reads an extent that stands in these bytes at this offset.
    pub(super) fn decode(bytes: &[u8], at: usize) -> Result<Self, Malformed> {
        Self::read(&mut ByteReader::at(bytes, at))
    }

    fn read(reader: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        let at = reader.position();
        let offset = reader.varint()?;
        let mut small = || u32::try_from(reader.varint()?).map_err(|_| Malformed(at));
        let (length, first_entry, entries) = (small()?, small()?, small()?);
        let block = BlockHandle { offset, length };
        Ok(Self { block, first_entry, entries, place: PlaceRange::decode(reader)? })
    }

    /// The place of its first cell; `bytes` are those that it was read from.
    pub(super) fn first_place<'a>(&self, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        self.place.resolve(bytes)
    }
}

/// An extent that is about to be written.
#[derive(Debug, Clone)]
pub(super) struct ExtentDraft {
    pub block: BlockHandle,
    pub first_entry: u32,
    pub entries: u32,
    pub super_name: Vec<u8>,
    pub name: Vec<u8>,
}

impl ExtentDraft {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.block.offset);
        out.put_varint(u64::from(self.block.length));
        out.put_varint(u64::from(self.first_entry));
        out.put_varint(u64::from(self.entries));
        out.put_prefixed(&self.super_name);
        out.put_prefixed(&self.name);
    }
}

/// A row's entry that is about to be written.
#[derive(Debug)]
pub(super) struct RowEntryDraft<'a> {
    pub key: &'a DecoratedKey,
    pub deletion: Deletion,
    pub cells: u64,
    pub max_timestamp: i64,
    pub last: (&'a [u8], &'a [u8]),
    pub extents: &'a [ExtentDraft],
    pub column_index: Option<IndexRoot>,
}

impl RowEntryDraft<'_> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_prefixed(self.key.key().as_bytes());
        self.key.encode_token(out);
        let indexed = if self.column_index.is_some() { HAS_COLUMN_INDEX } else { 0 };
        encode_flags(indexed, self.deletion, out);
        out.put_varint(self.cells);
        out.extend_from_slice(&self.max_timestamp.to_be_bytes());
        out.put_prefixed(self.last.0);
        out.put_prefixed(self.last.1);
        if let Some(IndexRoot { block, levels }) = self.column_index {
            out.push(levels);
            out.put_varint(block.offset);
            out.put_varint(u64::from(block.length));
        } else {
            out.put_varint(self.extents.len() as u64);
            for extent in self.extents {
                extent.encode(out);
            }
        }
    }
}

fn encode_flags(flags: u8, deletion: Deletion, out: &mut Vec<u8>) {
    if deletion.is_none() {
        out.push(flags);
    } else {
        out.push(flags | IS_DELETED);
        out.extend_from_slice(&deletion.marked_for_delete_at.to_be_bytes());
        out.extend_from_slice(&deletion.local_deletion_time.to_be_bytes());
    }
}

fn decode_flags(reader: &mut ByteReader<'_>) -> Result<(u8, Deletion), Malformed> {
    let flags = reader.u8()?;
    let is_deleted = flags & IS_DELETED != 0;
    let deletion =
        if is_deleted { Deletion::at(reader.i64()?, reader.i32()?) } else { Deletion::NONE };
    Ok((flags, deletion))
}

/// Reads key and token from the front of an entry.
pub(super) fn decode_key(
    partitioner: Partitioner,
    reader: &mut ByteReader<'_>,
) -> Result<DecoratedKey, Malformed> {
    let key = RowKey::new(reader.prefixed()?);
    let at = reader.position();
    let mut rest = reader.rest();
    let before = rest.len();
    let key = DecoratedKey::decode(partitioner, key, &mut rest).map_err(|_| Malformed(at))?;
    reader.take(before - rest.len())?;
    Ok(key)
}

/// How a key compares with that of an entry of the row index, without taking the entry apart.
pub(super) fn compare_key(
    wanted: &DecoratedKey,
    partitioner: Partitioner,
    bytes: &[u8],
    at: usize,
) -> Result<Ordering, Malformed> {
    let mut reader = ByteReader::at(bytes, at);
    let key = reader.prefixed()?;
    wanted.compare_stored(partitioner, key, reader.rest()).map_err(|_| Malformed(at))
}

impl RowEntry {
    /// Reads the entry that stands at this offset of a row index block.
    pub(super) fn decode(
        partitioner: Partitioner,
        block: &Block,
        at: usize,
    ) -> Result<Self, Malformed> {
        let mut reader = ByteReader::at(block.bytes(), at);
        let length = reader.u16()? as usize;
        let key = reader.position()..reader.position() + length;
        reader.take(length)?;
        let token = DecoratedKey::stored_token_length(partitioner, length, reader.rest());
        reader.take(token.ok_or(Malformed(at))?)?;
        let (flags, deletion) = decode_flags(&mut reader)?;
        let (cells, max_timestamp) = (reader.varint()?, reader.i64()?);
        let last = PlaceRange::decode(&mut reader)?;
        let extents = if flags & HAS_COLUMN_INDEX == 0 {
            Self::inline_extents(&mut reader)?
        } else {
            let levels = reader.u8()?;
            let offset = reader.varint()?;
            let length = u32::try_from(reader.varint()?).map_err(|_| Malformed(at))?;
            Extents::ColumnIndex(IndexRoot { block: BlockHandle { offset, length }, levels })
        };
        Ok(Self { deletion, cells, max_timestamp, block: block.clone(), key, last, extents })
    }

    fn inline_extents(reader: &mut ByteReader<'_>) -> Result<Extents, Malformed> {
        match reader.varint()? {
            0 => Ok(Extents::None),
            1 => Ok(Extents::One(Extent::read(reader)?)),
            many => {
                let mut extents = Vec::new();
                for _ in 0..many {
                    extents.push(Extent::read(reader)?);
                }
                Ok(Extents::Few(extents))
            }
        }
    }

    /// The row key.
    pub fn key(&self) -> &[u8] {
        &self.block.bytes()[self.key.clone()]
    }

    /// Key and token.
    pub fn decorated_key(&self, partitioner: Partitioner) -> Result<DecoratedKey, Malformed> {
        decode_key(partitioner, &mut ByteReader::at(self.block.bytes(), self.key.start - 2))
    }

    /// The place of the last cell; empty names if there are no cells.
    pub fn last_place(&self) -> (&[u8], &[u8]) {
        self.last.resolve(self.block.bytes())
    }

    /// The bytes that the places of its extents refer to.
    pub(super) fn bytes(&self) -> &[u8] {
        self.block.bytes()
    }
}
