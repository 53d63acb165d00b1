//! Sizes and counts of a column family at one moment.

use super::super::caches::FamilyCacheStats;
use super::{ColumnFamily, Operation};
use crate::base::operations::Totals;
use std::sync::atomic::Ordering;

/// Sizes, in bytes, and counts of a column family at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyStatistics {
    /// Live SSTables.
    pub sstables: usize,
    /// Their size.
    pub live_bytes: u64,
    /// Their size with that of replaced ones that are still being read.
    pub total_bytes: u64,
    /// Columns and deletions written to the active memtable.
    pub memtable_operations: u64,
    /// Bytes written to it.
    pub memtable_bytes: u64,
    /// Estimate of the memory of all memtables.
    pub memtable_memory_bytes: u64,
    /// Full memtables that are not on disk yet.
    pub memtables_flushing: usize,
    /// Switches of the memtable since the start.
    pub memtable_switches: u64,
    /// Slices of one row.
    pub reads: Totals,
    /// Slices of the rows of a range.
    pub range_reads: Totals,
    /// Mutations of the column family.
    pub writes: Totals,
    /// Its key cache and its row cache.
    pub caches: FamilyCacheStats,
    /// Sizes of the rows in the SSTables.
    pub rows: RowSizes,
    /// The failure that has stopped writes.
    pub failure: Option<String>,
}

/// Uncompressed sizes of rows in the SSTables: a row in several SSTables counts in each with its
/// part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowSizes {
    /// Number of rows.
    pub count: u64,
    /// Size of the smallest; 0 if there is none, or not known.
    pub min_bytes: u64,
    /// Size of the largest.
    pub max_bytes: u64,
    /// Size of all.
    pub total_bytes: u64,
}

impl RowSizes {
    /// Mean size; 0 if there is none.
    pub fn mean_bytes(&self) -> u64 {
        self.total_bytes.checked_div(self.count).unwrap_or(0)
    }
}

impl ColumnFamily {
    /// Its present sizes and counts.
    pub fn statistics(&self) -> FamilyStatistics {
        let view = self.view();
        let live_bytes = view.tables.iter().map(|table| table.size()).sum();
        let replaced = self.replaced.lock();
        let replaced_bytes: u64 = replaced.iter().map(|table| table.size()).sum();
        drop(replaced);
        let properties = || view.tables.iter().map(|table| table.properties());
        FamilyStatistics {
            sstables: view.tables.len(),
            live_bytes,
            total_bytes: live_bytes + replaced_bytes,
            memtable_operations: view.active.operations(),
            memtable_bytes: view.active.weight(),
            memtable_memory_bytes: view.memory(),
            memtables_flushing: view.flushing.len(),
            memtable_switches: self.memtable_switches.load(Ordering::Relaxed),
            reads: self.operations(Operation::Read).totals(),
            range_reads: self.operations(Operation::RangeRead).totals(),
            writes: self.operations(Operation::Write).totals(),
            caches: self.cache_stats(),
            rows: RowSizes {
                count: properties().map(|p| p.rows).sum(),
                min_bytes: properties().map(|p| p.smallest_row_bytes).min().unwrap_or(0),
                max_bytes: properties().map(|p| p.largest_row_bytes).max().unwrap_or(0),
                total_bytes: properties().map(|p| p.raw_bytes).sum(),
            },
            failure: self.failure().map(str::to_owned),
        }
    }
}
