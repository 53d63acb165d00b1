//! What reads found, written as the structs of the wire straight from the cells.

use crate::model::cell::Cell;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::RowSlice;
use crate::wire::types::{Column, ColumnOrSuperColumn, KeySlice, SuperColumn};
use crate::wire::{Each, Encode, List, Text};
use std::cmp::Ordering;

/// One element of an answer.
#[derive(Debug, Clone, Copy)]
enum Element<'a> {
    /// A column.
    Column(&'a Cell),
    /// A super column, given by its columns, at least one.
    SuperColumn(&'a [Cell]),
    /// The place of something that is not there.
    Nothing,
}

impl<'t> Encode<ColumnOrSuperColumn<'t>> for Element<'_> {
    fn encode(self, out: &mut Vec<u8>) {
        const NO_COLUMN: Option<Column<'_>> = None;
        const NO_SUPER_COLUMN: Option<SuperColumn<'_>> = None;
        match self {
            Self::Column(cell) => {
                let column = Column::fields(cell.name(), cell.value(), cell.timestamp());
                let element = ColumnOrSuperColumn::fields(Some(column), NO_SUPER_COLUMN);
                Encode::<ColumnOrSuperColumn<'t>>::encode(element, out);
            }
            Self::SuperColumn(cells) => {
                let name = cells.first().map_or(b"".as_slice(), Cell::super_name);
                let columns = cells
                    .iter()
                    .map(|cell| Column::fields(cell.name(), cell.value(), cell.timestamp()));
                let super_column = SuperColumn::fields(name, Each(columns));
                let element = ColumnOrSuperColumn::fields(NO_COLUMN, Some(super_column));
                Encode::<ColumnOrSuperColumn<'t>>::encode(element, out);
            }
            Self::Nothing => {
                let element = ColumnOrSuperColumn::fields(NO_COLUMN, NO_SUPER_COLUMN);
                Encode::<ColumnOrSuperColumn<'t>>::encode(element, out);
            }
        }
    }
}

/// The answer to a path: a column, a whole super column, or nothing.
#[derive(Debug)]
pub(super) struct Found {
    /// What was found; the cells of the super column if one was asked for, else at most one.
    pub(super) row: RowSlice,
    /// Whether a super column was asked for.
    pub(super) is_super_column: bool,
}

impl<'t> Encode<ColumnOrSuperColumn<'t>> for Found {
    fn encode(self, out: &mut Vec<u8>) {
        let element = match self.row.cells.first() {
            None => Element::Nothing,
            Some(_) if self.is_super_column => Element::SuperColumn(&self.row.cells),
            Some(cell) => Element::Column(cell),
        };
        Encode::<ColumnOrSuperColumn<'t>>::encode(element, out);
    }
}

/// The answer to a slice: columns, or super columns with all that is visible of them.
#[derive(Debug)]
pub(super) struct Columns<'s> {
    /// Where the cells are from.
    pub(super) family: &'s ColumnFamilySchema,
    /// Whether they are grouped by super column.
    pub(super) is_grouped: bool,
    /// The cells.
    pub(super) row: RowSlice,
}

impl<'t> Encode<List<ColumnOrSuperColumn<'t>>> for Columns<'_> {
    fn encode(self, out: &mut Vec<u8>) {
        if self.is_grouped {
            let comparator = self.family.comparator();
            let same = |a: &Cell, b: &Cell| {
                comparator.compare(a.super_name(), b.super_name()) == Ordering::Equal
            };
            let elements = self.row.cells.chunk_by(same).map(Element::SuperColumn);
            Encode::<List<ColumnOrSuperColumn<'t>>>::encode(Each(elements), out);
        } else {
            let elements = self.row.cells.iter().map(Element::Column);
            Encode::<List<ColumnOrSuperColumn<'t>>>::encode(Each(elements), out);
        }
    }
}

/// A row key, which came as text or from a node that took it as text.
#[derive(Debug)]
pub(super) struct KeyText(pub(super) RowKey);

impl<'t> Encode<Text<'t>> for KeyText {
    fn encode(self, out: &mut Vec<u8>) {
        Encode::<Text<'t>>::encode(self.0.as_bytes(), out);
    }
}

/// A row of the answer to a range.
#[derive(Debug)]
pub(super) struct RangeRow<'s> {
    /// Its key.
    pub(super) key: KeyText,
    /// What the predicate selects of it.
    pub(super) columns: Columns<'s>,
}

impl<'t> Encode<KeySlice<'t>> for RangeRow<'_> {
    fn encode(self, out: &mut Vec<u8>) {
        Encode::<KeySlice<'t>>::encode(KeySlice::fields(self.key, self.columns), out);
    }
}
