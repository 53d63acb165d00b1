//! What compaction may drop from a row.
//!
//! Columns that a deletion of their row or super column covers are dropped always: the deletion
//! itself stays. A deletion is dropped when its grace period is over and nothing that it could
//! cover is left anywhere outside of the compaction, which is so if nothing there that may hold
//! the row has a timestamp as old as the deletion's, or older. An SSTable that surely does not
//! hold the row does not count; else the least timestamp of the whole file or memtable decides,
//! deletions included. Memtables count, also those that are being flushed. (The original from
//! 0.6.6 on asked the filters of the other SSTables for the wrong key, and never asked the
//! memtables: deleted data came back.)
//!
//! Writes that are on their way in a hint need no place here: a hint is dropped before it is as
//! old as `GCGraceSeconds`, so that the deletion of what it holds is still in its grace period. The
//! same holds for a repair: it must have reached all replicas within that time.

use crate::model::cell::{Cell, CellState};
use crate::model::deletion::Deletion;
use crate::model::schema::ColumnFamilySchema;
use std::cell::{Cell as Slot, OnceCell};
use std::cmp::Ordering;
use std::fmt;

/// Decides, for one row, which of its merged cells stay. They come in ascending order.
pub(super) struct Purge<'a> {
    family: &'a ColumnFamilySchema,
    row: Deletion,
    /// Deletions made at or before this second may go.
    gc_before: i32,
    /// Finds the least timestamp of what may hold something of the row outside of the compaction;
    /// `None` if nothing does. Only asked, once, when there is a deletion that may go.
    find_oldest_elsewhere: &'a dyn Fn() -> Option<i64>,
    oldest_elsewhere: OnceCell<Option<i64>>,
    /// The super column at which the walk stands, and its deletion.
    super_column: Option<(Vec<u8>, Deletion)>,
    /// The latest local deletion time of the deletions that go.
    latest_dropped: Slot<Option<i32>>,
}

impl<'a> Purge<'a> {
    /// For a row with this deletion.
    pub(super) fn new(
        family: &'a ColumnFamilySchema,
        row: Deletion,
        gc_before: i32,
        find_oldest_elsewhere: &'a dyn Fn() -> Option<i64>,
    ) -> Self {
        let oldest_elsewhere = OnceCell::new();
        let (super_column, latest_dropped) = Default::default();
        Self {
            family,
            row,
            gc_before,
            find_oldest_elsewhere,
            oldest_elsewhere,
            super_column,
            latest_dropped,
        }
    }

    /// The latest local deletion time of all deletions that were told to go so far.
    pub(super) fn latest_dropped(&self) -> Option<i32> {
        self.latest_dropped.get()
    }

    /// The deletion of the row that stays.
    pub(super) fn row_deletion(&self) -> Deletion {
        if self.may_drop(self.row) { Deletion::NONE } else { self.row }
    }

    fn may_drop(&self, deletion: Deletion) -> bool {
        if deletion.is_none() || !deletion.is_expired(self.gc_before) {
            return false;
        }
        let oldest = self.oldest_elsewhere.get_or_init(|| (self.find_oldest_elsewhere)());
        let drops = oldest.is_none_or(|oldest| !deletion.covers(oldest));
        if drops {
            let latest = self.latest_dropped.get().max(Some(deletion.local_deletion_time));
            self.latest_dropped.set(latest);
        }
        drops
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
        if covered_by_row || covered_by_super {
            return false;
        }
        !cell.deletion().is_some_and(|deletion| self.may_drop(deletion))
    }
}

impl fmt::Debug for Purge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, gc_before, oldest_elsewhere, .. } = self;
        let mut debug = f.debug_struct("Purge");
        debug.field("row", row).field("gc_before", gc_before);
        debug.field("oldest_elsewhere", oldest_elsewhere).finish_non_exhaustive()
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

    /// Nothing was deleted so early.
    const NO_GC: i32 = i32::MIN;

    fn row_deletion(row: Deletion, gc_before: i32) -> Deletion {
        Purge::new(&family(), row, gc_before, &|| None).row_deletion()
    }

    fn kept(row: Deletion, gc_before: i32, cells: &[Cell]) -> Vec<&Cell> {
        kept_beside(None, row, gc_before, cells)
    }

    /// What stays when the oldest timestamp elsewhere is this.
    fn kept_beside(
        oldest: Option<i64>,
        row: Deletion,
        gc_before: i32,
        cells: &[Cell],
    ) -> Vec<&Cell> {
        let (family, find) = (family(), || oldest);
        let mut purge = Purge::new(&family, row, gc_before, &find);
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
        assert_eq!(kept(row, NO_GC, &cells), [&cells[1]]);
        assert_eq!(row_deletion(row, NO_GC), row);
        assert_eq!(row_deletion(row, 99), row);
        assert_eq!(row_deletion(row, 100), Deletion::NONE);
        assert_eq!(kept(row, 100, &cells), [&cells[1]]);
    }

    #[test]
    fn tombstones_go_only_when_their_time_is_over_and_it_is_safe() {
        let cells = [
            Cell::tombstone(b"", b"a", Deletion::at(1, 100)),
            Cell::tombstone(b"", b"b", Deletion::at(1, 101)),
            Cell::live(b"", b"c", b"", 1),
        ];
        assert_eq!(kept(Deletion::NONE, 100, &cells), [&cells[1], &cells[2]]);
        assert_eq!(kept(Deletion::NONE, NO_GC, &cells).len(), 3);
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
        assert_eq!(kept(Deletion::NONE, NO_GC, &cells), [&cells[0], &cells[2], &cells[4]]);
        assert_eq!(kept(Deletion::NONE, 100, &cells), [&cells[2], &cells[4]]);
    }

    #[test]
    fn a_deletion_stays_as_long_as_something_as_old_is_elsewhere() {
        let row = Deletion::at(5, 100);
        for (oldest, goes) in [(Some(4), false), (Some(5), false), (Some(6), true), (None, true)] {
            let (family, find) = (family(), || oldest);
            let left = Purge::new(&family, row, 100, &find).row_deletion();
            assert_eq!(left.is_none(), goes, "{oldest:?}");
            let cells = [
                Cell::super_tombstone(b"s", Deletion::at(5, 100)),
                Cell::tombstone(b"t", b"a", Deletion::at(5, 100)),
            ];
            let left = kept_beside(oldest, Deletion::NONE, 100, &cells);
            assert_eq!(left.len(), if goes { 0 } else { 2 }, "{oldest:?}");
        }
    }

    /// What the deletion covers may go in any case, as long as the deletion stays.
    #[test]
    fn covered_columns_go_whatever_is_elsewhere() {
        let cells = [
            Cell::super_tombstone(b"s", Deletion::at(5, 100)),
            Cell::live(b"s", b"a", b"", 5),
            Cell::tombstone(b"s", b"b", Deletion::at(4, 100)),
        ];
        assert_eq!(kept_beside(Some(1), Deletion::NONE, 100, &cells), [&cells[0]]);
    }

    #[test]
    fn others_are_asked_only_for_a_deletion_that_may_go() {
        let family = family();
        let find = || panic!("asked");
        let mut purge = Purge::new(&family, Deletion::NONE, 100, &find);
        assert!(purge.row_deletion().is_none());
        assert!(purge.keeps(&Cell::live(b"", b"a", b"", 1)));
        assert!(purge.keeps(&Cell::tombstone(b"", b"b", Deletion::at(1, 101))));
    }
}
