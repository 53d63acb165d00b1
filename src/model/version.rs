//! Knowledge of one replica of a slice of a row: what replicas send each other and what is compared
//! between them.
//!
//! A client sees a [`RowSlice`]. A replica has to tell more: deletions, which the others may not
//! have heard of, and the timestamps of what is deleted. The coordinator merges the versions of
//! several replicas, shows the client what is visible of that, and sends each replica what it
//! lacks.

use super::cell::{Cell, CellState};
use super::deletion::Deletion;
use super::key::RowKey;
use super::mutation::{MutationBuilder, RowMutation};
use super::schema::{ColumnFamilySchema, FamilyId, Schema};
use super::slice::{Flow, Resolver, RowSlice, Slice};
use super::visibility::{VersionFold, Visibility};
use crate::base::clock::Now;
use md5::{Digest as _, Md5};
use std::cmp::Ordering;

/// The MD5 by which versions are compared: that of 0.6, of columns in order without any lengths.
pub type Digest = [u8; 16];

/// Seconds by which the clocks of two nodes differ at most.
const MOST_CLOCK_DIFFERENCE: i64 = 3600;

/// A slice of a row as one replica has it, or as several have it together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowVersion {
    /// Deletion of the whole row, which counts for all slices of it.
    pub deletion: Deletion,
    /// Columns and tombstones in ascending order, whatever the order of the slice. What a deletion
    /// of the row or of the super column covers is not among them.
    pub cells: Vec<Cell>,
}

impl RowVersion {
    /// Whether nothing is known of the row, not even that it is deleted.
    pub fn is_empty(&self) -> bool {
        self.deletion.is_none() && self.cells.is_empty()
    }

    /// Whether 0.6 has cells like these.
    pub fn is_original(&self) -> bool {
        self.cells.iter().all(|cell| cell.state().is_original())
    }

    /// The digest of 0.6. Deletions of rows are no part of it, nor is the local deletion time of a
    /// super column.
    pub fn digest(&self, family: &ColumnFamilySchema) -> Digest {
        let mut digest = Md5::new();
        let mut super_column: Option<&[u8]> = None;
        for cell in &self.cells {
            let is_next = |name| !family.is_one_super_column(name, cell.super_name());
            if family.is_super() && super_column.is_none_or(is_next) {
                super_column = Some(cell.super_name());
                let deleted_at = match cell.state() {
                    CellState::SuperTombstone => cell.timestamp(),
                    _ => Deletion::NONE.marked_for_delete_at,
                };
                digest.update(cell.super_name());
                digest.update(deleted_at.to_be_bytes());
            }
            if cell.state() != CellState::SuperTombstone {
                digest.update(cell.name());
                digest.update(cell.stored_value());
                digest.update(cell.timestamp().to_be_bytes());
                digest.update([cell.state() as u8]);
            }
        }
        digest.finalize().into()
    }

    /// A digest of all of it, so that replicas that differ only in what they know to be deleted
    /// notice that as well. Nodes of 0.6 do not have it.
    pub fn full_digest(&self, family: &ColumnFamilySchema) -> Digest {
        let mut digest = Md5::new();
        let mut update = |deletion: Deletion| {
            digest.update(deletion.marked_for_delete_at.to_be_bytes());
            digest.update(deletion.local_deletion_time.to_be_bytes());
        };
        update(self.deletion);
        self.cells
            .iter()
            .filter(|cell| cell.super_deletion().is_some())
            .filter_map(Cell::deletion)
            .for_each(update);
        digest.update(self.digest(family));
        digest.finalize().into()
    }

    /// All that these versions know together. The order of the versions does not matter.
    #[must_use]
    pub fn merge<'a>(
        family: &ColumnFamilySchema,
        versions: impl IntoIterator<Item = &'a Self>,
    ) -> Self {
        let mut merged = Self::default();
        for version in versions {
            merged.deletion = merged.deletion.merge(version.deletion);
            merged.cells = merge_cells(family, std::mem::take(&mut merged.cells), &version.cells);
        }
        merged.drop_hidden(family);
        merged
    }

    /// The slice as a client may see it in this second.
    pub fn resolve(&self, family: &ColumnFamilySchema, slice: &Slice, now: i64) -> RowSlice {
        self.feed(self.resolver(family, slice, now), slice)
    }

    /// How many columns, or super columns, a client may see of the slice in this second.
    pub fn count(&self, family: &ColumnFamilySchema, slice: &Slice, now: i64) -> usize {
        self.feed(self.resolver(family, slice, now).counting(), slice).count
    }

    fn resolver<'a>(
        &self,
        family: &'a ColumnFamilySchema,
        slice: &Slice,
        now: i64,
    ) -> Resolver<'a> {
        let deletion = self.deletion.merge(self.super_deletion(slice));
        Resolver::new(Visibility::new(family, deletion), slice, Now::At(now))
    }

    fn feed(&self, mut resolver: Resolver<'_>, slice: &Slice) -> RowSlice {
        if resolver.is_done() {
            return resolver.finish();
        }
        // Cells that deletions of ranges and prefixes hide are left out.
        let mut push = |cell: &Cell| !is_cover(cell) && resolver.push(cell.clone()) == Flow::Done;
        if slice.is_reversed() {
            self.cells.iter().rev().any(&mut push);
        } else {
            self.cells.iter().any(&mut push);
        }
        resolver.finish()
    }

    /// The deletion of the super column that the slice is inside of.
    fn super_deletion(&self, slice: &Slice) -> Deletion {
        let mut cells = self.cells.iter().skip_while(|cell| is_cover(cell));
        let first = slice.super_name().and_then(|_| cells.next());
        first.and_then(Cell::super_deletion).unwrap_or(Deletion::NONE)
    }

    /// Whether a replica with this version may have more of the slice that it did not send, since
    /// it sent as much as was asked for. By its own clock a value may have been there still.
    pub fn is_cut(&self, family: &ColumnFamilySchema, slice: &Slice, now: i64) -> bool {
        let earlier = now.saturating_sub(MOST_CLOCK_DIFFERENCE);
        slice.limit() != usize::MAX && self.count(family, slice, earlier) >= slice.limit()
    }

    /// Leaves out what lies behind the end of `cut`, in the order of the slice: whoever sent `cut`
    /// has sent nothing of that.
    pub fn truncate_to(&mut self, family: &ColumnFamilySchema, slice: &Slice, cut: &Self) {
        let groups = family.is_super() && slice.super_name().is_none();
        let order = |a: &Cell, b: &Cell| {
            if groups {
                family.comparator().compare(a.super_name(), b.super_name())
            } else {
                family.compare(a.place(), b.place())
            }
        };
        // Deletions of larger parts stand at the front, or before the part that they delete, and
        // count for all of it. A row is cut behind a column.
        let marker = slice.super_name().is_some();
        let is_above = |cell: &Cell| {
            cell.state() == CellState::RangeTombstone || marker && cell.super_deletion().is_some()
        };
        let is_end = |cell: &&Cell| !is_above(cell) && !is_cover(cell);
        if slice.is_reversed() {
            let Some(end) = cut.cells.iter().find(is_end) else { return };
            let is_of_end = |cell: &Cell| {
                cell.state() == CellState::PrefixTombstone
                    && end.prefix() == Some(cell.name())
                    && family.is_one_super_column(cell.super_name(), end.super_name())
            };
            self.cells.retain(|cell| {
                is_above(cell) || is_of_end(cell) || order(cell, end) != Ordering::Less
            });
        } else if let Some(end) = cut.cells.iter().rfind(is_end) {
            self.cells.retain(|cell| is_above(cell) || order(cell, end) != Ordering::Greater);
        }
    }

    /// Leaves out what is no part of the slice. A client must not be shown, and no replica be
    /// given, what another node sends besides what it was asked for.
    pub fn keep_within(&mut self, family: &ColumnFamilySchema, slice: &Slice) {
        let mut walk = slice.walk(family);
        let (within, prefixes) = (walk.rest(), slice.prefixes(family));
        self.cells.retain(|cell| {
            if cell.state() == CellState::RangeTombstone {
                return slice.is_in_range_of(family, cell);
            }
            if cell.state() == CellState::PrefixTombstone
                && prefixes.contains(&cell.name())
                && family.is_one_super_column(slice.super_name().unwrap_or(b""), cell.super_name())
            {
                return true;
            }
            if let Some(super_name) = slice.super_name().filter(|_| cell.super_deletion().is_some())
            {
                let order = family.comparator().compare(super_name, cell.super_name());
                return order == Ordering::Equal;
            }
            within.is_some_and(|range| range.contains(family, cell.place()))
                && walk.wants(cell.place())
        });
    }

    /// The part of `merged` that a replica with this version lacks; `None` if that is nothing.
    pub fn lacks(&self, family: &ColumnFamilySchema, merged: &Self) -> Option<Self> {
        let mut mine = self.cells.iter().peekable();
        let mut cells = Vec::new();
        for cell in &merged.cells {
            let order = |other: &Cell| family.compare(other.place(), cell.place());
            while mine.next_if(|other| order(other) == Ordering::Less).is_some() {}
            let has = mine.next_if(|other| order(other) == Ordering::Equal);
            if has.is_none_or(|other| other != cell) {
                cells.push(cell.clone());
            }
        }
        let deletion =
            if merged.deletion == self.deletion { Deletion::NONE } else { merged.deletion };
        let lacking = Self { deletion, cells };
        (!lacking.is_empty()).then_some(lacking)
    }

    /// The mutation that gives all of this to a replica.
    pub fn to_mutation(&self, schema: &Schema, family: FamilyId, key: &RowKey) -> RowMutation {
        let keyspace = &schema.family(family).keyspace;
        let mut builder = MutationBuilder::new(schema, keyspace, key.as_bytes());
        builder.family(family);
        if !self.deletion.is_none() {
            builder.delete_row(self.deletion);
        }
        for cell in &self.cells {
            builder.cell(cell);
        }
        builder.finish()
    }

    /// Leaves out what the deletions of the row and of super columns hide. A compaction leaves out
    /// the same: else replicas would differ that hold the same and were not compacted together.
    pub fn drop_hidden(&mut self, family: &ColumnFamilySchema) {
        self.fold(family, None);
    }

    /// Also leaves out deletions that were made at `gc_before` or earlier, in seconds since the
    /// Unix epoch. That of a row or super column stays as long as something else of it does.
    pub fn drop_expired(&mut self, family: &ColumnFamilySchema, gc_before: i32) {
        self.fold(family, Some(gc_before));
    }

    /// As [`RowVersion::drop_expired`], in the form of 0.6, on which its digests depend. Of a super
    /// column whose newest live column is not newer than the deletion of the row, or than its own
    /// expired one, 0.6 tells nothing, tombstones included. Of others it tells their deletion even
    /// where that of the row covers it.
    pub fn drop_expired_as_0_6(&mut self, family: &ColumnFamilySchema, gc_before: i32) {
        if !family.is_super() {
            return self.drop_expired(family, gc_before);
        }
        let (row, mut kept) = (self.deletion, Vec::with_capacity(self.cells.len()));
        let is_one =
            |a: &Cell, b: &Cell| family.is_one_super_column(a.super_name(), b.super_name());
        for group in self.cells.chunk_by(is_one) {
            let (markers, columns) =
                group.split_at(usize::from(group[0].super_deletion().is_some()));
            let own = markers.first().and_then(Cell::deletion).unwrap_or(Deletion::NONE);
            let newest = columns.iter().filter(|it| it.is_live()).map(Cell::timestamp).max();
            let tells_of = |it: Deletion| newest.is_some_and(|newest| !it.covers(newest));
            let is_told = |it: Deletion| it.is_none() || tells_of(it);
            if !is_told(row) || own.is_expired(gc_before) && !is_told(own) {
                continue;
            }
            let is_expired =
                |cell: &Cell| cell.deletion().is_some_and(|it| it.is_expired(gc_before));
            let stays = |cell: &&Cell| {
                !row.covers(cell.timestamp()) && !own.covers(cell.timestamp()) && !is_expired(cell)
            };
            let columns: Vec<&Cell> = columns.iter().filter(stays).collect();
            if !columns.is_empty() || !own.is_expired(gc_before) {
                kept.extend(markers.iter().chain(columns).cloned());
            }
        }
        if kept.is_empty() && row.is_expired(gc_before) {
            self.deletion = Deletion::NONE;
        }
        self.cells = kept;
    }

    /// As [`RowVersion::drop_expired`], of a part of one super column, in the form of 0.6: the
    /// deletion of the super column stays beside other cells even where that of the row covers it.
    pub fn drop_expired_within_super_as_0_6(
        &mut self,
        family: &ColumnFamilySchema,
        gc_before: i32,
    ) {
        let marker = self.cells.first().filter(|cell| cell.super_deletion().is_some()).cloned();
        self.drop_expired(family, gc_before);
        let is_told = |marker: &Cell| {
            let is_left = self.cells.first().is_some_and(|cell| cell.super_deletion().is_none());
            is_left && marker.deletion().is_some_and(|it| !it.is_expired(gc_before))
        };
        let marker = marker.filter(is_told);
        self.cells.splice(0..0, marker);
    }

    fn fold(&mut self, family: &ColumnFamilySchema, gc_before: Option<i32>) {
        let mut fold = VersionFold::new(family, self.deletion, gc_before);
        fold.expect(self.cells.len());
        for cell in std::mem::take(&mut self.cells) {
            fold.push(cell);
        }
        *self = fold.finish(true);
    }
}

/// Whether it deletes a range or a prefix of names.
fn is_cover(cell: &Cell) -> bool {
    matches!(cell.state(), CellState::PrefixTombstone | CellState::RangeTombstone)
}

impl Default for Deletion {
    fn default() -> Self {
        Self::NONE
    }
}

fn merge_cells(family: &ColumnFamilySchema, left: Vec<Cell>, right: &[Cell]) -> Vec<Cell> {
    if left.is_empty() {
        return right.to_vec();
    }
    let mut merged = Vec::with_capacity(left.len().max(right.len()));
    let mut right = right.iter().peekable();
    for cell in left {
        let order = |other: &Cell| family.compare(other.place(), cell.place());
        while let Some(before) = right.next_if(|other| order(other) == Ordering::Less) {
            merged.push(before.clone());
        }
        match right.next_if(|other| order(other) == Ordering::Equal) {
            Some(other) => merged.push(cell.reconcile(other.clone())),
            None => merged.push(cell),
        }
    }
    merged.extend(right.cloned());
    merged
}

#[cfg(test)]
mod tests {
    use super::super::cell::Expiry;
    use super::super::comparator::{Comparator, ComparatorRegistry};
    use super::super::range_deletion::encode_range;
    use super::super::schema::ColumnFamilyKind;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::ops::Bound;

    fn family(is_super: bool) -> ColumnFamilySchema {
        let (columns, super_columns) = (Comparator::Bytes, Comparator::Bytes);
        let kind = if is_super {
            ColumnFamilyKind::Super { super_columns, columns }
        } else {
            ColumnFamilyKind::Standard { columns }
        };
        ColumnFamilySchema::new("Blog".into(), "Rows".into(), kind)
    }

    fn hex(digest: Digest) -> String {
        format!("{:032x}", u128::from_be_bytes(digest))
    }

    #[test]
    fn digests_are_those_of_0_6() {
        let standard = family(false);
        assert_eq!(
            hex(RowVersion::default().digest(&standard)),
            "d41d8cd98f00b204e9800998ecf8427e"
        );
        let cells =
            vec![Cell::live(b"", b"c1", b"value1", 1000), Cell::live(b"", b"c2", b"value2", 1001)];
        let version = RowVersion { deletion: Deletion::at(5, 5), cells };
        assert_eq!(hex(version.digest(&standard)), "0679c8134a229e8736c07fc49f624115");
    }

    #[test]
    fn a_version_that_is_cut_says_nothing_of_what_lies_behind() {
        let standard = family(false);
        let live = |name: &str| Cell::live(b"", name.as_bytes(), b"v", 1);
        let version = |names: &[&str]| RowVersion {
            deletion: Deletion::NONE,
            cells: names.iter().map(|name| live(name)).collect(),
        };
        for (reversed, cut, kept) in
            [(false, ["a", "c"], ["a", "b", "c"]), (true, ["c", "e"], ["c", "d", "e"])]
        {
            let slice = Slice::range(None, b"", b"", reversed, 2);
            let mut merged = version(&["a", "b", "c", "d", "e"]);
            assert!(version(&cut).is_cut(&standard, &slice, 0));
            assert!(!version(&cut[..1]).is_cut(&standard, &slice, 0));
            merged.truncate_to(&standard, &slice, &version(&cut));
            assert_eq!(merged, version(&kept));
        }
    }

    /// A compaction drops them: a replica that was compacted must not differ for that.
    #[test]
    fn deletions_of_super_columns_go_with_what_the_row_deletion_covers() {
        let marker = |name: &[u8], at| Cell::super_tombstone(name, Deletion::at(at, 100));
        let deletion = Deletion::at(5, 200);
        let cells = vec![marker(b"s", 5), marker(b"t", 6), Cell::live(b"t", b"n", b"", 6)];
        let mut told = RowVersion { deletion, cells };
        told.drop_hidden(&family(true));
        assert_eq!(told, RowVersion { deletion, cells: vec![marker(b"t", 6)] });
        let cells = vec![marker(b"s", i64::MIN)];
        let mut without = RowVersion { deletion: Deletion::NONE, cells: cells.clone() };
        without.drop_hidden(&family(true));
        assert_eq!(without.cells, cells, "there is no deletion of the row");
    }

    /// Of super columns by numbers: leading zeros make no other number.
    fn numbered() -> ColumnFamilySchema {
        let super_columns = ComparatorRegistry::default().resolve("IntegerType").unwrap();
        let kind = ColumnFamilyKind::Super { super_columns, columns: Comparator::Bytes };
        ColumnFamilySchema { kind, ..family(true) }
    }

    #[test]
    fn a_super_column_is_one_under_all_its_names() {
        let family = numbered();
        let marker = Cell::super_tombstone(&[1], Deletion::at(5, 100));
        let (old, new) = (Cell::live(&[0, 1], b"a", b"", 5), Cell::live(&[0, 0, 1], b"b", b"", 6));
        let mut told =
            RowVersion { deletion: Deletion::NONE, cells: vec![marker.clone(), old, new.clone()] };
        told.drop_hidden(&family);
        assert_eq!(told.cells, [marker.clone(), new.clone()]);
        told.drop_expired(&family, 100);
        assert_eq!(told.cells, [marker, new], "it stays as long as something of it does");
        let digest = |last: &[u8]| {
            let cells = vec![Cell::live(&[1], b"a", b"", 5), Cell::live(last, b"b", b"", 6)];
            RowVersion { deletion: Deletion::NONE, cells }.digest(&family)
        };
        assert_eq!(digest(&[1]), digest(&[0, 1]));
        assert_ne!(digest(&[1]), digest(&[2]));
    }

    #[test]
    fn of_two_names_of_one_place_the_same_counts_everywhere() {
        let kinds: [fn(&[u8]) -> Cell; 2] = [
            |name| Cell::live(b"", name, b"v", 1),
            |name| Cell::super_tombstone(name, Deletion::at(1, 1)),
        ];
        for cell in kinds {
            let (one, other) = (cell(&[1]), cell(&[0, 1]));
            assert_eq!(one.clone().reconcile(other.clone()), one);
            assert_eq!(other.reconcile(one.clone()), one);
        }
    }

    #[test]
    fn only_what_was_asked_for_is_kept() {
        let (standard, supers) = (family(false), family(true));
        let live = |super_name: &str, name: &str| {
            Cell::live(super_name.as_bytes(), name.as_bytes(), b"v", 1)
        };
        let kept = |family: &ColumnFamilySchema, cells: &[Cell], slice: &Slice| {
            let mut version = RowVersion { deletion: Deletion::at(1, 1), cells: cells.to_vec() };
            version.keep_within(family, slice);
            let place = |cell: &Cell| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                text(cell.super_name()) + &text(cell.name())
            };
            version.cells.iter().map(place).collect::<Vec<_>>().join(" ")
        };
        let columns = ["a", "b", "c", "d"].map(|name| live("", name));
        let names = Slice::names(&standard, None, [&b"d"[..], b"b", b"x"]);
        assert_eq!(kept(&standard, &columns, &names), "b d");
        for (start, finish, reversed) in [("b", "c", false), ("c", "b", true)] {
            let (start, finish) = (start.as_bytes(), finish.as_bytes());
            let slice = Slice::range(None, start, finish, reversed, 9);
            assert_eq!(kept(&standard, &columns, &slice), "b c");
        }
        assert_eq!(kept(&standard, &columns, &Slice::all(None)), "a b c d");
        let marker = |name: &str| Cell::super_tombstone(name.as_bytes(), Deletion::at(0, 1));
        let columns = [marker("r"), live("r", "a"), marker("s"), live("s", "a"), live("s", "b")];
        assert_eq!(kept(&supers, &columns, &Slice::all(Some(b"s"))), "s sa sb");
        let one = Slice::names(&supers, Some(b"s"), [&b"b"[..]]);
        assert_eq!(kept(&supers, &columns, &one), "s sb");
        let groups = Slice::names(&supers, None, [&b"r"[..]]);
        assert_eq!(kept(&supers, &columns, &groups), "r ra");
    }

    #[test]
    fn nodes_of_0_6_get_what_they_would_tell_themselves() {
        let marker = |name: &[u8], at| Cell::super_tombstone(name, Deletion::at(at, 200));
        let expired = |name: &[u8], at| Cell::super_tombstone(name, Deletion::at(at, 100));
        let live = |name: &[u8], at| Cell::live(name, b"a", b"", at);
        let tombstone = |name: &[u8], at| Cell::tombstone(name, b"b", Deletion::at(at, 200));
        let told = |row, cells: Vec<Cell>| {
            let mut version = RowVersion { deletion: row, cells };
            version.drop_expired_as_0_6(&family(true), 100);
            version.cells
        };
        let row = Deletion::at(5, 200);
        // Deleted with the row, and once more after that.
        assert_eq!(told(row, vec![marker(b"s", 7), live(b"s", 3)]), []);
        assert_eq!(told(row, vec![live(b"s", 3), tombstone(b"s", 7)]), []);
        // Written since.
        let cells = vec![live(b"s", 6), tombstone(b"s", 7)];
        assert_eq!(told(row, cells.clone()), cells);
        let cells = vec![marker(b"s", 3), live(b"s", 6)];
        assert_eq!(told(row, cells.clone()), cells, "its deletion is told though it is covered");
        // Written and deleted since, before a compaction drops what was written.
        assert_eq!(told(row, vec![marker(b"s", 8), live(b"s", 7)]), [marker(b"s", 8)]);
        assert_eq!(told(row, vec![marker(b"s", 8)]), []);
        // The grace period of its deletion is over.
        assert_eq!(told(Deletion::NONE, vec![expired(b"s", 5), tombstone(b"s", 6)]), []);
        let cells = vec![expired(b"s", 5), live(b"s", 6), tombstone(b"s", 6)];
        assert_eq!(told(Deletion::NONE, cells.clone()), cells);
        // It was never deleted.
        let cells = vec![tombstone(b"s", 6), tombstone(b"t", 1)];
        assert_eq!(told(Deletion::NONE, cells.clone()), cells);
    }

    /// Of a part the newest live column is not known: where nothing of it is left nothing is told.
    #[test]
    fn of_a_part_of_a_super_column_nodes_of_0_6_get_its_deletion_beside_what_is_left() {
        let marker = |at, made| Cell::super_tombstone(b"s", Deletion::at(at, made));
        let live = |at| Cell::live(b"s", b"a", b"", at);
        let told = |cells: Vec<Cell>| {
            let mut version = RowVersion { deletion: Deletion::at(5, 200), cells };
            version.drop_expired_within_super_as_0_6(&family(true), 100);
            version.cells
        };
        assert_eq!(told(vec![marker(3, 200), live(6)]), [marker(3, 200), live(6)]);
        assert_eq!(told(vec![marker(7, 200), live(6)]), [marker(7, 200)]);
        assert_eq!(told(vec![marker(3, 100), live(6)]), [live(6)], "its grace period is over");
        assert_eq!(told(vec![marker(3, 200), live(4)]), []);
    }

    /// Clocks of coordinators differ: the later deletion may have been made at an earlier time.
    #[test]
    fn a_compaction_between_two_deletions_changes_nothing() {
        let (old, row, new) = (Deletion::at(1, 300), Deletion::at(2, 100), Deletion::at(3, 200));
        let marker = |deletion| Cell::super_tombstone(b"s", deletion);
        let told = |row, cells| {
            let mut told = RowVersion { deletion: row, cells };
            told.drop_hidden(&family(true));
            told
        };
        let together = told(row, vec![marker(old).reconcile(marker(new))]);
        let compacted = told(row, vec![marker(old)]);
        let versions = [compacted, told(Deletion::NONE, vec![marker(new)])];
        assert_eq!(RowVersion::merge(&family(true), &versions), together);
    }

    /// Cells of few names, timestamps and values, so that they collide; in any order.
    fn cells(is_super: bool) -> impl Strategy<Value = Vec<Cell>> {
        let cell = (0..3u8, 0..3u8, 0..4i64, 0..7u8).prop_map(move |(group, name, at, kind)| {
            let super_name: &[u8] = if is_super { &[b's', group] } else { b"" };
            let deletion = Deletion::at(at, kind.into());
            match kind {
                4 => {
                    let expiry = Expiry { ttl: 1, at: i64::from(group) };
                    Cell::expiring((super_name, &[b'n', name]), b"v", at, expiry)
                }
                5 => Cell::prefix_tombstone((super_name, b"n"), deletion),
                6 => {
                    let start = [if is_super { b's' } else { b'n' }, name];
                    let range = encode_range((Bound::Excluded(&start), Bound::Unbounded));
                    Cell::range_tombstone((family(is_super).range_super_name(), &range), deletion)
                }
                0 | 1 => Cell::live(super_name, &[b'n', name], &[kind], at),
                2 if is_super => Cell::super_tombstone(super_name, Deletion::at(at, name.into())),
                _ => Cell::tombstone(super_name, &[b'n', name], Deletion::at(at, kind.into())),
            }
        });
        vec(cell, 0..8)
    }

    fn version(family: &ColumnFamilySchema, deleted: Option<i64>, cells: Vec<Cell>) -> RowVersion {
        let each = |cell| RowVersion { deletion: Deletion::NONE, cells: vec![cell] };
        let mut versions: Vec<RowVersion> = cells.into_iter().map(each).collect();
        let deletion = deleted.map_or(Deletion::NONE, |at| Deletion::at(at, 7));
        versions.push(RowVersion { deletion, cells: Vec::new() });
        RowVersion::merge(family, &versions)
    }

    proptest! {
        #[test]
        fn replicas_that_got_what_they_lack_are_alike(
            deleted in proptest::array::uniform3(proptest::option::weighted(0.3, 0..4i64)),
            cells in proptest::bool::ANY.prop_flat_map(|is_super| {
                (Just(is_super), proptest::array::uniform3(cells(is_super)))
            }),
        ) {
            let (is_super, cells) = cells;
            let family = family(is_super);
            let parts = deleted.into_iter().zip(cells);
            let versions: Vec<_> = parts.map(|(d, c)| version(&family, d, c)).collect();
            let merged = RowVersion::merge(&family, &versions);
            let reverse = RowVersion::merge(&family, versions.iter().rev());
            prop_assert_eq!(&merged, &reverse);
            prop_assert_eq!(&RowVersion::merge(&family, [&merged, &merged]), &merged);
            for version in &versions {
                let lacking = version.lacks(&family, &merged).unwrap_or_default();
                let repaired = RowVersion::merge(&family, [version, &lacking]);
                prop_assert_eq!(repaired.full_digest(&family), merged.full_digest(&family));
                prop_assert_eq!(&repaired, &merged);
                prop_assert!(repaired.lacks(&family, &merged).is_none());
            }
            for reversed in [false, true] {
                let all = Slice::range(None, b"", b"", reversed, usize::MAX);
                let visible = merged.resolve(&family, &all, 0);
                prop_assert_eq!(visible.count, merged.count(&family, &all, 0));
                prop_assert!(visible.cells.iter().all(|it| it.is_live_at(&mut Now::At(0))));
            }
        }
    }
}
