//! Cells of the rows that a statement changes.

use super::collections;
use super::error::CqlError;
use super::modify::{Change, JsonCell, Operation, Stamp};
use super::rows::{MARKER, Row, Slot, element_name, is_multicell};
use super::terms::{Value, Values};
use crate::model::cell::{Cell, Expiry, MAX_NAME_LENGTH};
use crate::model::comparator::{Comparator, composite};
use crate::model::deletion::Deletion;
use crate::model::mutation::MutationBuilder;
use crate::model::table::{Column, ColumnKind, ELEMENT, Form, Table};
use crate::model::types::{CqlType, Native};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The beginning of 2010, in ticks of 100 nanoseconds after the Unix epoch: elements that were
/// appended to a list have later times.
const PREPENDED_BEFORE: i64 = 1_262_304_000 * 10_000_000;

/// Names of a super column and a column.
pub(super) type CellPlace = (Vec<u8>, Vec<u8>);

/// Adds cells to a mutation.
pub(super) struct CellWriter<'w, 'b> {
    pub(super) table: &'w Table,
    /// Order of the columns of the family.
    pub(super) comparator: &'w Comparator,
    pub(super) builder: &'w mut MutationBuilder<'b>,
    pub(super) expiry: Option<Expiry>,
    pub(super) stamp: Stamp<'w>,
    pub(super) deletion: Deletion,
    /// The lists of the row, with the changes so far, if elements are named by place or value.
    pub(super) lists: Option<Lists>,
}

/// Elements by the names of their cells, for each column of a list.
pub(super) type Lists = BTreeMap<usize, BTreeMap<Vec<u8>, Vec<u8>>>;

/// The lists of a row that was read.
pub(super) fn lists(table: &Table, row: &Row<'_>) -> Lists {
    let lists = row.slots.iter().enumerate().filter_map(|(column, slot)| {
        let Column { of_type: CqlType::List(_), cell_name, .. } = &table.columns[column] else {
            return None;
        };
        let Slot::Cells(cells) = slot else { return None };
        let element = |cell: &Cell| (element_name(cell_name, cell).to_vec(), cell.value().to_vec());
        Some((column, cells.iter().map(element).collect()))
    });
    lists.collect()
}

/// Name of the cell of a column, or of an element of it.
fn cell_name<'n>(
    table: &'n Table,
    column: usize,
    place: &'n CellPlace,
    element: Option<&'n [u8]>,
) -> Cow<'n, [u8]> {
    if table.form == Form::Dense {
        return Cow::Borrowed(&place.1);
    }
    if is_rest(table, column) {
        return Cow::Borrowed(element.unwrap_or_default());
    }
    let name = &*table.columns[column].cell_name;
    match element {
        Some(element) => Cow::Owned([name, &[ELEMENT], element].concat()),
        None => Cow::Borrowed(name),
    }
}

/// Whether a column is that of the cells that have no column.
fn is_rest(table: &Table, column: usize) -> bool {
    matches!(table.form, Form::Sparse { has_rest: true, .. }) && column + 1 == table.columns.len()
}

impl CellWriter<'_, '_> {
    pub(super) fn put(&mut self, place: (&[u8], &[u8]), value: &[u8]) {
        let timestamp = self.stamp.timestamp;
        match self.expiry {
            Some(expiry) => self.builder.insert_expiring(place, value, timestamp, expiry),
            None => self.builder.insert(place, value, timestamp),
        };
    }

    pub(super) fn mark(&mut self, marks: bool, place: &CellPlace) {
        if marks {
            self.put((&place.0, MARKER), b"");
        }
    }

    pub(super) fn json(&mut self, place: &CellPlace, cells: &[JsonCell]) -> Result<(), CqlError> {
        let static_place = (composite::STATIC.to_vec(), Vec::new());
        let first = self.table.clustering().end;
        for (column, cell) in cells.iter().enumerate().skip(first) {
            let JsonCell::Value(value) = cell else { continue };
            let is_static = self.table.columns[column].kind == ColumnKind::Static;
            let place = if is_static { &static_place } else { place };
            if is_rest(self.table, column) {
                // Columns of Thrift clients that the document does not name stay.
                self.append(column, place, Some(value.as_deref().map(Cow::Borrowed)))?;
                continue;
            }
            self.set(column, place, value.as_deref())?;
        }
        Ok(())
    }

    pub(super) fn operate(
        &mut self,
        operation: &Operation,
        place: &CellPlace,
        values: &Values<'_>,
    ) -> Result<(), CqlError> {
        let column = operation.column;
        match &operation.change {
            Change::Set(value) => match value.evaluate(values)? {
                None => Ok(()),
                Some(value) => self.set(column, place, value.as_deref()),
            },
            Change::Clear => self.set(column, place, None),
            Change::SetField(at, value) => {
                let Some(value) = value.evaluate(values)? else { return Ok(()) };
                self.put_element(column, place, &(*at as u16).to_be_bytes(), value.as_deref())?;
                Ok(())
            }
            Change::ClearField(at) => {
                self.put_element(column, place, &(*at as u16).to_be_bytes(), None)?;
                Ok(())
            }
            Change::Append(value) => self.append(column, place, value.evaluate(values)?),
            Change::Prepend(value) => self.prepend(column, place, value.evaluate(values)?),
            Change::Remove(value) => self.remove(column, place, value.evaluate(values)?),
            Change::SetElement(at, value) => {
                let (at, value) = (at.evaluate(values)?, value.evaluate(values)?);
                let Some(value) = value else { return Ok(()) };
                self.set_element(column, place, at, value.as_deref())
            }
            Change::ClearElement(at) => {
                let at = at.evaluate(values)?;
                self.clear_element(column, place, at)
            }
        }
    }

    /// Sets or deletes a column as a whole.
    fn set(
        &mut self,
        column: usize,
        place: &CellPlace,
        value: Option<&[u8]>,
    ) -> Result<(), CqlError> {
        let name = cell_name(self.table, column, place, None);
        if !is_multicell(self.table, column) {
            match value {
                Some(value) => self.put((&place.0, &name), value),
                None => {
                    self.builder.delete_column((&place.0, &name), self.deletion);
                }
            }
            return Ok(());
        }
        if is_rest(self.table, column) {
            let name = &self.table.columns[column].name;
            return Err(CqlError::invalid(format!(
                "{name} holds the columns that are not declared: change its elements one by one"
            )));
        }
        // What is inserted by the same statement must stay.
        let before = Deletion::at(self.stamp.timestamp.saturating_sub(1), self.stamp.now);
        let deletion = if value.is_some() { before } else { self.deletion };
        self.builder.delete_prefix((&place.0, &name), deletion);
        self.append(column, place, Some(value.map(Cow::Borrowed)))
    }

    fn put_element(
        &mut self,
        column: usize,
        place: &CellPlace,
        element: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), CqlError> {
        let name = cell_name(self.table, column, place, Some(element));
        if name.len() > MAX_NAME_LENGTH {
            return Err(CqlError::invalid(format!(
                "An element of {} is too long: with the name of the column it has {} bytes of at \
                 most {MAX_NAME_LENGTH}",
                self.table.columns[column].name,
                name.len()
            )));
        }
        if is_rest(self.table, column) {
            self.check_undeclared(column, element)?;
        }
        if let (Some(lists), CqlType::List(_)) =
            (&mut self.lists, &self.table.columns[column].of_type)
        {
            let list = lists.entry(column).or_default();
            match value {
                Some(value) => list.insert(element.to_vec(), value.to_vec()),
                None => list.remove(element),
            };
        }
        match value {
            Some(value) => self.put((&place.0, &name), value),
            None => {
                self.builder.delete_column((&place.0, &name), self.deletion);
            }
        }
        Ok(())
    }

    /// Fails unless an element of the rest can be a column that is not declared.
    fn check_undeclared(&self, column: usize, element: &[u8]) -> Result<(), CqlError> {
        let rest = &self.table.columns[column].name;
        if element.is_empty() {
            return Err(CqlError::invalid(format!("An element of {rest} must have a name")));
        }
        if let Some(name) = self.table.declared_name(element) {
            return Err(CqlError::invalid(format!(
                "{name} is a declared column, not an element of {rest}: change the column"
            )));
        }
        self.comparator.validate(element).map_err(|invalid| {
            CqlError::invalid(format!("Invalid name of an element of {rest}: {invalid}"))
        })
    }

    /// Adds elements at the end.
    fn append(
        &mut self,
        column: usize,
        place: &CellPlace,
        value: Option<Value<'_>>,
    ) -> Result<(), CqlError> {
        let Some(Some(value)) = value else { return Ok(()) };
        let of_type = self.table.columns[column].of_type.clone();
        if let CqlType::User(_) = of_type {
            let fields = collections::fields(&value)?;
            for (at, field) in fields.iter().enumerate() {
                if field.is_some() {
                    self.put_element(column, place, &(at as u16).to_be_bytes(), *field)?;
                }
            }
            return Ok(());
        }
        let elements = collections::elements(&self.table.columns[column].of_type, &value)?;
        match of_type {
            CqlType::Set(_) => {
                for element in elements {
                    self.put_element(column, place, element, Some(b""))?;
                }
            }
            CqlType::Map(_) => {
                for pair in elements.chunks_exact(2) {
                    self.put_element(column, place, pair[0], Some(pair[1]))?;
                }
            }
            _ => {
                let first = self.stamp.chance.list_ticks(self.stamp.micros, elements.len());
                for (tick, element) in (first..).zip(elements) {
                    let name = self.stamp.chance.uuid_at(tick);
                    self.put_element(column, place, name.as_bytes(), Some(element))?;
                }
            }
        }
        Ok(())
    }

    /// Adds elements at the beginning of a list: at times as long before 2010 as now is after it.
    fn prepend(
        &mut self,
        column: usize,
        place: &CellPlace,
        value: Option<Value<'_>>,
    ) -> Result<(), CqlError> {
        let Some(Some(value)) = value else { return Ok(()) };
        let elements = collections::elements(&self.table.columns[column].of_type, &value)?;
        let first = self.stamp.chance.list_ticks(self.stamp.micros, elements.len());
        for (tick, element) in (first..).zip(elements.into_iter().rev()) {
            let name = self.stamp.chance.uuid_at(2 * PREPENDED_BEFORE - tick);
            self.put_element(column, place, name.as_bytes(), Some(element))?;
        }
        Ok(())
    }

    fn remove(
        &mut self,
        column: usize,
        place: &CellPlace,
        value: Option<Value<'_>>,
    ) -> Result<(), CqlError> {
        let Some(Some(value)) = value else { return Ok(()) };
        let of_type = match &self.table.columns[column].of_type {
            CqlType::Map(inner) => CqlType::Set(Arc::new(inner.0.clone())),
            other => other.clone(),
        };
        let elements = collections::elements(&of_type, &value)?;
        if let CqlType::List(inner) = &of_type {
            let is_removed =
                |own: &Vec<u8>| elements.iter().any(|it| inner.compare(it, own).is_eq());
            let list = self.list(column).into_iter();
            let removed = list.filter(|(_, own)| is_removed(own)).map(|(name, _)| name.clone());
            for name in removed.collect::<Vec<_>>() {
                self.put_element(column, place, &name, None)?;
            }
            return Ok(());
        }
        for element in elements {
            self.put_element(column, place, element, None)?;
        }
        Ok(())
    }

    fn set_element(
        &mut self,
        column: usize,
        place: &CellPlace,
        at: Option<Value<'_>>,
        value: Option<&[u8]>,
    ) -> Result<(), CqlError> {
        let at = at.ok_or_else(|| self.wrong_element("unset", column))?;
        let element = self.element(column, at, "set an element on")?;
        self.put_element(column, place, &element, value)
    }

    /// No index deletes no element of a list.
    fn clear_element(
        &mut self,
        column: usize,
        place: &CellPlace,
        at: Option<Value<'_>>,
    ) -> Result<(), CqlError> {
        let at = match (at, &self.table.columns[column].of_type) {
            (None, CqlType::List(_)) => return Ok(()),
            (at, _) => at.ok_or_else(|| self.wrong_element("unset", column))?,
        };
        let element = self.element(column, at, "delete an element from")?;
        self.put_element(column, place, &element, None)
    }

    fn wrong_element(&self, value: &str, column: usize) -> CqlError {
        CqlError::invalid(match &self.table.columns[column].of_type {
            CqlType::List(_) => format!("Invalid {value} value for list index"),
            CqlType::Map(_) => format!("Invalid {value} map key"),
            _ => format!("Invalid {value} set key"),
        })
    }

    /// The name of an element: its own key or, in a list, that of the element at an index.
    fn element(&self, column: usize, at: Value<'_>, action: &str) -> Result<Vec<u8>, CqlError> {
        let at = at.ok_or_else(|| self.wrong_element("null", column))?;
        let CqlType::List(_) = &self.table.columns[column].of_type else {
            return Ok(at.into_owned());
        };
        let at = at.first_chunk().map_or(0, |bytes| i32::from_be_bytes(*bytes));
        let list = self.list(column);
        if list.is_empty() {
            let why = format!("Attempted to {action} a list which is null");
            return Err(CqlError::invalid(why));
        }
        match usize::try_from(at).ok().and_then(|at| list.get(at)) {
            Some((name, _)) => Ok((*name).clone()),
            None => Err(CqlError::invalid(format!(
                "List index {at} out of bound, list has size {}",
                list.len()
            ))),
        }
    }

    /// Names and values of the elements of a list, in its order.
    fn list(&self, column: usize) -> Vec<(&Vec<u8>, &Vec<u8>)> {
        let list = self.lists.as_ref().and_then(|lists| lists.get(&column));
        let mut list: Vec<_> = list.into_iter().flatten().collect();
        let time = CqlType::Native(Native::Timeuuid);
        list.sort_by(|a, b| time.compare(a.0, b.0));
        list
    }
}
