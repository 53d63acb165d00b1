//! Checks the rows of data blocks, and keeps them until the row index tells of them.

use super::damages::Damages;
use super::extents::ExtentDigest;
use super::index_check::IndexSide;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::sstable::block::{Block, BlockHandle, BlockKind};
use crate::storage::sstable::filter::{self, Filter};
use crate::storage::sstable::properties::Properties;
use crate::storage::sstable::row_part::{RowPart, parts_of};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Most rows that wait for their entry in the row index. The writer has fewer waiting: beyond
/// that the index of the oldest is lost.
const MAX_WAITING_ROWS: usize = 1 << 17;

/// The order of rows and cells in a file, and its filter.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) family: Arc<ColumnFamilySchema>,
    pub(super) partitioner: Partitioner,
    pub(super) filter: Option<Filter>,
}

impl Scope {
    pub(super) fn is_denied(&self, hash: u64) -> bool {
        self.filter.as_ref().is_some_and(|filter| !filter.may_contain(hash))
    }

    /// The fault of a cell that follows the last one of its row.
    fn cell_fault(&self, last: Option<&Cell>, cell: &Cell) -> Option<&'static str> {
        match last.map(|last| self.family.compare(last.place(), cell.place())) {
            Some(Ordering::Greater) => Some("the cells of a row are not in order"),
            Some(Ordering::Equal) => Some("a row has two cells in one place"),
            _ if !self.family.can_hold(cell.state(), cell.place()) => {
                Some("a cell has a name that the comparator refuses")
            }
            _ => None,
        }
    }
}

/// Compares the rows of data blocks with the row index, both in their order.
#[derive(Debug)]
pub(super) struct RowCheck {
    pub(super) scope: Scope,
    /// Facts about all rows, as the properties should state them.
    pub(super) totals: Properties,
    /// Rows of data blocks whose entries in the row index are still to come.
    pub(super) waiting: VecDeque<DataRow>,
    last_key: Option<DecoratedKey>,
    is_after_damage: bool,
    pub(super) index: IndexSide,
}

/// A row as the data blocks tell it.
#[derive(Debug)]
pub(super) struct DataRow {
    pub(super) key: DecoratedKey,
    pub(super) deletion: Deletion,
    pub(super) cells: RowCells,
    pub(super) extents: ExtentDigest,
    /// The block in which it begins.
    block: BlockHandle,
}

/// Facts about the cells of one row.
#[derive(Debug)]
pub(super) struct RowCells {
    pub(super) count: u64,
    pub(super) max_timestamp: i64,
    pub(super) last: Option<Cell>,
    bytes: u64,
}

impl RowCells {
    pub(super) fn new(deletion: Deletion) -> Self {
        Self { count: 0, max_timestamp: deletion.marked_for_delete_at, last: None, bytes: 0 }
    }

    /// Counts the next cell, in the totals as well; returns its fault.
    pub(super) fn add(
        &mut self,
        cell: Cell,
        scope: &Scope,
        totals: &mut Properties,
    ) -> Option<&'static str> {
        let fault = scope.cell_fault(self.last.as_ref(), &cell);
        let length = cell.encoded_length() as u64;
        self.count += 1;
        self.bytes += length;
        self.max_timestamp = self.max_timestamp.max(cell.timestamp());
        totals.cells += 1;
        totals.raw_bytes += length;
        totals.largest_row_bytes = totals.largest_row_bytes.max(self.bytes);
        totals.note_timestamp(cell.timestamp());
        cell.deletion().inspect(|deletion| totals.note_tombstone(*deletion));
        self.last = Some(cell);
        fault
    }
}

impl RowCheck {
    pub(super) fn new(scope: Scope) -> Self {
        Self {
            scope,
            totals: Properties::without_rows(),
            waiting: VecDeque::new(),
            last_key: None,
            is_after_damage: false,
            index: IndexSide::default(),
        }
    }

    /// Notes damage before the summary: of data, or of an index. `kind` may be damaged as well: it
    /// is only used to find out between which rows the damage is.
    pub(super) fn note_damage(
        &mut self,
        number: Option<usize>,
        kind: Option<BlockKind>,
        reason: &'static str,
        damages: &mut Damages,
    ) {
        self.is_after_damage = true;
        damages.open_gap(number, reason);
        let is_elsewhere = matches!(kind, Some(BlockKind::Data | BlockKind::ColumnIndex));
        self.index.note_damage(number, is_elsewhere);
    }

    pub(super) fn data_block(&mut self, handle: BlockHandle, block: &Block, damages: &mut Damages) {
        let kind = BlockKind::Data;
        let parts = match parts_of(block) {
            Ok(parts) => parts,
            Err(reason) => {
                let number = damages.block(handle, kind, reason);
                return self.note_damage(number, Some(kind), reason, damages);
            }
        };
        for (index, (part, entries)) in parts.into_iter().enumerate() {
            self.part(handle, &part, index == 0, damages);
            self.cells(handle, block, entries, damages);
        }
        self.is_after_damage = false;
        while self.waiting.len() > MAX_WAITING_ROWS
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.missing_in_index(&oldest, damages);
        }
    }

    /// Continues the row of this part, or begins it.
    fn part(
        &mut self,
        handle: BlockHandle,
        part: &RowPart<'_>,
        is_first: bool,
        damages: &mut Damages,
    ) {
        let key = self.scope.partitioner.decorate(RowKey::new(part.key));
        damages.data_row(&key);
        let mut fault = |reason| damages.row(handle, BlockKind::Data, reason, key.key());
        let reason = match (part.is_continued, self.last_key.as_ref().map(|last| last.cmp(&key))) {
            (true, Some(Ordering::Equal)) if is_first => None,
            (true, Some(Ordering::Equal)) => Some("a row goes on within a block"),
            (true, _) if !self.is_after_damage => Some("a row goes on that has not begun"),
            (_, Some(Ordering::Greater)) => Some("rows are not in order"),
            (false, Some(Ordering::Equal)) => Some("a row begins twice"),
            _ => None,
        };
        if let Some(reason) = reason {
            fault(reason);
        }
        if self.last_key.as_ref() == Some(&key)
            && let Some(row) = self.waiting.back().filter(|row| row.key == key)
        {
            if row.deletion != part.deletion {
                fault("two blocks tell different deletions of a row");
            }
            return;
        }
        if self.scope.is_denied(filter::hash(part.key)) {
            fault("the filter denies a row of this block");
        }
        self.totals.rows += 1;
        self.totals.note_row_deletion(part.deletion);
        self.last_key = Some(key.clone());
        self.waiting.push_back(DataRow {
            key,
            deletion: part.deletion,
            cells: RowCells::new(part.deletion),
            extents: ExtentDigest::default(),
            block: handle,
        });
    }

    /// Adds cells to the last row.
    fn cells(
        &mut self,
        handle: BlockHandle,
        block: &Block,
        entries: Range<usize>,
        damages: &mut Damages,
    ) {
        let Some(row) = self.waiting.back_mut() else { return };
        let (first, count) = (entries.start as u32, entries.len() as u32);
        let mut faults = Vec::new();
        for (index, entry) in entries.enumerate() {
            let cell = block.entry(entry).and_then(|at| Cell::decode(block.bytes(), at));
            let Some(cell) = cell else { continue };
            if index == 0 {
                row.extents.add(handle, first, count, cell.place());
            }
            faults.extend(row.cells.add(cell, &self.scope, &mut self.totals));
        }
        faults.dedup();
        for reason in faults {
            damages.row(handle, BlockKind::Data, reason, row.key.key());
        }
    }

    pub(super) fn missing_in_index(&mut self, row: &DataRow, damages: &mut Damages) {
        let known = self.index.damage.and_then(|number| damages.get_mut(number));
        if let Some(damage) = known {
            damage.unindexed.add(row.key.key());
        } else if !self.index.is_incomplete {
            let reason = "the row index does not have a row of this block";
            damages.row(row.block, BlockKind::Data, reason, row.key.key());
        }
    }

    /// Ends the rows: all row index blocks were seen.
    pub(super) fn settle(&mut self, damages: &mut Damages) {
        while let Some(row) = self.waiting.pop_front() {
            self.missing_in_index(&row, damages);
        }
        if let Some(last) = self.last_key.as_ref().max(self.index.last_key.as_ref()) {
            self.totals.set_last_key(last);
        }
        let is_explained = self.index.is_incomplete || !damages.is_empty();
        for offset in std::mem::take(&mut self.index.unclaimed) {
            if !is_explained {
                let reason = "no row refers to this column index";
                damages.add(offset..offset, Some(BlockKind::ColumnIndex), reason);
            }
        }
    }
}
