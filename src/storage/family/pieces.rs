//! All that is stored of the rows of a range, in pieces of a bounded size: what other nodes copy.

use super::ColumnFamily;
use super::read::is_behind;
use crate::model::cell::CellState;
use crate::model::key::RowKey;
use crate::model::position::RowPosition;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::{CellBound, CellRange};
use crate::model::version::RowVersion;
use crate::model::visibility::VersionFold;
use crate::ring::{DecoratedKey, RowRange};
use crate::storage::answer;
use crate::storage::error::ReadError;
use crate::storage::row::{RowReader, RowSources};
use crate::storage::sstable::Access;
use std::ops::{Bound, RangeBounds};

/// A part of what is stored of a range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Piece {
    /// The rows in token order, deletions included. The first may be the rest of a row, the last
    /// the beginning of one. There may be none, though more follow, where all is long deleted.
    pub rows: Vec<(RowKey, RowVersion)>,
    /// Where the next piece begins; `None` if this was the last.
    pub next: Option<RowPosition>,
}

impl ColumnFamily {
    /// All that is stored of the rows of a range behind a place, deletions included, until about
    /// `max_bytes` were looked at: at least one cell, or one row that has none. Tombstones that are
    /// older than `GCGraceSeconds` are left out. All pieces of a row together are its version.
    ///
    /// Caches stay as they are. What is written between two pieces may be missed.
    pub fn read_piece(
        &self,
        range: &RowRange,
        after: Option<&RowPosition>,
        max_bytes: usize,
    ) -> Result<Piece, ReadError> {
        let piece = self.read_range(range, after, max_bytes);
        piece.inspect_err(|error| self.note_damage(error))
    }

    fn read_range(
        &self,
        range: &RowRange,
        after: Option<&RowPosition>,
        max_bytes: usize,
    ) -> Result<Piece, ReadError> {
        let resumed = after.map(|it| (self.environment.partitioner.decorate(it.key.clone()), it));
        let from = beginning(range, resumed.as_ref());
        let view = self.view();
        let mut rows = self.rows_from(&view, &from, &range.end, Access::Bypass)?;
        let mut growing = Growing::new(self, after, max_bytes);
        while let Some((key, sources)) = rows.advance()? {
            if is_behind(&range.end, key.token()) {
                break;
            }
            // The first key of an excluded token may have neighbours of the same token.
            if !range.contains(key.token()) {
                continue;
            }
            if growing.is_full() || !growing.add(key.key(), sources)? {
                break;
            }
        }
        Ok(growing.piece)
    }

    /// The same of single rows, whose keys ascend: what lies between them is passed over, so that
    /// rows that stand together are read as a range is.
    pub fn read_rows_piece(
        &self,
        keys: &[DecoratedKey],
        after: Option<&RowPosition>,
        max_bytes: usize,
    ) -> Result<Piece, ReadError> {
        let piece = self.read_rows(keys, after, max_bytes);
        piece.inspect_err(|error| self.note_damage(error))
    }

    fn read_rows(
        &self,
        keys: &[DecoratedKey],
        after: Option<&RowPosition>,
        max_bytes: usize,
    ) -> Result<Piece, ReadError> {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            return Ok(Piece::default());
        };
        let (from, end) = (Bound::Included(first.clone()), Bound::Included(last.token().clone()));
        let view = self.view();
        let mut rows = self.rows_from(&view, &from, &end, Access::Bypass)?;
        let mut growing = Growing::new(self, after, max_bytes);
        let is_done = |key: &&DecoratedKey| {
            after.is_some_and(|after| after.cell.is_none() && after.key == *key.key())
        };
        for key in keys.iter().skip_while(is_done) {
            if growing.is_full() {
                break;
            }
            let sources = rows.find(key)?;
            if !growing.add(key.key(), sources)? {
                break;
            }
        }
        Ok(growing.piece)
    }
}

/// A piece that rows are added to.
struct Growing<'a> {
    schema: &'a ColumnFamilySchema,
    filling: Filling,
    piece: Piece,
    /// Behind what the piece begins.
    after: Option<&'a RowPosition>,
    /// The row that was looked at last.
    last: Option<RowKey>,
}

impl<'a> Growing<'a> {
    fn new(store: &'a ColumnFamily, after: Option<&'a RowPosition>, max_bytes: usize) -> Self {
        let filling = Filling { used: 0, max_bytes, gc_before: store.gc_before() };
        Self { schema: &store.schema, filling, piece: Piece::default(), after, last: None }
    }

    /// Whether the piece ends before the next row, which there is.
    fn is_full(&mut self) -> bool {
        if !self.filling.is_full() {
            return false;
        }
        let Some(key) = self.last.take() else { return false };
        self.piece.next = Some(RowPosition { key, cell: None });
        true
    }

    /// Adds what there is room for of the next row. Returns whether that was all of it.
    fn add(&mut self, key: &RowKey, sources: RowSources<'_>) -> Result<bool, ReadError> {
        let reader = RowReader::new(self.schema, sources);
        let after = self.after.filter(|after| after.key == *key);
        let after = after.and_then(|after| place(after, self.schema));
        let part = self.filling.take(self.schema, key, &reader, after);
        let (version, cut) = part.map_err(|error| error.in_row(key))?;
        if !version.is_empty() {
            self.piece.rows.push((key.clone(), version));
        }
        let is_whole = cut.is_none();
        if is_whole {
            self.last = Some(key.clone());
        } else {
            self.piece.next = Some(RowPosition { key: key.clone(), cell: cut });
        }
        Ok(is_whole)
    }
}

/// Where a piece of the range begins.
fn beginning(
    range: &RowRange,
    resumed: Option<&(DecoratedKey, &RowPosition)>,
) -> Bound<DecoratedKey> {
    let start = match &range.start {
        Bound::Unbounded => None,
        Bound::Included(token) | Bound::Excluded(token) => {
            Some(DecoratedKey::least_of(token.clone()))
        }
    };
    match (resumed, start) {
        (Some((key, _)), Some(start)) if *key < start => Bound::Included(start),
        (Some((key, RowPosition { cell: Some(_), .. })), _) => Bound::Included(key.clone()),
        (Some((key, _)), _) => Bound::Excluded(key.clone()),
        (None, Some(start)) => Bound::Included(start),
        (None, None) => Bound::Unbounded,
    }
}

/// The cell of a position, if the family can have one there: the position may come from another
/// node.
fn place<'a>(
    position: &'a RowPosition,
    family: &ColumnFamilySchema,
) -> Option<(&'a [u8], &'a [u8])> {
    let place = position.cell.as_ref().map(|(super_name, name)| (&super_name[..], &name[..]));
    let state = if family.is_super() { CellState::SuperTombstone } else { CellState::Live };
    place.filter(|place| family.can_hold(state, *place))
}

/// How far a piece is.
struct Filling {
    /// Bytes of what was looked at, whether it is in the piece or not.
    used: usize,
    max_bytes: usize,
    gc_before: i32,
}

/// Super column name and column name.
type OwnedPlace = (Vec<u8>, Vec<u8>);

impl Filling {
    fn is_full(&self) -> bool {
        self.used >= self.max_bytes
    }

    /// Takes what there is room for of a row behind a place; also says where it was cut, if it was.
    fn take(
        &mut self,
        family: &ColumnFamilySchema,
        key: &RowKey,
        row: &RowReader<'_, '_>,
        after: Option<(&[u8], &[u8])>,
    ) -> Result<(RowVersion, Option<OwnedPlace>), ReadError> {
        self.used = self.used.saturating_add(answer::row_cost(key.as_bytes()));
        let mut part = VersionFold::new(family, row.deletion(), Some(self.gc_before));
        if let Some((super_name, _)) = after.filter(|_| family.is_super()) {
            let mut marker = row.cells(CellRange::super_tombstone(super_name), false)?;
            marker.advance()?.into_iter().for_each(|marker| part.resume(marker));
        }
        let from =
            after.map_or(CellBound::First, |(super_name, name)| CellBound::After(super_name, name));
        let mut cells = row.cells(CellRange { from, to: CellBound::Last }, false)?;
        let mut next = cells.advance()?;
        while let Some(cell) = next {
            next = cells.advance()?;
            let cost = answer::cells_cost(1, cell.encoded_length());
            self.used = self.used.saturating_add(cost);
            let is_cut = self.is_full() && next.is_some();
            let cut = is_cut.then(|| (cell.super_name().to_vec(), cell.name().to_vec()));
            part.push(cell);
            if cut.is_some() {
                return Ok((part.finish(after.is_none()), cut));
            }
        }
        Ok((part.finish(after.is_none()), None))
    }
}
