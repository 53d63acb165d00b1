//! Where a scan goes on that is made a page at a time.

use crate::replica::Row;
use crate::ring::{DecoratedKey, Partitioner, RowRange};
use std::ops::Bound;

/// A range of which some rows were read, and the rest of it.
///
/// Rows of equal tokens may stand on both sides of the end of a page, and a scan begins with a
/// token, not with a key. So the rows of that token that were read come again, and are left out.
#[derive(Debug)]
pub(super) struct RowCursor {
    partitioner: Partitioner,
    range: RowRange,
    /// The last row that was read.
    last: Option<DecoratedKey>,
    /// How many rows that were read will come again.
    repeated: usize,
    is_at_end: bool,
}

impl RowCursor {
    /// All of the range is still to be read.
    pub(super) fn new(partitioner: Partitioner, range: RowRange) -> Self {
        Self { partitioner, range, last: None, repeated: 0, is_at_end: false }
    }

    /// What has to be scanned next.
    pub(super) fn range(&self) -> &RowRange {
        &self.range
    }

    /// How many rows to ask for so that so many are new.
    pub(super) fn rows_for(&self, new: usize) -> usize {
        new.saturating_add(self.repeated)
    }

    /// Whether nothing was read yet.
    pub(super) fn is_at_start(&self) -> bool {
        self.last.is_none()
    }

    /// Whether there are no more.
    pub(super) fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// Takes the first rows of what was to be scanned, for which so many were asked. Returns those
    /// that are new; there may be none although others follow.
    pub(super) fn take(&mut self, asked: usize, page: Vec<Row>) -> impl Iterator<Item = Row> {
        self.is_at_end = page.len() < asked;
        let end = page.last().map(|(key, _)| self.partitioner.decorate(key.clone()));
        let before = end.clone().and_then(|end| self.last.replace(end));
        if let Some(end) = end {
            if before.as_ref().is_some_and(|before| end <= *before) {
                // Other replicas may know of more rows that were passed already.
                self.repeated = asked.saturating_mul(2);
                self.last.clone_from(&before);
            } else {
                let token = |(key, _): &&Row| self.partitioner.token(key.as_bytes());
                let is_last = |row: &&Row| token(row) == *end.token();
                self.repeated = page.iter().rev().take_while(is_last).count();
                self.range.start = Bound::Included(end.token().clone());
            }
        }
        let partitioner = self.partitioner;
        let is_old = move |(key, _): &Row| {
            before.as_ref().is_some_and(|before| partitioner.decorate(key.clone()) <= *before)
        };
        page.into_iter().skip_while(is_old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::key::RowKey;
    use crate::model::slice::RowSlice;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::ops::RangeBounds;

    const COLLATING: Partitioner = Partitioner::CollatingOrderPreserving;

    /// Control characters count for nothing in a collation.
    fn rows() -> impl Strategy<Value = BTreeSet<DecoratedKey>> {
        let key = "[a-c][\u{1}\u{2}]{0,3}";
        let row = key.prop_map(|key| COLLATING.decorate(RowKey::from(key.as_str())));
        btree_set(row, 0..30)
    }

    proptest! {
        #[test]
        fn every_row_comes_once(all in rows(), new in 1..5usize, holes in vec(0..30usize, 0..9)) {
            let mut cursor = RowCursor::new(COLLATING, RowRange::all());
            let (mut read, mut holes) = (Vec::new(), holes.into_iter());
            // Some pages come from replicas that lack a row which all others have.
            let hole = all.iter().nth(holes.next().unwrap_or(99)).cloned();
            while !cursor.is_at_end() {
                let lacks = hole.as_ref().filter(|_| holes.next().is_some_and(|it| it % 2 == 0));
                let asked = cursor.rows_for(new);
                let rows = all.iter().filter(|it| cursor.range().contains(it.token()));
                let rows = rows.filter(|it| lacks != Some(*it)).take(asked);
                let page = rows.map(|it| (it.key().clone(), RowSlice::default())).collect();
                read.extend(cursor.take(asked, page).map(|(key, _)| key));
            }
            let all: Vec<&RowKey> = all.iter().map(DecoratedKey::key).collect();
            let hole = hole.as_ref().map(DecoratedKey::key);
            let sure = |keys: &[&RowKey]| -> Vec<RowKey> {
                keys.iter().filter(|it| hole != Some(**it)).map(|it| (*it).clone()).collect()
            };
            prop_assert_eq!(sure(&read.iter().collect::<Vec<_>>()), sure(&all));
            let different: BTreeSet<&RowKey> = read.iter().collect();
            prop_assert_eq!(different.len(), read.len());
        }
    }
}
