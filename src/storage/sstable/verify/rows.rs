//! Rows as the data blocks tell them, beside the same rows as the row index tells them.

use super::extents::{ExtentDigest, Walked, walk};
use super::range_of;
use super::report::{Damages, Fault};
use crate::base::bytes::ByteWriter;
use crate::base::fs::File;
use crate::model::cell::Cell;
use crate::model::comparator::hex;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::sstable::block::{Block, BlockHandle, BlockKind};
use crate::storage::sstable::entry::{BlockCells, RowEntry};
use crate::storage::sstable::filter::{self, Filter};
use crate::storage::sstable::neighbours::Neighbours;
use crate::storage::sstable::properties::Properties;
use crate::storage::sstable::row_part::{RowPart, parts_of};
use crate::storage::sstable::summary::SummaryHead;
use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Most rows that wait for their entry in the row index. The writer never lets so many wait: the
/// index of the oldest is lost.
const MAX_WAITING_ROWS: usize = 1 << 17;

/// Compares the rows of data blocks with the row index, both in their order.
#[derive(Debug)]
pub(super) struct RowCheck {
    pub(super) partitioner: Partitioner,
    family: Arc<ColumnFamilySchema>,
    filter: Option<Filter>,
    pub(super) totals: Totals,
    /// Rows that were in data blocks, and whose entries in the row index are still to come.
    waiting: VecDeque<DataRow>,
    /// The last row of data blocks, and of the row index.
    last_key: Option<DecoratedKey>,
    last_indexed: Option<DecoratedKey>,
    /// The row index blocks and their first keys.
    index_blocks: Vec<(SummaryHead, DecoratedKey)>,
    /// Column index blocks that no row refers to so far.
    unclaimed: BTreeSet<u64>,
    /// The block before was damaged.
    is_behind_damage: bool,
    /// Between which rows the damages are.
    neighbours: Neighbours,
    /// The last damage that may have been one of the row index; another one if there is none.
    index_damage: Option<usize>,
    /// Whether any damage may have taken parts of the row index.
    lost_index: bool,
}

/// A row as the data blocks tell it.
#[derive(Debug)]
struct DataRow {
    key: DecoratedKey,
    deletion: Deletion,
    cells: u64,
    raw_bytes: u64,
    max_timestamp: i64,
    last: Option<Cell>,
    extents: ExtentDigest,
    /// The block in which it begins.
    block: BlockHandle,
}

impl RowCheck {
    pub(super) fn new(
        family: Arc<ColumnFamilySchema>,
        partitioner: Partitioner,
        filter: Option<Filter>,
    ) -> Self {
        Self {
            partitioner,
            family,
            filter,
            totals: Totals::default(),
            waiting: VecDeque::new(),
            last_key: None,
            last_indexed: None,
            index_blocks: Vec::new(),
            unclaimed: BTreeSet::new(),
            is_behind_damage: false,
            neighbours: Neighbours::default(),
            index_damage: None,
            lost_index: false,
        }
    }

    /// Something before the summary is damaged: data, or a part of an index. What seems to have
    /// stood there is not relied on, but to say between which rows it was.
    pub(super) fn note_damage(&mut self, number: Option<usize>, kind: Option<BlockKind>) {
        self.is_behind_damage = true;
        if let Some(number) = number {
            self.neighbours.damage(number, kind);
        }
        let is_elsewhere = matches!(kind, Some(BlockKind::Data | BlockKind::ColumnIndex));
        if self.index_damage.is_none() || !is_elsewhere {
            self.index_damage = number.or(self.index_damage);
        }
        self.lost_index = true;
    }

    pub(super) fn column_index_block(&mut self, handle: BlockHandle) {
        self.unclaimed.insert(handle.offset);
    }

    pub(super) fn data_block(&mut self, handle: BlockHandle, block: &Block, damages: &mut Damages) {
        let parts = match parts_of(block) {
            Ok(parts) => parts,
            Err(reason) => {
                let kind = Some(BlockKind::Data);
                let number = damages.add(range_of(handle), kind, Fault::Bytes(reason));
                self.note_damage(number, kind);
                return;
            }
        };
        for (index, (part, entries)) in parts.into_iter().enumerate() {
            self.part(handle, &part, index == 0, damages);
            self.cells(handle, block, entries, damages);
        }
        self.is_behind_damage = false;
        while self.waiting.len() > MAX_WAITING_ROWS
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.missing_in_index(&oldest, damages);
        }
    }

    /// Goes on with the row of this part, or begins it.
    fn part(
        &mut self,
        handle: BlockHandle,
        part: &RowPart<'_>,
        is_first: bool,
        damages: &mut Damages,
    ) {
        let key = self.partitioner.decorate(RowKey::new(part.key));
        self.neighbours.data_row(&key);
        let is_same = self.last_key.as_ref() == Some(&key);
        let reason = match (part.is_continued, self.last_key.as_ref().map(|last| last.cmp(&key))) {
            (true, Some(Ordering::Equal)) if is_first => None,
            (true, Some(Ordering::Equal)) => Some("a row goes on within a block"),
            (true, _) if !self.is_behind_damage => Some("a row goes on that has not begun"),
            (_, Some(Ordering::Greater)) => Some("rows are not in order"),
            (false, Some(Ordering::Equal)) => Some("a row begins twice"),
            _ => None,
        };
        if let Some(reason) = reason {
            fault(handle, BlockKind::Data, reason, key.key(), damages);
        }
        if is_same && self.waiting.back().is_some_and(|row| row.key == key) {
            let differs = self.waiting.back().is_some_and(|row| row.deletion != part.deletion);
            if differs {
                let reason = "two blocks tell different deletions of a row";
                fault(handle, BlockKind::Data, reason, key.key(), damages);
            }
            return;
        }
        if self.filter.as_ref().is_some_and(|f| !f.may_contain(filter::hash(part.key))) {
            let reason = "the filter denies a row of this block";
            fault(handle, BlockKind::Data, reason, key.key(), damages);
        }
        self.totals.row(part.deletion);
        self.last_key = Some(key.clone());
        self.waiting.push_back(DataRow {
            key,
            deletion: part.deletion,
            cells: 0,
            raw_bytes: 0,
            max_timestamp: part.deletion.marked_for_delete_at,
            last: None,
            extents: ExtentDigest::default(),
            block: handle,
        });
    }

    /// The cells of the row that was met last.
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
            faults.extend(cell_fault(&self.family, row.last.as_ref(), &cell));
            row.cells += 1;
            row.raw_bytes += cell.encoded_length() as u64;
            row.max_timestamp = row.max_timestamp.max(cell.timestamp());
            self.totals.cell(&cell, row.raw_bytes);
            row.last = Some(cell);
        }
        let key = row.key.key().clone();
        faults.dedup();
        for reason in faults {
            fault(handle, BlockKind::Data, reason, &key, damages);
        }
    }

    pub(super) fn row_index_block(
        &mut self,
        file: &dyn File,
        handle: BlockHandle,
        block: &Block,
        damages: &mut Damages,
    ) {
        let (mut previous, mut first_key, mut points_elsewhere) = (None, None, false);
        for index in 0..block.len() {
            let at = block.entry(index);
            let entry = at.filter(|at| previous.map_or(*at == 0, |previous| previous < *at));
            previous = at;
            let entry = entry.and_then(|at| RowEntry::decode(self.partitioner, block, at).ok());
            let key = entry.as_ref().and_then(|e| e.decorated_key(self.partitioner).ok());
            let (Some(entry), Some(key)) = (entry, key) else {
                let reason = "an entry of the row index cannot be read";
                let kind = Some(BlockKind::RowIndex);
                let number = damages.add(range_of(handle), kind, Fault::Bytes(reason));
                self.note_damage(number, kind);
                return;
            };
            self.neighbours.index_row(&key);
            points_elsewhere |= entry.block_cells().is_some();
            first_key.get_or_insert_with(|| key.clone());
            let tag = filter::tag(filter::hash(entry.key()));
            let reason = if key != self.partitioner.decorate(key.key().clone()) {
                Some("a row has another token than its key gives it")
            } else if self.last_indexed.as_ref().is_some_and(|last| *last >= key) {
                Some("the row index is not in order")
            } else if block.tag(index) != Some(tag) {
                Some("a row is tagged wrongly, and cannot be found")
            } else {
                None
            };
            if let Some(reason) = reason {
                fault(handle, BlockKind::RowIndex, reason, key.key(), damages);
            }
            self.entry(file, handle, &entry, &key, damages);
            self.last_indexed = Some(key);
        }
        let head = SummaryHead { block: handle, rows: block.len() as u64, points_elsewhere };
        self.index_blocks.extend(first_key.map(|key| (head, key)));
        self.totals.longest_index_block = self.totals.longest_index_block.max(block.len() as u64);
    }

    /// Checks an entry of the row index.
    fn entry(
        &mut self,
        file: &dyn File,
        handle: BlockHandle,
        entry: &RowEntry,
        key: &DecoratedKey,
        damages: &mut Damages,
    ) {
        while let Some(row) = self.waiting.pop_front_if(|row| row.key < *key) {
            self.missing_in_index(&row, damages);
        }
        let row = self.waiting.pop_front_if(|row| row.key == *key);
        match entry.block_cells() {
            Some(cells) => self.large_row(file, handle, (entry, cells), (key, row), damages),
            None => self.small_row(handle, entry, (key, row), damages),
        }
    }

    /// Compares an entry of the row index with the row that the data blocks told.
    fn large_row(
        &mut self,
        file: &dyn File,
        handle: BlockHandle,
        (entry, cells): (&RowEntry, &BlockCells),
        (key, row): (&DecoratedKey, Option<DataRow>),
        damages: &mut Damages,
    ) {
        let kind = BlockKind::RowIndex;
        let bytes = entry.block().bytes();
        let walked = walk(file, (cells, bytes), &mut self.unclaimed, !damages.is_empty());
        let Ok(walked) = walked else {
            fault(handle, kind, "the column index of a row cannot be read", key.key(), damages);
            return;
        };
        let mut is_damaged = false;
        for range in &walked.blocks {
            is_damaged |= damages.concern(range, key.key());
        }
        if walked.is_unreadable && !is_damaged {
            let reason = "the column index of a row is not there, or cannot be read";
            fault(handle, kind, reason, key.key(), damages);
            is_damaged = true;
        }
        let Some(row) = row else {
            if !is_damaged && !self.is_where_data_are_lost(key, damages) {
                let reason = "the row index has a row that no data block has";
                fault(handle, kind, reason, key.key(), damages);
            }
            return;
        };
        let reason = if row.deletion != entry.deletion {
            Some("the row index tells another deletion of a row than its data")
        } else if is_damaged {
            None
        } else {
            difference(&row, entry.cells, (cells, bytes), &walked)
        };
        if let Some(reason) = reason {
            fault(handle, kind, reason, key.key(), damages);
        }
    }

    /// Checks a row whose cells stand in its entry.
    fn small_row(
        &mut self,
        handle: BlockHandle,
        entry: &RowEntry,
        (key, row): (&DecoratedKey, Option<DataRow>),
        damages: &mut Damages,
    ) {
        let mut faults = Vec::new();
        if row.is_some() {
            faults.push("a row stands in the row index and in data blocks");
        }
        if self.filter.as_ref().is_some_and(|f| !f.may_contain(filter::hash(entry.key()))) {
            faults.push("the filter denies a row of this block");
        }
        self.totals.row(entry.deletion);
        let (mut last, mut cells, mut raw_bytes) = (None, 0, 0);
        for cell in entry.inline_cells() {
            let Ok(cell) = cell else {
                faults.push("a cell cannot be read");
                break;
            };
            faults.extend(cell_fault(&self.family, last.as_ref(), &cell));
            cells += 1;
            raw_bytes += cell.encoded_length() as u64;
            self.totals.cell(&cell, raw_bytes);
            last = Some(cell);
        }
        if cells != entry.cells {
            faults.push("the row index tells more or fewer cells of a row than it has");
        }
        faults.dedup();
        for reason in faults {
            fault(handle, BlockKind::RowIndex, reason, key.key(), damages);
        }
    }

    /// Whether data of this row may have stood in a damaged place, which is told so.
    fn is_where_data_are_lost(&self, key: &DecoratedKey, damages: &mut Damages) -> bool {
        let mut any = damages.more > 0;
        for number in self.neighbours.holding_data_of(key) {
            if let Some(damage) = damages.list.get_mut(number) {
                damage.rows.named.add(key.key());
                any = true;
            }
        }
        any
    }

    fn missing_in_index(&mut self, row: &DataRow, damages: &mut Damages) {
        let known = self.index_damage.and_then(|number| damages.list.get_mut(number));
        if let Some(damage) = known {
            damage.rows.unindexed.add(row.key.key());
        } else if !self.lost_index {
            let reason = "the row index does not have a row of this block";
            fault(row.block, BlockKind::Data, reason, row.key.key(), damages);
        }
    }

    /// All row index blocks were seen.
    pub(super) fn settle(&mut self, damages: &mut Damages) {
        while let Some(row) = self.waiting.pop_front() {
            self.missing_in_index(&row, damages);
        }
        if let Some(last) = self.last_key.as_ref().max(self.last_indexed.as_ref()) {
            self.totals.last_key.clear();
            self.totals.last_key.put_prefixed(last.key().as_bytes());
            last.encode_token(&mut self.totals.last_key);
        }
        for (number, before, behind) in std::mem::take(&mut self.neighbours).finish() {
            if let Some(damage) = damages.list.get_mut(number) {
                damage.rows.between = Some((before, behind));
            }
        }
        let is_explained = self.lost_index || !damages.is_empty();
        for offset in std::mem::take(&mut self.unclaimed) {
            if !is_explained {
                let reason = "no row refers to this column index";
                let kind = Some(BlockKind::ColumnIndex);
                damages.add(offset..offset, kind, Fault::Bytes(reason));
            }
        }
    }

    /// What has stood at a damaged place that says nothing of itself any more may be a row index
    /// block that the summary lists.
    pub(super) fn find_index_blocks(
        &mut self,
        listed: &[(SummaryHead, DecoratedKey)],
        damages: &mut Damages,
    ) {
        for (number, damage) in damages.list.iter_mut().enumerate() {
            let is_listed = || listed.iter().any(|(head, _)| range_of(head.block) == damage.range);
            if damage.kind.is_none() && is_listed() {
                damage.kind = Some(BlockKind::RowIndex);
                self.neighbours.settle_kind(number, BlockKind::RowIndex);
            }
        }
    }

    /// Whether the summary lists the row index blocks; those that are damaged aside.
    pub(super) fn agrees_with_summary(&self, listed: &[(SummaryHead, DecoratedKey)]) -> bool {
        if !self.lost_index {
            return self.index_blocks == listed;
        }
        self.index_blocks.iter().all(|block| listed.contains(block))
    }
}

fn fault(
    handle: BlockHandle,
    kind: BlockKind,
    reason: &'static str,
    key: &RowKey,
    damages: &mut Damages,
) {
    let number = damages.add(range_of(handle), Some(kind), Fault::Bytes(reason));
    if let Some(damage) = number.and_then(|number| damages.list.get_mut(number)) {
        damage.rows.named.add(key);
    }
}

/// What is wrong with a cell, behind the last one of its row.
fn cell_fault(
    family: &ColumnFamilySchema,
    last: Option<&Cell>,
    cell: &Cell,
) -> Option<&'static str> {
    match last.map(|last| family.compare(last.place(), cell.place())) {
        Some(Ordering::Greater) => Some("the cells of a row are not in order"),
        Some(Ordering::Equal) => Some("a row has two cells in one place"),
        _ if !family.can_hold(cell.state(), cell.place()) => {
            Some("a cell has a name that the comparator refuses")
        }
        _ => None,
    }
}

/// What the row index says of a row that its data do not.
fn difference(
    row: &DataRow,
    cells: u64,
    (indexed, bytes): (&BlockCells, &[u8]),
    walked: &Walked,
) -> Option<&'static str> {
    let last = row.last.as_ref().map_or((&b""[..], &b""[..]), Cell::place);
    if row.cells != cells {
        Some("the row index tells more or fewer cells of a row than it has")
    } else if row.max_timestamp != indexed.max_timestamp {
        Some("the row index tells another greatest timestamp of a row than its cells")
    } else if last != indexed.last_place(bytes) {
        Some("the row index tells another last cell of a row than it has")
    } else if row.extents.value() != walked.digest.value() {
        Some("the row index tells other places of the cells of a row than where they are")
    } else {
        None
    }
}

/// What the properties should say.
#[derive(Debug)]
pub(super) struct Totals {
    pub(super) rows: u64,
    pub(super) cells: u64,
    tombstones: u64,
    min_local_deletion_time: i32,
    min_timestamp: i64,
    max_timestamp: i64,
    raw_bytes: u64,
    largest_row_bytes: u64,
    longest_index_block: u64,
    /// The key of the last row, as the row index stores it.
    last_key: Vec<u8>,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            rows: 0,
            cells: 0,
            tombstones: 0,
            min_local_deletion_time: i32::MAX,
            min_timestamp: i64::MAX,
            max_timestamp: i64::MIN,
            raw_bytes: 0,
            largest_row_bytes: 0,
            longest_index_block: 0,
            last_key: Vec::new(),
        }
    }
}

impl Totals {
    fn row(&mut self, deletion: Deletion) {
        self.rows += 1;
        if !deletion.is_none() {
            self.timestamp(deletion.marked_for_delete_at);
            self.tombstone(deletion);
        }
    }

    fn cell(&mut self, cell: &Cell, row_bytes: u64) {
        self.cells += 1;
        self.raw_bytes += cell.encoded_length() as u64;
        self.largest_row_bytes = self.largest_row_bytes.max(row_bytes);
        self.timestamp(cell.timestamp());
        if let Some(deletion) = cell.deletion() {
            self.tombstone(deletion);
        }
    }

    fn timestamp(&mut self, timestamp: i64) {
        self.min_timestamp = self.min_timestamp.min(timestamp);
        self.max_timestamp = self.max_timestamp.max(timestamp);
    }

    fn tombstone(&mut self, deletion: Deletion) {
        self.tombstones += 1;
        self.min_local_deletion_time =
            self.min_local_deletion_time.min(deletion.local_deletion_time);
    }

    /// What differs from the properties: what it is, what they say, what is so.
    pub(super) fn differences(
        &self,
        stated: &Properties,
    ) -> impl Iterator<Item = (&'static str, String, String)> {
        let number = |number: u64| i128::from(number);
        let pairs = [
            ("the number of rows", number(stated.rows), number(self.rows)),
            ("the number of cells", number(stated.cells), number(self.cells)),
            ("the number of tombstones", number(stated.tombstones), number(self.tombstones)),
            (
                "the least local deletion time",
                stated.min_local_deletion_time.into(),
                self.min_local_deletion_time.into(),
            ),
            ("the least timestamp", stated.min_timestamp.into(), self.min_timestamp.into()),
            ("the greatest timestamp", stated.max_timestamp.into(), self.max_timestamp.into()),
            ("the size of all cells", number(stated.raw_bytes), number(self.raw_bytes)),
            (
                "the size of the largest row",
                number(stated.largest_row_bytes),
                number(self.largest_row_bytes),
            ),
            (
                "the number of rows of the longest row index block",
                number(stated.index_interval),
                number(stated.index_interval.max(self.longest_index_block)),
            ),
        ];
        let differing = pairs.into_iter().filter(|(_, stated, found)| stated != found);
        let numbers =
            differing.map(|(what, stated, found)| (what, stated.to_string(), found.to_string()));
        let keys = (stated.last_key != self.last_key)
            .then(|| ("the last row key", hex(&stated.last_key), hex(&self.last_key)));
        numbers.chain(keys)
    }
}
