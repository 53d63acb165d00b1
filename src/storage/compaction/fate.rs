//! Whether an SSTable has rows that stay, and rows that do not: told by its row index, of which
//! only a few blocks are read.

use crate::ring::{DecoratedKey, Partitioner, RowRange, Token};
use crate::storage::error::ReadError;
use crate::storage::rows::{MergedRows, RowStream};
use crate::storage::sstable::{Access, Blocks, SsTable};
use std::ops::{Bound, RangeBounds};

/// What becomes of an SSTable of which only the rows of some ranges are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// All of its rows are kept.
    Stays,
    /// Some are.
    Shrinks,
    /// None is.
    Goes,
}

impl Fate {
    /// That of an SSTable of which the rows of these ranges are kept.
    pub fn of(
        table: &SsTable,
        keep: &[RowRange],
        partitioner: Partitioner,
    ) -> Result<Self, ReadError> {
        if let (Some(first), Some(last)) = (table.first_key(), table.last_key()) {
            let [first, last] = [first, last].map(DecoratedKey::token);
            if keep.iter().any(|range| range.contains(first) && range.contains(last)) {
                return Ok(Self::Stays);
            }
            if !keep.iter().any(|range| may_have(range, first, last)) {
                return Ok(Self::Goes);
            }
        }
        let index = Index { table, partitioner };
        for range in keep {
            if index.has_rows_in(range)? {
                let has_others = index.has_rows_outside(keep)?;
                return Ok(if has_others { Self::Shrinks } else { Self::Stays });
            }
        }
        Ok(Self::Goes)
    }
}

/// Whether the range has something of what lies between two tokens, both of them included.
fn may_have(range: &RowRange, first: &Token, last: &Token) -> bool {
    !is_behind(range, first) && (range.start.as_ref(), Bound::Unbounded).contains(last)
}

fn is_behind(range: &RowRange, token: &Token) -> bool {
    !(Bound::Unbounded, range.end.as_ref()).contains(token)
}

struct Index<'a> {
    table: &'a SsTable,
    partitioner: Partitioner,
}

impl<'a> Index<'a> {
    fn rows_from(&self, token: Option<&Token>) -> Result<MergedRows<'a>, ReadError> {
        let least = |token: &Token| Bound::Included(DecoratedKey::least_of(token.clone()));
        let from = token.map_or(Bound::Unbounded, least);
        let blocks = Blocks::new(self.table, Access::Bypass);
        let stream = RowStream::sstable(blocks, from, self.partitioner)?;
        Ok(MergedRows::new(self.partitioner, vec![stream]))
    }

    fn has_rows_in(&self, range: &RowRange) -> Result<bool, ReadError> {
        let start = match &range.start {
            Bound::Unbounded => None,
            Bound::Included(token) | Bound::Excluded(token) => Some(token),
        };
        let mut rows = self.rows_from(start)?;
        while let Some((key, _)) = rows.advance()? {
            if range.contains(key.token()) {
                return Ok(true);
            }
            if is_behind(range, key.token()) {
                break;
            }
        }
        Ok(false)
    }

    /// Goes from the first row to the first one behind its range, and so on.
    fn has_rows_outside(&self, keep: &[RowRange]) -> Result<bool, ReadError> {
        let mut rows = self.rows_from(None)?;
        loop {
            let next = rows.advance()?.map(|(key, _)| key.clone());
            let Some(key) = next else { return Ok(false) };
            let Some(range) = keep.iter().find(|range| range.contains(key.token())) else {
                return Ok(true);
            };
            match &range.end {
                Bound::Unbounded => return Ok(false),
                // Several rows may have the last token.
                Bound::Included(end) if key.token() == end => {}
                Bound::Included(end) | Bound::Excluded(end) => rows = self.rows_from(Some(end))?,
            }
        }
    }
}
