//! INSERT, UPDATE and DELETE.

use super::ast::{
    Assigned, Delete, Insert, InsertValues, Modification, Object, Operator, Relation, Subject,
    Target, TargetPart, Term, Update, Using,
};
use super::cells::{self, CellPlace, CellWriter};
use super::conditional::Guard;
use super::error::CqlError;
use super::functions::Chance;
use super::relations::Named;
use super::restrictions::{Keys, Purpose, Restrictions, check_length};
use super::rows::Row;
use super::tables::TableRef;
use super::terms::{Expression, Receiver, Typing, Values};
use super::windows::{Prefix, RowSet};
use crate::model::cell::Expiry;
use crate::model::comparator::composite;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::mutation::MutationBuilder;
use crate::model::table::{ColumnKind, Form, Table};
use crate::model::types::{self, CqlType, Native};
use std::borrow::Cow;
use std::sync::Arc;

/// Longest time to live, in seconds: twenty years.
const MAX_TTL: i32 = 20 * 365 * 24 * 3600;

/// A statement that changes rows, with its names looked up.
#[derive(Debug)]
pub(super) struct ModificationPlan {
    pub(super) table: TableRef,
    /// The condition under which the change is made.
    pub(super) guard: Option<Guard>,
    restrictions: Restrictions,
    operations: Vec<Operation>,
    /// Whether rows exist from now on even without a value.
    marks: bool,
    /// Whether it deletes rows as a whole.
    deletes_rows: bool,
    timestamp: Option<Expression>,
    ttl: Option<Expression>,
    /// The document of INSERT JSON, and whether columns that it lacks stay as they are.
    json: Option<(Expression, bool)>,
}

/// A change of one column.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) column: usize,
    pub(super) change: Change,
}

/// Kind of a change.
#[derive(Debug)]
pub(super) enum Change {
    Set(Expression),
    SetElement(Expression, Expression),
    SetField(usize, Expression),
    Append(Expression),
    Prepend(Expression),
    Remove(Expression),
    Clear,
    ClearElement(Expression),
    ClearField(usize),
}

/// The present of a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp<'s> {
    pub(super) timestamp: i64,
    /// Seconds since the Unix epoch, and microseconds.
    pub(super) now: i32,
    pub(super) micros: i64,
    pub(super) chance: &'s Chance,
}

impl ModificationPlan {
    /// Looks up the names of a statement.
    pub(super) fn new(
        modification: &Modification,
        table: TableRef,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        table.check_writable()?;
        let guard = Guard::new(modification, &table.named(), typing)?;
        let is_conditional = guard.is_some();
        let plan = match modification {
            Modification::Insert(insert) => Self::insert(insert, table, guard, typing),
            Modification::Update(update) => Self::update(update, table, guard, typing),
            Modification::Delete(delete) => Self::delete(delete, table, guard, typing),
        }?;
        if is_conditional && plan.timestamp.is_some() {
            let why = "Cannot provide custom timestamp for conditional updates";
            return Err(CqlError::invalid(why));
        }
        Ok(plan)
    }

    fn insert(
        insert: &Insert,
        table: TableRef,
        guard: Option<Guard>,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        let named = table.named();
        let (columns, terms, json) = match &insert.values {
            InsertValues::Columns(columns, terms) => (columns.clone(), terms.clone(), None),
            InsertValues::Json { document, default_unset } => {
                let receiver = named.receiver("[json]", CqlType::Native(Native::Text));
                let document = Expression::new(document, &receiver, typing)?;
                (Vec::new(), Vec::new(), Some((document, *default_unset)))
            }
        };
        if columns.len() != terms.len() {
            return Err(CqlError::invalid("Unmatched column names/values"));
        }
        let mut relations = Vec::new();
        let mut operations = Vec::new();
        let clustering_end = named.table.clustering().end;
        let mut only_static = true;
        for (at, (name, term)) in columns.iter().zip(terms).enumerate() {
            let column = named.column(name)?;
            if columns[..at].contains(name) {
                let why = format!("The column names contains duplicates: {name}");
                return Err(CqlError::invalid(why));
            }
            if column < clustering_end {
                only_static &= column < named.table.key_length();
                relations.push(Relation {
                    subject: Subject::Column(name.clone()),
                    operator: Operator::Equal,
                    object: Object::Term(term),
                });
                continue;
            }
            only_static &= named.table.columns[column].kind == ColumnKind::Static;
            let value = Expression::new(&term, &named.of_column(column), typing)?;
            operations.push(Operation { column, change: Change::Set(value) });
        }
        let restrictions = if json.is_some() {
            Restrictions::default()
        } else {
            check_key(&columns, &named)?;
            Restrictions::new(&relations, &named, Purpose::Update, typing)?
        };
        only_static &= !operations.is_empty();
        if json.is_none() && !only_static {
            check_clustering(&restrictions, &named)?;
        }
        check_dense(&operations, &named, json.is_some())?;
        let has_markers = matches!(named.table.form, Form::Sparse { has_markers: true, .. });
        let (timestamp, ttl) = using(&insert.using, &named, typing)?;
        Ok(Self {
            guard,
            restrictions,
            operations,
            marks: has_markers && !only_static,
            deletes_rows: false,
            timestamp,
            ttl,
            json,
            table,
        })
    }

    fn update(
        update: &Update,
        table: TableRef,
        guard: Option<Guard>,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        let named = table.named();
        let operations = update.assignments.iter().map(|(target, assigned)| {
            let column = assignable(target, &named)?;
            let change = change(column, target, assigned, &named, typing)?;
            Ok(Operation { column, change })
        });
        let operations: Vec<Operation> = operations.collect::<Result<_, CqlError>>()?;
        let restrictions = Restrictions::new(&update.relations, &named, Purpose::Update, typing)?;
        let tests_rows =
            guard.as_ref().is_some_and(|it| it.tests(named.table, ColumnKind::Regular));
        let only_static = !tests_rows
            && operations
                .iter()
                .all(|it| named.table.columns[it.column].kind == ColumnKind::Static);
        if !only_static {
            check_clustering(&restrictions, &named)?;
        } else if restrictions.restricts_rows() {
            return Err(CqlError::invalid(
                "Invalid restrictions on clustering columns since the UPDATE statement modifies \
                 only static columns",
            ));
        }
        let (timestamp, ttl) = using(&update.using, &named, typing)?;
        Ok(Self {
            guard,
            restrictions,
            operations,
            marks: false,
            deletes_rows: false,
            timestamp,
            ttl,
            json: None,
            table,
        })
    }

    fn delete(
        delete: &Delete,
        table: TableRef,
        guard: Option<Guard>,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        let named = table.named();
        let operations = delete.targets.iter().map(|target| {
            let column = deletable(target, &named)?;
            let receiver = named.of_column(column);
            let change = match &target.part {
                None => Change::Clear,
                Some(TargetPart::Element(term)) => Change::ClearElement(Expression::new(
                    term,
                    &element_receiver(&receiver, "deletion operation")?,
                    typing,
                )?),
                Some(TargetPart::Field(field)) => {
                    Change::ClearField(field_number(&receiver, field, "deletion operation")?)
                }
            };
            Ok(Operation { column, change })
        });
        let operations: Vec<Operation> = operations.collect::<Result<_, CqlError>>()?;
        let restrictions = Restrictions::new(&delete.relations, &named, Purpose::Delete, typing)?;
        let deletes_rows = operations.is_empty();
        let regular =
            operations.iter().find(|it| named.table.columns[it.column].kind == ColumnKind::Regular);
        let tests_rows =
            guard.as_ref().is_some_and(|it| it.tests(named.table, ColumnKind::Regular));
        let deletes = regular.is_some() || deletes_rows;
        if guard.is_some() && !restrictions.names_rows(named.table) && (deletes || tests_rows) {
            return Err(row_is_not_named(deletes));
        }
        if let Some(operation) = regular
            && !restrictions.names_rows(named.table)
        {
            let name = &named.table.columns[operation.column].name;
            return Err(match restrictions.missing_clustering(named.table).first() {
                Some(_) if restrictions.restricts_slice() => {
                    CqlError::invalid("Range deletions are not supported for specific columns")
                }
                Some(missing) => CqlError::invalid(format!(
                    "Primary key column '{missing}' must be specified in order to delete column \
                     '{name}'"
                )),
                None => CqlError::invalid("Range deletions are not supported for specific columns"),
            });
        }
        let only_static = regular.is_none() && !operations.is_empty() && !tests_rows;
        if only_static && restrictions.restricts_rows() {
            return Err(CqlError::invalid(
                "Invalid restrictions on clustering columns since the DELETE statement modifies \
                 only static columns",
            ));
        }
        let (timestamp, ttl) = using(&delete.using, &named, typing)?;
        Ok(Self {
            guard,
            restrictions,
            operations,
            marks: false,
            deletes_rows,
            timestamp,
            ttl,
            json: None,
            table,
        })
    }

    /// Markers that give the partition key, in the order of its columns.
    pub(super) fn key_markers(&self) -> Option<Vec<u16>> {
        self.restrictions.key_markers()
    }

    /// Whether the statement has a timestamp of its own.
    pub(super) fn has_timestamp(&self) -> bool {
        self.timestamp.is_some()
    }

    /// Whether it changes a static column.
    pub(super) fn changes_statics(&self) -> bool {
        let columns = &self.table.table.columns;
        self.operations.iter().any(|it| columns[it.column].kind == ColumnKind::Static)
    }

    /// Whether a list has to be read, since an element is named by its place or value.
    pub(super) fn reads(&self) -> bool {
        self.operations.iter().any(|operation| {
            let of_type = &self.table.table.columns[operation.column].of_type;
            matches!(of_type, CqlType::List(_))
                && matches!(
                    operation.change,
                    Change::SetElement(..) | Change::ClearElement(_) | Change::Remove(_)
                )
        })
    }

    /// The rows to change.
    pub(super) fn targets<'v>(&'v self, values: &'v Values<'v>) -> Result<Targets<'v>, CqlError> {
        let table = &*self.table.table;
        if let Some((document, default_unset)) = &self.json {
            return self.json_targets(document, *default_unset, values);
        }
        let keys = match self.restrictions.keys(table, values)? {
            Keys::Several(keys) => keys,
            Keys::Tokens(..) => Vec::new(),
        };
        let rows = self.restrictions.rows(table, values, false)?;
        Ok(Targets { keys, rows, json: None })
    }

    fn json_targets<'v>(
        &'v self,
        document: &'v Expression,
        default_unset: bool,
        values: &'v Values<'v>,
    ) -> Result<Targets<'v>, CqlError> {
        let table = &*self.table.table;
        let text = document.evaluate(values)?.flatten();
        let text = text.ok_or_else(|| CqlError::invalid("Got null for INSERT JSON values"))?;
        let text = String::from_utf8_lossy(&text);
        let wrong = |error: types::InvalidJson| CqlError::invalid(error.to_string());
        let mut cells = vec![JsonCell::Absent; table.columns.len()];
        for (own, json) in types::document(&text).map_err(wrong)? {
            let Some(column) = table.column(&own) else {
                let why = format!("JSON values map contains unrecognized column: {own}");
                return Err(CqlError::invalid(why));
            };
            let bytes = table.columns[column].of_type.from_json(json).map_err(|error| {
                CqlError::invalid(format!("Error decoding JSON value for {own}: {error}"))
            })?;
            cells[column] = JsonCell::Value(bytes);
        }
        for (cell, column) in cells.iter_mut().zip(&table.columns) {
            if *cell == JsonCell::Absent && (!default_unset || column.is_hidden()) {
                *cell = JsonCell::Value(column.is_hidden().then(Vec::new));
            }
        }
        let part = |column: usize| {
            if let JsonCell::Value(Some(bytes)) = &cells[column] {
                return Ok(bytes.clone());
            }
            let name = &table.columns[column].name;
            Err(CqlError::invalid(format!("Invalid null value in condition for column {name}")))
        };
        let key: Vec<Vec<u8>> =
            (0..table.key_length()).map(part).collect::<Result<_, CqlError>>()?;
        let key: Vec<&[u8]> = key.iter().map(Vec::as_slice).collect();
        let keys = vec![super::restrictions::row_key(&key)?];
        let row: Prefix<'_> = table
            .clustering()
            .map(|column| part(column).map(Cow::Owned))
            .collect::<Result<_, CqlError>>()?;
        check_length(&row)?;
        Ok(Targets { keys, rows: RowSet::one(table, row), json: Some(cells) })
    }

    /// The timestamp of the change.
    pub(super) fn timestamp(&self, values: &Values<'_>) -> Result<Option<i64>, CqlError> {
        self.timestamp.as_ref().map_or(Ok(None), |term| timestamp(term, values))
    }

    /// The end of the values that are written; `None` if they stay.
    pub(super) fn expiry(&self, values: &Values<'_>, now: i32) -> Result<Option<Expiry>, CqlError> {
        let ttl = match &self.ttl {
            None => self.table.table.default_ttl,
            Some(ttl) => match ttl.evaluate(values)? {
                None => self.table.table.default_ttl,
                Some(None) => 0,
                Some(Some(value)) => {
                    value.first_chunk().map_or(0, |bytes| i32::from_be_bytes(*bytes))
                }
            },
        };
        if ttl < 0 {
            let why = format!("A TTL must be greater or equal to 0, but was {ttl}");
            return Err(CqlError::invalid(why));
        }
        if ttl > MAX_TTL {
            let why = format!("ttl is too large. requested ({ttl}) maximum ({MAX_TTL})");
            return Err(CqlError::invalid(why));
        }
        let expiry = Expiry { ttl: ttl as u32, at: i64::from(now) + i64::from(ttl) };
        Ok((ttl > 0).then_some(expiry))
    }

    /// Adds the change of one row key to a mutation, whose family has been begun. `read` is the
    /// present row, if the statement [reads](Self::reads).
    pub(super) fn apply(
        &self,
        builder: &mut MutationBuilder<'_>,
        targets: &Targets<'_>,
        (values, stamp): (&Values<'_>, Stamp<'_>),
        read: Option<&Row<'_>>,
    ) -> Result<(), CqlError> {
        let Some((_, family)) = self.table.stored() else { return Ok(()) };
        let comparator = family.subcolumn_comparator().unwrap_or(family.comparator());
        let table = &*self.table.table;
        let deletion = Deletion::at(stamp.timestamp, stamp.now);
        if self.deletes_rows {
            targets.rows.delete(table, deletion, builder)?;
            return Ok(());
        }
        let expiry = self.expiry(values, stamp.now)?;
        let lists = read.filter(|_| self.reads()).map(|row| cells::lists(table, row));
        let mut writer = CellWriter { table, comparator, builder, expiry, stamp, deletion, lists };
        let places = targets.rows.places(table);
        places.iter().try_for_each(|place| check_place(table, place))?;
        if let Some(json) = &targets.json {
            for place in &places {
                writer.mark(self.marks, place);
                writer.json(place, json)?;
            }
            return Ok(());
        }
        let is_bare = table.form == Form::Dense && self.operations.is_empty();
        for place in &places {
            if is_bare {
                writer.put((&place.0, &place.1), b"");
            }
            writer.mark(self.marks, place);
        }
        for operation in &self.operations {
            if table.columns[operation.column].kind == ColumnKind::Static {
                let place = (composite::STATIC.to_vec(), Vec::new());
                writer.operate(operation, &place, values)?;
                continue;
            }
            for place in &places {
                writer.operate(operation, place, values)?;
            }
        }
        Ok(())
    }
}

/// The error of a DELETE under a condition that deletes, or depends on, columns of no single row.
fn row_is_not_named(deletes: bool) -> CqlError {
    let purpose = if deletes { "delete" } else { "use IF condition on" };
    CqlError::invalid(format!(
        "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order \
         to {purpose} non static columns"
    ))
}

/// The value of USING TIMESTAMP.
pub(super) fn timestamp(term: &Expression, values: &Values<'_>) -> Result<Option<i64>, CqlError> {
    let Some(value) = term.evaluate(values)? else { return Ok(None) };
    let value = value.ok_or_else(|| CqlError::invalid("Invalid null value of timestamp"))?;
    let timestamp = value.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
    if timestamp == i64::MIN {
        let why = "Out of bound timestamp, must be greater than the least 64-bit number";
        return Err(CqlError::invalid(why));
    }
    Ok(Some(timestamp))
}

/// USING TIMESTAMP of a batch.
pub(super) fn batch_timestamp(
    using: &Using,
    typing: &mut Typing<'_>,
) -> Result<Option<Expression>, CqlError> {
    let receiver = Receiver {
        keyspace: Arc::from(""),
        table: Arc::from(""),
        name: "[timestamp]".to_owned(),
        of_type: CqlType::Native(Native::Bigint),
    };
    using.timestamp.as_ref().map(|term| Expression::new(term, &receiver, typing)).transpose()
}

/// Rows to change.
#[derive(Debug)]
pub(super) struct Targets<'v> {
    pub(super) keys: Vec<RowKey>,
    pub(super) rows: RowSet<'v>,
    json: Option<Vec<JsonCell>>,
}

/// A column of INSERT JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JsonCell {
    /// Not in the document: the column stays as it is.
    Absent,
    Value(Option<Vec<u8>>),
}

fn check_key(columns: &[String], named: &Named<'_>) -> Result<(), CqlError> {
    let mut key = named.table.columns[..named.table.key_length()].iter();
    match key.find(|column| !columns.contains(&column.name)) {
        None => Ok(()),
        Some(missing) => Err(CqlError::invalid(format!(
            "Some partition key parts are missing: {}",
            missing.name
        ))),
    }
}

/// No column and no super column has an empty name.
fn check_place(table: &Table, (outer, inner): &CellPlace) -> Result<(), CqlError> {
    let first = table.clustering().start;
    let column = match table.in_super_name {
        1.. if !table.is_composite.0 && outer.is_empty() => first,
        in_super_name if table.form == Form::Dense && inner.is_empty() => first + in_super_name,
        _ => return Ok(()),
    };
    let name = &table.columns[column].name;
    Err(CqlError::invalid(format!("Invalid empty or null value for column {name}")))
}

/// The name of a cell may have only the first of several components.
fn check_clustering(restrictions: &Restrictions, named: &Named<'_>) -> Result<(), CqlError> {
    let (table, missing) = (named.table, restrictions.missing_clustering(named.table));
    let in_name = table.clustering().len() - table.in_super_name;
    if missing.is_empty() || table.is_composite.1 && missing.len() < in_name {
        return Ok(());
    }
    Err(CqlError::invalid(format!("Some clustering keys are missing: {}", missing.join(", "))))
}

/// A row of a dense table is its value.
fn check_dense(operations: &[Operation], named: &Named<'_>, is_json: bool) -> Result<(), CqlError> {
    let value = named.table.columns.get(named.table.regular().start);
    if named.table.form == Form::Dense
        && operations.is_empty()
        && !is_json
        && let Some(value) = value
        && !value.is_hidden()
    {
        return Err(CqlError::invalid(format!(
            "Column {} is mandatory for this COMPACT STORAGE table",
            value.name
        )));
    }
    Ok(())
}

fn using(
    using: &Using,
    named: &Named<'_>,
    typing: &mut Typing<'_>,
) -> Result<(Option<Expression>, Option<Expression>), CqlError> {
    let mut number = |term: &Option<Term>, name: &str, native| {
        let receiver = named.receiver(name, CqlType::Native(native));
        term.as_ref().map(|term| Expression::new(term, &receiver, typing)).transpose()
    };
    Ok((
        number(&using.timestamp, "[timestamp]", Native::Bigint)?,
        number(&using.ttl, "[ttl]", Native::Int)?,
    ))
}

fn assignable(target: &Target, named: &Named<'_>) -> Result<usize, CqlError> {
    let column = named.column(&target.column)?;
    if column < named.table.clustering().end {
        return Err(CqlError::invalid(format!(
            "PRIMARY KEY part {} found in SET part",
            target.column
        )));
    }
    Ok(column)
}

fn deletable(target: &Target, named: &Named<'_>) -> Result<usize, CqlError> {
    let column = named.column(&target.column)?;
    if column < named.table.clustering().end {
        return Err(CqlError::invalid(format!(
            "Invalid identifier {} for deletion (should not be a PRIMARY KEY part)",
            target.column
        )));
    }
    Ok(column)
}

/// The number of a field of a value of a user type.
pub(super) fn field_number(
    receiver: &Receiver,
    field: &str,
    operation: &str,
) -> Result<usize, CqlError> {
    let column = &receiver.name;
    let CqlType::User(user) = &receiver.of_type else {
        return Err(CqlError::invalid(match (&receiver.of_type, operation) {
            (CqlType::Frozen(_), "deletion operation") => {
                format!("Frozen UDT column {column} does not support field deletion")
            }
            (CqlType::Frozen(_), _) => {
                format!("Invalid {operation} for frozen UDT column {column}")
            }
            _ => format!("Invalid {operation} for non-UDT column {column}"),
        }));
    };
    user.fields.iter().position(|(name, _)| name == field).ok_or_else(|| {
        CqlError::invalid(format!(
            "UDT column {} does not have a field named {field}",
            receiver.name
        ))
    })
}

/// The receiver of the key of an element.
pub(super) fn element_receiver(receiver: &Receiver, operation: &str) -> Result<Receiver, CqlError> {
    let name = &receiver.name;
    let what = match &receiver.of_type {
        CqlType::List(_) => {
            return Ok(receiver.part(format!("idx({name})"), CqlType::Native(Native::Int)));
        }
        CqlType::Set(inner) if operation == "deletion operation" => {
            return Ok(receiver.part(format!("value({name})"), (**inner).clone()));
        }
        CqlType::Map(inner) => return Ok(receiver.part(format!("key({name})"), inner.0.clone())),
        CqlType::Set(_) => "set",
        CqlType::Frozen(_) => "frozen collection",
        _ => "non collection",
    };
    Err(CqlError::invalid(format!("Invalid {operation} for {what} column {name}")))
}

fn change(
    column: usize,
    target: &Target,
    assigned: &Assigned,
    named: &Named<'_>,
    typing: &mut Typing<'_>,
) -> Result<Change, CqlError> {
    let receiver = named.of_column(column);
    let name = &receiver.name;
    let (term, make): (&Term, fn(Expression) -> Change) = match (assigned, &target.part) {
        (Assigned::Value(term), None) => (term, Change::Set),
        (Assigned::Value(term), Some(TargetPart::Element(at))) => {
            let operation = format!("operation ({name}[{at}] = {term})");
            let at = Expression::new(at, &element_receiver(&receiver, &operation)?, typing)?;
            let value_type = match &receiver.of_type {
                CqlType::List(inner) => (**inner).clone(),
                CqlType::Map(inner) => inner.1.clone(),
                other => other.clone(),
            };
            let value = receiver.part(format!("value({name})"), value_type);
            return Ok(Change::SetElement(at, Expression::new(term, &value, typing)?));
        }
        (Assigned::Value(term), Some(TargetPart::Field(field))) => {
            let operation = format!("operation ({name}.{field} = {term})");
            let at = field_number(&receiver, field, &operation)?;
            let CqlType::User(user) = &receiver.of_type else { return Ok(Change::ClearField(at)) };
            let value = receiver.part(format!("{name}.{field}"), user.fields[at].1.clone());
            return Ok(Change::SetField(at, Expression::new(term, &value, typing)?));
        }
        (Assigned::Append(term), None) => (term, Change::Append),
        (Assigned::Prepend(term), None) => (term, Change::Prepend),
        (Assigned::Remove(term), None) => (term, Change::Remove),
        (_, Some(_)) => {
            let why = format!("Invalid operation for column {name}: only = is for a part of it");
            return Err(CqlError::invalid(why));
        }
    };
    let receiver = operand(receiver, assigned)?;
    Ok(make(Expression::new(term, &receiver, typing)?))
}

/// The receiver of the term of an assignment.
fn operand(receiver: Receiver, assigned: &Assigned) -> Result<Receiver, CqlError> {
    let what = match (assigned, &receiver.of_type) {
        (Assigned::Value(_), _) => return Ok(receiver),
        // Entries of a map are removed by their keys.
        (Assigned::Remove(_), CqlType::Map(inner)) => {
            let keys = CqlType::Set(Arc::new(inner.0.clone()));
            return Ok(receiver.part(receiver.name.clone(), keys));
        }
        (_, CqlType::Frozen(_)) => "frozen collection",
        (Assigned::Prepend(_), CqlType::List(_)) => return Ok(receiver),
        (Assigned::Prepend(_), _) => "non list",
        (_, CqlType::List(_) | CqlType::Set(_) | CqlType::Map(_)) => return Ok(receiver),
        (_, CqlType::Tuple(_)) => "tuple",
        _ => "non counter",
    };
    let name = &receiver.name;
    let shown = shown(name, assigned);
    Err(CqlError::invalid(format!("Invalid operation ({shown}) for {what} column {name}")))
}

fn shown(name: &str, assigned: &Assigned) -> String {
    match assigned {
        Assigned::Value(term) => format!("{name} = {term}"),
        Assigned::Append(term) => format!("{name} = {name} + {term}"),
        Assigned::Prepend(term) => format!("{name} = {term} + {name}"),
        Assigned::Remove(term) => format!("{name} = {name} - {term}"),
    }
}
