//! The rows that take the most room.

use super::ColumnFamily;
use crate::model::key::RowKey;
use crate::storage::sstable::properties::WideRow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

impl ColumnFamily {
    /// Some of the widest rows, the widest first, each with its sums of those SSTables that have it
    /// among their widest, and their number. A row that was deleted stays until a compaction drops
    /// it.
    pub fn widest_rows(&self) -> Vec<(WideRow, usize)> {
        let view = self.view();
        let mut rows: BTreeMap<&RowKey, (WideRow, usize)> = BTreeMap::new();
        for row in view.tables.iter().flat_map(|table| &table.properties().widest_rows) {
            let none = || (WideRow { key: row.key.clone(), bytes: 0, cells: 0 }, 0);
            let (sum, tables) = rows.entry(&row.key).or_insert_with(none);
            sum.bytes += row.bytes;
            sum.cells += row.cells;
            *tables += 1;
        }
        let mut rows: Vec<_> = rows.into_values().collect();
        rows.sort_by_key(|(row, _)| Reverse(row.bytes));
        rows
    }
}
