//! CQL rows, assembled from the cells of a partition.

use crate::model::cell::Cell;
use crate::model::comparator::composite;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::AnswerCells;
use crate::model::table::{Column, ColumnKind, ELEMENT, Form, Table};
use crate::model::types::{CqlType, Native, collection, tuple};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;

/// Name of the cell that marks a row of a sparse table as existing.
pub(super) const MARKER: &[u8] = b"\0";

/// The value of a column in one row.
#[derive(Debug, Clone, Default)]
pub(super) enum Slot<'r> {
    #[default]
    Null,
    /// Of a key, or of a row that is stored nowhere.
    Bytes(Cow<'r, [u8]>),
    Cell(&'r Cell),
    /// Cells of a collection, or of a user type that is not frozen.
    Cells(&'r [Cell]),
    /// The cells that have no column.
    Rest(Vec<&'r Cell>),
}

/// A row, with a slot for each column of its table.
#[derive(Debug, Clone)]
pub(super) struct Row<'r> {
    pub(super) slots: SmallVec<[Slot<'r>; 8]>,
}

impl<'r> Row<'r> {
    /// The bytes of a column; `None` for null.
    pub(super) fn value(&self, table: &Table, column: usize) -> Option<Cow<'_, [u8]>> {
        match self.slots.get(column)? {
            Slot::Null => None,
            Slot::Bytes(bytes) => Some(Cow::Borrowed(bytes)),
            Slot::Cell(cell) => Some(Cow::Borrowed(cell.value())),
            Slot::Cells(cells) => {
                let column = &table.columns[column];
                Some(Cow::Owned(packed(&column.of_type, &column.cell_name, cells)))
            }
            Slot::Rest(cells) => {
                let entries: Vec<_> = cells.iter().map(|it| (it.name(), it.value())).collect();
                Some(Cow::Owned(collection::pack_map(&entries)))
            }
        }
    }

    /// The cell of a column that has only one.
    pub(super) fn cell(&self, column: usize) -> Option<&'r Cell> {
        match self.slots.get(column)? {
            Slot::Cell(cell) => Some(cell),
            _ => None,
        }
    }
}

/// The part of the name of a cell of a collection after the name of the column.
pub(super) fn element_name<'c>(column: &[u8], cell: &'c Cell) -> &'c [u8] {
    cell.name().get(column.len() + 1..).unwrap_or_default()
}

/// The value of a collection, or of a user type, from its cells.
fn packed(of_type: &CqlType, column: &[u8], cells: &[Cell]) -> Vec<u8> {
    let mut elements: Vec<(&[u8], &[u8])> =
        cells.iter().map(|cell| (element_name(column, cell), cell.value())).collect();
    match of_type {
        CqlType::Set(inner) => {
            elements.sort_by(|a, b| inner.compare(a.0, b.0));
            collection::pack(&elements.iter().map(|it| it.0).collect::<Vec<_>>())
        }
        CqlType::Map(inner) => {
            elements.sort_by(|a, b| inner.0.compare(a.0, b.0));
            collection::pack_map(&elements)
        }
        CqlType::User(user) => {
            let field = |at: usize| {
                let is_it = |(name, _): &&(&[u8], &[u8])| *name == (at as u16).to_be_bytes();
                elements.iter().find(is_it).map(|(_, value)| *value)
            };
            tuple::pack(&(0..user.fields.len()).map(field).collect::<Vec<_>>())
        }
        // Elements of a list are named by the times when they were added.
        _ => {
            elements.sort_by(|a, b| CqlType::Native(Native::Timeuuid).compare(a.0, b.0));
            collection::pack(&elements.iter().map(|it| it.1).collect::<Vec<_>>())
        }
    }
}

/// The row key of the values of a partition key.
pub(super) fn partition_key(parts: &[&[u8]]) -> Vec<u8> {
    match parts {
        [only] => only.to_vec(),
        _ => composite::encode(parts.iter().copied(), 0),
    }
}

/// The values of the columns of a partition key.
pub(super) fn key_parts<'k>(table: &Table, key: &'k RowKey) -> SmallVec<[Cow<'k, [u8]>; 2]> {
    let bytes = key.as_bytes();
    if table.key_length() == 1 {
        return SmallVec::from_iter([Cow::Borrowed(bytes)]);
    }
    composite::components(bytes).map_while(|part| Some(Cow::Borrowed(part?))).collect()
}

/// Cells of one partition as rows.
pub(super) struct Partition<'r> {
    pub(super) table: &'r Table,
    pub(super) family: &'r ColumnFamilySchema,
    pub(super) key: &'r RowKey,
    /// Cells of the static columns.
    pub(super) statics: &'r [Cell],
    /// Visible cells of the rows, in the order of the answer.
    pub(super) cells: &'r [Cell],
}

impl<'r> Partition<'r> {
    /// Ranges of cells that are one row each.
    pub(super) fn groups(&self) -> Vec<Range<usize>> {
        let is_one_row = |a: &Cell, b: &Cell| match self.table.form {
            Form::Dense => false,
            Form::Sparse { .. } => self.family.is_one_super_column(a.super_name(), b.super_name()),
        };
        let mut start = 0;
        let chunks = self.cells.chunk_by(is_one_row).map(|chunk| {
            let range = start..start + chunk.len();
            start = range.end;
            range
        });
        chunks.collect()
    }

    /// A row of the static columns alone.
    pub(super) fn static_row(&self) -> Row<'r> {
        let mut row = self.empty_row();
        self.fill(&mut row, self.table.statics(), self.statics);
        row
    }

    fn empty_row(&self) -> Row<'r> {
        let mut slots: SmallVec<[Slot<'r>; 8]> =
            key_parts(self.table, self.key).into_iter().map(Slot::Bytes).collect();
        slots.resize_with(self.table.columns.len(), Slot::default);
        Row { slots }
    }

    /// The row of these cells.
    pub(super) fn row(&self, group: Range<usize>) -> Row<'r> {
        let mut row = self.static_row();
        let cells = &self.cells[group];
        let Some(first) = cells.first() else { return row };
        let names = clustering_parts(self.table, first);
        for (slot, part) in self.table.clustering().zip(names) {
            row.slots[slot] = Slot::Bytes(Cow::Borrowed(part));
        }
        if self.table.form == Form::Dense {
            let value = self.table.regular().start;
            row.slots[value] = Slot::Cell(first);
        } else {
            self.fill(&mut row, self.table.regular(), cells);
        }
        row
    }

    /// Finds the columns of cells. Both are sorted by the names of the cells, unless the family has
    /// another order.
    fn fill(&self, row: &mut Row<'r>, columns: Range<usize>, cells: &'r [Cell]) {
        // The rest is the last of the regular columns; tables that have it have no static ones.
        let has_rest =
            !columns.is_empty() && matches!(self.table.form, Form::Sparse { has_rest: true, .. });
        let named = if has_rest { columns.start..columns.end - 1 } else { columns.clone() };
        let columns_by_name = &self.table.columns[named.clone()];
        let mut rest = Vec::new();
        let mut at = 0;
        while let Some(cell) = cells.get(at) {
            let name = cell.name();
            let head = name.iter().position(|byte| *byte == ELEMENT).unwrap_or(name.len());
            let find =
                |name: &[u8]| columns_by_name.binary_search_by(|it| (*it.cell_name).cmp(name)).ok();
            let mut next = at + 1;
            if let Some(found) = find(name) {
                row.slots[named.start + found] = Slot::Cell(cell);
            } else if let Some(found) = find(&name[..head]).filter(|_| head > 0 && !has_rest) {
                let is_same = |other: &&Cell| other.name().get(..=head) == Some(&name[..=head]);
                next += cells[next..].iter().take_while(is_same).count();
                row.slots[named.start + found] = Slot::Cells(&cells[at..next]);
            } else if has_rest {
                rest.push(cell);
            }
            at = next;
        }
        if has_rest && !rest.is_empty() {
            row.slots[columns.end - 1] = Slot::Rest(rest);
        }
    }
}

/// Leaves out cells of columns that were dropped.
pub(super) fn drop_hidden(table: &Table, cells: &mut AnswerCells) {
    if table.has_dropped {
        cells.retain(|cell| is_of_column(table, cell));
    }
}

/// The cells without those of columns that were dropped.
pub(super) fn visible<'c>(table: &Table, cells: &'c AnswerCells) -> Cow<'c, [Cell]> {
    if !table.has_dropped {
        return Cow::Borrowed(cells);
    }
    let mut cells = cells.clone();
    drop_hidden(table, &mut cells);
    Cow::Owned(cells.into_vec())
}

/// Whether a cell is of a column that exists, or marks a row. Others are of columns that were
/// dropped, as are those that are older than the drop of an earlier column of the name.
fn is_of_column(table: &Table, cell: &Cell) -> bool {
    let name = cell.name();
    let element = name.iter().position(|byte| *byte == ELEMENT).unwrap_or(name.len());
    let is_named = |column: &&Column| {
        let head = if column.of_type.is_multicell() { &name[..element] } else { name };
        *column.cell_name == *head
            && !matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering { .. })
    };
    let column = table.columns.iter().find(is_named);
    name == MARKER || column.is_some_and(|column| cell.timestamp() > column.hidden_up_to)
}

/// The values of the clustering columns of a cell.
pub(super) fn clustering_parts<'c>(table: &Table, cell: &'c Cell) -> SmallVec<[&'c [u8]; 4]> {
    let count = table.clustering().len();
    let (outer, inner) = table.is_composite;
    let mut parts = SmallVec::new();
    let mut split = |name: &'c [u8], is_composite: bool| {
        if is_composite {
            parts.extend(composite::components(name).map_while(|part| part));
        } else {
            parts.push(name);
        }
    };
    if table.in_super_name > 0 {
        split(cell.super_name(), outer);
    }
    if count > table.in_super_name {
        split(cell.name(), inner);
    }
    parts
}

/// Whether a column has a cell for each of its elements.
pub(super) fn is_multicell(table: &Table, column: usize) -> bool {
    let column = &table.columns[column];
    matches!(column.kind, ColumnKind::Static | ColumnKind::Regular) && column.of_type.is_multicell()
}
