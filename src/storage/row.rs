//! One row, merged from memtables and SSTables.

use super::answer;
use super::error::ReadError;
use super::memtable::{MemtableRow, TreeCursor};
use super::sstable::{Access, Blocks, CellCursor, RowEntry};
use crate::base::clock::Now;
use crate::base::context::RequestContext;
use crate::model::cell::{Cell, CellState, prefix_of};
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::{CellRange, Flow, Resolver, RowSlice, Slice};
use crate::model::version::RowVersion;
use crate::model::visibility::Visibility;
use crate::ring::DecoratedKey;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Work that a read may do, and memory that it has taken for its answer. A read that must not keep
/// its thread for long ends when the work is used up, to begin again on another thread. The memory
/// is given back when this is dropped, unless the read has succeeded.
#[derive(Debug)]
pub struct Budget<'a> {
    context: &'a RequestContext,
    /// Cells, or places to look at, until the read gives up or asks whether it is still wanted.
    left: usize,
    /// Where the read may look: it gives up then if that is only in memory.
    pub(super) access: Access,
    /// Whether what is found is collected.
    collects: bool,
    /// Bytes of the answer so far, and bytes that were taken for it.
    used: usize,
    taken: usize,
}

/// Cells that may be looked at without leaving the thread: about 100 microseconds of work.
const INLINE_CELLS: usize = 2048;

/// Cells between two looks at whether the read is still wanted.
const CHECKED_CELLS: usize = 4096;

/// Memory that a read takes at a time, in bytes, since others take from the same request.
const PIECE: usize = 16 << 10;

/// Cost of finding a row or a name, in cells.
const SEEK: usize = 8;

impl<'a> Budget<'a> {
    /// The budget of a read that collects nothing.
    pub fn counting(access: Access, context: &'a RequestContext) -> Self {
        Self { context, left: granted(access), access, collects: false, used: 0, taken: 0 }
    }

    /// The budget of a read whose answer takes memory of its request.
    pub fn collecting(access: Access, context: &'a RequestContext) -> Self {
        let mut budget = Self::counting(access, context);
        budget.collects = true;
        budget
    }

    /// Takes memory for a row without its cells.
    pub(super) fn spend_on_row(&mut self, key: &RowKey) -> Result<(), ReadError> {
        self.grow(answer::row_cost(key.as_bytes()))
    }

    /// Takes memory for the cells of a row, which have grown or shrunk.
    fn spend_on_cells(&mut self, now: usize, before: usize) -> Result<(), ReadError> {
        self.used = self.used.saturating_sub(before.saturating_sub(now));
        self.grow(now.saturating_sub(before))
    }

    /// Notes that the answer has grown.
    fn grow(&mut self, bytes: usize) -> Result<(), ReadError> {
        if !self.collects || bytes == 0 {
            return Ok(());
        }
        let used = self.used + bytes;
        if used > self.taken {
            let missing = used - self.taken;
            let piece = missing.max(PIECE);
            if self.context.take(piece).is_ok() {
                self.taken += piece;
            } else {
                self.context.take(missing)?;
                self.taken += missing;
            }
        }
        self.used = used;
        Ok(())
    }

    /// Keeps the memory of the answer of a successful read.
    pub(super) fn answered(mut self) {
        self.context.spend(granted(self.access) - self.left);
        // Only the rest goes back.
        self.taken -= self.used;
    }

    /// Takes the work of some cells.
    pub(super) fn spend(&mut self, cells: usize) -> Result<(), ReadError> {
        match self.left.checked_sub(cells) {
            Some(left) => self.left = left,
            None if self.access == Access::CachedOnly => return Err(ReadError::WouldBlock),
            None => {
                self.context.spend(CHECKED_CELLS);
                self.context.check()?;
                self.left = CHECKED_CELLS;
            }
        }
        Ok(())
    }
}

/// Cells that a read may look at before it gives up or asks whether it is still wanted.
fn granted(access: Access) -> usize {
    if access == Access::CachedOnly { INLINE_CELLS } else { CHECKED_CELLS }
}

impl Drop for Budget<'_> {
    fn drop(&mut self) {
        self.context.give_back(self.taken);
    }
}

/// The part of a row in one memtable or SSTable.
#[derive(Debug, Clone, Copy)]
pub enum RowSource<'a> {
    /// In memory.
    Memtable(&'a MemtableRow),
    /// In a file.
    SsTable {
        /// Its entry in the row index.
        entry: &'a RowEntry,
        /// The source of its blocks.
        blocks: &'a Blocks<'a>,
    },
}

/// All sources of a row: mostly one memtable or SSTable, or two.
pub type RowSources<'a> = SmallVec<[RowSource<'a>; 4]>;

/// A row that was looked for and found in a file.
#[derive(Debug)]
pub struct FoundRow<'a> {
    /// Its entry in the row index.
    pub entry: RowEntry,
    blocks: &'a Blocks<'a>,
}

/// A row in all files that have it.
pub type FoundRows<'a> = SmallVec<[FoundRow<'a>; 2]>;

impl<'a> FoundRow<'a> {
    /// Looks for a row in these files, whose filters may contain the hash of its key.
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

    /// Whether this deletion covers all of it, so that it need not be read. Deletions of super
    /// columns are read in any case: 0.6 tells of them.
    fn is_covered_by(&self, deletion: Deletion, family: &ColumnFamilySchema) -> bool {
        match self {
            Self::Memtable(_) => false,
            Self::SsTable { entry, blocks } => {
                let is_told = || family.is_super() && blocks.table().may_have_deletions();
                // The least timestamp there is would else count as deleted by no deletion at all.
                let is_covered = || entry.max_timestamp().is_some_and(|at| deletion.covers(at));
                !deletion.is_none() && is_covered() && !is_told()
            }
        }
    }

    /// Whether it may have a cell of a state that seldom is.
    fn may_hold(&self, state: CellState, family: &ColumnFamilySchema) -> bool {
        match self {
            Self::Memtable(row) => row.cells.may_hold(state),
            Self::SsTable { entry, blocks } => {
                blocks.table().properties().states & state.flag() != 0
                    && (state != CellState::RangeTombstone
                        || entry.may_have_range_deletions(family))
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
                SourceCursor::SsTable(CellCursor::new(family, entry, range, reversed, blocks))
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
    /// A reader of these sources.
    pub fn new(family: &'f ColumnFamilySchema, sources: RowSources<'s>) -> Self {
        let mut reader = Self::of_everything(family, sources);
        let deletion = reader.deletion;
        reader.sources.retain(|source| !source.is_covered_by(deletion, family));
        reader
    }

    /// A reader that also gives cells that the deletion of the row covers: for copies of a row as
    /// it is stored.
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
                entry.inline_bytes().filter(|_| !blocks.table().may_have_deletions())
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

    /// The part of the slice that is visible now; [`ReadError::WouldBlock`] if that is more work
    /// than the budget allows.
    pub fn slice(
        &self,
        (slice, now): (&Slice, Now<'_>),
        counting: bool,
        budget: &mut Budget<'_>,
    ) -> Result<RowSlice, ReadError> {
        budget.spend(SEEK)?;
        let above = self.above(slice)?;
        let mut resolver = Resolver::new(self.visibility(&above), slice, now);
        if counting {
            resolver = resolver.counting();
        }
        if resolver.is_done() || self.sources.is_empty() {
            return Ok(resolver.finish());
        }
        let cells = self.sources.iter().map(|source| source.cell_count());
        resolver.expect(cells.fold(0, usize::saturating_add));
        let mut cost = 0;
        self.each_cell(slice, budget, |cell, budget| {
            let flow = resolver.push(cell);
            let before = std::mem::replace(&mut cost, held(&resolver));
            budget.spend_on_cells(cost, before)?;
            Ok(flow)
        })?;
        resolver.end_group();
        budget.spend_on_cells(held(&resolver), cost)?;
        Ok(resolver.finish())
    }

    /// The slice with deletions, and with what they hide as far as it is stored.
    pub fn version(
        &self,
        (slice, now): (&Slice, Now<'_>),
        budget: &mut Budget<'_>,
    ) -> Result<RowVersion, ReadError> {
        budget.spend(SEEK)?;
        let above = self.above(slice)?;
        let mut version = RowVersion { deletion: self.deletion, cells: Vec::new() };
        let mut resolver = Resolver::new(self.visibility(&above), slice, now).counting();
        let mut has_prefixes = false;
        if !resolver.is_done() {
            let mut encoded = 0;
            self.each_cell(slice, budget, |cell, budget| {
                has_prefixes |= cell.state() == CellState::PrefixTombstone;
                let flow = resolver.push(cell.clone());
                // The last of several super columns is complete only when the next one begins.
                if flow == Flow::More || !resolver.is_grouping() {
                    let before = answer::cells_cost(version.cells.len(), encoded);
                    encoded += cell.encoded_length();
                    version.cells.push(cell);
                    let now = answer::cells_cost(version.cells.len(), encoded);
                    budget.spend_on_cells(now, before)?;
                }
                Ok(flow)
            })?;
        }
        if slice.is_reversed() {
            version.cells.reverse();
        }
        let is_prefix = |cell: &Cell| cell.state() == CellState::PrefixTombstone;
        let is_in_order = !has_prefixes && !above.iter().any(is_prefix);
        version.cells.splice(0..0, above);
        if !is_in_order {
            // The deletion of a prefix may have come before its place was reached, and again there.
            version.cells.sort_by(|a, b| self.family.compare(a.place(), b.place()));
            version.cells.dedup();
        }
        Ok(version)
    }

    /// Gives the cells of a slice in its order to `take`, until this wants no more. Where names lie
    /// close together the cells between them are passed over, else the next name is sought.
    #[inline]
    fn each_cell(
        &self,
        slice: &Slice,
        budget: &mut Budget<'_>,
        mut take: impl FnMut(Cell, &mut Budget<'_>) -> Result<Flow, ReadError>,
    ) -> Result<(), ReadError> {
        let mut walk = slice.walk(self.family);
        let mut prefixes = self.prefixes(slice);
        while let Some(range) = walk.rest() {
            budget.spend(SEEK)?;
            let mut cells = self.cells(range, slice.is_reversed())?;
            let mut passed = 0;
            // As many cells may be passed over as a seek costs.
            while passed < SEEK {
                let Some(cell) = cells.advance()? else { return Ok(()) };
                budget.spend(1)?;
                if cell.state() == CellState::RangeTombstone {
                    continue;
                }
                if !walk.wants(cell.place()) {
                    passed += 1;
                    continue;
                }
                if let Some(prefixes) = &mut prefixes
                    && let Some(above) = prefixes.before(&cell)?
                {
                    budget.spend(SEEK)?;
                    take(above, budget)?;
                }
                if take(cell, budget)? == Flow::Done || walk.is_done() {
                    return Ok(());
                }
                passed = 0;
            }
        }
        Ok(())
    }

    /// The cells that delete columns of the slice from outside of it, or may do so.
    fn above(&self, slice: &Slice) -> Result<SmallVec<[Cell; 1]>, ReadError> {
        let mut above: SmallVec<[Cell; 1]> = self.range_deletions()?.into();
        above.retain(|deletion| slice.is_in_range_of(self.family, deletion));
        above.extend(self.super_marker(slice)?);
        if self.may_hold(CellState::PrefixTombstone) {
            for prefix in slice.prefixes(self.family) {
                above.extend(self.prefix_tombstone(slice.super_name().unwrap_or(b""), prefix)?);
            }
        }
        Ok(above)
    }

    /// The range deletions of the row.
    pub fn range_deletions(&self) -> Result<Vec<Cell>, ReadError> {
        let mut found = Vec::new();
        if self.may_hold(CellState::RangeTombstone) {
            let mut deletions = self.cells(CellRange::RANGE_DELETIONS, false)?;
            while let Some(deletion) = deletions.advance()? {
                found.push(deletion);
            }
        }
        Ok(found)
    }

    /// The deletion of a prefix of columns behind this place.
    pub fn prefix_above(&self, place: (&[u8], &[u8])) -> Result<Option<Cell>, ReadError> {
        if !self.may_hold(CellState::PrefixTombstone) {
            return Ok(None);
        }
        self.prefix_tombstone(place.0, prefix_of(place.1).unwrap_or(place.1))
    }

    /// Visibility of the slice under the deletions above it, and that of the row.
    fn visibility(&self, above: &[Cell]) -> Visibility<'f> {
        let deletion = above.iter().find_map(Cell::super_deletion).unwrap_or(Deletion::NONE);
        let mut visibility = Visibility::new(self.family, self.deletion.merge(deletion));
        let ranges = above.iter().filter(|cell| cell.state() == CellState::RangeTombstone);
        ranges.for_each(|deletion| {
            visibility.hides(deletion);
        });
        visibility
    }

    fn may_hold(&self, state: CellState) -> bool {
        self.sources.iter().any(|source| source.may_hold(state, self.family))
    }

    /// The cell that deletes a prefix, if there is one.
    fn prefix_tombstone(&self, super_name: &[u8], name: &[u8]) -> Result<Option<Cell>, ReadError> {
        let found = self.cells(CellRange::of((super_name, name)), false)?.advance()?;
        Ok(found.filter(|cell| cell.state() == CellState::PrefixTombstone))
    }

    /// Deletions of prefixes for a slice that may begin behind them, or comes to them last. Where
    /// super columns are asked for they are whole, and ascend.
    fn prefixes(&self, slice: &Slice) -> Option<Prefixes<'_, 'f, 's>> {
        let is_within = !self.family.is_super() || slice.super_name().is_some();
        (is_within && self.may_hold(CellState::PrefixTombstone))
            .then(|| Prefixes { row: self, last: Vec::new() })
    }

    /// The cell that deletes the super column that the slice is inside of, if there is one.
    fn super_marker(&self, slice: &Slice) -> Result<Option<Cell>, ReadError> {
        let Some(name) = slice.super_name() else { return Ok(None) };
        self.cells(CellRange::super_tombstone(name), false)?.advance()
    }
}

/// Looks for the deletion of each prefix that the cells of a walk have.
struct Prefixes<'a, 'f, 's> {
    row: &'a RowReader<'f, 's>,
    /// The last prefix; empty at the beginning.
    last: Vec<u8>,
}

impl Prefixes<'_, '_, '_> {
    /// The deletion that a reader must know before this cell, if it is not this.
    fn before(&mut self, cell: &Cell) -> Result<Option<Cell>, ReadError> {
        let is_deletion = cell.state() == CellState::PrefixTombstone;
        let prefix = if is_deletion { Some(cell.name()) } else { cell.prefix() };
        let Some(prefix) = prefix.filter(|prefix| *prefix != self.last) else { return Ok(None) };
        prefix.clone_into(&mut self.last);
        if is_deletion { Ok(None) } else { self.row.prefix_tombstone(cell.super_name(), prefix) }
    }
}

/// Memory of the cells in the answer so far.
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
        let context = RequestContext::default();
        let mut inline = Budget::counting(Access::CachedOnly, &context);
        assert!((0..INLINE_CELLS).all(|_| inline.spend(1).is_ok()));
        assert!(matches!(inline.spend(1), Err(ReadError::WouldBlock)));
        let mut large = Budget::counting(Access::Cached, &context);
        assert!((0..1_000_000).all(|_| large.spend(1).is_ok()));
    }

    #[test]
    fn reads_of_one_request_share_its_memory() {
        let context = RequestContext::new(3 * PIECE);
        let budget = || Budget::collecting(Access::Cached, &context);
        let (mut first, mut second) = (budget(), budget());
        first.grow(2 * PIECE).unwrap();
        second.grow(PIECE / 2).unwrap();
        let refused = second.grow(PIECE).unwrap_err();
        assert!(refused.to_string().contains("ask for fewer columns or rows"), "{refused}");
        second.spend_on_cells(PIECE / 2, 0).unwrap();
        second.spend_on_cells(0, PIECE / 4).unwrap();
        second.answered();
        assert!(first.grow(PIECE).is_err());
        first.grow(PIECE / 4).unwrap();
        drop(first);
        context.take(3 * PIECE - 3 * PIECE / 4).unwrap();
        assert!(context.take(1).is_err());
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
            let family = ColumnFamilySchema::new(keyspace, name, kind);
            let row = half_deleted(&family);
            let sources = RowSources::from_iter([RowSource::Memtable(&row)]);
            let reader = RowReader::new(&family, sources);
            for reversed in [false, true] {
                let slice = Slice::range(None, b"", b"", reversed, 100);
                let read = |context: &RequestContext| {
                    let mut budget = Budget::collecting(Access::Cached, context);
                    let answer = reader.slice((&slice, Now::At(0)), false, &mut budget)?;
                    budget.answered();
                    Ok::<_, ReadError>(answer.count)
                };
                // One that is dropped at its end is in memory for a moment.
                let context = RequestContext::new(6 * (VALUE + 200));
                assert_eq!(read(&context).unwrap(), 5, "{reversed}");
                assert!(matches!(read(&context), Err(ReadError::TooLarge(_))), "{reversed}");
                assert!(context.take(VALUE).is_ok(), "{reversed}");
                let mut counting = Budget::counting(Access::Cached, &context);
                assert_eq!(
                    reader.slice((&slice, Now::At(0)), true, &mut counting).unwrap().count,
                    5
                );
            }
        }
    }
}
