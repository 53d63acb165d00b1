//! Changes under IF. All of one statement or batch are of one row key, whose register decides on
//! them.

use super::ast::{Condition, Modification, Operator, Relation, Subject};
use super::batch::{self, Item};
use super::cells::CellPlace;
use super::collections;
use super::error::{CqlError, WriteType};
use super::modify::{ModificationPlan, Stamp, Targets, element_receiver, field_number};
use super::prepared::columns;
use super::relations::{Named, Right, fulfils, right};
use super::reply::Reply;
use super::rows::{Partition, Row, visible};
use super::select::count_statics;
use super::terms::{Expression, Receiver, Typing, Values};
use super::windows::slice_of_rows;
use super::wire::Level;
use crate::model::cell::Cell;
use crate::model::key::RowKey;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::model::slice::{RowSlice, Slice};
use crate::model::table::{ColumnKind, Form, Table};
use crate::model::types::{CqlType, Native, collection};
use crate::service::{CasOutcome, ConsistencyLevel, RowQuery, SerialConsistency, Service};
use std::borrow::Cow;
use std::sync::Arc;

/// Super columns to read of a partition: that of the static columns and one more.
const STATICS_AND_A_ROW: usize = 2;

/// Name of the column that says whether a change was made.
const APPLIED: &str = "[applied]";

/// The condition of a change, with its names looked up.
#[derive(Debug)]
pub(super) enum Guard {
    /// IF NOT EXISTS.
    Absent,
    /// IF EXISTS.
    Present,
    /// All of these hold.
    Columns(Vec<Test>),
}

/// A condition of a column.
#[derive(Debug)]
pub(super) struct Test {
    column: usize,
    part: Option<Part>,
    operator: Operator,
    right: Right,
    of_type: CqlType,
}

/// The part of a column that is compared.
#[derive(Debug)]
enum Part {
    Element(Expression),
    Field(usize),
}

impl Guard {
    /// The condition of a change, if it has one.
    pub(super) fn new(
        modification: &Modification,
        named: &Named<'_>,
        typing: &mut Typing<'_>,
    ) -> Result<Option<Self>, CqlError> {
        let (condition, relations, action) = match modification {
            Modification::Insert(insert) => {
                return Ok(insert.if_not_exists.then_some(Self::Absent));
            }
            Modification::Update(update) => (&update.condition, &update.relations, "updates"),
            Modification::Delete(delete) => (&delete.condition, &delete.relations, "deletions"),
        };
        let Some(condition) = condition else { return Ok(None) };
        if let Some(relation) = relations.iter().find(|it| it.operator == Operator::In) {
            let is_key = matches!(&relation.subject, Subject::Column(name)
                if named.table.column(name).is_some_and(|it| it < named.table.key_length()));
            let part = if is_key { "partition key" } else { "clustering key columns" };
            return Err(CqlError::invalid(format!(
                "IN on the {part} is not supported with conditional {action}"
            )));
        }
        let guard = match condition {
            Condition::Exists => Self::Present,
            Condition::Relations(relations) => {
                let tests = relations.iter().map(|relation| Test::new(relation, named, typing));
                Self::Columns(tests.collect::<Result<_, _>>()?)
            }
        };
        Ok(Some(guard))
    }

    /// Whether it depends on columns of this kind.
    pub(super) fn tests(&self, table: &Table, kind: ColumnKind) -> bool {
        self.columns().any(|column| table.columns[column].kind == kind)
    }

    fn columns(&self) -> impl Iterator<Item = usize> {
        let tests = if let Self::Columns(tests) = self { &tests[..] } else { &[] };
        tests.iter().map(|test| test.column)
    }

    fn holds(&self, found: &Found<'_>, values: &Values<'_>) -> Result<bool, CqlError> {
        match self {
            Self::Absent => Ok(!found.exists),
            Self::Present => Ok(found.exists),
            Self::Columns(tests) => {
                for test in tests {
                    if !test.holds(&found.row, found.table, values)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }
}

impl Test {
    fn new(
        relation: &Relation,
        named: &Named<'_>,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        let (Subject::Column(name) | Subject::Element(name, _) | Subject::Field(name, _)) =
            &relation.subject
        else {
            return Err(CqlError::invalid("A condition of IF is one of a column"));
        };
        let column = named.column(name)?;
        if column < named.table.clustering().end {
            let why = format!("PRIMARY KEY column '{name}' cannot have IF conditions");
            return Err(CqlError::invalid(why));
        }
        if matches!(relation.operator, Operator::Contains | Operator::ContainsKey) {
            let why = format!("{} cannot be a condition of IF", relation.operator);
            return Err(CqlError::invalid(why));
        }
        let receiver = named.of_column(column);
        let (part, receiver) = match &relation.subject {
            Subject::Element(_, key) => {
                let inner = match receiver.of_type.unfrozen() {
                    CqlType::List(inner) => (**inner).clone(),
                    CqlType::Map(inner) => inner.1.clone(),
                    other => {
                        let is_set = matches!(other, CqlType::Set(_));
                        let what = if is_set { "set" } else { "non-collection" };
                        return Err(CqlError::invalid(format!(
                            "Invalid element access syntax for {what} column {name}"
                        )));
                    }
                };
                let whole = Receiver { of_type: receiver.of_type.unfrozen().clone(), ..receiver };
                let key =
                    Expression::new(key, &element_receiver(&whole, "access operation")?, typing)?;
                (Some(Part::Element(key)), whole.part(format!("value({name})"), inner))
            }
            Subject::Field(_, field) => {
                let CqlType::User(user) = receiver.of_type.unfrozen() else {
                    return Err(CqlError::invalid(format!(
                        "Invalid field access syntax for non-UDT column {name}"
                    )));
                };
                let of_type = CqlType::User(Arc::clone(user));
                let whole = Receiver { of_type, ..receiver.clone() };
                let at = field_number(&whole, field, "access operation")?;
                let inner = user.fields[at].1.clone();
                (Some(Part::Field(at)), receiver.part(format!("{name}.{field}"), inner))
            }
            _ => (None, receiver),
        };
        let compares = !matches!(relation.operator, Operator::Equal | Operator::NotEqual);
        if compares
            && relation.operator != Operator::In
            && let Some(what) = receiver.of_type.durations()
        {
            return Err(CqlError::invalid(format!(
                "Slice conditions ( {} ) are not supported on {what}",
                relation.operator
            )));
        }
        let right = right(relation, &receiver, typing)?;
        Ok(Self { column, part, operator: relation.operator, right, of_type: receiver.of_type })
    }

    fn holds(&self, row: &Row<'_>, table: &Table, values: &Values<'_>) -> Result<bool, CqlError> {
        let whole = row.value(table, self.column);
        let present = match &self.part {
            None => whole,
            Some(Part::Element(at)) => {
                let at = at.evaluate(values)?.flatten();
                element(&table.columns[self.column].of_type, whole.as_deref(), at.as_deref())?
            }
            Some(Part::Field(at)) => {
                let fields = whole.as_deref().map(collections::fields).transpose()?;
                let field = fields.and_then(|fields| fields.get(*at).copied().flatten());
                field.map(|it| Cow::Owned(it.to_vec()))
            }
        };
        let present = present.as_deref();
        let unset = || CqlError::invalid("Invalid 'unset' value in condition");
        match &self.right {
            Right::One(expected) => {
                let expected = expected.evaluate(values)?.ok_or_else(unset)?;
                self.compare(present, expected.as_deref())
            }
            Right::Several(all) => {
                for expected in all {
                    let Some(expected) = expected.evaluate(values)? else { continue };
                    if self.are_equal(present, expected.as_deref())? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Right::List(list) => {
                let null = || CqlError::invalid("Invalid null list in IN condition");
                let list = list.evaluate(values)?.ok_or_else(unset)?.ok_or_else(null)?;
                let list_type = CqlType::List(Arc::new(self.of_type.clone()));
                for expected in collections::elements(&list_type, &list)? {
                    if self.are_equal(present, Some(expected))? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    fn compare(&self, present: Option<&[u8]>, expected: Option<&[u8]>) -> Result<bool, CqlError> {
        match self.operator {
            Operator::Equal => return self.are_equal(present, expected),
            Operator::NotEqual => return self.are_equal(present, expected).map(|it| !it),
            _ => {}
        }
        let Some(expected) = expected else {
            return Err(CqlError::invalid(format!(
                "Invalid comparison with null for operator \"{}\"",
                self.operator
            )));
        };
        // A collection without elements is stored nowhere.
        let none = collection::pack::<&[u8]>(&[]);
        let is_collection =
            matches!(self.of_type, CqlType::List(_) | CqlType::Set(_) | CqlType::Map(_));
        let present = present.or(is_collection.then_some(&none));
        let order = present.map(|present| self.of_type.compare(present, expected));
        Ok(order.is_some_and(|order| fulfils(self.operator, order)))
    }

    /// Whether two values are equal. A collection without elements is null, unless it is frozen.
    fn are_equal(&self, present: Option<&[u8]>, expected: Option<&[u8]>) -> Result<bool, CqlError> {
        let expected = match (expected, &self.of_type) {
            (Some(value), CqlType::List(_) | CqlType::Set(_) | CqlType::Map(_))
                if collections::elements(&self.of_type, value)?.is_empty() =>
            {
                None
            }
            (expected, _) => expected,
        };
        Ok(match (present, expected) {
            (Some(present), Some(expected)) => self.of_type.compare(present, expected).is_eq(),
            (present, expected) => present.is_none() && expected.is_none(),
        })
    }
}

/// An element of a list or map, of which `whole` is the value.
fn element<'v>(
    of_type: &CqlType,
    whole: Option<&[u8]>,
    at: Option<&[u8]>,
) -> Result<Option<Cow<'v, [u8]>>, CqlError> {
    let is_list = matches!(of_type.unfrozen(), CqlType::List(_));
    let Some(at) = at else {
        let what = if is_list { "list" } else { "map" };
        return Err(CqlError::invalid(format!("Invalid null value for {what} element access")));
    };
    let elements = whole.map_or(Ok(Vec::new()), |it| collections::elements(of_type, it))?;
    let found = if let CqlType::Map(inner) = of_type.unfrozen() {
        let mut pairs = elements.chunks_exact(2);
        pairs.find(|pair| inner.0.compare(pair[0], at).is_eq()).map(|pair| pair[1])
    } else {
        let index = at.first_chunk().map_or(0, |bytes| i32::from_be_bytes(*bytes));
        let wrong = |_| CqlError::invalid(format!("Invalid negative list index {index}"));
        elements.get(usize::try_from(index).map_err(wrong)?).copied()
    };
    Ok(found.map(|it| Cow::Owned(it.to_vec())))
}

/// The row that a change concerns, as it is.
struct Found<'r> {
    table: &'r Table,
    row: Row<'r>,
    exists: bool,
}

/// Changes of one row key, at least one of which is under a condition.
struct Changes<'c, 'v> {
    items: &'c [Item<'c>],
    targets: &'c [Targets<'v>],
    family: (FamilyId, &'c ColumnFamilySchema),
    key: &'c RowKey,
}

/// Makes all of the changes if their conditions hold, and tells whether they did.
pub(super) async fn change(
    service: &Service,
    items: &[Item<'_>],
    (serial, commit): (SerialConsistency, ConsistencyLevel),
    stamp: Stamp<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), CqlError> {
    let targets: Vec<Targets<'_>> =
        items.iter().map(|item| item.plan.targets(&item.values)).collect::<Result<_, _>>()?;
    let changes = Changes::new(items, &targets)?;
    let slice = changes.slice();
    let query = RowQuery { family: changes.family.0, key: changes.key, slice: &slice };
    let mut request = service.request();
    let decide = |row: &RowSlice, micros: i64| {
        let cells = visible(changes.table(), &row.cells);
        changes.decide(service, &cells, Stamp { timestamp: micros, ..stamp })
    };
    let done = service.compare_and_set(query, (serial, commit), decide, &mut request).await;
    let failed = |error| {
        // The agreement lacks replicas, whatever the level of the write.
        let level = match serial {
            SerialConsistency::Serial => Level::Serial,
            SerialConsistency::LocalSerial => Level::LocalSerial,
        };
        CqlError::of_write(error, level, WriteType::Cas)
    };
    match done.map_err(failed)?? {
        CasOutcome::Applied => changes.answer(None, reply),
        CasOutcome::Refused(row) => {
            changes.answer(Some(&visible(changes.table(), &row.cells)), reply);
        }
    }
    Ok(())
}

impl<'c, 'v> Changes<'c, 'v> {
    fn new(items: &'c [Item<'c>], targets: &'c [Targets<'v>]) -> Result<Self, CqlError> {
        let keys = targets.iter().flat_map(|it| &it.keys);
        let (Some(first), Some(key)) = (items.first(), keys.clone().next()) else {
            return Err(CqlError::invalid("There is no row for the condition"));
        };
        if targets.iter().any(|it| it.keys.len() != 1) {
            let why = "IN on the partition key is not supported with conditional updates";
            return Err(CqlError::invalid(why));
        }
        let Some((id, family)) = first.plan.table.stored() else {
            return Err(CqlError::invalid("Tables of the system cannot be changed"));
        };
        for item in items {
            if item.plan.table.stored().map(|it| it.0) != Some(id) {
                let why = "Batch with conditions cannot span multiple tables";
                return Err(CqlError::invalid(why));
            }
        }
        if keys.clone().any(|other| other != key) {
            let why = "Batch with conditions cannot span multiple partitions";
            return Err(CqlError::invalid(why));
        }
        Ok(Self { items, targets, family: (id, family), key })
    }

    fn table(&self) -> &'c Table {
        &self.items[0].plan.table.table
    }

    /// The rows on which the changes depend.
    fn places(&self) -> impl Iterator<Item = CellPlace> {
        let all = self.items.iter().zip(self.targets);
        let read = all.filter(|(item, _)| item.plan.guard.is_some() || item.plan.reads());
        read.filter_map(|(_, targets)| targets.rows.row(self.table()))
    }

    /// Whether a condition is about static columns, or about the existence of what has them.
    fn reads_statics(&self) -> bool {
        let table = self.table();
        self.items.iter().any(|Item { plan, .. }| match &plan.guard {
            Some(guard @ Guard::Columns(_)) => guard.tests(table, ColumnKind::Static),
            Some(_) => plan.changes_statics(),
            None => false,
        } || plan.reads() && plan.changes_statics())
    }

    /// The rows that the conditions are about, with the static columns if that is needed.
    fn slice(&self) -> Slice {
        let places: Vec<CellPlace> = self.places().collect();
        if places.is_empty() {
            // A partition without static values is not one that does not exist.
            return Slice::range(None, b"", b"", false, STATICS_AND_A_ROW);
        }
        slice_of_rows((self.table(), self.family.1), &places, self.reads_statics())
    }

    /// Finds a row among the cells of the slice; without a place the static columns alone.
    fn find<'r>(&self, cells: &'r [Cell], place: Option<&CellPlace>) -> Found<'r>
    where
        'c: 'r,
    {
        let (table, family) = (self.table(), self.family.1);
        let (statics, cells) = cells.split_at(count_statics(table, cells));
        let is_of_row = |cell: &Cell| match place {
            None => false,
            Some(_) if table.clustering().is_empty() => true,
            Some((outer, inner)) if table.form == Form::Dense => {
                family.compare(cell.place(), (outer, inner)).is_eq()
            }
            Some((outer, _)) => family.is_one_super_column(cell.super_name(), outer),
        };
        let start = cells.iter().position(is_of_row).unwrap_or(cells.len());
        let count = cells[start..].iter().take_while(|cell| is_of_row(cell)).count();
        let cells = &cells[start..start + count];
        let partition = Partition { table, family, key: self.key, statics, cells };
        let exists = !if place.is_some() { cells } else { statics }.is_empty();
        Found { table, row: partition.row(0..cells.len()), exists }
    }

    /// The write, unless a condition does not hold.
    fn decide(
        &self,
        service: &Service,
        cells: &[Cell],
        stamp: Stamp<'_>,
    ) -> Result<Option<RowMutation>, CqlError> {
        let place = |targets: &Targets<'_>| targets.rows.row(self.table());
        let all = || self.items.iter().zip(self.targets);
        for (item, targets) in all() {
            let found = self.find(cells, place(targets).as_ref());
            if let Some(guard) = &item.plan.guard
                && !guard.holds(&found, &item.values)?
            {
                return Ok(None);
            }
        }
        let keyspace = &self.items[0].plan.table.keyspace;
        let mut builder = MutationBuilder::new(service.schema(), keyspace, self.key.as_bytes());
        builder.family(self.family.0);
        for (item, targets) in all() {
            let found = self.find(cells, place(targets).as_ref());
            let values = (&item.values, stamp);
            item.plan.apply(&mut builder, targets, values, Some(&found.row))?;
        }
        batch::checked(builder.finish(), service.schema()).map(Some)
    }

    /// Says whether the changes were made. If not, the rows on which they depend follow.
    fn answer(&self, refused: Option<&[Cell]>, reply: &mut Reply<'_>) {
        let table = self.table();
        let named = self.items[0].plan.table.named();
        let mut receivers = vec![named.receiver(APPLIED, CqlType::Native(Native::Boolean))];
        let (shown, rows) = refused.map_or((Vec::new(), Vec::new()), |cells| {
            (self.shown_columns(), self.shown_rows(cells))
        });
        if !rows.is_empty() {
            receivers.extend(shown.iter().map(|column| named.of_column(*column)));
        }
        let columns = columns(&receivers, reply.version());
        let mut answer = reply.rows(&columns, false);
        let is_applied = [u8::from(refused.is_none())];
        for row in &rows {
            answer.cell(Some(&is_applied));
            for column in &shown {
                answer.cell(row.value(table, *column).as_deref());
            }
            answer.end_row();
        }
        if rows.is_empty() {
            answer.cell(Some(&is_applied));
            answer.end_row();
        }
        answer.finish(None);
    }

    /// The columns of conditions; all where one is about the existence of a row.
    fn shown_columns(&self) -> Vec<usize> {
        let table = self.table();
        let guards = || self.items.iter().filter_map(|item| item.plan.guard.as_ref());
        if guards().any(|guard| !matches!(guard, Guard::Columns(_))) {
            return (0..table.columns.len()).filter(|it| !table.columns[*it].is_hidden()).collect();
        }
        let is_static = |column: &usize| table.columns[*column].kind == ColumnKind::Static;
        let tested = guards().flat_map(|guard| {
            let mut tested: Vec<usize> = guard.columns().collect();
            tested.sort_by_key(is_static);
            tested
        });
        // Rows of a batch are told from each other by their keys.
        let is_batch = self.items.len() > 1;
        let mut shown: Vec<usize> =
            if is_batch { (0..table.clustering().end).collect() } else { Vec::new() };
        for column in tested {
            if !shown.contains(&column) {
                shown.push(column);
            }
        }
        shown
    }

    /// The rows that exist; the static columns alone if none does. Where only static columns are
    /// depended on, the first row stands for its partition.
    fn shown_rows<'r>(&self, cells: &'r [Cell]) -> Vec<Row<'r>>
    where
        'c: 'r,
    {
        let mut places: Vec<CellPlace> = self.places().collect();
        let compare =
            |a: &CellPlace, b: &CellPlace| self.family.1.compare((&a.0, &a.1), (&b.0, &b.1));
        places.sort_by(compare);
        places.dedup();
        let found = places.iter().map(|place| self.find(cells, Some(place)));
        let mut rows: Vec<Row<'r>> = found.filter(|it| it.exists).map(|it| it.row).collect();
        if rows.is_empty() && !cells.is_empty() {
            let (table, family) = (self.table(), self.family.1);
            let (statics, cells) = cells.split_at(count_statics(table, cells));
            let partition = Partition { table, family, key: self.key, statics, cells };
            rows.push(partition.row(partition.groups().into_iter().next().unwrap_or(0..0)));
        }
        rows
    }
}

/// Whether a statement or batch is under a condition.
pub(super) fn is_conditional<'p>(plans: impl IntoIterator<Item = &'p ModificationPlan>) -> bool {
    plans.into_iter().any(|plan| plan.guard.is_some())
}

/// The replicas that decide on what a read sees, if it is to see all changes under a condition.
pub(super) fn of_read(level: Level) -> Option<SerialConsistency> {
    level.is_serial().then(|| serial_consistency(Some(level)))
}

/// The replicas that decide.
pub(super) fn serial_consistency(level: Option<Level>) -> SerialConsistency {
    match level {
        Some(Level::LocalSerial) => SerialConsistency::LocalSerial,
        _ => SerialConsistency::Serial,
    }
}
