//! The row cache: whole rows of a column family, each merged from all of its SSTables.
//!
//! An entry holds nothing of the memtables. A read merges the memtables with it as it would merge
//! them with the SSTables, so that a write need not touch the cache and cannot race with it.
//!
//! # Why no reader is shown old data
//!
//! A read takes a view of its family ([`View`](super::super::family::View)), then looks here, then
//! at the memtables of that view. Call E the entry that it finds. It must not lack anything that
//! the SSTables of the view hold, unless a memtable of the view holds it. Views have epochs, which
//! grow, and so have entries: that of the view from which they were merged. A read does not use an
//! entry that is newer than its view, so E is as old as the view or older.
//!
//! SSTables gain what was written by a flush, which goes in three steps:
//!
//! 1. a view is published that has the new SSTable and *still* has the memtable, and a new epoch;
//! 2. every key of the memtable is removed from the cache;
//! 3. a view is published without the memtable.
//!
//! An entry is put in under the lock of the view, and only if the epoch is still that of the view
//! from which it was merged. So an entry that lacks the new SSTable was put in before step 1; if
//! the SSTable has anything of its row, step 2 removes it, and no such entry comes after. A reader
//! whose view lacks the memtable took the view after step 3, and can find no such entry. A reader
//! whose view has the memtable sees there what the entry lacks. Having something twice does no
//! harm: merging is idempotent.
//!
//! Nor does a reader see half of a mutation: SSTables are written from memtables that take no more
//! writes, so an entry has all of a mutation of its row or nothing, as memtables and SSTables have.
//!
//! A compaction does not change what a row is, except that it drops deletions whose time is over. A
//! deletion that lived on here would hide what is written below its timestamp later, until the
//! entry left. So a compaction that may have dropped one starts a new epoch as well, and then
//! removes the entries that hold deletions. An entry that was merged after it has neither the
//! deletion nor what that had covered; but a reader with a view from before may still hold a
//! memtable with the latter, and must not be shown it. This is why entries that are newer than a
//! view are of no use to its reader.
//!
//! What comes from other nodes is in no memtable. A view of a new epoch is published that has it,
//! then the cache is emptied. In between a reader may still be shown a row as it was before; once
//! that is done and acknowledged, no reader is: entries that lack it were put in before the new
//! epoch. The same holds for rows that are dropped, since other nodes own them.
//!
//! The cache of a family that is switched on is a new and empty one, in a view of a new epoch. It
//! is the view that says whether there is one, so that a flush and its readers agree on that.

use super::bounded::BoundedCache;
use super::{ByteBudget, CacheStats};
use crate::model::cell::Cell;
use crate::model::slice::CellRange;
use crate::ring::DecoratedKey;
use crate::storage::error::ReadError;
use crate::storage::memtable::{CellTree, Memtable, MemtableRow};
use crate::storage::row::{Budget, RowReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows that take more memory are not cached: each would push out a thousand others, and reading
/// one whole for the sake of a slice would cost more than a cache may save.
const MAX_ROW_BYTES: u64 = 1 << 20;

/// And no row may take more than this part of what there is for all, as a divisor.
const MAX_ROW_SHARE: u64 = 8;

/// Memory that a cell takes besides its encoded form.
const CELL_BYTES: u64 = size_of::<Cell>() as u64;

/// A cached row.
#[derive(Debug, Clone)]
pub enum CachedRow {
    /// All cells of the SSTables, deletions and deleted ones included.
    Whole(MemtableRow),
    /// A row that is too large, or damaged somewhere, or was merged from a newer view: reads of it
    /// go to the SSTables.
    Refused,
}

/// A row that was merged for the cache.
#[derive(Debug, Clone)]
pub struct LoadedRow {
    row: CachedRow,
    bytes: u64,
    /// Epoch of the view from which it was merged.
    epoch: u64,
    /// Whether a compaction that drops deletions may make it wrong.
    has_deletions: bool,
}

/// The row cache of one column family.
#[derive(Debug)]
pub struct RowCache {
    /// Rows by key.
    pub(in crate::storage) entries: BoundedCache<DecoratedKey, LoadedRow>,
    max_row_bytes: u64,
    /// Hits of entries that are no row.
    refused: AtomicU64,
}

impl LoadedRow {
    /// A row that is not to be cached.
    pub fn refused(epoch: u64) -> Self {
        // After a compaction it may be smaller.
        Self { row: CachedRow::Refused, bytes: 0, epoch, has_deletions: true }
    }

    /// The row.
    pub fn into_row(self) -> CachedRow {
        self.row
    }
}

impl RowCache {
    /// A cache of at most this many rows. `is_final` is false if that will change by itself.
    pub fn new(capacity: u64, is_final: bool, budget: &Arc<ByteBudget>) -> Self {
        Self {
            entries: BoundedCache::new(capacity, is_final, budget),
            max_row_bytes: MAX_ROW_BYTES.min(budget.limit() / MAX_ROW_SHARE),
            refused: AtomicU64::new(0),
        }
    }

    /// The cached row for a reader whose view has this epoch.
    pub fn get(&self, key: &DecoratedKey, epoch: u64) -> Option<CachedRow> {
        let found = self.entries.get(key)?;
        let row = if found.epoch > epoch { CachedRow::Refused } else { found.row.clone() };
        if matches!(row, CachedRow::Refused) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        Some(row)
    }

    /// Merges a row from the SSTables of a view of this epoch, of which one has `cells` cells.
    /// Stops as soon as the row is too large.
    pub fn load(
        &self,
        reader: &RowReader<'_, '_>,
        (epoch, cells): (u64, u64),
        budget: &mut Budget<'_>,
    ) -> Result<LoadedRow, ReadError> {
        if cells.saturating_mul(CELL_BYTES + Cell::HEADER_LENGTH as u64) > self.max_row_bytes {
            return Ok(LoadedRow::refused(epoch));
        }
        let (mut encoded, mut starts) = (Vec::new(), Vec::new());
        let mut has_deletions = !reader.deletion().is_none();
        let mut cursor = reader.cells(CellRange::ALL, false)?;
        while let Some(cell) = cursor.advance()? {
            budget.spend(1)?;
            has_deletions |= !cell.is_live();
            starts.push(encoded.len());
            cell.encode(&mut encoded);
            if memory(encoded.len(), starts.len()) > self.max_row_bytes {
                return Ok(LoadedRow::refused(epoch));
            }
        }
        // One allocation for all, so that the row does not hold the blocks that it came from.
        let encoded: Arc<[u8]> = encoded.into();
        let cells: Vec<Cell> = starts
            .iter()
            .map(|start| Cell::decode(&encoded, *start).expect("it was encoded just now"))
            .collect();
        let bytes = memory(encoded.len(), cells.len());
        let row = MemtableRow { deletion: reader.deletion(), cells: CellTree::from_sorted(cells) };
        Ok(LoadedRow { row: CachedRow::Whole(row), bytes, epoch, has_deletions })
    }

    /// Keeps a row. The caller holds the lock of the view and has compared epochs, and enforces the
    /// bound of the entries when it has released the lock.
    pub fn insert(&self, key: &DecoratedKey, row: LoadedRow) {
        // The key stands in the entry with its token, which may be the key again.
        let bytes =
            row.bytes + size_of::<DecoratedKey>() as u64 + key.key().as_bytes().len() as u64;
        self.entries.insert(key.clone(), row, bytes);
    }

    /// Forgets the rows of a memtable that was flushed: step 2 of the above.
    pub fn forget_flushed(&self, memtable: &Memtable) {
        memtable.for_each_key(|key| self.entries.remove(key));
    }

    /// Forgets the rows that hold deletions, since a compaction may have dropped some.
    pub fn forget_deletions(&self) {
        self.entries.retain(|_, row| !row.has_deletions);
    }

    /// Its statistics. Finding that a row is not to be cached is no hit.
    pub fn stats(&self) -> CacheStats {
        let refused = self.refused.load(Ordering::Relaxed);
        let stats = self.entries.stats();
        CacheStats { hits: stats.hits.saturating_sub(refused), ..stats }
    }
}

fn memory(encoded: usize, cells: usize) -> u64 {
    encoded as u64 + cells as u64 * CELL_BYTES
}
