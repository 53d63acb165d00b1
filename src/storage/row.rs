//! One row, merged from all that hold a part of it: memtables and SSTables.

use super::answer::{self, AnswerRoom, AnswerShare};
use super::error::ReadError;
use super::memtable::{MemtableRow, TreeCursor};
use super::sstable::{Access, Blocks, CellCursor, RowEntry};
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::{CellRange, Flow, Resolver, RowSlice, Slice};
use crate::model::version::RowVersion;
use crate::ring::DecoratedKey;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// How much work a read may do. One that must not keep its thread for long gives up when this is
/// used up, to begin anew on another thread.
#[derive(Debug)]
pub struct Budget<'a> {
    /// Cells, or places to look at, that are left; `None` for no bound.
    left: Option<usize>,
    /// What the answer takes, if there is one.
    answer: Option<AnswerShare<'a>>,
}

/// Cells that may be looked at without leaving the thread: about 100 microseconds of work.
const INLINE_CELLS: usize = 2048;

/// What finding a row or a name costs, in cells.
const SEEK: usize = 8;

impl<'a> Budget<'a> {
    /// What a read with this access may do that collects nothing.
    pub fn of(access: Access) -> Self {
        let left = (access == Access::CachedOnly).then_some(INLINE_CELLS);
        Self { left, answer: None }
    }

    /// What a read with this access may do whose answer has to fit into this room.
    pub fn within(access: Access, room: &'a AnswerRoom) -> Self {
        Self { answer: Some(AnswerShare::of(room)), ..Self::of(access) }
    }

    /// Takes what a row adds to the answer before its cells.
    pub(super) fn spend_on_row(&mut self, key: &RowKey) -> Result<(), ReadError> {
        let cost = || answer::row_cost(key.as_bytes());
        self.answer.as_mut().map_or(Ok(()), |answer| answer.grow(cost()))
    }

    /// Takes what the cells of a row add to the answer: so many bytes now, and so many before.
    fn spend_on_cells(&mut self, now: usize, before: usize) -> Result<(), ReadError> {
        let Some(answer) = &mut self.answer else { return Ok(()) };
        answer.shrink(before.saturating_sub(now));
        if now > before { answer.grow(now - before) } else { Ok(()) }
    }

    /// To be called when the read has succeeded: else what its answer takes is given back.
    pub(super) fn answered(self) {
        if let Some(answer) = self.answer {
            answer.keep();
        }
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
    /// Looks for a row in these files. `hash` is that of the key for their filters, which were
    /// asked already.
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

    #[inline]
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
    fn merging(
        family: &'a ColumnFamilySchema,
        reversed: bool,
        cursors: impl ExactSizeIterator<Item = SourceCursor<'a>>,
    ) -> Result<Self, ReadError> {
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

    /// The cells in their stored form, if they stand together in one file and nothing is deleted,
    /// neither of this row anywhere nor in all that file.
    pub fn stored_cells(&self) -> Option<&[u8]> {
        match &self.sources[..] {
            // A source that was left out, being covered, may be the one that knows of a deletion.
            [RowSource::SsTable { entry, blocks }] if self.deletion.is_none() => {
                let has_deletions = blocks.table().properties().tombstones > 0;
                entry.inline_bytes().filter(|_| !has_deletions)
            }
            _ => None,
        }
    }

    /// All cells within a range, visible or not.
    #[inline]
    pub fn cells<'b>(
        &'b self,
        range: CellRange<'b>,
        reversed: bool,
    ) -> Result<MergedCells<'b>, ReadError> {
        // Made where it stays: moving it costs more than all that it has to do for a small row.
        if let [only] = &self.sources[..] {
            return Ok(MergedCells(Form::One(only.cells(self.family, range, reversed))));
        }
        let cursors = self.sources.iter().map(|source| source.cells(self.family, range, reversed));
        MergedCells::merging(self.family, reversed, cursors)
    }

    /// What a client may see of the slice; [`ReadError::WouldBlock`] if that is more work than the
    /// budget allows.
    pub fn slice(
        &self,
        slice: &Slice,
        counting: bool,
        budget: &mut Budget<'_>,
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
        let mut cost = 0;
        'ranges: for range in slice.ranges(self.family) {
            budget.spend(SEEK)?;
            let mut cells = self.cells(range, slice.is_reversed())?;
            while let Some(cell) = cells.advance()? {
                let flow = resolver.push(cell);
                let before = std::mem::replace(&mut cost, held(&resolver));
                budget.spend_on_cells(cost, before)?;
                if flow == Flow::Done {
                    break 'ranges;
                }
                budget.spend(1)?;
            }
        }
        resolver.end_group();
        budget.spend_on_cells(held(&resolver), cost)?;
        Ok(resolver.finish())
    }

    /// What is known here of the slice, deletions included: what other replicas have to hear. What
    /// was deleted before `gc_before` is left out, since they may have forgotten it.
    pub fn version(
        &self,
        slice: &Slice,
        gc_before: i32,
        budget: &mut Budget<'_>,
    ) -> Result<RowVersion, ReadError> {
        budget.spend(SEEK)?;
        let marker = self.super_marker(slice)?;
        let mut version = RowVersion { deletion: self.deletion, cells: Vec::new() };
        let mut resolver =
            Resolver::new(self.family, slice, self.deletion, deletion_of(marker.as_ref()));
        resolver = resolver.counting();
        if !resolver.is_done() {
            let mut encoded = 0;
            'ranges: for range in slice.ranges(self.family) {
                budget.spend(SEEK)?;
                let mut cells = self.cells(range, slice.is_reversed())?;
                while let Some(cell) = cells.advance()? {
                    let flow = resolver.push(cell.clone());
                    // The last of several super columns is complete only when the next one begins.
                    if flow == Flow::More || !resolver.is_grouping() {
                        let before = answer::cells_cost(version.cells.len(), encoded);
                        encoded += cell.encoded_length();
                        version.cells.push(cell);
                        let now = answer::cells_cost(version.cells.len(), encoded);
                        budget.spend_on_cells(now, before)?;
                    }
                    if flow == Flow::Done {
                        break 'ranges;
                    }
                    budget.spend(1)?;
                }
            }
        }
        if slice.is_reversed() {
            version.cells.reverse();
        }
        version.cells.splice(0..0, marker);
        version.drop_covered(self.family);
        version.drop_expired(self.family, gc_before);
        Ok(version)
    }

    fn super_deletion(&self, slice: &Slice) -> Result<Deletion, ReadError> {
        Ok(deletion_of(self.super_marker(slice)?.as_ref()))
    }

    /// The cell that deletes the super column that the slice is inside of, if there is one.
    fn super_marker(&self, slice: &Slice) -> Result<Option<Cell>, ReadError> {
        let Some(name) = slice.super_name() else { return Ok(None) };
        self.cells(CellRange::super_tombstone(name), false)?.advance()
    }
}

fn deletion_of(marker: Option<&Cell>) -> Deletion {
    marker.and_then(Cell::deletion).unwrap_or(Deletion::NONE)
}

/// What the cells take that are in the answer so far.
fn held(resolver: &Resolver<'_>) -> usize {
    let (cells, encoded) = resolver.held();
    answer::cells_cost(cells, encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::model::comparator::Comparator;
    use crate::model::schema::ColumnFamilyKind;
    use crate::storage::memtable::CellTree;

    const VALUE: usize = 1000;

    /// A row of ten columns, or super columns, the even ones of which are deleted.
    fn half_deleted(family: &ColumnFamilySchema) -> MemtableRow {
        let mut cells = Vec::new();
        for number in 0..10 {
            let (name, value) = (format!("n{number}"), [0; VALUE]);
            let deleted = Deletion::at(2, 0);
            if family.is_super() {
                if number % 2 == 0 {
                    cells.push(Cell::super_tombstone(name.as_bytes(), deleted));
                }
                cells.push(Cell::live(name.as_bytes(), b"c", &value, 1));
            } else {
                cells.push(Cell::live(b"", name.as_bytes(), &value, 1 + number % 2 * 2));
            }
        }
        let deletion = if family.is_super() { Deletion::NONE } else { Deletion::at(2, 0) };
        MemtableRow { deletion, cells: CellTree::from_sorted(cells) }
    }

    #[test]
    fn the_work_of_a_read_on_the_spot_is_bounded() {
        let mut inline = Budget::of(Access::CachedOnly);
        assert!((0..INLINE_CELLS).all(|_| inline.spend(1).is_ok()));
        assert!(matches!(inline.spend(1), Err(ReadError::WouldBlock)));
        let mut large = Budget::of(Access::Cached);
        assert!((0..1_000_000).all(|_| large.spend(1).is_ok()));
    }

    #[test]
    fn only_what_is_in_the_answer_counts_towards_its_size() {
        let columns = Comparator::Bytes;
        let super_columns = Comparator::Bytes;
        let kinds = [
            ColumnFamilyKind::Standard { columns: columns.clone() },
            ColumnFamilyKind::Super { super_columns, columns },
        ];
        for kind in kinds {
            let (keyspace, name) = ("k".into(), "c".into());
            let family = ColumnFamilySchema { keyspace, name, kind, comment: None };
            let row = half_deleted(&family);
            let sources = RowSources::from_iter([RowSource::Memtable(&row)]);
            let reader = RowReader::new(&family, sources);
            for reversed in [false, true] {
                let slice = Slice::range(None, b"", b"", reversed, 100);
                let read = |room: &AnswerRoom| {
                    let mut budget = Budget::within(Access::Cached, room);
                    let answer = reader.slice(&slice, false, &mut budget)?;
                    budget.answered();
                    Ok::<_, ReadError>(answer.count)
                };
                // One that is dropped at its end is in memory for a moment.
                let room = AnswerRoom::new(6 * (VALUE + 200));
                assert_eq!(read(&room).unwrap(), 5, "{reversed}");
                assert!(matches!(read(&room), Err(ReadError::TooLarge { .. })), "{reversed}");
                assert!(room.take(VALUE).is_ok(), "{reversed}");
                let mut counting = Budget::of(Access::Cached);
                assert_eq!(reader.slice(&slice, true, &mut counting).unwrap().count, 5);
            }
        }
    }
}
