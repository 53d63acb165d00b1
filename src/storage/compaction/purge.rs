//! What compaction may drop from a row.
//!
//! Columns that a deletion of their row or super column covers are dropped always: the deletion
//! itself stays. A deletion is dropped when its grace period is over and nothing that it could
//! cover is left anywhere outside of the compaction: no other SSTable and no memtable may hold
//! anything of the row. (The original from 0.6.6 on asked the filters of the other SSTables for
//! the wrong key, and never asked the memtables: deleted data came back.)

use crate::model::cell::{Cell, CellState};
use crate::model::deletion::Deletion;
use crate::model::schema::ColumnFamilySchema;
use std::cmp::Ordering;

/// Decides, for one row, which of its merged cells stay. They come in ascending order.
#[derive(Debug)]
pub(super) struct Purge<'a> {
    family: &'a ColumnFamilySchema,
    row: Deletion,
    /// Deletions made at or before this second may go; `i32::MIN` when none may.
    gc_before: i32,
    /// The super column at which the walk stands, and its deletion.
    super_column: Option<(Vec<u8>, Deletion)>,
}

impl<'a> Purge<'a> {
    /// For a row with this deletion. `gc_before` counts only if nothing of the row is elsewhere.
    pub(super) fn new(
        family: &'a ColumnFamilySchema,
        row: Deletion,
        gc_before: Option<i32>,
    ) -> Self {
        Self { family, row, gc_before: gc_before.unwrap_or(i32::MIN), super_column: None }
    }

    /// The deletion of the row that stays.
    pub(super) fn row_deletion(&self) -> Deletion {
        if self.may_drop(self.row) { Deletion::NONE } else { self.row }
    }

    fn may_drop(&self, deletion: Deletion) -> bool {
        self.gc_before != i32::MIN && deletion.is_expired(self.gc_before)
    }

    /// A comparator may take names for one that are not the same bytes.
    fn is_same(&self, a: &[u8], b: &[u8]) -> bool {
        self.family.comparator().compare(a, b) == Ordering::Equal
    }

    /// Whether a cell stays.
    pub(super) fn keeps(&mut self, cell: &Cell) -> bool {
        let covered_by_row = self.row.covers(cell.timestamp()) && !self.row.is_none();
        if cell.state() == CellState::SuperTombstone {
            let deletion = cell.deletion().unwrap_or(Deletion::NONE);
            self.super_column = Some((cell.super_name().to_vec(), deletion));
            return !covered_by_row && !self.may_drop(deletion);
        }
        let covered_by_super = match &self.super_column {
            Some((name, deletion)) if self.is_same(name, cell.super_name()) => {
                deletion.covers(cell.timestamp()) && !deletion.is_none()
            }
            _ => false,
        };
        let expired = cell.deletion().is_some_and(|deletion| self.may_drop(deletion));
        !covered_by_row && !covered_by_super && !expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparator::{Comparator, CustomComparator};
    use crate::model::schema::ColumnFamilyKind;
    use std::sync::Arc;

    /// Names are the same whatever their case.
    #[derive(Debug)]
    struct AnyCase;

    impl CustomComparator for AnyCase {
        fn class_name(&self) -> &'static str {
            "AnyCase"
        }

        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
        }

        fn validate(&self, _: &[u8]) -> Result<(), String> {
            Ok(())
        }

        fn render(&self, name: &[u8]) -> String {
            name.escape_ascii().to_string()
        }
    }

    fn family() -> ColumnFamilySchema {
        let super_columns = Comparator::Custom(Arc::new(AnyCase));
        let kind = ColumnFamilyKind::Super { super_columns, columns: Comparator::Bytes };
        ColumnFamilySchema { keyspace: "k".into(), name: "c".into(), kind, comment: None }
    }

    fn row_deletion(row: Deletion, gc_before: Option<i32>) -> Deletion {
        Purge::new(&family(), row, gc_before).row_deletion()
    }

    fn kept(row: Deletion, gc_before: Option<i32>, cells: &[Cell]) -> Vec<&Cell> {
        let family = family();
        let mut purge = Purge::new(&family, row, gc_before);
        cells.iter().filter(|cell| purge.keeps(cell)).collect()
    }

    #[test]
    fn covered_columns_go_and_their_deletion_stays() {
        let cells = [
            Cell::live(b"", b"old", b"", 5),
            Cell::live(b"", b"new", b"", 6),
            Cell::tombstone(b"", b"old tombstone", Deletion::at(4, 99)),
        ];
        let row = Deletion::at(5, 100);
        assert_eq!(kept(row, None, &cells), [&cells[1]]);
        assert_eq!(row_deletion(row, None), row);
        assert_eq!(row_deletion(row, Some(99)), row);
        assert_eq!(row_deletion(row, Some(100)), Deletion::NONE);
        assert_eq!(kept(row, Some(100), &cells), [&cells[1]]);
    }

    #[test]
    fn tombstones_go_only_when_their_time_is_over_and_it_is_safe() {
        let cells = [
            Cell::tombstone(b"", b"a", Deletion::at(1, 100)),
            Cell::tombstone(b"", b"b", Deletion::at(1, 101)),
            Cell::live(b"", b"c", b"", 1),
        ];
        assert_eq!(kept(Deletion::NONE, Some(100), &cells), [&cells[1], &cells[2]]);
        assert_eq!(kept(Deletion::NONE, None, &cells).len(), 3);
    }

    #[test]
    fn a_super_column_deletion_takes_what_it_covers_with_it() {
        let cells = [
            Cell::super_tombstone(b"s", Deletion::at(5, 100)),
            Cell::live(b"s", b"a", b"", 5),
            Cell::live(b"S", b"b", b"", 6),
            Cell::live(b"S", b"c", b"", 5),
            Cell::live(b"t", b"a", b"", 1),
        ];
        assert_eq!(kept(Deletion::NONE, None, &cells), [&cells[0], &cells[2], &cells[4]]);
        assert_eq!(kept(Deletion::NONE, Some(100), &cells), [&cells[2], &cells[4]]);
    }
}
