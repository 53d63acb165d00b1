//! The stored rows of a range in pieces of a bounded size, for other nodes.

use super::ColumnFamily;
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
use crate::storage::rows::first_key;
use crate::storage::sstable::Access;
use std::ops::Bound;

/// A part of the stored rows of a range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Piece {
    /// The rows in token order, deletions included. The first may be the rest of a row, the last
    /// the beginning of one. There may be none before the last piece, where all rows expired.
    pub rows: Vec<(RowKey, RowVersion)>,
    /// Start of the next piece; `None` if this was the last.
    pub next: Option<RowPosition>,
}

impl ColumnFamily {
    /// Reads the stored rows of a range after a place, deletions included, until about `max_bytes`
    /// were read: at least one cell, or one row that has none. Tombstones that are older than
    /// `GCGraceSeconds` are left out. All pieces of a row together are its version.
    ///
    /// Caches stay as they are. Writes between two pieces may be missed.
    pub fn read_piece(
        &self,
        range: &RowRange,
        after: Option<&RowPosition>,
        max_bytes: usize,
    ) -> Result<Piece, ReadError> {
        let from = match after {
            None => first_key(range),
            Some(after) => {
                let key = self.environment.partitioner.decorate(after.key.clone());
                match first_key(range) {
                    Bound::Included(first) if key < first => Bound::Included(first),
                    _ if after.cell.is_some() => Bound::Included(key),
                    _ => Bound::Excluded(key),
                }
            }
        };
        let view = self.view();
        let read = || {
            let mut rows = view.rows_in(range, &from, Access::Bypass)?;
            let mut growing = Growing::new(self, after, max_bytes);
            while let Some((key, sources)) = rows.advance()?
                && !growing.is_full()
                && growing.add(key.key(), sources)?
            {}
            Ok(growing.piece)
        };
        read().inspect_err(|error| self.note_damage(error))
    }

    /// [`ColumnFamily::read_piece`] of single rows, whose keys ascend: rows between them are passed
    /// over, so that neighbours are read as a range is.
    pub fn read_rows_piece(
        &self,
        keys: &[DecoratedKey],
        after: Option<&RowPosition>,
        max_bytes: usize,
    ) -> Result<Piece, ReadError> {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            return Ok(Piece::default());
        };
        let [start, end] = [first, last].map(|key| Bound::Included(key.token().clone()));
        let (view, range) = (self.view(), RowRange { start, end });
        let is_done = |key: &&DecoratedKey| {
            after.is_some_and(|after| after.cell.is_none() && after.key == *key.key())
        };
        let read = || {
            let from = Bound::Included(first.clone());
            let mut rows = view.rows_in(&range, &from, Access::Bypass)?;
            let mut growing = Growing::new(self, after, max_bytes);
            for key in keys.iter().skip_while(is_done) {
                if growing.is_full() || !growing.add(key.key(), rows.find(key)?)? {
                    break;
                }
            }
            Ok(growing.piece)
        };
        read().inspect_err(|error| self.note_damage(error))
    }
}

/// A piece that rows are added to.
struct Growing<'a> {
    schema: &'a ColumnFamilySchema,
    piece: Piece,
    /// Bytes that were read, whether they are in the piece or not.
    used: usize,
    max_bytes: usize,
    gc_before: i32,
    /// The place after which the piece begins.
    after: Option<&'a RowPosition>,
    /// The row that was read last.
    last: Option<RowKey>,
}

/// Super column name and column name.
type OwnedPlace = (Vec<u8>, Vec<u8>);

impl<'a> Growing<'a> {
    fn new(family: &'a ColumnFamily, after: Option<&'a RowPosition>, max_bytes: usize) -> Self {
        Self {
            schema: &family.schema,
            piece: Piece::default(),
            used: 0,
            max_bytes,
            gc_before: family.gc_before(),
            after,
            last: None,
        }
    }

    /// Whether the piece ends before the next row, which exists.
    fn is_full(&mut self) -> bool {
        if self.used < self.max_bytes {
            return false;
        }
        let Some(key) = self.last.take() else { return false };
        self.piece.next = Some(RowPosition { key, cell: None });
        true
    }

    /// Adds as much of the next row as there is room for. Returns whether that was all of it.
    fn add(&mut self, key: &RowKey, sources: RowSources<'_>) -> Result<bool, ReadError> {
        let reader = RowReader::new(self.schema, sources);
        let (version, cut) = self.take(key, &reader).map_err(|error| error.in_row(key))?;
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

    /// Takes as much of a row as there is room for. Returns the place of a cut.
    fn take(
        &mut self,
        key: &RowKey,
        row: &RowReader<'_, '_>,
    ) -> Result<(RowVersion, Option<OwnedPlace>), ReadError> {
        let family = self.schema;
        let after = self.after.filter(|after| after.key == *key);
        let after = after.and_then(|after| place(after, family));
        self.used = self.used.saturating_add(answer::row_cost(key.as_bytes()));
        let mut part = VersionFold::new(family, row.deletion(), Some(self.gc_before));
        if let Some(after) = after {
            resume(&mut part, family, row, after)?;
        }
        let from =
            after.map_or(CellBound::First, |(super_name, name)| CellBound::After(super_name, name));
        let mut cells = row.cells(CellRange { from, to: CellBound::Last }, false)?;
        let mut next = cells.advance()?;
        while let Some(cell) = next {
            next = cells.advance()?;
            let cost = answer::cells_cost(1, cell.encoded_length());
            self.used = self.used.saturating_add(cost);
            let is_cut = self.used >= self.max_bytes && next.is_some();
            let cut = is_cut.then(|| (cell.super_name().to_vec(), cell.name().to_vec()));
            part.push(cell);
            if cut.is_some() {
                return Ok((part.finish(after.is_none()), cut));
            }
        }
        Ok((part.finish(after.is_none()), None))
    }
}

/// Goes on in the middle of a row below what deletes parts of it.
fn resume(
    part: &mut VersionFold<'_>,
    family: &ColumnFamilySchema,
    row: &RowReader<'_, '_>,
    after: (&[u8], &[u8]),
) -> Result<(), ReadError> {
    for deletion in row.range_deletions()? {
        part.know(&deletion);
    }
    let (super_name, _) = after;
    if family.is_super() && !super_name.is_empty() {
        let mut marker = row.cells(CellRange::super_tombstone(super_name), false)?;
        marker.advance()?.into_iter().for_each(|marker| part.resume(marker));
    }
    if let Some(deletion) = row.prefix_above(after)? {
        part.know(&deletion);
    }
    Ok(())
}

/// The cell of a position, if the family can have one there: the position may come from another
/// node.
fn place<'a>(
    position: &'a RowPosition,
    family: &ColumnFamilySchema,
) -> Option<(&'a [u8], &'a [u8])> {
    let place = position.cell.as_ref().map(|(super_name, name)| (&super_name[..], &name[..]));
    let states = [CellState::Live, CellState::SuperTombstone, CellState::RangeTombstone];
    place.filter(|place| states.iter().any(|state| family.can_hold(*state, *place)))
}
