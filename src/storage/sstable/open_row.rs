//! Rows on their way into an SSTable: what is known of them before their entries can be written.

use super::block::BlockHandle;
use super::entry::ExtentDraft;
use super::filter;
use super::properties::Properties;
use super::row_part::RowPart;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::ring::DecoratedKey;

/// Bytes of extents after which a block of the column index is closed.
const COLUMN_INDEX_BLOCK: usize = 8 << 10;

/// Extents that a block of the column index has at least, however long their names are: each level
/// must be much smaller than the one below it.
const LEAST_EXTENTS: usize = 4;

/// Bytes of an extent besides its names, about.
const MAX_HANDLE: usize = 8;

/// A row that waits for the open data block.
#[derive(Debug)]
pub(super) enum PendingRow {
    /// One of small ones that come behind such that really wait, with its cells.
    Small(OpenRow, Vec<u8>),
    /// One that has cells in data blocks.
    Large(OpenRow),
}

/// The row that is being written.
#[derive(Debug)]
pub(super) struct OpenRow {
    pub key: DecoratedKey,
    /// Of the key, for filter and tag.
    pub hash: u64,
    pub deletion: Deletion,
    pub cells: u64,
    pub raw_bytes: u64,
    /// Whether its cells will stand in the row index, as far as it is known.
    pub is_small: bool,
    pub max_timestamp: i64,
    pub last: Option<Cell>,
    /// Extents that are not in a column index block yet: at the front those of data blocks, behind
    /// them those of the blocks of each level of the column index.
    pub levels: Vec<IndexLevel>,
    /// Cells in data blocks that are closed.
    pub settled_cells: u64,
    /// The part of the row that is in the open data block.
    pub current: Option<ExtentDraft>,
}

/// Extents that will make up the next block of one level of a column index.
#[derive(Debug, Default)]
pub(super) struct IndexLevel {
    pub extents: Vec<ExtentDraft>,
    bytes: usize,
}

impl IndexLevel {
    pub(super) fn push(&mut self, extent: ExtentDraft) {
        self.bytes += 2 * MAX_HANDLE + extent.super_name.len() + extent.name.len();
        self.extents.push(extent);
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= COLUMN_INDEX_BLOCK && self.extents.len() >= LEAST_EXTENTS
    }
}

impl OpenRow {
    pub(super) fn new(key: &DecoratedKey, deletion: Deletion) -> Self {
        Self {
            key: key.clone(),
            hash: filter::hash(key.key().as_bytes()),
            deletion,
            cells: 0,
            raw_bytes: 0,
            is_small: true,
            max_timestamp: deletion.marked_for_delete_at,
            last: None,
            levels: Vec::new(),
            settled_cells: 0,
            current: None,
        }
    }

    /// Counts a cell of so many stored bytes, in the properties of the file as well.
    pub(super) fn note_cell(&mut self, timestamp: i64, length: usize, file: &mut Properties) {
        self.cells += 1;
        self.raw_bytes += length as u64;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        file.note_timestamp(timestamp);
    }

    /// What the open data block has to say of the row; `None` if it has nothing there.
    pub(super) fn part(&self) -> Option<RowPart<'_>> {
        let cells = self.current.as_ref().map_or(0, |current| current.entries);
        (cells > 0).then(|| RowPart {
            key: self.key.key().as_bytes(),
            deletion: self.deletion,
            cells,
            is_continued: self.settled_cells > 0,
        })
    }

    /// The open data block is written: now its part of the row has an address.
    pub(super) fn settle(&mut self, block: BlockHandle) {
        if let Some(current) = self.current.take() {
            self.settled_cells += u64::from(current.entries);
            if self.levels.is_empty() {
                self.levels.push(IndexLevel::default());
            }
            self.levels[0].push(ExtentDraft { block, ..current });
        }
    }
}
