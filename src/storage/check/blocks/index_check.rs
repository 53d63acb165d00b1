//! Checks the row index, and compares it with the rows of data blocks.

use super::damages::Damages;
use super::extents::{Walked, walk};
use super::row_check::{DataRow, RowCells, RowCheck};
use crate::base::fs::File;
use crate::model::cell::Cell;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::sstable::block::{Block, BlockHandle, BlockKind};
use crate::storage::sstable::entry::{BlockCells, RowEntry};
use crate::storage::sstable::filter;
use crate::storage::sstable::summary::SummaryHead;
use std::collections::BTreeSet;

/// Reason of damage to the row index whose entries are not what was written.
pub(super) const UNREADABLE_ENTRY: &str = "an entry of the row index cannot be read";

const INDEX: BlockKind = BlockKind::RowIndex;

/// The row index so far.
#[derive(Debug, Default)]
pub(super) struct IndexSide {
    pub(super) last_key: Option<DecoratedKey>,
    /// Its blocks and their first keys.
    blocks: Vec<(SummaryHead, DecoratedKey)>,
    /// Column index blocks that no row has referred to.
    pub(super) unclaimed: BTreeSet<u64>,
    /// The last damage that may be one of the row index; another one if there is none.
    pub(super) damage: Option<usize>,
    /// Whether any damage may have taken parts of the row index.
    pub(super) is_incomplete: bool,
}

impl IndexSide {
    pub(super) fn note_damage(&mut self, number: Option<usize>, is_elsewhere: bool) {
        if self.damage.is_none() || !is_elsewhere {
            self.damage = number.or(self.damage);
        }
        self.is_incomplete = true;
    }

    /// Whether the summary lists the row index blocks; those that are damaged aside.
    pub(super) fn agrees_with(&self, summary: &[(SummaryHead, DecoratedKey)]) -> bool {
        if !self.is_incomplete {
            return self.blocks == summary;
        }
        self.blocks.iter().all(|block| summary.contains(block))
    }
}

/// The entry of a row.
struct Indexed<'a> {
    entry: &'a RowEntry,
    key: &'a DecoratedKey,
    block: BlockHandle,
}

impl Indexed<'_> {
    fn fault(&self, reason: &'static str, damages: &mut Damages) {
        damages.row(self.block, INDEX, reason, self.key.key());
    }
}

impl RowCheck {
    pub(super) fn row_index_block(
        &mut self,
        file: &dyn File,
        handle: BlockHandle,
        block: &Block,
        damages: &mut Damages,
    ) {
        let partitioner = self.scope.partitioner;
        let (mut previous, mut first_key, mut points_elsewhere) = (None, None, false);
        for index in 0..block.len() {
            let at = block.entry(index);
            let entry = at.filter(|at| previous.map_or(*at == 0, |previous| previous < *at));
            previous = at;
            let Some((key, entry)) = entry.and_then(|at| keyed_entry(partitioner, block, at))
            else {
                let number = damages.block(handle, INDEX, UNREADABLE_ENTRY);
                return self.note_damage(number, Some(INDEX), UNREADABLE_ENTRY, damages);
            };
            damages.index_row(&key);
            points_elsewhere |= entry.block_cells().is_some();
            first_key.get_or_insert_with(|| key.clone());
            let indexed = Indexed { entry: &entry, key: &key, block: handle };
            let tag = filter::tag(filter::hash(entry.key()));
            if key != partitioner.decorate(key.key().clone()) {
                indexed.fault("a row has another token than its key gives it", damages);
            } else if self.index.last_key.as_ref().is_some_and(|last| *last >= key) {
                indexed.fault("the row index is not in order", damages);
            } else if block.tag(index) != Some(tag) {
                indexed.fault("a row is tagged wrongly, and cannot be found", damages);
            }
            while let Some(row) = self.waiting.pop_front_if(|row| row.key < key) {
                self.missing_in_index(&row, damages);
            }
            let row = self.waiting.pop_front_if(|row| row.key == key);
            match entry.block_cells() {
                Some(cells) => self.large_row(file, &indexed, (cells, row), damages),
                None => self.small_row(&indexed, row.is_some(), damages),
            }
            self.index.last_key = Some(key);
        }
        let rows = block.len() as u64;
        let head = SummaryHead { block: handle, rows, points_elsewhere };
        self.index.blocks.extend(first_key.map(|key| (head, key)));
        self.totals.index_interval = self.totals.index_interval.max(rows);
    }

    /// Compares an entry of the row index with the row of the data blocks.
    fn large_row(
        &mut self,
        file: &dyn File,
        indexed: &Indexed<'_>,
        (cells, row): (&BlockCells, Option<DataRow>),
        damages: &mut Damages,
    ) {
        let Indexed { entry, key, .. } = indexed;
        let bytes = entry.block().bytes();
        let unclaimed = &mut self.index.unclaimed;
        let mut is_damaged = false;
        let mut visit = |block: BlockHandle| {
            is_damaged |= damages.concern(&block.range(), key.key());
        };
        let Ok(walked) = walk(file, (cells, bytes), unclaimed, &mut visit) else {
            return indexed.fault("the column index of a row cannot be read", damages);
        };
        if walked.is_unreadable && !is_damaged {
            let reason = "the column index of a row is not there, or cannot be read";
            indexed.fault(reason, damages);
            is_damaged = true;
        }
        let reason = match &row {
            None if is_damaged || damages.concern_data(key) => None,
            None => Some("the row index has a row that no data block has"),
            Some(row) if row.deletion != entry.deletion => {
                Some("the row index tells another deletion of a row than its data")
            }
            Some(_) if is_damaged => None,
            Some(row) => difference(row, entry.cells, (cells, bytes), &walked),
        };
        if let Some(reason) = reason {
            indexed.fault(reason, damages);
        }
    }

    /// Checks a row whose cells stand in its entry.
    fn small_row(&mut self, indexed: &Indexed<'_>, has_data: bool, damages: &mut Damages) {
        let entry = indexed.entry;
        let mut faults = Vec::new();
        if has_data {
            faults.push("a row stands in the row index and in data blocks");
        }
        if self.scope.is_denied(filter::hash(entry.key())) {
            faults.push("the filter denies a row of this block");
        }
        self.totals.rows += 1;
        self.totals.note_row_deletion(entry.deletion);
        let mut cells = RowCells::new(entry.deletion);
        for cell in entry.inline_cells() {
            let Ok(cell) = cell else {
                faults.push("a cell cannot be read");
                break;
            };
            faults.extend(cells.add(cell, &self.scope, &mut self.totals));
        }
        if cells.count != entry.cells {
            faults.push("the row index tells more or fewer cells of a row than it has");
        }
        faults.dedup();
        for reason in faults {
            indexed.fault(reason, damages);
        }
    }
}

/// The entry that stands at this offset of a row index block, and its key.
pub(super) fn keyed_entry(
    partitioner: Partitioner,
    block: &Block,
    at: usize,
) -> Option<(DecoratedKey, RowEntry)> {
    let entry = RowEntry::decode(partitioner, block, at).ok()?;
    Some((entry.decorated_key(partitioner).ok()?, entry))
}

/// The first statement of the row index about a row that is not so.
fn difference(
    row: &DataRow,
    cells: u64,
    (indexed, bytes): (&BlockCells, &[u8]),
    walked: &Walked,
) -> Option<&'static str> {
    let last = row.cells.last.as_ref().map_or((&b""[..], &b""[..]), Cell::place);
    if row.cells.count != cells {
        Some("the row index tells more or fewer cells of a row than it has")
    } else if row.cells.max_timestamp != indexed.max_timestamp {
        Some("the row index tells another greatest timestamp of a row than its cells")
    } else if last != indexed.last_place(bytes) {
        Some("the row index tells another last cell of a row than it has")
    } else if row.extents.value() != walked.digest.value() {
        Some("the row index tells other places of the cells of a row than where they are")
    } else {
        None
    }
}
