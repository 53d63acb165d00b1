//! Entries of the row index, of the column index, and of the summary.
//!
//! A row's entry:
//!
//! ```text
//! u16 length, row key | token as ring::DecoratedKey::encode_token
//! u8 flags: 1 the row is deleted, 2 the extents are in a column index, 4 the cells stand here
//! [i64 marked for delete at, i32 local deletion time]     if deleted
//! varint number of cells
//! ```
//!
//! Then, if the cells stand here: varint number of their bytes, and the cells one after the other
//! as [`crate::model::cell::Cell::encode`] writes them. Else:
//!
//! ```text
//! i64 greatest timestamp of cells and row deletion
//! u16 length, super column name, u16 length, column name of the last cell
//! varint number of extents, the extents                   or, with a column index:
//! u8 number of its levels | varint offset, varint length of its root block
//! ```
//!
//! An extent: varint offset and varint length of a block, varint number of its first entry that
//! belongs to the row, varint number of such entries, u16 length, super column name, u16 length,
//! column name of the first cell. Above the lowest level of a column index the block is one of
//! extents.
//!
//! The summary, for each row index block in their order:
//!
//! ```text
//! varint offset and varint length of the block
//! varint: twice the number of its rows, plus 1 if cells of any stand in data blocks
//! u16 length, row key | token as ring::DecoratedKey::encode_token
//! ```

use super::block::{Block, BlockHandle};
use crate::base::bytes::{ByteReader, ByteWriter, Malformed};
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Partitioner};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::Range;

const IS_DELETED: u8 = 1;
const HAS_COLUMN_INDEX: u8 = 2;
const IS_INLINE: u8 = 4;

/// Rows with more extents than this get a column index of their own.
pub(in crate::storage) const MAX_INLINE_EXTENTS: usize = 4;

/// Number of entries of an extent that is all of its block. No file of ours has it.
pub(in crate::storage) const WHOLE_BLOCK: u32 = u32::MAX;

/// Entry of a row in the row index.
#[derive(Debug, Clone)]
pub struct RowEntry {
    /// Deletion of the whole row.
    pub deletion: Deletion,
    /// Number of cells, tombstones included.
    pub cells: u64,
    /// The index block, which holds the names and the key.
    block: Block,
    key: Range<u32>,
    place: CellsPlace,
}

/// Place of the cells of a row.
#[derive(Debug, Clone)]
enum CellsPlace {
    /// In these bytes of the index block: the row is small.
    Inline(Range<u32>),
    /// In data blocks. Apart, so that the entry of a small row is small.
    Blocks(Box<BlockCells>),
}

/// The cells of a row in data blocks.
#[derive(Debug, Clone)]
pub(in crate::storage) struct BlockCells {
    /// Greatest timestamp of the cells and the deletion of the row.
    pub max_timestamp: i64,
    last: PlaceRange,
    pub extents: Extents,
}

/// Places of the cells of a row in data blocks.
#[derive(Debug, Clone)]
pub(in crate::storage) enum Extents {
    /// Nearly always one.
    Few(SmallVec<[Extent; 1]>),
    ColumnIndex(IndexRoot),
}

/// The top of a column index.
#[derive(Debug, Clone, Copy)]
pub(in crate::storage) struct IndexRoot {
    pub block: BlockHandle,
    /// Blocks from the root down to a data block, that one not included; at least 1.
    pub levels: u8,
}

/// A run of cells of one row in one data block.
#[derive(Debug, Clone)]
pub(in crate::storage) struct Extent {
    pub block: BlockHandle,
    pub first_entry: u32,
    pub entries: u32,
    /// The place of the first cell, in the bytes that the extent was read from.
    place: PlaceRange,
}

/// Ranges of the two names of a place in some bytes.
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
    pub(in crate::storage) fn decode(bytes: &[u8], at: usize) -> Result<Self, Malformed> {
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
    pub(in crate::storage) fn first_place<'a>(&self, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        self.place.resolve(bytes)
    }
}

/// An extent that is about to be written.
#[derive(Debug, Clone)]
pub(in crate::storage) struct ExtentDraft {
    pub block: BlockHandle,
    pub first_entry: u32,
    pub entries: u32,
    pub super_name: Vec<u8>,
    pub name: Vec<u8>,
}

impl ExtentDraft {
    pub(in crate::storage) fn encode(&self, out: &mut Vec<u8>) {
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
pub(in crate::storage) struct RowEntryDraft<'a> {
    pub key: &'a DecoratedKey,
    pub deletion: Deletion,
    pub cells: u64,
    pub place: PlaceDraft<'a>,
}

/// Place of the cells of a row that is about to be written.
#[derive(Debug)]
pub(in crate::storage) enum PlaceDraft<'a> {
    /// The entry has them, in their stored form.
    Inline(&'a [u8]),
    /// In data blocks: in these extents, or in those of a column index.
    Blocks {
        max_timestamp: i64,
        last: (&'a [u8], &'a [u8]),
        extents: &'a [ExtentDraft],
        root: Option<IndexRoot>,
    },
}

impl RowEntryDraft<'_> {
    pub(in crate::storage) fn encode(&self, out: &mut Vec<u8>) {
        out.put_prefixed(self.key.key().as_bytes());
        self.key.encode_token(out);
        let flags = match self.place {
            PlaceDraft::Inline(_) => IS_INLINE,
            PlaceDraft::Blocks { root: None, .. } => 0,
            PlaceDraft::Blocks { .. } => HAS_COLUMN_INDEX,
        };
        out.push(if self.deletion.is_none() { flags } else { flags | IS_DELETED });
        encode_deletion(self.deletion, out);
        out.put_varint(self.cells);
        match self.place {
            PlaceDraft::Inline(cells) => {
                out.put_varint(cells.len() as u64);
                out.extend_from_slice(cells);
            }
            PlaceDraft::Blocks { max_timestamp, last, extents, root } => {
                out.extend_from_slice(&max_timestamp.to_be_bytes());
                out.put_prefixed(last.0);
                out.put_prefixed(last.1);
                if let Some(IndexRoot { block, levels }) = root {
                    out.push(levels);
                    out.put_varint(block.offset);
                    out.put_varint(u64::from(block.length));
                } else {
                    out.put_varint(extents.len() as u64);
                    for extent in extents {
                        extent.encode(out);
                    }
                }
            }
        }
    }
}

/// Appends a deletion, if there is one: a flag before it says whether.
pub(super) fn encode_deletion(deletion: Deletion, out: &mut Vec<u8>) {
    if !deletion.is_none() {
        out.extend_from_slice(&deletion.marked_for_delete_at.to_be_bytes());
        out.extend_from_slice(&deletion.local_deletion_time.to_be_bytes());
    }
}

/// Reads a deletion, if there is one.
pub(super) fn decode_deletion(
    is_deleted: bool,
    reader: &mut ByteReader<'_>,
) -> Result<Deletion, Malformed> {
    Ok(if is_deleted { Deletion::at(reader.i64()?, reader.i32()?) } else { Deletion::NONE })
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

/// Compares a key with that of an entry of the row index, without decoding the entry.
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
    pub(in crate::storage) fn decode(
        partitioner: Partitioner,
        block: &Block,
        at: usize,
    ) -> Result<Self, Malformed> {
        let (block, place) = (block.clone(), CellsPlace::Inline(0..0));
        let mut entry = Self { deletion: Deletion::NONE, cells: 0, block, key: 0..0, place };
        entry.move_to(partitioner, at)?;
        Ok(entry)
    }

    /// Becomes the entry at this offset of the same block. Its content after an error is not
    /// specified.
    pub(super) fn move_to(&mut self, partitioner: Partitioner, at: usize) -> Result<(), Malformed> {
        let mut reader = ByteReader::at(self.block.bytes(), at);
        let length = reader.u16()?;
        let start = reader.position() as u32;
        reader.take(length.into())?;
        self.key = start..start + u32::from(length);
        let token = DecoratedKey::stored_token_length(partitioner, length.into(), reader.rest());
        reader.take(token.ok_or(Malformed(at))?)?;
        let flags = reader.u8()?;
        self.deletion = decode_deletion(flags & IS_DELETED != 0, &mut reader)?;
        self.cells = reader.varint()?;
        self.place = if flags & IS_INLINE == 0 {
            let cells = BlockCells::read(&mut reader, flags & HAS_COLUMN_INDEX != 0)?;
            CellsPlace::Blocks(Box::new(cells))
        } else {
            let length = usize::try_from(reader.varint()?).map_err(|_| Malformed(at))?;
            let start = reader.position();
            reader.take(length)?;
            CellsPlace::Inline(start as u32..(start + length) as u32)
        };
        Ok(())
    }

    /// The row key.
    pub fn key(&self) -> &[u8] {
        &self.block.bytes()[self.key.start as usize..self.key.end as usize]
    }

    /// Key and token.
    pub fn decorated_key(&self, partitioner: Partitioner) -> Result<DecoratedKey, Malformed> {
        decode_key(
            partitioner,
            &mut ByteReader::at(self.block.bytes(), self.key.start as usize - 2),
        )
    }

    /// Greatest timestamp of its cells and its deletion; `None` if a cell cannot be read.
    pub fn max_timestamp(&self) -> Option<i64> {
        let deleted_at = self.deletion.marked_for_delete_at;
        match &self.place {
            CellsPlace::Inline(_) => self.inline_cells().try_fold(deleted_at, |greatest, cell| {
                cell.map(|cell| greatest.max(cell.timestamp())).ok()
            }),
            CellsPlace::Blocks(cells) => Some(cells.max_timestamp),
        }
    }

    /// The cells in data blocks; `None` if they stand here.
    pub(in crate::storage) fn block_cells(&self) -> Option<&BlockCells> {
        match &self.place {
            CellsPlace::Inline(_) => None,
            CellsPlace::Blocks(cells) => Some(cells),
        }
    }

    /// The bytes of the cells that stand here; `None` if they are in data blocks.
    pub(super) fn inline_range(&self) -> Option<Range<usize>> {
        match &self.place {
            CellsPlace::Inline(range) => Some(range.start as usize..range.end as usize),
            CellsPlace::Blocks(_) => None,
        }
    }

    /// The cells that stand here, in their stored form; `None` if they are in data blocks.
    pub fn inline_bytes(&self) -> Option<&[u8]> {
        self.block.bytes().get(self.inline_range()?)
    }

    /// The cells that stand here, in their order. It ends after one that cannot be read.
    pub(in crate::storage) fn inline_cells(&self) -> impl Iterator<Item = Result<Cell, Malformed>> {
        let mut range = self.inline_range().unwrap_or_default();
        std::iter::from_fn(move || {
            if range.is_empty() {
                return None;
            }
            let at = range.start;
            let cell = Cell::decode(self.block.bytes(), at);
            let cell = cell.filter(|cell| cell.encoded_length() <= range.len());
            range.start = cell.as_ref().map_or(range.end, |cell| at + cell.encoded_length());
            Some(cell.ok_or(Malformed(at)))
        })
    }

    /// Whether a range deletion may stand before its other cells, as far as that is known without
    /// another block.
    pub fn may_have_range_deletions(&self, family: &ColumnFamilySchema) -> bool {
        let bytes = self.block.bytes();
        let first = match &self.place {
            CellsPlace::Inline(range) => Cell::place_at(bytes, range.start as usize),
            CellsPlace::Blocks(cells) => match &cells.extents {
                Extents::Few(extents) => extents.first().map(|first| first.first_place(bytes)),
                Extents::ColumnIndex(_) => return true,
            },
        };
        first.is_some_and(|place| family.is_range_deletion(place))
    }

    /// The block that it was read from: the places of its extents refer to the bytes of this.
    pub(in crate::storage) fn block(&self) -> &Block {
        &self.block
    }
}

impl BlockCells {
    fn read(reader: &mut ByteReader<'_>, has_column_index: bool) -> Result<Self, Malformed> {
        let max_timestamp = reader.i64()?;
        let last = PlaceRange::decode(reader)?;
        let at = reader.position();
        let extents = if has_column_index {
            let levels = reader.u8()?;
            let offset = reader.varint()?;
            let length = u32::try_from(reader.varint()?).map_err(|_| Malformed(at))?;
            Extents::ColumnIndex(IndexRoot { block: BlockHandle { offset, length }, levels })
        } else {
            let mut extents = SmallVec::new();
            for _ in 0..reader.varint()? {
                extents.push(Extent::read(reader)?);
            }
            if extents.is_empty() {
                return Err(Malformed(at));
            }
            Extents::Few(extents)
        };
        Ok(Self { max_timestamp, last, extents })
    }

    /// The place of the last cell; `bytes` are those of the block that this was read from.
    pub(in crate::storage) fn last_place<'a>(&self, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        self.last.resolve(bytes)
    }
}

const POINTS_ELSEWHERE: u64 = 1;

/// Entry of a row index block in the summary, without its first key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::storage) struct SummaryHead {
    pub block: BlockHandle,
    /// Number of its rows.
    pub rows: u64,
    /// Whether it says of any row where its cells are. Else it holds the cells of all of its rows,
    /// and is worth as much memory as a data block.
    pub points_elsewhere: bool,
}

impl SummaryHead {
    /// Appends the stored form, with the first key of the block in its own.
    pub(super) fn encode(&self, first_key: &[u8], out: &mut Vec<u8>) {
        out.put_varint(self.block.offset);
        out.put_varint(u64::from(self.block.length));
        let flags = if self.points_elsewhere { POINTS_ELSEWHERE } else { 0 };
        out.put_varint(self.rows << 1 | flags);
        out.extend_from_slice(first_key);
    }
}

/// Reads a whole summary: for each row index block its first key and more.
pub(in crate::storage) fn decode_summary(
    partitioner: Partitioner,
    bytes: &[u8],
) -> Result<Vec<(SummaryHead, DecoratedKey)>, Malformed> {
    let mut reader = ByteReader::new(bytes);
    let mut listed = Vec::new();
    while !reader.is_empty() {
        let offset = reader.varint()?;
        let at = reader.position();
        let length = u32::try_from(reader.varint()?).map_err(|_| Malformed(at))?;
        let rows = reader.varint()?;
        let first = decode_key(partitioner, &mut reader)?;
        let head = SummaryHead {
            block: BlockHandle { offset, length },
            rows: rows >> 1,
            points_elsewhere: rows & POINTS_ELSEWHERE != 0,
        };
        listed.push((head, first));
    }
    Ok(listed)
}
