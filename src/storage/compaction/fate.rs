//! Tells from the row index of an SSTable, of which a few blocks are read, whether it has rows that
//! stay, and rows that do not.

use crate::ring::{DecoratedKey, RowRange, Token};
use crate::storage::error::ReadError;
use crate::storage::rows::{MergedRows, RangeRows, RowStream, first_key, is_past};
use crate::storage::sstable::{Access, Blocks, SsTable};
use std::ops::{Bound, RangeBounds};

/// Effect on an SSTable of keeping only the rows of some ranges.
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
    /// The fate of an SSTable of which the rows of these ranges are kept.
    pub fn of(table: &SsTable, keep: &[RowRange]) -> Result<Self, ReadError> {
        if let (Some(first), Some(last)) = (table.first_key(), table.last_key()) {
            let [first, last] = [first, last].map(DecoratedKey::token);
            if keep.iter().any(|range| range.contains(first) && range.contains(last)) {
                return Ok(Self::Stays);
            }
            if !keep.iter().any(|range| may_have(range, first, last)) {
                return Ok(Self::Goes);
            }
        }
        for range in keep {
            if RangeRows::new(rows(table, first_key(range))?, range).advance()?.is_some() {
                let has_others = has_rows_outside(table, keep)?;
                return Ok(if has_others { Self::Shrinks } else { Self::Stays });
            }
        }
        Ok(Self::Goes)
    }
}

/// Whether the range has a token between these two, both of them included.
fn may_have(range: &RowRange, first: &Token, last: &Token) -> bool {
    !is_past(range, first) && (range.start.as_ref(), Bound::Unbounded).contains(last)
}

fn rows(table: &SsTable, from: Bound<DecoratedKey>) -> Result<Vec<RowStream<'_>>, ReadError> {
    Ok(vec![RowStream::sstable(Blocks::new(table, Access::Bypass), from)?])
}

/// Goes from the first row to the first one after its range, and so on.
fn has_rows_outside(table: &SsTable, keep: &[RowRange]) -> Result<bool, ReadError> {
    let mut merged = MergedRows::new(rows(table, Bound::Unbounded)?);
    loop {
        let Some((key, _)) = merged.advance()? else { return Ok(false) };
        let Some(range) = keep.iter().find(|range| range.contains(key.token())) else {
            return Ok(true);
        };
        match &range.end {
            Bound::Unbounded => return Ok(false),
            // Several rows may have the last token.
            Bound::Included(end) if key.token() == end => {}
            Bound::Included(end) | Bound::Excluded(end) => {
                let next = Bound::Included(DecoratedKey::least_of(end.clone()));
                merged = MergedRows::new(rows(table, next)?);
            }
        }
    }
}
