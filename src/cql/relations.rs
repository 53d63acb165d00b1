//! Relations of WHERE: their types, and which rows they hold for.

use super::ast::{Object, Operator, Relation, Subject, Term};
use super::collections;
use super::error::CqlError;
use super::functions;
use super::rows::Row;
use super::terms::{Expression, Receiver, Typing, Value, Values};
use super::windows::MostlyOne;
use crate::model::table::Table;
use crate::model::types::CqlType;
use crate::service::Partitioner;
use smallvec::smallvec;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

/// A table with its name, for messages and metadata.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'t> {
    pub(super) keyspace: &'t str,
    pub(super) name: &'t str,
    pub(super) table: &'t Table,
    pub(super) partitioner: Partitioner,
}

impl Named<'_> {
    /// The number of a column that has to exist.
    pub(super) fn column(&self, name: &str) -> Result<usize, CqlError> {
        let unknown = || CqlError::invalid(format!("Undefined column name {name}"));
        let column = self.table.column(name);
        column.filter(|it| !self.table.columns[*it].is_hidden()).ok_or_else(unknown)
    }

    /// A receiver of this table.
    pub(super) fn receiver(&self, name: &str, of_type: CqlType) -> Receiver {
        let (keyspace, table) = (Arc::from(self.keyspace), Arc::from(self.name));
        Receiver { keyspace, table, name: name.to_owned(), of_type }
    }

    /// The receiver of a column.
    pub(super) fn of_column(&self, column: usize) -> Receiver {
        let column = &self.table.columns[column];
        self.receiver(&column.name, column.of_type.clone())
    }
}

/// The left side of a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Left {
    Column(usize),
    Element(usize, Expression),
    Columns(Vec<usize>),
    Token,
}

/// The right side of a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Right {
    One(Expression),
    /// The values of `IN (…)`.
    Several(Vec<Expression>),
    /// A list, as `IN ?`.
    List(Expression),
}

/// A relation of known types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) left: Left,
    pub(super) operator: Operator,
    pub(super) right: Right,
    /// Type of the values on the right; those of several columns are tuples.
    of_type: CqlType,
    pub(super) name: String,
}

impl Condition {
    /// Looks up the names of a relation, and gives its terms their types.
    pub(super) fn new(
        relation: &Relation,
        named: &Named<'_>,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        let (left, receiver) = left(relation, named, typing)?;
        check_tuples(relation)?;
        let Relation { mut operator, ref object, .. } = *relation;
        let mut right = match object {
            Object::Term(Term::Call(function, arguments))
                if left == Left::Token && function.name == "token" =>
            {
                Right::One(token_of(arguments, named, typing)?)
            }
            _ => right(relation, &receiver, typing)?,
        };
        if let Right::Several(values) = &mut right
            && values.len() == 1
            && let Some(only) = values.pop()
        {
            (operator, right) = (Operator::Equal, Right::One(only));
        }
        let Receiver { name, of_type, .. } = receiver;
        let name = match &relation.subject {
            Subject::Column(column) | Subject::Element(column, _) => column.clone(),
            _ => name,
        };
        Ok(Self { left, operator, right, of_type, name })
    }

    /// Numbers of the columns of its left side.
    pub(super) fn columns(&self) -> &[usize] {
        match &self.left {
            Left::Column(column) | Left::Element(column, _) => std::slice::from_ref(column),
            Left::Columns(columns) => columns,
            Left::Token => &[],
        }
    }

    /// The relation with values, to look at rows with or, if not, to find them by.
    pub(super) fn bind<'v>(
        &'v self,
        values: &'v Values<'v>,
        is_filter: bool,
    ) -> Result<Check<'v>, CqlError> {
        let name = &self.name;
        let one = |expression: &'v Expression, what| -> Result<Cow<'v, [u8]>, CqlError> {
            let value = expression.evaluate(values)?;
            let wrong = |missing| {
                CqlError::invalid(match (is_filter, missing) {
                    (true, _) => format!("Unsupported {missing} {what} for column {name}"),
                    (_, "null") => format!("Invalid null value in condition for column {name}"),
                    _ => format!("Invalid {missing} value for column {name}"),
                })
            };
            value.ok_or_else(|| wrong("unset"))?.ok_or_else(|| wrong("null"))
        };
        let is_element = matches!(self.left, Left::Element(..));
        let value = |expression| one(expression, if is_element { "map value" } else { "value" });
        let values: MostlyOne<Cow<'v, [u8]>> = match &self.right {
            Right::One(expression) => smallvec![value(expression)?],
            Right::Several(list) => list.iter().map(value).collect::<Result<_, _>>()?,
            Right::List(list) => {
                let list = value(list)?;
                let list_type = CqlType::List(Arc::new(self.of_type.clone()));
                let elements = collections::elements(&list_type, &list)?;
                elements.into_iter().map(|it| Cow::Owned(it.to_vec())).collect()
            }
        };
        let element = match &self.left {
            Left::Element(_, key) => Some(one(key, "map key")?),
            _ => None,
        };
        Ok(Check { condition: self, element, values })
    }
}

/// A tuple on the right of several columns has a value for each of them.
fn check_tuples(relation: &Relation) -> Result<(), CqlError> {
    let Subject::Columns(names) = &relation.subject else { return Ok(()) };
    let terms = match &relation.object {
        Object::Term(term) => std::slice::from_ref(term),
        Object::List(terms) => terms,
    };
    for term in terms {
        if let Term::Tuple(items) = term
            && items.len() != names.len()
        {
            return Err(CqlError::invalid(format!(
                "Expected {} elements in value tuple, but got {}: {term}",
                names.len(),
                items.len(),
            )));
        }
    }
    Ok(())
}

/// The right side of a relation whose left side is a value of the receiver.
pub(super) fn right(
    relation: &Relation,
    receiver: &Receiver,
    typing: &mut Typing<'_>,
) -> Result<Right, CqlError> {
    match &relation.object {
        Object::Term(term) if relation.operator == Operator::In => {
            let list = CqlType::List(Arc::new(receiver.of_type.clone()));
            let receiver = receiver.part(format!("in({})", receiver.name), list);
            Ok(Right::List(Expression::new(term, &receiver, typing)?))
        }
        Object::Term(term) => Ok(Right::One(Expression::new(term, receiver, typing)?)),
        Object::List(terms) => {
            let terms = terms.iter().map(|term| Expression::new(term, receiver, typing));
            Ok(Right::Several(terms.collect::<Result<_, _>>()?))
        }
    }
}

fn left(
    relation: &Relation,
    named: &Named<'_>,
    typing: &mut Typing<'_>,
) -> Result<(Left, Receiver), CqlError> {
    let operator = relation.operator;
    match &relation.subject {
        Subject::Column(name) => of_column(name, operator, named),
        Subject::Element(name, key) => {
            let column = named.column(name)?;
            let receiver = named.of_column(column);
            if let CqlType::Frozen(inner) = &receiver.of_type
                && let CqlType::Map(_) = **inner
            {
                return Err(CqlError::invalid(format!(
                    "Map-entry equality predicates on frozen map column {name} are not supported"
                )));
            }
            let CqlType::Map(inner) = receiver.of_type.unfrozen() else {
                let why = match receiver.of_type.unfrozen() {
                    CqlType::List(_) => {
                        format!(
                            "Indexes on list entries ({name}[index] = value) are not supported."
                        )
                    }
                    _ => format!("Column {name} cannot be used as a map"),
                };
                return Err(CqlError::invalid(why));
            };
            if operator != Operator::Equal {
                return Err(CqlError::invalid("Only EQ relations are supported on map entries"));
            }
            let key_receiver = receiver.part(format!("key({name})"), inner.0.clone());
            let key = Expression::new(key, &key_receiver, typing)?;
            let value = receiver.part(format!("value({name})"), inner.1.clone());
            Ok((Left::Element(column, key), value))
        }
        Subject::Field(name, _) => {
            Err(CqlError::invalid(format!("Fields of {name} cannot be restricted in WHERE")))
        }
        Subject::Columns(several) => of_columns(several, relation, named),
        Subject::Token(given) => {
            let key: Vec<&str> = named.table.columns[..named.table.key_length()]
                .iter()
                .map(|column| column.name.as_str())
                .collect();
            given.iter().try_for_each(|name| named.column(name).map(|_| ()))?;
            if key != given.iter().map(String::as_str).collect::<Vec<_>>() {
                return Err(CqlError::invalid(format!(
                    "The token function arguments must be in the partition key order: {}",
                    key.join(", ")
                )));
            }
            let of_type = functions::token_type(named.partitioner);
            Ok((Left::Token, named.receiver("partition key token", of_type)))
        }
    }
}

/// A column as the left side, and the type of the values that it is compared with.
fn of_column(
    name: &str,
    operator: Operator,
    named: &Named<'_>,
) -> Result<(Left, Receiver), CqlError> {
    let column = named.column(name)?;
    let receiver = named.of_column(column);
    if is_slice(operator)
        && let Some(durations) = receiver.of_type.durations()
    {
        let what = if durations == "durations" { "duration columns" } else { durations };
        let why = format!("Slice restrictions are not supported on {what}");
        return Err(CqlError::invalid(why));
    }
    let receiver = match (operator, receiver.of_type.unfrozen()) {
        (Operator::Contains, CqlType::List(inner) | CqlType::Set(inner)) => {
            receiver.part(format!("value({name})"), (**inner).clone())
        }
        (Operator::Contains, CqlType::Map(inner)) => {
            receiver.part(format!("value({name})"), inner.1.clone())
        }
        (Operator::ContainsKey, CqlType::Map(inner)) => {
            receiver.part(format!("key({name})"), inner.0.clone())
        }
        (Operator::Contains, _) => {
            let why = format!("Cannot use CONTAINS on non-collection column {name}");
            return Err(CqlError::invalid(why));
        }
        (Operator::ContainsKey, _) => {
            let why = format!("Cannot use CONTAINS KEY on non-map column {name}");
            return Err(CqlError::invalid(why));
        }
        (_, inner) if receiver.of_type.is_multicell() => {
            let what = if matches!(inner, CqlType::User(_)) { "UDT" } else { "Collection" };
            return Err(CqlError::invalid(format!(
                "{what} column '{name}' ({}) cannot be restricted by a '{operator}' relation",
                receiver.of_type
            )));
        }
        _ => receiver,
    };
    Ok((Left::Column(column), receiver))
}

/// Several columns as the left side.
fn of_columns(
    names: &[String],
    relation: &Relation,
    within: &Named<'_>,
) -> Result<(Left, Receiver), CqlError> {
    let columns: Vec<usize> =
        names.iter().map(|name| within.column(name)).collect::<Result<_, _>>()?;
    let clustering = within.table.clustering();
    for (at, (column, name)) in columns.iter().zip(names).enumerate() {
        if !clustering.contains(column) {
            return Err(CqlError::invalid(format!(
                "Multi-column relations can only be applied to clustering columns but was \
                 applied to: {name}"
            )));
        }
        if columns[..at].contains(column) {
            return Err(CqlError::invalid(format!(
                "Column \"{name}\" appeared twice in a relation: {relation}"
            )));
        }
        if at > 0 && *column != columns[at - 1] + 1 {
            return Err(CqlError::invalid(format!(
                "Clustering columns must appear in the PRIMARY KEY order in multi-column \
                 relations: {relation}"
            )));
        }
    }
    let types = columns.iter().map(|it| within.table.columns[*it].of_type.clone());
    let tuple = CqlType::Tuple(types.collect());
    let receiver = within.receiver(&format!("({})", names.join(",")), tuple);
    Ok((Left::Columns(columns), receiver))
}

/// `token(…)` of values for the columns of the partition key.
fn token_of(
    arguments: &[Term],
    named: &Named<'_>,
    typing: &mut Typing<'_>,
) -> Result<Expression, CqlError> {
    let key = 0..named.table.key_length();
    if arguments.len() != key.len() {
        return Err(CqlError::invalid(format!(
            "Invalid number of arguments in call to function system.token: {} required but {} \
             provided",
            key.len(),
            arguments.len()
        )));
    }
    let types = key.clone().map(|column| named.table.columns[column].of_type.clone());
    let call = functions::token_call(types.collect(), named.partitioner);
    let arguments = arguments.iter().zip(key).map(|(argument, column)| {
        let of_type = named.table.columns[column].of_type.clone();
        let name = format!("arg{column}(system.token)");
        Expression::new(argument, &named.receiver(&name, of_type), typing)
    });
    Ok(Expression::Call(call, arguments.collect::<Result<_, _>>()?))
}

/// Whether an operator names one end of a range.
pub(super) fn is_slice(operator: Operator) -> bool {
    use Operator::{Greater, GreaterOrEqual, Less, LessOrEqual};
    matches!(operator, Less | LessOrEqual | Greater | GreaterOrEqual)
}

/// Whether two values that compare so fulfil an operator.
pub(super) fn fulfils(operator: Operator, order: Ordering) -> bool {
    match operator {
        Operator::Equal | Operator::In => order.is_eq(),
        Operator::NotEqual => order.is_ne(),
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        Operator::GreaterOrEqual => order.is_ge(),
        Operator::Contains | Operator::ContainsKey | Operator::Like | Operator::IsNotNull => false,
    }
}

/// A relation whose values are known.
#[derive(Debug)]
pub(super) struct Check<'v> {
    pub(super) condition: &'v Condition,
    element: Option<Cow<'v, [u8]>>,
    pub(super) values: MostlyOne<Cow<'v, [u8]>>,
}

impl Check<'_> {
    /// Whether the relation holds for a row. None holds for null.
    pub(super) fn holds(&self, table: &Table, row: &Row<'_>, partitioner: Partitioner) -> bool {
        let Condition { left, operator, of_type, .. } = self.condition;
        let fulfilled = |value: &[u8]| {
            self.values.iter().any(|wanted| fulfils(*operator, of_type.compare(value, wanted)))
        };
        match left {
            Left::Column(column) => {
                let Some(value) = row.value(table, *column) else { return false };
                match (operator, table.columns[*column].of_type.unfrozen()) {
                    (Operator::Contains | Operator::ContainsKey, collected) => {
                        self.contains(collected, *operator, &value)
                    }
                    _ => fulfilled(&value),
                }
            }
            Left::Element(column, _) => {
                let Some(map) = row.value(table, *column) else { return false };
                let CqlType::Map(inner) = table.columns[*column].of_type.unfrozen() else {
                    return false;
                };
                let map_type = &table.columns[*column].of_type;
                let elements = collections::elements(map_type, &map).unwrap_or_default();
                let key = self.element.as_deref().unwrap_or_default();
                let found = elements.chunks_exact(2).find(|it| inner.0.compare(it[0], key).is_eq());
                found.is_some_and(|it| fulfilled(it[1]))
            }
            Left::Columns(columns) => {
                let parts: Option<Vec<Cow<'_, [u8]>>> =
                    columns.iter().map(|column| row.value(table, *column)).collect();
                let Some(parts) = parts else { return false };
                // A tuple may have fewer parts than columns.
                self.values.iter().any(|wanted| {
                    let wanted = collections::fields(wanted).unwrap_or_default();
                    let order = columns.iter().zip(&parts).zip(wanted).fold(
                        Ordering::Equal,
                        |order, ((column, part), wanted)| {
                            let of_type = &table.columns[*column].of_type;
                            let wanted = wanted.unwrap_or_default();
                            order.then_with(|| of_type.compare(part, wanted))
                        },
                    );
                    fulfils(*operator, order)
                })
            }
            Left::Token => {
                let parts: Vec<Value<'_>> =
                    (0..table.key_length()).map(|column| row.value(table, column)).collect();
                let parts: Option<Vec<&[u8]>> = parts.iter().map(|it| it.as_deref()).collect();
                parts.is_some_and(|parts| fulfilled(&functions::token(partitioner, &parts)))
            }
        }
    }

    fn contains(&self, collected: &CqlType, operator: Operator, value: &[u8]) -> bool {
        let elements = collections::elements(collected, value).unwrap_or_default();
        let wanted = self.values.first().map(|it| &**it).unwrap_or_default();
        let is_it = |of_type: &CqlType, value: &[u8]| of_type.compare(value, wanted).is_eq();
        match (collected, operator) {
            (CqlType::List(inner) | CqlType::Set(inner), _) => {
                elements.iter().any(|it| is_it(inner, it))
            }
            (CqlType::Map(inner), Operator::ContainsKey) => {
                elements.chunks_exact(2).any(|it| is_it(&inner.0, it[0]))
            }
            (CqlType::Map(inner), _) => elements.chunks_exact(2).any(|it| is_it(&inner.1, it[1])),
            _ => false,
        }
    }
}
