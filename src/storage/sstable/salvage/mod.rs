//! Reads everything out of a damaged SSTable that can be read.
//!
//! Data blocks tell their rows, so that a sound one is worth something without anything else in
//! the file; small rows stand in the row index. What the row index says besides is used to name
//! what is lost, and to keep the deletions of rows of which nothing else is left.

use crate::base::fs::{File, FileSystem};
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::error::{FileContext, FileError};
use crate::storage::sstable::block::{self, Block, BlockHandle, BlockKind};
use crate::storage::sstable::entry::RowEntry;
use crate::storage::sstable::properties::Properties;
use crate::storage::sstable::row_part::parts_of;
use crate::storage::sstable::scan::{BlockScan, Frame, Piece};
use crate::storage::sstable::split_writer::SplitWriter;
use crate::storage::sstable::verify::read_properties;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use survey::Survey;

mod survey;
#[cfg(test)]
mod tests;

/// Most losses that are told one by one.
const MAX_LOSSES: usize = 1000;

/// What was saved of a file, and what was not.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// Rows that were saved, whole or in part.
    pub rows: u64,
    /// Cells that were saved.
    pub cells: u64,
    /// What is lost; empty if everything that was written is there.
    pub losses: Vec<Loss>,
    /// So many more are not told one by one.
    pub more_losses: u64,
}

/// Something that could not be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// Cells of a row.
    Cells {
        /// The row.
        key: RowKey,
        /// How many of its cells are lost.
        lost: u64,
        /// How many it had.
        of: u64,
    },
    /// Something that nobody can tell any more: cells, and deletions of rows, between two rows.
    Unknown {
        /// Where it stood in the file.
        range: Range<u64>,
        /// What is wrong there.
        reason: &'static str,
        /// The last row that is there before it.
        after: Option<RowKey>,
        /// The first that is there behind it.
        before: Option<RowKey>,
    },
    /// So many rows and cells altogether, by what the properties count.
    Counted {
        /// Rows.
        rows: u64,
        /// Cells.
        cells: u64,
    },
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cells { key, lost, of } => {
                write!(f, "row \"{key}\" has lost {lost} of its {of} cells")
            }
            Self::Unknown { range, reason, after, before } => {
                write!(f, "byte {}, {} bytes: {reason}", range.start, range.end - range.start)?;
                match (after, before) {
                    (Some(after), Some(before)) => {
                        write!(f, "; what was there of rows from \"{after}\" to \"{before}\"")
                    }
                    (Some(after), None) => {
                        write!(f, "; what was there of \"{after}\" and rows behind it")
                    }
                    (None, Some(before)) => {
                        write!(f, "; what was there of \"{before}\" and rows before it")
                    }
                    (None, None) => write!(f, "; whatever was there"),
                }
            }
            Self::Counted { rows, cells } => {
                write!(f, "{rows} rows and {cells} cells altogether")
            }
        }
    }
}

/// What is known of a damaged file besides itself.
#[derive(Debug, Clone)]
pub struct Source {
    /// The column family.
    pub family: Arc<ColumnFamilySchema>,
    /// The partitioner.
    pub partitioner: Partitioner,
}

/// Writes what can be read of a file to `sink`, which the caller finishes. `progress` hears how
/// many bytes are read.
pub fn salvage(
    fs: &dyn FileSystem,
    path: &Path,
    source: &Source,
    sink: &mut SplitWriter<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Salvaged, FileError> {
    let file = fs.open(path).context("open", path)?;
    let frame = Frame::read(&*file).context("read", path)?;
    let survey = Survey::of(&*file, &frame, source.partitioner);
    let index = IndexCursor::new(&*file, source.partitioner, survey.row_index);
    let mut run = Run { source, sink, index, row: None, result: Salvaged::default() };
    for piece in BlockScan::within(&*file, &frame) {
        let end = match &piece {
            Piece::Block { handle, .. } => handle.offset + u64::from(handle.length),
            Piece::Damage { offset, length, .. } => offset + length,
        };
        progress(end);
        if let Piece::Block { kind: BlockKind::Data, block, .. } = piece {
            run.data_block(&block)?;
        }
    }
    run.end_row()?;
    run.rows_of_the_index(None)?;
    survey.losses.into_iter().for_each(|loss| run.lose(loss));
    let properties = read_properties(&*file, &frame).map(|(_, properties)| properties);
    Ok(settle(run.result, properties.as_ref()))
}

/// Only what is not there is lost: the properties count all that was written.
fn settle(mut result: Salvaged, properties: Option<&Properties>) -> Salvaged {
    let Some(properties) = properties else { return result };
    let rows = properties.rows.saturating_sub(result.rows);
    let cells = properties.cells.saturating_sub(result.cells);
    if rows == 0 && cells == 0 {
        result.losses.clear();
        result.more_losses = 0;
        return result;
    }
    let named = result.losses.iter().filter_map(|loss| match loss {
        Loss::Cells { lost, of, .. } => Some((*lost, u64::from(lost == of))),
        Loss::Unknown { .. } | Loss::Counted { .. } => None,
    });
    let (named_cells, named_rows) =
        named.fold((0, 0), |sum, (cells, row)| (sum.0 + cells, sum.1 + row));
    if result.more_losses == 0 && named_cells == cells && rows <= named_rows {
        // The row index tells exactly what has stood there.
        result.losses.retain(|loss| !matches!(loss, Loss::Unknown { .. }));
    }
    result.losses.push(Loss::Counted { rows, cells });
    result
}

/// The rows of the row index, as far as it can be read.
struct IndexCursor<'a> {
    file: &'a dyn File,
    partitioner: Partitioner,
    blocks: std::vec::IntoIter<BlockHandle>,
    block: Option<(Block, usize)>,
    head: Option<(DecoratedKey, RowEntry)>,
}

impl<'a> IndexCursor<'a> {
    fn new(file: &'a dyn File, partitioner: Partitioner, blocks: Vec<BlockHandle>) -> Self {
        let blocks = blocks.into_iter();
        let mut cursor = Self { file, partitioner, blocks, block: None, head: None };
        cursor.advance();
        cursor
    }

    /// The next row, if it stands before this one; any if there is none.
    fn take_before(&mut self, before: Option<&DecoratedKey>) -> Option<(DecoratedKey, RowEntry)> {
        let head = self.head.take_if(|(key, _)| before.is_none_or(|before| *key < *before))?;
        self.advance();
        Some(head)
    }

    fn advance(&mut self) {
        self.head = None;
        loop {
            if let Some((block, next)) = &mut self.block
                && let Some(at) = block.entry(*next)
            {
                *next += 1;
                let entry = RowEntry::decode(self.partitioner, block, at).ok();
                let key = entry.as_ref().and_then(|e| e.decorated_key(self.partitioner).ok());
                if let Some(head) = key.zip(entry) {
                    self.head = Some(head);
                    return;
                }
                continue;
            }
            let Some(handle) = self.blocks.next() else { return };
            let read = block::read(self.file, Path::new(""), handle, BlockKind::RowIndex);
            self.block = read.ok().map(|block| (block, 0));
        }
    }
}

/// The row that is being saved.
struct SavedRow {
    key: DecoratedKey,
    cells: u64,
}

struct Run<'a, 'b> {
    source: &'a Source,
    sink: &'a mut SplitWriter<'b>,
    index: IndexCursor<'a>,
    row: Option<SavedRow>,
    result: Salvaged,
}

impl Run<'_, '_> {
    fn data_block(&mut self, block: &Block) -> Result<(), FileError> {
        // The survey has told of one that cannot be read.
        for (part, entries) in parts_of(block).unwrap_or_default() {
            let key = self.source.partitioner.decorate(RowKey::new(part.key));
            if self.row.as_ref().is_none_or(|row| row.key != key) {
                self.end_row()?;
                self.rows_of_the_index(Some(&key))?;
                let indexed = self.index.head.as_ref().filter(|(indexed, _)| *indexed == key);
                let deletion =
                    indexed.map_or(part.deletion, |(_, entry)| entry.deletion.merge(part.deletion));
                self.begin_row(key, deletion)?;
            }
            for entry in entries {
                let cell = block.entry(entry).and_then(|at| Cell::decode(block.bytes(), at));
                if let Some(cell) = cell {
                    self.cell(&cell)?;
                }
            }
        }
        Ok(())
    }

    fn begin_row(&mut self, key: DecoratedKey, deletion: Deletion) -> Result<(), FileError> {
        self.sink.begin_row(&key, deletion)?;
        self.result.rows += 1;
        self.row = Some(SavedRow { key, cells: 0 });
        Ok(())
    }

    /// A cell whose name has no place in the order of names could not be found again.
    fn cell(&mut self, cell: &Cell) -> Result<(), FileError> {
        if let Some(row) = &mut self.row
            && self.source.family.can_hold(cell.state(), cell.place())
        {
            self.sink.push(cell)?;
            row.cells += 1;
            self.result.cells += 1;
        }
        Ok(())
    }

    fn end_row(&mut self) -> Result<(), FileError> {
        let Some(row) = self.row.take() else { return Ok(()) };
        self.sink.end_row()?;
        if let Some((key, entry)) = &self.index.head
            && *key == row.key
        {
            let of = entry.cells;
            let lost = of.saturating_sub(row.cells);
            if lost > 0 {
                self.lose(Loss::Cells { key: row.key.key().clone(), lost, of });
            }
            self.index.advance();
        }
        Ok(())
    }

    /// Rows before this one, or up to the end, of which nothing stands in data blocks: small ones,
    /// and such of which the data are lost.
    fn rows_of_the_index(&mut self, before: Option<&DecoratedKey>) -> Result<(), FileError> {
        while let Some((key, entry)) = self.index.take_before(before) {
            let is_small = entry.block_cells().is_none();
            if !is_small {
                let (key, of) = (key.key().clone(), entry.cells);
                self.lose(Loss::Cells { key, lost: of, of });
            }
            if is_small || !entry.deletion.is_none() {
                self.begin_row(key, entry.deletion)?;
                for cell in entry.inline_cells().flatten() {
                    self.cell(&cell)?;
                }
                self.sink.end_row()?;
                self.row = None;
            }
        }
        Ok(())
    }

    fn lose(&mut self, loss: Loss) {
        if self.result.losses.len() < MAX_LOSSES {
            self.result.losses.push(loss);
        } else {
            self.result.more_losses += 1;
        }
    }
}
