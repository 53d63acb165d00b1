//! One row, merged from all that hold a part of it: memtables and SSTables.

use super::error::ReadError;
use super::memtable::{MemtableRow, TreeCursor};
use super::sstable::{Access, Blocks, CellCursor, RowEntry};
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::{CellRange, Flow, Resolver, RowSlice, Slice};
use crate::ring::DecoratedKey;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// How much work a read may do. One that must not keep its thread for long gives up when this is
/// used up, to begin anew on another thread.
#[derive(Debug)]
pub struct Budget {
    /// Cells, or places to look at, that are left; `None` for no bound.
    left: Option<usize>,
    /// Bytes that the answer may still grow by.
    answer: usize,
}

/// Most bytes that one answer may have: a client that asks for a whole column family by one call is
/// told to ask for less, instead of taking all memory. A message cannot be larger than 2 GB anyway.
const MAX_ANSWER_BYTES: usize = 512 << 20;

/// What a cell of an answer takes besides its names and value, about, in memory and in the message.
const ANSWER_CELL_OVERHEAD: usize = 64;

/// Cells that may be looked at without leaving the thread: about 100 microseconds of work.
const INLINE_CELLS: usize = 2048;

/// What finding a row or a name costs, in cells.
const SEEK: usize = 8;

impl Budget {
    /// What a read with this access may do.
    pub fn of(access: Access) -> Self {
        let left = (access == Access::CachedOnly).then_some(INLINE_CELLS);
        Self { left, answer: MAX_ANSWER_BYTES }
    }

    /// Takes what the cell adds to the answer.
    fn spend_on_answer(&mut self, cell: &Cell) -> Result<(), ReadError> {
        let bytes = cell.encoded_length() + ANSWER_CELL_OVERHEAD;
        let left = self.answer.checked_sub(bytes);
        self.answer = left.ok_or(ReadError::TooLarge { limit: MAX_ANSWER_BYTES })?;
        Ok(())
    }

    /// Takes a cell's worth of work.
    pub(super) fn spend(&mut self, cells: usize) -> Result<(), ReadError> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(cells).ok_or(ReadError::WouldBlock)?;
        }
        Ok(())
    }
}

/// What one memtable or SSTable has of a row.
#[derive(Debug, Clone, Copy)]
pub enum RowSource<'a> {
    /// In memory.
    Memtable(&'a MemtableRow),
    /// In a file.
    SsTable {
        /// What the row index says of it.
        entry: &'a RowEntry,
        /// Where its blocks come from.
        blocks: &'a Blocks<'a>,
    },
}

/// All that has a part of a row: mostly one memtable or SSTable, or two.
pub type RowSources<'a> = SmallVec<[RowSource<'a>; 4]>;

/// A row that was looked for and found in a file.
#[derive(Debug)]
pub struct FoundRow<'a> {
    /// What the row index says of it.
    pub entry: RowEntry,
    blocks: &'a Blocks<'a>,
}

/// A row in all files that have it.
pub type FoundRows<'a> = SmallVec<[FoundRow<'a>; 2]>;

impl<'a> FoundRow<'a> {
    /// Looks for a row in these files. `hash` is that of the key for their filters, which were asked
    /// already.
    pub fn find_all(
        files: &'a [Blocks<'a>],
        key: &DecoratedKey,
        hash: u64,
    ) -> Result<FoundRows<'a>, ReadError> {
        let mut found = FoundRows::new();
        for blocks in files {
            let entry = blocks.table().find(key, hash, blocks)?;
            found.extend(entry.map(|entry| Self { entry, blocks }));
        }
        Ok(found)
    }

    /// The row as a source.
    pub fn source(&self) -> RowSource<'_> {
        RowSource::SsTable { entry: &self.entry, blocks: self.blocks }
    }
}

impl<'a> RowSource<'a> {
    fn deletion(&self) -> Deletion {
        match self {
            Self::Memtable(row) => row.deletion,
            Self::SsTable { entry, .. } => entry.deletion,
        }
    }

    /// Whether everything it has is deleted by this deletion, so that it need not be looked at.
    fn is_covered_by(&self, deletion: Deletion) -> bool {
        match self {
            Self::Memtable(_) => false,
            Self::SsTable { entry, .. } => {
                // The least timestamp there is would else count as deleted by no deletion at all.
                let is_covered = || entry.max_timestamp().is_some_and(|at| deletion.covers(at));
                !deletion.is_none() && is_covered()
            }
        }
    }

    /// About how many cells it has, deleted ones included.
    fn cell_count(self) -> usize {
        match self {
            Self::Memtable(row) => row.cells.len_hint(),
            Self::SsTable { entry, .. } => usize::try_from(entry.cells).unwrap_or(usize::MAX),
        }
    }

    fn cells(
        self,
        family: &'a ColumnFamilySchema,
        range: CellRange<'a>,
        reversed: bool,
    ) -> SourceCursor<'a> {
        match self {
            Self::Memtable(row) => SourceCursor::Memtable(row.cells.range(family, range, reversed)),
            Self::SsTable { entry, blocks } => {
                let table = blocks.table();
                SourceCursor::SsTable(table.cells(family, entry, range, reversed, blocks))
            }
        }
    }
}

enum SourceCursor<'a> {
    Memtable(TreeCursor<'a>),
    SsTable(CellCursor<'a>),
}

impl SourceCursor<'_> {
    fn advance(&mut self) -> Result<Option<Cell>, ReadError> {
        match self {
            Self::Memtable(cursor) => Ok(cursor.next().cloned()),
            Self::SsTable(cursor) => cursor.advance(),
        }
    }
}

/// The cells of a row from several sources, in order, one for each place.
pub struct MergedCells<'a>(Form<'a>);

#[allow(clippy::large_enum_variant, reason = "there is one for a read")]
enum Form<'a> {
    /// Nothing is to be merged.
    One(SourceCursor<'a>),
    Many(Merge<'a>),
}

struct Merge<'a> {
    family: &'a ColumnFamilySchema,
    reversed: bool,
    /// Each source with its next cell. Exhausted sources are taken out.
    sources: Vec<(SourceCursor<'a>, Cell)>,
}

impl<'a> MergedCells<'a> {
    fn new(
        family: &'a ColumnFamilySchema,
        reversed: bool,
        mut cursors: impl ExactSizeIterator<Item = SourceCursor<'a>>,
    ) -> Result<Self, ReadError> {
        if cursors.len() == 1
            && let Some(only) = cursors.next()
        {
            return Ok(Self(Form::One(only)));
        }
        let mut sources = Vec::with_capacity(cursors.len());
        for mut cursor in cursors {
            if let Some(cell) = cursor.advance()? {
                sources.push((cursor, cell));
            }
        }
        Ok(Self(Form::Many(Merge { family, reversed, sources })))
    }

    /// The next cell.
    pub fn advance(&mut self) -> Result<Option<Cell>, ReadError> {
        match &mut self.0 {
            Form::One(cursor) => cursor.advance(),
            Form::Many(merge) => merge.advance(),
        }
    }
}

impl Merge<'_> {
    fn order(&self, a: &Cell, b: &Cell) -> Ordering {
        let order = self.family.compare(a.place(), b.place());
        if self.reversed { order.reverse() } else { order }
    }

    fn advance(&mut self) -> Result<Option<Cell>, ReadError> {
        if self.sources.len() == 1 {
            return self.take(0).map(Some);
        }
        let mut first = 0;
        for other in 1..self.sources.len() {
            if self.order(&self.sources[other].1, &self.sources[first].1) == Ordering::Less {
                first = other;
            }
        }
        if self.sources.is_empty() {
            return Ok(None);
        }
        let mut cell = self.take(first)?;
        // Sources before the first were greater; its successors may have the same place.
        let mut other = 0;
        while other < self.sources.len() {
            if self.order(&self.sources[other].1, &cell) == Ordering::Equal {
                let length = self.sources.len();
                cell = cell.reconcile(self.take(other)?);
                other += usize::from(length == self.sources.len());
            } else {
                other += 1;
            }
        }
        Ok(Some(cell))
    }

    /// Takes the cell of a source and moves the source on.
    fn take(&mut self, index: usize) -> Result<Cell, ReadError> {
        let (cursor, cell) = &mut self.sources[index];
        if let Some(next) = cursor.advance()? {
            return Ok(std::mem::replace(cell, next));
        }
        Ok(self.sources.swap_remove(index).1)
    }
}

/// Reads one row.
#[derive(Debug)]
pub struct RowReader<'f, 's> {
    family: &'f ColumnFamilySchema,
    deletion: Deletion,
    sources: RowSources<'s>,
}

impl<'f, 's> RowReader<'f, 's> {
    /// A reader over everything that has a part of the row.
    pub fn new(family: &'f ColumnFamilySchema, mut sources: RowSources<'s>) -> Self {
        let deletions = sources.iter().map(RowSource::deletion);
        let deletion = deletions.fold(Deletion::NONE, Deletion::merge);
        sources.retain(|source| !source.is_covered_by(deletion));
        Self { family, deletion, sources }
    }

    /// A reader that also gives what the deletion of the row covers, which nobody can see: for
    /// those who copy a row as it is stored.
    pub fn of_everything(family: &'f ColumnFamilySchema, sources: RowSources<'s>) -> Self {
        let deletions = sources.iter().map(RowSource::deletion);
        let deletion = deletions.fold(Deletion::NONE, Deletion::merge);
        Self { family, deletion, sources }
    }

    /// Deletion of the whole row.
    pub fn deletion(&self) -> Deletion {
        self.deletion
    }

    /// All cells within a range, visible or not.
    pub fn cells<'b>(
        &'b self,
        range: CellRange<'b>,
        reversed: bool,
    ) -> Result<MergedCells<'b>, ReadError> {
        let cursors = self.sources.iter().map(|source| source.cells(self.family, range, reversed));
        MergedCells::new(self.family, reversed, cursors)
    }

    /// What a client may see of the slice; [`ReadError::WouldBlock`] if that is more work than the
    /// budget allows.
    pub fn slice(
        &self,
        slice: &Slice,
        counting: bool,
        budget: &mut Budget,
    ) -> Result<RowSlice, ReadError> {
        budget.spend(SEEK)?;
        let mut resolver =
            Resolver::new(self.family, slice, self.deletion, self.super_deletion(slice)?);
        if counting {
            resolver = resolver.counting();
        }
        if resolver.is_done() || self.sources.is_empty() {
            return Ok(resolver.finish());
        }
        let cells = self.sources.iter().map(|source| source.cell_count());
        resolver.expect(cells.fold(0, usize::saturating_add));
        'ranges: for range in slice.ranges(self.family) {
            budget.spend(SEEK)?;
            let mut cells = self.cells(range, slice.is_reversed())?;
            while let Some(cell) = cells.advance()? {
                if !counting && cell.is_live() {
                    budget.spend_on_answer(&cell)?;
                }
                if resolver.push(cell) == Flow::Done {
                    break 'ranges;
                }
                budget.spend(1)?;
            }
        }
        Ok(resolver.finish())
    }

    fn super_deletion(&self, slice: &Slice) -> Result<Deletion, ReadError> {
        let Some(name) = slice.super_name() else { return Ok(Deletion::NONE) };
        let marker = self.cells(CellRange::super_tombstone(name), false)?.advance()?;
        Ok(marker.and_then(|cell| cell.deletion()).unwrap_or(Deletion::NONE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_answers_are_bounded() {
        let mut inline = Budget::of(Access::CachedOnly);
        assert!((0..INLINE_CELLS).all(|_| inline.spend(1).is_ok()));
        assert!(matches!(inline.spend(1), Err(ReadError::WouldBlock)));
        let mut large =
            Budget { answer: 2 * MAX_ANSWER_BYTES / 1000, ..Budget::of(Access::Cached) };
        assert!((0..1_000_000).all(|_| large.spend(1).is_ok()));
        let cell = Cell::live(b"", b"name", &vec![0; MAX_ANSWER_BYTES / 1000], 1);
        assert!(large.spend_on_answer(&cell).is_ok());
        let refused = large.spend_on_answer(&cell).unwrap_err();
        assert!(refused.to_string().contains("ask for fewer columns"), "{refused}");
    }
}
