//! Checks the rows of data blocks and the row index, and compares them.

use super::damages::Damages;
use crate::base::bytes::Malformed;
use crate::base::fs::File;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::sstable::block::{self, Block, BlockHandle, BlockKind};
use crate::storage::sstable::entry::{BlockCells, Extent, Extents, RowEntry, SummaryHead};
use crate::storage::sstable::filter::{self, Filter};
use crate::storage::sstable::properties::Properties;
use crate::storage::sstable::row_part::{RowPart, parts_of};
use crc32fast::Hasher;
use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::path::Path;
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
    fn is_denied(&self, hash: u64) -> bool {
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
    waiting: VecDeque<DataRow>,
    /// Last rows of the data blocks and of the row index.
    last_key: Option<DecoratedKey>,
    last_indexed: Option<DecoratedKey>,
    is_after_damage: bool,
    /// Row index blocks and their first keys.
    index_blocks: Vec<(SummaryHead, DecoratedKey)>,
    /// Column index blocks that no row has referred to.
    pub(super) unclaimed: BTreeSet<u64>,
    /// The last damage that may be one of the row index; another one if there is none.
    index_damage: Option<usize>,
    /// Whether any damage may have taken parts of the row index.
    is_index_incomplete: bool,
}

/// A row as the data blocks tell it.
#[derive(Debug)]
struct DataRow {
    key: DecoratedKey,
    deletion: Deletion,
    cells: RowCells,
    /// Checksum of its extents.
    extents: Hasher,
    /// The block in which it begins.
    block: BlockHandle,
}

/// Facts about the cells of one row.
#[derive(Debug)]
struct RowCells {
    count: u64,
    max_timestamp: i64,
    last: Option<Cell>,
    bytes: u64,
}

impl RowCells {
    fn new(deletion: Deletion) -> Self {
        Self { count: 0, max_timestamp: deletion.marked_for_delete_at, last: None, bytes: 0 }
    }

    /// Counts the next cell, in the totals as well; returns its fault.
    fn add(&mut self, cell: Cell, scope: &Scope, totals: &mut Properties) -> Option<&'static str> {
        let fault = scope.cell_fault(self.last.as_ref(), &cell);
        let length = cell.encoded_length() as u64;
        self.count += 1;
        self.bytes += length;
        self.max_timestamp = self.max_timestamp.max(cell.timestamp());
        totals.cells += 1;
        totals.raw_bytes += length;
        totals.largest_row_bytes = totals.largest_row_bytes.max(self.bytes);
        totals.note_timestamp(cell.timestamp());
        totals.note_deletion(&cell);
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
            last_indexed: None,
            is_after_damage: false,
            index_blocks: Vec::new(),
            unclaimed: BTreeSet::new(),
            index_damage: None,
            is_index_incomplete: false,
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
        if self.index_damage.is_none() || !is_elsewhere {
            self.index_damage = number.or(self.index_damage);
        }
        self.is_index_incomplete = true;
    }

    /// Whether the summary lists the row index blocks, except for damaged ones.
    pub(super) fn agrees_with(&self, summary: &[(SummaryHead, DecoratedKey)]) -> bool {
        if !self.is_index_incomplete {
            return self.index_blocks == summary;
        }
        self.index_blocks.iter().all(|block| summary.contains(block))
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
            extents: Hasher::new(),
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
                add_extent(&mut row.extents, handle, (first, count), cell.place());
            }
            faults.extend(row.cells.add(cell, &self.scope, &mut self.totals));
        }
        faults.dedup();
        for reason in faults {
            damages.row(handle, BlockKind::Data, reason, row.key.key());
        }
    }

    fn missing_in_index(&mut self, row: &DataRow, damages: &mut Damages) {
        let known = self.index_damage.and_then(|number| damages.get_mut(number));
        if let Some(damage) = known {
            damage.unindexed.add(row.key.key());
        } else if !self.is_index_incomplete {
            let reason = "the row index does not have a row of this block";
            damages.row(row.block, BlockKind::Data, reason, row.key.key());
        }
    }

    /// Ends the rows: all row index blocks were seen.
    pub(super) fn settle(&mut self, damages: &mut Damages) {
        while let Some(row) = self.waiting.pop_front() {
            self.missing_in_index(&row, damages);
        }
        if let Some(last) = self.last_key.as_ref().max(self.last_indexed.as_ref()) {
            self.totals.set_last_key(last);
        }
        let is_explained = self.is_index_incomplete || !damages.is_empty();
        for offset in std::mem::take(&mut self.unclaimed) {
            if !is_explained {
                let reason = "no row refers to this column index";
                damages.add(offset..offset, Some(BlockKind::ColumnIndex), reason);
            }
        }
    }
}

/// Reason of damage to the row index whose entries are not what was written.
pub(super) const UNREADABLE_ENTRY: &str = "an entry of the row index cannot be read";

const INDEX: BlockKind = BlockKind::RowIndex;

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
            } else if self.last_indexed.as_ref().is_some_and(|last| *last >= key) {
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
            self.last_indexed = Some(key);
        }
        let rows = block.len() as u64;
        let head = SummaryHead { block: handle, rows, points_elsewhere };
        self.index_blocks.extend(first_key.map(|key| (head, key)));
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
        let unclaimed = &mut self.unclaimed;
        let mut is_damaged = false;
        let mut visit = |block: BlockHandle| {
            is_damaged |= damages.concern(&block.range(), key.key());
        };
        let walked = walk(file, (cells, bytes), unclaimed, &mut visit);
        let Ok((extents, is_unreadable)) = walked else {
            return indexed.fault("the column index of a row cannot be read", damages);
        };
        if is_unreadable && !is_damaged {
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
            Some(row) => difference(row, entry.cells, (cells, bytes), extents),
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
    extents: u32,
) -> Option<&'static str> {
    let last = row.cells.last.as_ref().map_or((&b""[..], &b""[..]), Cell::place);
    if row.cells.count != cells {
        Some("the row index tells more or fewer cells of a row than it has")
    } else if row.cells.max_timestamp != indexed.max_timestamp {
        Some("the row index tells another greatest timestamp of a row than its cells")
    } else if last != indexed.last_place(bytes) {
        Some("the row index tells another last cell of a row than it has")
    } else if row.extents.clone().finalize() != extents {
        Some("the row index tells other places of the cells of a row than where they are")
    } else {
        None
    }
}

/// Adds an extent to a checksum over all extents of a row in their order.
fn add_extent(
    digest: &mut Hasher,
    block: BlockHandle,
    (first_entry, entries): (u32, u32),
    (super_name, name): (&[u8], &[u8]),
) {
    digest.update(&block.offset.to_be_bytes());
    for number in [block.length, first_entry, entries, super_name.len() as u32, name.len() as u32] {
        digest.update(&number.to_be_bytes());
    }
    digest.update(super_name);
    digest.update(name);
}

/// Walks over the extents of a row, depth first in the order of the cells. Removes the blocks of
/// its column index from `unclaimed`, the ones that no row has referred to. `visit` gets the blocks
/// that hold cells of the row, and those of its column index, as far as these can be read. `bytes`
/// are those of the block of the row's entry. Returns a checksum of the extents, and whether a part
/// of the column index is missing or cannot be read.
fn walk(
    file: &dyn File,
    (cells, bytes): (&BlockCells, &[u8]),
    unclaimed: &mut BTreeSet<u64>,
    visit: &mut dyn FnMut(BlockHandle),
) -> Result<(u32, bool), Malformed> {
    let (mut digest, mut is_unreadable) = (Hasher::new(), false);
    let mut add = |extent: &Extent, bytes: &[u8], visit: &mut dyn FnMut(BlockHandle)| {
        let Extent { block, first_entry, entries, .. } = *extent;
        add_extent(&mut digest, block, (first_entry, entries), extent.first_place(bytes));
        visit(block);
    };
    let mut open = Vec::new();
    match &cells.extents {
        Extents::Few(extents) => extents.iter().for_each(|extent| add(extent, bytes, visit)),
        Extents::ColumnIndex(root) => open.push((root.block, root.levels)),
    }
    while let Some((handle, levels)) = open.pop() {
        visit(handle);
        let read = block::read(file, Path::new(""), handle, BlockKind::ColumnIndex);
        // Each belongs to one row, and once: nonsense cannot lead in circles.
        let is_claimed = unclaimed.remove(&handle.offset);
        let (Ok(block), true) = (read, is_claimed) else {
            is_unreadable = true;
            continue;
        };
        let extents = (0..block.len()).map(|index| {
            let at = block.entry(index).ok_or(Malformed(0))?;
            Extent::decode(block.bytes(), at)
        });
        let extents = extents.collect::<Result<Vec<_>, _>>()?;
        if levels > 1 {
            open.extend(extents.iter().rev().map(|extent| (extent.block, levels - 1)));
        } else {
            for extent in &extents {
                add(extent, block.bytes(), visit);
            }
        }
    }
    Ok((digest.finalize(), is_unreadable))
}
