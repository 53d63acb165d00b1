//! Selections: the columns of a result, computed from rows, or from groups of rows.

use super::ast::{QualifiedName, SelectItem, Selector};
use super::collections;
use super::error::CqlError;
use super::functions::{self, Call, Moment};
use super::relations::Named;
use super::rows::{Row, is_multicell};
use super::terms::{Expression, Receiver, Typing, Value, Values, natural_type};
use crate::model::table::{ColumnKind, Table};
use crate::model::types::{CqlType, Native, Sum};
use std::borrow::Cow;
use std::fmt::Write;

/// The columns of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selection {
    items: Vec<Item>,
    /// Metadata of the result. In JSON the last column has all others in it.
    columns: Vec<Receiver>,
    is_json: bool,
    /// Whether it is a mere list of columns.
    pub(super) plain: Option<Vec<usize>>,
    pub(super) is_aggregate: bool,
}

/// A selector of known type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    kind: Kind,
    of_type: CqlType,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Column(usize),
    Field(Box<Item>, usize),
    WriteTime(usize),
    Ttl(usize),
    Call(Call, Vec<Item>),
    Term(Expression),
    CountRows,
    Aggregate(Aggregate, Box<Item>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Count,
    Min,
    Max,
    Sum,
    Average,
}

impl Selection {
    /// `SELECT *`, `SELECT DISTINCT` of the partition key, or these items.
    pub(super) fn new(
        items: Option<&[SelectItem]>,
        is_json: bool,
        named: &Named<'_>,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        let mut selected = Vec::new();
        let mut columns = Vec::new();
        let all: Vec<SelectItem>;
        let items = if let Some(items) = items {
            items
        } else {
            let item = |name: &String| SelectItem {
                selector: Selector::Column(name.clone()),
                alias: None,
            };
            let shown = named.table.columns.iter().filter(|it| !it.is_hidden());
            all = shown.map(|it| item(&it.name)).collect();
            &all
        };
        for SelectItem { selector, alias } in items {
            let item = Item::new(selector, named, typing)?;
            let name = match (alias, &item.kind) {
                (Some(alias), _) => alias.clone(),
                (None, Kind::Column(column)) => named.table.columns[*column].name.clone(),
                (None, _) => selector.to_string(),
            };
            columns.push(named.receiver(&name, item.of_type.clone()));
            selected.push(item);
        }
        let plain: Option<Vec<usize>> = selected
            .iter()
            .map(|item| match item.kind {
                Kind::Column(column) => Some(column),
                _ => None,
            })
            .collect();
        let is_aggregate = selected.iter().any(Item::is_aggregate);
        let plain = plain.filter(|_| !is_json);
        if is_json {
            columns.push(named.receiver("[json]", CqlType::Native(Native::Text)));
        }
        Ok(Self { items: selected, columns, is_json, plain, is_aggregate })
    }

    /// Metadata of the result.
    pub(super) fn metadata(&self) -> &[Receiver] {
        if self.is_json { &self.columns[self.columns.len() - 1..] } else { &self.columns }
    }

    /// Numbers of the columns that are needed of each row.
    pub(super) fn needs(&self, needed: &mut [bool]) {
        self.items.iter().for_each(|item| item.needs(needed));
    }

    /// The columns of the result for a row.
    pub(super) fn of_row<'r>(
        &'r self,
        row: &'r Row<'_>,
        context: &'r Context<'r>,
    ) -> Result<Vec<Value<'r>>, CqlError> {
        let values = self.items.iter().map(|item| item.evaluate(row, context));
        Ok(self.finished(values.collect::<Result<_, _>>()?))
    }

    /// A state for the aggregates of a group of rows.
    pub(super) fn group(&self) -> Group {
        let mut states = Vec::new();
        self.items.iter().for_each(|item| item.begin(&mut states));
        Group { states, first: None }
    }

    /// Adds a row to a group.
    pub(super) fn add(
        &self,
        group: &mut Group,
        row: &Row<'_>,
        context: &Context<'_>,
    ) -> Result<(), CqlError> {
        let mut at = 0;
        for item in &self.items {
            item.add(&mut group.states, &mut at, row, context)?;
        }
        if group.first.is_none() {
            // Values that are no aggregates are those of the first row.
            let values = self.items.iter().map(|item| {
                if item.is_aggregate() {
                    return Ok(None);
                }
                Ok(item.evaluate(row, context)?.map(|it| it.into_owned()))
            });
            group.first = Some(values.collect::<Result<_, CqlError>>()?);
        }
        Ok(())
    }

    /// The columns of the result for a group.
    pub(super) fn of_group<'g>(
        &'g self,
        group: &'g Group,
        context: &'g Context<'g>,
    ) -> Result<Vec<Value<'g>>, CqlError> {
        let mut at = 0;
        let mut values = Vec::with_capacity(self.items.len());
        for (column, item) in self.items.iter().enumerate() {
            values.push(if item.is_aggregate() {
                item.finish(&group.states, &mut at, context)?
            } else {
                let first = group.first.as_ref().and_then(|first| first.get(column));
                first.and_then(|value| value.as_deref()).map(Cow::Borrowed)
            });
        }
        Ok(self.finished(values))
    }

    fn finished<'v>(&self, values: Vec<Value<'v>>) -> Vec<Value<'v>> {
        if !self.is_json {
            return values;
        }
        let mut json = String::from("{");
        for (column, value) in self.columns.iter().zip(values) {
            if json.len() > 1 {
                json.push_str(", ");
            }
            let name = if column.name.chars().any(char::is_uppercase) {
                format!("\"{}\"", column.name)
            } else {
                column.name.clone()
            };
            let value = value.map_or("null".to_owned(), |value| column.of_type.to_json(&value));
            let _ = write!(json, "{}: {value}", serde_json::Value::from(name));
        }
        json.push('}');
        vec![Some(Cow::Owned(json.into_bytes()))]
    }
}

/// Facts about an execution that selectors need.
pub(super) struct Context<'c> {
    pub(super) table: &'c Table,
    pub(super) values: &'c Values<'c>,
    pub(super) moment: &'c Moment,
}

/// Aggregates of a group of rows so far.
#[derive(Debug)]
pub(super) struct Group {
    states: Vec<State>,
    first: Option<Vec<Option<Vec<u8>>>>,
}

impl Group {
    /// Whether no row came.
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

#[derive(Debug, Default)]
struct State {
    rows: i64,
    extreme: Option<Vec<u8>>,
    sum: Option<Sum>,
}

impl Item {
    fn new(
        selector: &Selector,
        named: &Named<'_>,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        let native = |of_type| CqlType::Native(of_type);
        Ok(match selector {
            Selector::Column(name) => {
                let column = named.column(name)?;
                let of_type = named.table.columns[column].of_type.clone();
                Self { kind: Kind::Column(column), of_type }
            }
            Selector::Field(inner, name) => Self::field(inner, name, named, typing)?,
            Selector::CountRows => Self { kind: Kind::CountRows, of_type: native(Native::Bigint) },
            Selector::WriteTime(name) => {
                let column = single_cell(name, "writeTime", named)?;
                Self { kind: Kind::WriteTime(column), of_type: native(Native::Bigint) }
            }
            Selector::Ttl(name) => {
                let column = single_cell(name, "ttl", named)?;
                Self { kind: Kind::Ttl(column), of_type: native(Native::Int) }
            }
            Selector::Cast(inner, to) => {
                let inner = Self::new(inner, named, typing)?;
                let to = typing.types.resolve(to, named.keyspace)?;
                if to == inner.of_type {
                    return Ok(inner);
                }
                let CqlType::Native(to) = to else {
                    return Err(CqlError::invalid(format!(
                        "{} cannot be cast to {to}",
                        inner.of_type
                    )));
                };
                let call = Call::cast(&inner.of_type, to)?;
                let of_type = call.returns.clone();
                Self { kind: Kind::Call(call, vec![inner]), of_type }
            }
            Selector::Negation(_) | Selector::Arithmetic(..) => {
                return Err(CqlError::unsupported("arithmetic in selections"));
            }
            Selector::Call(name, arguments) => Self::call(name, arguments, named, typing)?,
            Selector::Term(term) => {
                let of_type = natural_type(term, typing).ok_or_else(|| {
                    CqlError::invalid(
                        "Cannot infer type for term in selection clause (try using a cast)",
                    )
                })?;
                let receiver = named.receiver("[selection]", of_type.clone());
                Self { kind: Kind::Term(Expression::new(term, &receiver, typing)?), of_type }
            }
        })
    }

    fn field(
        inner: &Selector,
        field: &str,
        named: &Named<'_>,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        let inner = Self::new(inner, named, typing)?;
        let CqlType::User(user) = inner.of_type.unfrozen().clone() else {
            return Err(CqlError::invalid(format!(
                "Invalid field selection: {} of type {} is not a user type",
                field, inner.of_type
            )));
        };
        let at = user.fields.iter().position(|(name, _)| name == field);
        let at = at.ok_or_else(|| {
            let what = match &inner.kind {
                Kind::Column(column) => named.table.columns[*column].name.clone(),
                _ => user.name.clone(),
            };
            CqlError::invalid(format!("{what} of type {} has no field {field}", user.name))
        })?;
        Ok(Self { kind: Kind::Field(Box::new(inner), at), of_type: user.fields[at].1.clone() })
    }

    fn call(
        name: &QualifiedName,
        arguments: &[Selector],
        named: &Named<'_>,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        let aggregate = match name.name.as_str() {
            "count" => Some(Aggregate::Count),
            "min" => Some(Aggregate::Min),
            "max" => Some(Aggregate::Max),
            "sum" => Some(Aggregate::Sum),
            "avg" => Some(Aggregate::Average),
            _ => None,
        };
        if let (Some(aggregate), [argument]) = (aggregate, arguments) {
            let inner = Self::new(argument, named, typing)?;
            if inner.is_aggregate() {
                return Err(CqlError::invalid(
                    "aggregate functions cannot be used as arguments of aggregate functions",
                ));
            }
            let of_type = match aggregate {
                Aggregate::Count => CqlType::Native(Native::Bigint),
                Aggregate::Min | Aggregate::Max => inner.of_type.clone(),
                Aggregate::Sum | Aggregate::Average
                    if inner.of_type.native().is_some_and(Native::is_number) =>
                {
                    inner.of_type.clone()
                }
                Aggregate::Sum | Aggregate::Average => {
                    return Err(CqlError::invalid(format!(
                        "Invalid call to function {}, none of its type signatures match",
                        name.name
                    )));
                }
            };
            return Ok(Self { kind: Kind::Aggregate(aggregate, Box::new(inner)), of_type });
        }
        if name.name == "token" {
            return Self::token(arguments, named, typing);
        }
        let known: Vec<Option<CqlType>> = arguments
            .iter()
            .map(|argument| match argument {
                Selector::Term(term) => Ok(natural_type(term, typing)),
                other => Self::new(other, named, typing).map(|item| Some(item.of_type)),
            })
            .collect::<Result<_, _>>()?;
        let call = functions::resolve(name, &known, None)?;
        Self::of_call(call, arguments, named, typing)
    }

    fn token(
        arguments: &[Selector],
        named: &Named<'_>,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        let key = &named.table.columns[..named.table.key_length()];
        if arguments.len() != key.len() {
            return Err(CqlError::invalid(format!(
                "Invalid number of arguments in call to function system.token: {} required but {} \
                 provided",
                key.len(),
                arguments.len()
            )));
        }
        let types = key.iter().map(|column| column.of_type.clone()).collect();
        let call = functions::token_call(types, named.partitioner);
        Self::of_call(call, arguments, named, typing)
    }

    /// A call whose arguments have to be of the types that the function takes.
    fn of_call(
        call: Call,
        arguments: &[Selector],
        named: &Named<'_>,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        let name = &call.name;
        let items = arguments.iter().zip(&call.arguments).enumerate();
        let items = items.map(|(at, (argument, of_type))| {
            if let Selector::Term(term) = argument {
                let receiver = named.receiver(&format!("arg({name})"), of_type.clone());
                let kind = Kind::Term(Expression::new(term, &receiver, typing)?);
                return Ok(Self { kind, of_type: of_type.clone() });
            }
            let item = Self::new(argument, named, typing)?;
            if of_type.assignable_from(&item.of_type) {
                return Ok(item);
            }
            Err(CqlError::invalid(format!(
                "Type error: {argument} cannot be passed as argument {at} of function {name} of \
                 type {of_type}"
            )))
        });
        let items = items.collect::<Result<_, CqlError>>()?;
        let of_type = call.returns.clone();
        Ok(Self { kind: Kind::Call(call, items), of_type })
    }

    fn is_aggregate(&self) -> bool {
        match &self.kind {
            Kind::CountRows | Kind::Aggregate(..) => true,
            Kind::Field(inner, _) => inner.is_aggregate(),
            Kind::Call(_, arguments) => arguments.iter().any(Self::is_aggregate),
            Kind::Column(_) | Kind::WriteTime(_) | Kind::Ttl(_) | Kind::Term(_) => false,
        }
    }

    fn needs(&self, needed: &mut [bool]) {
        match &self.kind {
            Kind::Column(column) | Kind::WriteTime(column) | Kind::Ttl(column) => {
                needed[*column] = true;
            }
            Kind::Field(inner, _) | Kind::Aggregate(_, inner) => inner.needs(needed),
            Kind::Call(_, arguments) => arguments.iter().for_each(|it| it.needs(needed)),
            Kind::Term(_) | Kind::CountRows => {}
        }
    }

    fn evaluate<'r>(
        &'r self,
        row: &'r Row<'_>,
        context: &'r Context<'r>,
    ) -> Result<Value<'r>, CqlError> {
        Ok(match &self.kind {
            Kind::Column(column) => row.value(context.table, *column),
            Kind::Field(inner, at) => field(inner.evaluate(row, context)?, *at),
            Kind::WriteTime(column) => {
                row.cell(*column).map(|cell| Cow::Owned(cell.timestamp().to_be_bytes().to_vec()))
            }
            Kind::Ttl(column) => row.cell(*column).and_then(|cell| {
                let seconds = context.moment.micros.div_euclid(1_000_000);
                let left = cell.expiry().map(|expiry| (expiry.at - seconds) as i32);
                left.map(|left| Cow::Owned(left.to_be_bytes().to_vec()))
            }),
            Kind::Call(call, arguments) => {
                let arguments = arguments.iter().map(|it| it.evaluate(row, context));
                let arguments: Vec<Value<'_>> = arguments.collect::<Result<_, _>>()?;
                call.evaluate(&arguments, context.moment)?.map(Cow::Owned)
            }
            Kind::Term(term) => term.evaluate(context.values)?.flatten(),
            Kind::CountRows | Kind::Aggregate(..) => None,
        })
    }

    /// Adds the states of its aggregates, in the order in which they are met.
    fn begin(&self, states: &mut Vec<State>) {
        match &self.kind {
            Kind::CountRows => states.push(State::default()),
            Kind::Aggregate(_, inner) => {
                states.push(State {
                    sum: inner.of_type.native().and_then(Sum::new),
                    ..State::default()
                });
            }
            Kind::Field(inner, _) => inner.begin(states),
            Kind::Call(_, arguments) => arguments.iter().for_each(|it| it.begin(states)),
            Kind::Column(_) | Kind::WriteTime(_) | Kind::Ttl(_) | Kind::Term(_) => {}
        }
    }

    fn add(
        &self,
        states: &mut [State],
        at: &mut usize,
        row: &Row<'_>,
        context: &Context<'_>,
    ) -> Result<(), CqlError> {
        match &self.kind {
            Kind::CountRows => {
                states[*at].rows += 1;
                *at += 1;
            }
            Kind::Aggregate(aggregate, inner) => {
                let state = &mut states[*at];
                *at += 1;
                let Some(value) = inner.evaluate(row, context)? else { return Ok(()) };
                state.rows += 1;
                state.take(*aggregate, &inner.of_type, &value)?;
            }
            Kind::Field(inner, _) => inner.add(states, at, row, context)?,
            Kind::Call(_, arguments) => {
                for argument in arguments {
                    argument.add(states, at, row, context)?;
                }
            }
            Kind::Column(_) | Kind::WriteTime(_) | Kind::Ttl(_) | Kind::Term(_) => {}
        }
        Ok(())
    }

    fn finish<'g>(
        &'g self,
        states: &'g [State],
        at: &mut usize,
        context: &'g Context<'g>,
    ) -> Result<Value<'g>, CqlError> {
        Ok(match &self.kind {
            Kind::CountRows => {
                let state = &states[*at];
                *at += 1;
                Some(Cow::Owned(state.rows.to_be_bytes().to_vec()))
            }
            Kind::Aggregate(aggregate, _) => {
                let state = &states[*at];
                *at += 1;
                state.result(*aggregate)?
            }
            Kind::Field(inner, field_at) => field(inner.finish(states, at, context)?, *field_at),
            Kind::Call(call, arguments) => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(argument.finish(states, at, context)?);
                }
                call.evaluate(&values, context.moment)?.map(Cow::Owned)
            }
            Kind::Term(term) => term.evaluate(context.values)?.flatten(),
            Kind::Column(_) | Kind::WriteTime(_) | Kind::Ttl(_) => None,
        })
    }
}

impl State {
    fn take(
        &mut self,
        aggregate: Aggregate,
        of_type: &CqlType,
        value: &[u8],
    ) -> Result<(), CqlError> {
        match aggregate {
            Aggregate::Count => {}
            Aggregate::Min | Aggregate::Max => {
                let is_better = self.extreme.as_deref().is_none_or(|extreme| {
                    let order = of_type.compare(value, extreme);
                    if aggregate == Aggregate::Min { order.is_lt() } else { order.is_gt() }
                });
                if is_better {
                    self.extreme = Some(value.to_vec());
                }
            }
            Aggregate::Sum | Aggregate::Average => {
                if let Some(sum) = &mut self.sum {
                    sum.add(value).map_err(|error| CqlError::invalid(error.to_string()))?;
                }
            }
        }
        Ok(())
    }

    fn result(&self, aggregate: Aggregate) -> Result<Value<'_>, CqlError> {
        let number = match (aggregate, &self.sum) {
            (Aggregate::Sum, Some(sum)) => Some(sum.sum()),
            (Aggregate::Average, Some(sum)) => Some(sum.average()),
            _ => None,
        };
        let number = number.transpose().map_err(|error| CqlError::invalid(error.to_string()))?;
        Ok(match aggregate {
            Aggregate::Count => Some(Cow::Owned(self.rows.to_be_bytes().to_vec())),
            Aggregate::Min | Aggregate::Max => self.extreme.as_deref().map(Cow::Borrowed),
            Aggregate::Sum | Aggregate::Average => number.map(|it| Cow::Owned(it.encode())),
        })
    }
}

fn field(value: Value<'_>, at: usize) -> Value<'_> {
    let value = value?;
    let fields = collections::fields(&value).ok()?;
    fields.get(at).copied().flatten().map(|field| Cow::Owned(field.to_vec()))
}

/// A column with one cell, which knows when it was written.
fn single_cell(name: &str, function: &str, named: &Named<'_>) -> Result<usize, CqlError> {
    let column = named.column(name)?;
    let refuse = |what: &str| {
        Err(CqlError::invalid(format!("Cannot use selection function {function} on {what} {name}")))
    };
    match named.table.columns[column].kind {
        ColumnKind::PartitionKey | ColumnKind::Clustering { .. } => refuse("PRIMARY KEY part"),
        _ if is_multicell(named.table, column) => refuse("non-frozen collection"),
        _ => Ok(column),
    }
}
