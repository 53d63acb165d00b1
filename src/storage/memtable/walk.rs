//! A walk over the rows of a memtable that may be written to meanwhile.

use super::{Memtable, MemtableRow, SHARDS, Shard, snapshot};
use crate::ring::DecoratedKey;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Bound;

/// Rows that are taken of a shard at first: most walks want few.
const FIRST_BATCH: usize = 2;

/// Most rows that are taken of a shard at a time: it is locked against new rows meanwhile.
const MAX_BATCH: usize = 32;

/// The rows of a memtable from a place on, in order. It holds no lock between two calls. A row that
/// is written during the walk may be missed, or be handed out as it was a moment ago.
#[derive(Debug)]
pub struct MemtableWalk<'a> {
    shards: [ShardWalk<'a>; SHARDS],
    /// The shards that have rows left, by their next row, the least of all at the end.
    order: SmallVec<[usize; SHARDS]>,
}

#[derive(Debug)]
struct ShardWalk<'a> {
    shard: &'a Shard,
    /// Rows that were taken of the shard and not returned yet.
    rows: VecDeque<(DecoratedKey, MemtableRow)>,
    /// Rows that are taken next.
    batch: usize,
}

impl ShardWalk<'_> {
    /// Takes rows of the shard from a place on.
    fn fill(&mut self, from: Bound<&DecoratedKey>) {
        let rows = self.shard.rows.read();
        let rows = rows.range((from, Bound::Unbounded)).take(self.batch);
        self.rows.extend(rows.map(|(key, row)| (key.clone(), snapshot(row))));
        self.batch = (self.batch * 2).min(MAX_BATCH);
    }

    /// Goes on to the next row.
    fn advance(&mut self) {
        let Some((passed, _)) = self.rows.pop_front() else { return };
        if self.rows.is_empty() {
            self.fill(Bound::Excluded(&passed));
        }
    }

    /// Goes on to the first row that is not before a key.
    fn skip_to(&mut self, key: &DecoratedKey) {
        let passed = self.rows.partition_point(|(passed, _)| passed < key);
        self.rows.drain(..passed);
        if self.rows.is_empty() {
            self.batch = FIRST_BATCH;
            self.fill(Bound::Included(key));
        }
    }

    fn key(&self) -> Option<&DecoratedKey> {
        self.rows.front().map(|(key, _)| key)
    }
}

impl<'a> MemtableWalk<'a> {
    pub(super) fn new(memtable: &'a Memtable, from: Bound<&DecoratedKey>) -> Self {
        let shards = memtable.shards.each_ref().map(|shard| {
            let mut walk = ShardWalk { shard, rows: VecDeque::new(), batch: FIRST_BATCH };
            walk.fill(from);
            walk
        });
        let mut walk = Self { shards, order: SmallVec::new() };
        for shard in 0..SHARDS {
            walk.enlist(shard);
        }
        walk
    }

    /// The row at which the walk stands; `None` at its end.
    pub fn row(&self) -> Option<(&DecoratedKey, &MemtableRow)> {
        let shard = &self.shards[*self.order.last()?];
        shard.rows.front().map(|(key, row)| (key, row))
    }

    /// Goes on to the next row.
    pub fn advance(&mut self) {
        let Some(shard) = self.order.pop() else { return };
        self.shards[shard].advance();
        self.enlist(shard);
    }

    /// Goes on to the first row that is not before a key; stays where it is if that is none.
    pub fn skip_to(&mut self, key: &DecoratedKey) {
        while let Some(&shard) = self.order.last()
            && self.shards[shard].key() < Some(key)
        {
            self.order.pop();
            self.shards[shard].skip_to(key);
            self.enlist(shard);
        }
    }

    /// Gives a shard its place in the order, if it has rows left.
    fn enlist(&mut self, shard: usize) {
        let Some(key) = self.shards[shard].key() else { return };
        // The next row of a shard is as likely to be far as to be near.
        let at = self.order.partition_point(|other| self.shards[*other].key() > Some(key));
        self.order.insert(at, shard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cell::Cell;
    use crate::model::comparator::Comparator;
    use crate::model::deletion::Deletion;
    use crate::model::key::RowKey;
    use crate::model::mutation::FamilyMutation;
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId};
    use crate::ring::Partitioner;
    use std::sync::Arc;
    use std::time::Duration;

    const PARTITIONER: Partitioner = Partitioner::OrderPreserving;

    fn key(number: usize) -> DecoratedKey {
        PARTITIONER.decorate(RowKey::new(format!("{number:04}").as_bytes()))
    }

    fn write(memtable: &Memtable, number: usize) {
        let cells = [Cell::live(b"", b"c", b"", 1)].into();
        let mutation = FamilyMutation { family: FamilyId(0), deletion: Deletion::NONE, cells };
        memtable.apply(&key(number), &mutation);
    }

    fn memtable(rows: impl Iterator<Item = usize>) -> Memtable {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let (keyspace, name) = ("k".into(), "c".into());
        let family = Arc::new(ColumnFamilySchema::new(keyspace, name, kind));
        let memtable = Memtable::new(family, Duration::ZERO);
        rows.for_each(|number| write(&memtable, number));
        memtable
    }

    fn rest(mut walk: MemtableWalk<'_>) -> Vec<DecoratedKey> {
        let next = || {
            let key = walk.row().map(|(key, _)| key.clone());
            walk.advance();
            key
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn all_rows_come_once_and_in_order() {
        for rows in [0, 1, 2, 7, 100, 1000] {
            // 13 has no divisor in common with these: all are there, in another order.
            let memtable = memtable((0..rows).map(|number| number * 13 % rows));
            let all: Vec<_> = (0..rows).map(key).collect();
            assert_eq!(rest(memtable.walk(Bound::Unbounded)), all);
            for from in [0, 1, rows / 2, rows].into_iter().filter(|from| *from < rows) {
                let (at, behind) = (Bound::Included(&key(from)), Bound::Excluded(&key(from)));
                assert_eq!(rest(memtable.walk(at)), all[from..]);
                assert_eq!(rest(memtable.walk(behind)), all[from + 1..]);
            }
        }
    }

    #[test]
    fn rows_that_come_ahead_of_the_walk_are_found_in_the_end() {
        let memtable = memtable((0..8000).step_by(2));
        let mut walk = memtable.walk(Bound::Unbounded);
        for expected in (0..500).step_by(2) {
            assert_eq!(walk.row().map(|(key, _)| key), Some(&key(expected)));
            walk.advance();
        }
        write(&memtable, 1);
        (7901..8000).step_by(2).for_each(|number| write(&memtable, number));
        let rest = rest(walk);
        assert!(rest.is_sorted());
        let behind = (500..7900).step_by(2).chain(7900..8000).map(key);
        assert!(rest.into_iter().eq(behind));
    }
}
