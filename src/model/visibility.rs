//! Which cells of a row a deletion hides, which may be forgotten, and the parts of a row that other
//! nodes copy: one rule for reads, versions, pages and compactions.
//!
//! A cell is hidden if the deletion of its row, of its super column, of a prefix of its name or of
//! a range of names is as new as the cell, or newer. What is hidden is dropped wherever a row is
//! written or sent; the deletion itself stays. Files also keep the hidden deletions of super
//! columns: see [`Purge::keeps_in_file`].
//!
//! A deletion is expired when its grace period is over; so is a cell whose value has come to its
//! end so long ago. Replicas do not tell each other of expired deletions. A compaction purges one
//! only where nothing that it could hide is left outside of the compaction, which is so if nothing
//! there that may hold the row has a timestamp as old as the deletion's, or older. An SSTable that
//! surely does not hold the row does not count; else the least timestamp of the whole file or
//! memtable decides, deletions included. Memtables count, also those that are being flushed. (From
//! 0.6.6 on the original asked the filters of the other SSTables for the wrong key, and never asked
//! the memtables: deleted data came back.)
//!
//! Hints need no place here: a hint is dropped before it is as old as `GCGraceSeconds`, so that the
//! deletion of what it holds is still in its grace period. The same holds for a repair: it must
//! have reached all replicas within that time.

use super::cell::{Cell, CellState};
use super::deletion::Deletion;
use super::range_deletion::RangeDeletions;
use super::schema::ColumnFamilySchema;
use super::version::RowVersion;
use std::cell::{Cell as Slot, OnceCell};

/// Follows the deletions of a row while its cells come in ascending order.
#[derive(Debug)]
pub struct Visibility<'a> {
    family: &'a ColumnFamilySchema,
    row: Deletion,
    /// Deletion of the super column that the next cells may be in.
    marker: Option<Cell>,
    /// Deletion of the prefix that the next cells may have.
    prefix: Option<Cell>,
    ranges: RangeDeletions,
}

impl<'a> Visibility<'a> {
    /// Visibility of the cells of a row with this deletion.
    pub fn new(family: &'a ColumnFamilySchema, row: Deletion) -> Self {
        Self { family, row, marker: None, prefix: None, ranges: RangeDeletions::default() }
    }

    /// The column family.
    pub fn family(&self) -> &'a ColumnFamilySchema {
        self.family
    }

    /// Whether a deletion hides the next cell. Those of the row hide the others, and so on from the
    /// larger to the smaller.
    pub fn hides(&mut self, cell: &Cell) -> bool {
        match cell.state() {
            CellState::RangeTombstone => self.ranges.push(cell),
            CellState::SuperTombstone => self.marker = Some(cell.clone()),
            CellState::PrefixTombstone => self.prefix = Some(cell.clone()),
            _ => return self.is_hidden(cell),
        }
        self.is_deletion_hidden(cell)
    }

    fn is_hidden(&self, cell: &Cell) -> bool {
        // Some orders know several names for one super column.
        self.row.covers(cell.timestamp())
            || self.marker.as_ref().is_some_and(|marker| {
                cell.timestamp() <= marker.timestamp()
                    && self.family.is_one_super_column(marker.super_name(), cell.super_name())
            })
            || self.prefix.as_ref().is_some_and(|prefix| {
                cell.timestamp() <= prefix.timestamp()
                    && cell
                        .name()
                        .strip_prefix(prefix.name())
                        .is_some_and(|it| it.first() == Some(&0))
                    && self.family.is_one_super_column(prefix.super_name(), cell.super_name())
            })
            || self.is_in_range(cell)
    }

    fn is_deletion_hidden(&self, cell: &Cell) -> bool {
        let is_hidden_by_row = !self.row.is_none() && self.row.covers(cell.timestamp());
        is_hidden_by_row
            || match cell.state() {
                CellState::RangeTombstone => false,
                // What it deletes may go beyond the range.
                CellState::PrefixTombstone if !self.family.is_super() => false,
                CellState::SuperTombstone => self.is_in_range(cell),
                _ => self.is_hidden(cell),
            }
    }

    fn is_in_range(&self, cell: &Cell) -> bool {
        let name = if self.family.is_super() { cell.super_name() } else { cell.name() };
        self.ranges.cover(self.family.comparator(), name, cell.timestamp())
    }
}

/// Makes the version of a row, or of a part of it, from its cells in ascending order: without what
/// is hidden, and without what is expired.
#[derive(Debug)]
pub struct VersionFold<'a> {
    visibility: Visibility<'a>,
    gc_before: Option<i32>,
    cells: Vec<Cell>,
    /// An expired deletion of a super column, which stays if a cell of the super column does.
    held: Option<Cell>,
}

impl<'a> VersionFold<'a> {
    /// A fold that drops deletions made at or before the second `gc_before`, if it is given.
    pub fn new(family: &'a ColumnFamilySchema, row: Deletion, gc_before: Option<i32>) -> Self {
        Self { visibility: Visibility::new(family, row), gc_before, cells: Vec::new(), held: None }
    }

    /// Makes room for this many cells.
    pub fn expect(&mut self, cells: usize) {
        self.cells.reserve_exact(cells);
    }

    /// Goes on within a super column with this deletion, which is repeated before the next of its
    /// cells.
    pub fn resume(&mut self, marker: Cell) {
        let is_hidden = self.visibility.hides(&marker);
        self.held = Some(marker).filter(|_| !is_hidden);
    }

    /// Goes on below a deletion that is not repeated.
    pub fn know(&mut self, deletion: &Cell) {
        self.visibility.hides(deletion);
    }

    /// Adds the next cell, if it stays.
    pub fn push(&mut self, cell: Cell) {
        let is_expired = cell.deletion().is_some_and(|it| self.is_expired(it));
        if cell.super_deletion().is_some() {
            self.resume(cell);
            self.cells.extend(self.held.take_if(|_| !is_expired));
        } else if !self.visibility.hides(&cell) && !is_expired {
            let family = self.visibility.family;
            let is_in_super =
                |held: &Cell| family.is_one_super_column(held.super_name(), cell.super_name());
            self.cells.extend(self.held.take().filter(is_in_super));
            self.cells.push(cell);
        }
    }

    /// Returns the version. A part after the first one carries the deletion of the row only beside
    /// cells.
    pub fn finish(self, is_first: bool) -> RowVersion {
        let row = self.visibility.row;
        let stays = !self.cells.is_empty() || is_first && !self.is_expired(row);
        RowVersion { deletion: if stays { row } else { Deletion::NONE }, cells: self.cells }
    }

    fn is_expired(&self, deletion: Deletion) -> bool {
        self.gc_before.is_some_and(|gc_before| deletion.is_expired(gc_before))
    }
}

/// A rule for which cells stay.
pub type Keeps = fn(&mut Purge<'_>, &Cell) -> bool;

/// [`Purge::keeps`]: the cells that replicas of ours compare.
pub const COMPARED: Keeps = |purge, cell| purge.keeps(cell);

/// [`Purge::keeps_in_file`]: the cells that replicas of 0.6 compare.
pub const STORED: Keeps = |purge, cell| purge.keeps_in_file(cell);

/// Decides, for one row, which of its merged cells stay. They come in ascending order.
#[derive(derive_more::Debug)]
pub struct Purge<'a> {
    visibility: Visibility<'a>,
    /// Deletions made at or before this second may go.
    gc_before: i32,
    /// Finds the least timestamp of what may hold something of the row outside of the compaction;
    /// `None` if nothing does. Only asked, once, when there is a deletion that may go.
    #[debug(skip)]
    find_oldest_elsewhere: &'a dyn Fn() -> Option<i64>,
    oldest_elsewhere: OnceCell<Option<i64>>,
    /// The latest local deletion time of the deletions that go.
    #[debug(skip)]
    latest_dropped: Slot<Option<i32>>,
}

impl<'a> Purge<'a> {
    /// For a row with this deletion.
    pub fn new(
        family: &'a ColumnFamilySchema,
        row: Deletion,
        gc_before: i32,
        find_oldest_elsewhere: &'a dyn Fn() -> Option<i64>,
    ) -> Self {
        Self {
            visibility: Visibility::new(family, row),
            gc_before,
            find_oldest_elsewhere,
            oldest_elsewhere: OnceCell::new(),
            latest_dropped: Slot::new(None),
        }
    }

    /// The latest local deletion time of all deletions that were told to go so far.
    pub fn latest_dropped(&self) -> Option<i32> {
        self.latest_dropped.get()
    }

    /// The deletion of the row that stays.
    pub fn row_deletion(&self) -> Deletion {
        let row = self.visibility.row;
        if self.may_drop(row) { Deletion::NONE } else { row }
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

    /// Whether a cell stays.
    pub fn keeps(&mut self, cell: &Cell) -> bool {
        !self.visibility.hides(cell)
            && !cell.deletion().is_some_and(|deletion| self.may_drop(deletion))
    }

    /// Whether a cell stays in a file. The deletion of a super column does until it is expired,
    /// even if that of the row covers it: 0.6 keeps it, and its digests tell of it.
    pub fn keeps_in_file(&mut self, cell: &Cell) -> bool {
        let is_kept_by_0_6 = |it: Deletion| !it.is_expired(self.gc_before);
        let stays = cell.super_deletion().is_some_and(is_kept_by_0_6);
        self.keeps(cell) || stays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cell::Expiry;
    use crate::model::comparator::{Comparator, ComparatorRegistry, CustomComparator};
    use crate::model::schema::ColumnFamilyKind;
    use std::cmp::Ordering;
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
        ColumnFamilySchema::new("k".into(), "c".into(), kind)
    }

    /// Nothing was deleted so early.
    const NO_GC: i32 = i32::MIN;

    fn row_deletion(row: Deletion, gc_before: i32) -> Deletion {
        Purge::new(&family(), row, gc_before, &|| None).row_deletion()
    }

    fn kept(row: Deletion, gc_before: i32, cells: &[Cell]) -> Vec<&Cell> {
        kept_beside(None, row, gc_before, cells)
    }

    /// The rest when the oldest timestamp elsewhere is this.
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
    fn a_value_goes_a_grace_period_after_its_end() {
        let until = |at| Cell::expiring((b"", b"a"), b"v", 5, Expiry { ttl: 9, at });
        for (at, goes) in [(100, true), (101, false), (i64::MAX, false)] {
            let cells = [until(at)];
            assert_eq!(kept(Deletion::NONE, 100, &cells).is_empty(), goes, "{at}");
            assert_eq!(kept_beside(Some(5), Deletion::NONE, 100, &cells).len(), 1, "{at}");
        }
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

    /// Cells that the deletion covers may go in any case, as long as the deletion stays.
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
    fn a_covered_super_column_deletion_stays_in_files_until_it_is_expired() {
        let (family, find) = (family(), || None);
        let marker = Cell::super_tombstone(b"s", Deletion::at(5, 101));
        let covered = Cell::live(b"s", b"a", b"", 5);
        for (gc_before, stays) in [(100, true), (101, false)] {
            let mut purge = Purge::new(&family, Deletion::at(6, 200), gc_before, &find);
            assert!(!purge.keeps(&marker));
            assert_eq!(purge.keeps_in_file(&marker), stays);
            assert!(!purge.keeps_in_file(&covered));
        }
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

    /// A deletion that others need not hear of any more still hides what it covers.
    #[test]
    fn a_deleted_super_column_does_not_come_back_under_another_name() {
        let super_columns = ComparatorRegistry::default().resolve("IntegerType").unwrap();
        let kind = ColumnFamilyKind::Super { super_columns, columns: Comparator::Bytes };
        let (keyspace, name) = ("Blog".into(), "Rows".into());
        let family = ColumnFamilySchema::new(keyspace, name, kind);
        let mut part = VersionFold::new(&family, Deletion::NONE, Some(100));
        let marker = Cell::super_tombstone(&[1], Deletion::at(20, 50));
        let newer = Cell::live(&[0, 1], b"newer", b"", 21);
        for cell in [marker.clone(), Cell::live(&[0, 1], b"deleted", b"", 10), newer.clone()] {
            part.push(cell);
        }
        assert_eq!(part.finish(true).cells, [marker, newer]);
    }
}
