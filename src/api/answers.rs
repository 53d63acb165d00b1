//! What reads found, written as the structs of the wire straight from the cells.

use super::Api;
use crate::coordinator::Ticket;
use crate::model::cell::Cell;
use crate::model::comparator::Comparator;
use crate::model::key::RowKey;
use crate::model::slice::RowSlice;
use crate::wire::codec::WireType;
use crate::wire::types::{Column, ColumnOrSuperColumn, KeySlice, SuperColumn};
use crate::wire::{Each, Encode, Failure, List, Map, Text};
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
pub(super) struct Columns {
    /// The order of the super columns by which the cells are grouped, if they are.
    pub(super) grouped_by: Option<Comparator>,
    /// The cells.
    pub(super) row: RowSlice,
}

impl<'t> Encode<List<ColumnOrSuperColumn<'t>>> for Columns {
    fn encode(self, out: &mut Vec<u8>) {
        if let Some(comparator) = &self.grouped_by {
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

/// Bytes of names and values that are written as a reply without leaving the connection's thread.
const WRITTEN_INLINE: usize = 256 << 10;

/// What a cell costs to be written besides its bytes, in bytes.
const CELL_COST: usize = 64;

/// An answer on its way to the client, with the ticket that it was read by.
#[derive(Debug)]
pub(super) struct Prepared<E> {
    form: Form<E>,
    _ticket: Ticket,
}

#[derive(Debug)]
enum Form<E> {
    /// Still to be written.
    Found(E),
    /// Written already, on another thread.
    Written(Vec<u8>),
}

/// What it costs to write these rows, in bytes.
pub(super) fn cost<'r>(rows: impl IntoIterator<Item = &'r RowSlice>) -> usize {
    let cells = rows.into_iter().flat_map(|row| &row.cells);
    cells.map(|cell| cell.encoded_length() + CELL_COST).sum()
}

impl<E> Prepared<E> {
    /// Makes an answer of this cost ready. A large one is written on another thread, since other
    /// connections need this one.
    pub(super) async fn new<R: WireType>(
        api: &Api,
        cost: usize,
        answer: E,
        mut ticket: Ticket,
    ) -> Result<Self, Failure>
    where
        E: Encode<R> + Send + 'static,
    {
        let form = if cost <= WRITTEN_INLINE {
            Form::Found(answer)
        } else {
            let write = move || {
                let mut written = Vec::with_capacity(cost);
                answer.encode(&mut written);
                written
            };
            Form::Written(api.coordinator.elsewhere(&mut ticket, write).await?)
        };
        Ok(Self { form, _ticket: ticket })
    }
}

impl<R: WireType, E: Encode<R>> Encode<R> for Prepared<E> {
    fn encode(self, out: &mut Vec<u8>) {
        match self.form {
            Form::Found(answer) => answer.encode(out),
            Form::Written(written) => out.extend_from_slice(&written),
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

/// The answer to a slice of several rows: the columns of each by its key.
#[derive(Debug)]
pub(super) struct ColumnsByKey {
    /// The keys.
    pub(super) keys: Vec<RowKey>,
    /// Their rows, in the same order.
    pub(super) rows: Vec<RowSlice>,
    /// As in [`Columns`].
    pub(super) grouped_by: Option<Comparator>,
}

impl<'t> Encode<Map<Text<'t>, List<ColumnOrSuperColumn<'t>>>> for ColumnsByKey {
    fn encode(self, out: &mut Vec<u8>) {
        let Self { keys, rows, grouped_by } = self;
        let columns = rows.into_iter().map(|row| Columns { grouped_by: grouped_by.clone(), row });
        let pairs = Each(keys.into_iter().map(KeyText).zip(columns));
        Encode::<Map<Text<'t>, List<ColumnOrSuperColumn<'t>>>>::encode(pairs, out);
    }
}

/// The answer to a range: rows in the order of their tokens, with what is selected of each.
#[derive(Debug)]
pub(super) struct RangeRows {
    /// The rows.
    pub(super) rows: Vec<(RowKey, RowSlice)>,
    /// As in [`Columns`].
    pub(super) grouped_by: Option<Comparator>,
}

impl<'t> Encode<List<KeySlice<'t>>> for RangeRows {
    fn encode(self, out: &mut Vec<u8>) {
        let Self { rows, grouped_by } = self;
        let slice = |(key, row)| {
            let columns = Columns { grouped_by: grouped_by.clone(), row };
            KeySlice::fields(KeyText(key), columns)
        };
        Encode::<List<KeySlice<'t>>>::encode(Each(rows.into_iter().map(slice)), out);
    }
}
