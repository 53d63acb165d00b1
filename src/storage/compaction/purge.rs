//! What compaction may drop from a row.
//!
//! Columns that a deletion of their row or super column covers are dropped always: the deletion
//! itself stays. A deletion is dropped when its grace period is over and nothing that it could
//! cover is left anywhere outside of the compaction: no other SSTable and no memtable may hold
//! anything of the row. (The original from 0.6.6 on asked the filters of the other SSTables for
//! the wrong key, and never asked the memtables: deleted data came back.)

use crate::model::cell::{Cell, CellState};
use crate::model::deletion::Deletion;

/// Decides, for one row, which of its merged cells stay. They come in ascending order.
#[derive(Debug)]
pub(super) struct Purge {
    row: Deletion,
    /// Deletions made at or before this second may go; `i32::MIN` when none may.
    gc_before: i32,
    /// The super column at which the walk stands, and its deletion.
    super_column: Option<(Vec<u8>, Deletion)>,
}

impl Purge {
    /// For a row with this deletion. `gc_before` counts only if nothing of the row is elsewhere.
    pub(super) fn new(row: Deletion, gc_before: Option<i32>) -> Self {
        Self { row, gc_before: gc_before.unwrap_or(i32::MIN), super_column: None }
    }

    /// The deletion of the row that stays.
    pub(super) fn row_deletion(&self) -> Deletion {
        if self.may_drop(self.row) { Deletion::NONE } else { self.row }
    }

    fn may_drop(&self, deletion: Deletion) -> bool {
        self.gc_before != i32::MIN && deletion.is_expired(self.gc_before)
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
            Some((name, deletion)) if name == cell.super_name() => {
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

    fn kept(row: Deletion, gc_before: Option<i32>, cells: &[Cell]) -> Vec<&Cell> {
        let mut purge = Purge::new(row, gc_before);
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
        assert_eq!(Purge::new(row, None).row_deletion(), row);
        assert_eq!(Purge::new(row, Some(99)).row_deletion(), row);
        assert_eq!(Purge::new(row, Some(100)).row_deletion(), Deletion::NONE);
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
            Cell::live(b"s", b"b", b"", 6),
            Cell::live(b"t", b"a", b"", 1),
        ];
        assert_eq!(kept(Deletion::NONE, None, &cells), [&cells[0], &cells[2], &cells[3]]);
        assert_eq!(kept(Deletion::NONE, Some(100), &cells), [&cells[2], &cells[3]]);
    }
}
