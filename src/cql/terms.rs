//! Terms with their types: values that a statement gives, once its markers have values.

use super::ast::{ConstantKind, Term, TypeName};
use super::collections;
use super::error::CqlError;
use super::functions::{self, Call};
use super::types::TypeNames;
use super::wire::Value as Bound;
use crate::model::types::{CqlType, InvalidConstant, collection, tuple};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The bytes of a value; `None` for null.
pub(super) type Value<'v> = Option<Cow<'v, [u8]>>;

/// A place that takes a value: a column, or an argument of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Receiver {
    pub(super) keyspace: Arc<str>,
    pub(super) table: Arc<str>,
    pub(super) name: String,
    pub(super) of_type: CqlType,
}

impl Receiver {
    /// A part of the value, or another value in its context.
    pub(super) fn part(&self, name: impl Into<String>, of_type: CqlType) -> Self {
        Self { name: name.into(), of_type, ..self.clone() }
    }

    /// An element of a collection.
    fn element(&self, what: &str, of_type: &CqlType) -> Self {
        self.part(format!("{what}({})", self.name), of_type.clone())
    }
}

/// Receivers of the markers of a statement, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Markers(pub(super) Vec<Option<Receiver>>);

impl Markers {
    /// Notes the receiver of a marker.
    pub(super) fn put(&mut self, number: u16, receiver: Receiver) {
        let place = usize::from(number);
        if self.0.len() <= place {
            self.0.resize(place + 1, None);
        }
        self.0[place] = Some(receiver);
    }
}

/// State for the typing of terms.
pub(super) struct Typing<'t> {
    /// User types.
    pub(super) types: &'t dyn TypeNames,
    pub(super) markers: &'t mut Markers,
}

/// A term of known type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    Constant(Option<Vec<u8>>),
    Marker(u16, Receiver),
    /// A list, set, map, tuple or value of a user type. Maps have keys and values in turn.
    Composed(CqlType, String, Vec<Expression>),
    Call(Call, Vec<Expression>),
}

impl Expression {
    /// Gives a term the type of its receiver.
    pub(super) fn new(
        term: &Term,
        receiver: &Receiver,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        match term {
            Term::Null => Ok(Self::Constant(None)),
            Term::Constant(kind, text) => constant(*kind, text, (term, receiver)),
            Term::Marker(number) => {
                typing.markers.put(*number, receiver.clone());
                Ok(Self::Marker(*number, receiver.clone()))
            }
            Term::List(items) => list(items, receiver, typing),
            Term::Set(items) => set(items, receiver, typing),
            Term::Map(items) => map(items, receiver, typing),
            Term::Tuple(items) => tuple(items, receiver, typing),
            Term::Fields(fields) => user_value(fields, receiver, typing),
            Term::Call(name, arguments) => {
                let (call, arguments) =
                    functions::resolve_terms(name, arguments, Some(receiver), typing)?;
                if !receiver.of_type.assignable_from(&call.returns) {
                    return Err(CqlError::invalid(format!(
                        "Type error: cannot assign result of function {} (type {}) to {} (type {})",
                        call.name, call.returns, receiver.name, receiver.of_type
                    )));
                }
                Ok(Self::Call(call, arguments))
            }
            Term::Hint(name, inner) => hinted(name, inner, receiver, typing),
            Term::Negation(_) | Term::Arithmetic(..) => {
                Err(CqlError::unsupported("arithmetic on terms"))
            }
        }
    }

    /// Whether the value depends on nothing but the statement.
    pub(super) fn constant(&self) -> Option<&Option<Vec<u8>>> {
        match self {
            Self::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The value; `None` if a marker leaves it unset.
    pub(super) fn evaluate<'v>(
        &'v self,
        values: &'v Values<'v>,
    ) -> Result<Option<Value<'v>>, CqlError> {
        match self {
            Self::Constant(value) => Ok(Some(value.as_deref().map(Cow::Borrowed))),
            Self::Marker(number, receiver) => match values.get(*number) {
                Bound::Unset => Ok(None),
                Bound::Null => Ok(Some(None)),
                Bound::Bytes(bytes) => {
                    receiver.of_type.validate(bytes).map_err(CqlError::invalid_value)?;
                    Ok(Some(Some(sorted(receiver, bytes)?)))
                }
            },
            Self::Composed(of_type, name, parts) => {
                let parts = parts.iter().map(|part| part.evaluate(values));
                let parts: Vec<Option<Value<'_>>> = parts.collect::<Result<_, _>>()?;
                Ok(Some(Some(Cow::Owned(compose(of_type, name, parts)?))))
            }
            Self::Call(call, arguments) => {
                let mut evaluated = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    let value = argument.evaluate(values)?;
                    evaluated.push(value.ok_or_else(|| {
                        CqlError::invalid(format!(
                            "Invalid unset value for argument in call to function {}",
                            call.name
                        ))
                    })?);
                }
                Ok(Some(call.evaluate(&evaluated, values.moment)?.map(Cow::Owned)))
            }
        }
    }
}

/// Values of the markers of a statement, and the moment of its execution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values<'v> {
    bound: &'v [Bound<'v>],
    pub(super) moment: &'v functions::Moment,
}

impl<'v> Values<'v> {
    /// Values by number of the marker.
    pub(super) fn new(bound: &'v [Bound<'v>], moment: &'v functions::Moment) -> Self {
        Self { bound, moment }
    }

    fn get(&self, marker: u16) -> Bound<'v> {
        self.bound.get(usize::from(marker)).copied().unwrap_or(Bound::Null)
    }
}

fn constant(
    kind: ConstantKind,
    text: &str,
    (term, receiver): (&Term, &Receiver),
) -> Result<Expression, CqlError> {
    match receiver.of_type.from_constant(kind, text) {
        Ok(bytes) => Ok(Expression::Constant(Some(bytes))),
        Err(InvalidConstant::Kind) => Err(CqlError::invalid(format!(
            "Invalid {kind} constant ({term}) for \"{}\" of type {}",
            receiver.name, receiver.of_type
        ))),
        Err(error) => Err(CqlError::invalid(error.to_string())),
    }
}

/// A value with the elements of its set or map in order, as clients need not send them.
fn sorted<'v>(receiver: &Receiver, bytes: &'v [u8]) -> Result<Cow<'v, [u8]>, CqlError> {
    let of_type = &receiver.of_type;
    match of_type {
        CqlType::Frozen(inner) if matches!(**inner, CqlType::Set(_) | CqlType::Map(_)) => {
            let elements = collections::elements(of_type, bytes)?.into_iter();
            let elements = elements.map(|it| Some(Some(Cow::Borrowed(it)))).collect();
            compose(of_type, &receiver.name, elements).map(Cow::Owned)
        }
        _ => Ok(Cow::Borrowed(bytes)),
    }
}

/// Composes a value of parts that are all constant at once, or leaves it for later.
fn composed(receiver: &Receiver, parts: Vec<Expression>) -> Result<Expression, CqlError> {
    let (of_type, name) = (receiver.of_type.clone(), receiver.name.clone());
    if parts.iter().all(|part| part.constant().is_some()) {
        let values = parts.iter().map(|part| {
            let value = part.constant().and_then(|value| value.as_deref());
            Some(value.map(Cow::Borrowed))
        });
        let value = compose(&of_type, &name, values.collect())?;
        return Ok(Expression::Constant(Some(value)));
    }
    Ok(Expression::Composed(of_type, name, parts))
}

/// The bytes of a composed value. Sets and maps are sorted, and have each element once.
fn compose(
    of_type: &CqlType,
    name: &str,
    parts: Vec<Option<Value<'_>>>,
) -> Result<Vec<u8>, CqlError> {
    let of_type = of_type.unfrozen();
    if let CqlType::Tuple(_) | CqlType::User(_) = of_type {
        let unset = || CqlError::invalid(format!("Invalid unset value for tuple field of {name}"));
        let fields: Vec<Value<'_>> =
            parts.into_iter().map(|part| part.ok_or_else(unset)).collect::<Result<_, _>>()?;
        return Ok(tuple::pack(&fields));
    }
    let refuse =
        |what: &str| CqlError::invalid(format!("{what} is not supported inside collections"));
    let mut elements: Vec<Cow<'_, [u8]>> = Vec::with_capacity(parts.len());
    for part in parts {
        let value = part.ok_or_else(|| refuse("unset value"))?;
        elements.push(value.ok_or_else(|| refuse("null"))?);
    }
    Ok(match of_type {
        CqlType::Set(inner) => {
            elements.sort_by(|a, b| inner.compare(a, b));
            elements.dedup_by(|a, b| inner.compare(a, b).is_eq());
            collection::pack(&elements)
        }
        CqlType::Map(inner) => {
            let (pairs, _) = elements.as_chunks::<2>();
            let mut pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|[k, v]| (&**k, &**v)).collect();
            // Of equal keys the last counts.
            pairs.reverse();
            pairs.sort_by(|a, b| inner.0.compare(a.0, b.0));
            pairs.dedup_by(|a, b| inner.0.compare(a.0, b.0).is_eq());
            collection::pack_map(&pairs)
        }
        _ => collection::pack(&elements),
    })
}

fn wrong_literal(what: &str, receiver: &Receiver) -> CqlError {
    CqlError::invalid(format!(
        "Invalid {what} literal for {} of type {}",
        receiver.name, receiver.of_type
    ))
}

/// A part of a literal. A value of another type is the fault of the literal.
fn part(
    item: &Term,
    place: &Receiver,
    typing: &mut Typing<'_>,
    (literal, what): (String, impl fmt::Display),
) -> Result<Expression, CqlError> {
    Expression::new(item, place, typing).map_err(|error| match item {
        Term::Call(..) | Term::Negation(_) | Term::Arithmetic(..) => error,
        _ => CqlError::invalid(format!("{literal}: {what} is not of type {}", place.of_type)),
    })
}

fn list(
    items: &[Term],
    receiver: &Receiver,
    typing: &mut Typing<'_>,
) -> Result<Expression, CqlError> {
    let CqlType::List(inner) = receiver.of_type.unfrozen() else {
        return Err(wrong_literal("list", receiver));
    };
    elements(items, ("list", inner), receiver, typing)
}

fn set(
    items: &[Term],
    receiver: &Receiver,
    typing: &mut Typing<'_>,
) -> Result<Expression, CqlError> {
    match receiver.of_type.unfrozen() {
        // A map without entries is written in the same way.
        CqlType::Map(_) if items.is_empty() => map(&[], receiver, typing),
        CqlType::Set(inner) => elements(items, ("set", inner), receiver, typing),
        _ => Err(wrong_literal("set", receiver)),
    }
}

fn elements(
    items: &[Term],
    (what, inner): (&str, &CqlType),
    receiver: &Receiver,
    typing: &mut Typing<'_>,
) -> Result<Expression, CqlError> {
    let element = receiver.element("value", inner);
    let parts = items.iter().map(|item| {
        let literal = format!("Invalid {what} literal for {}", receiver.name);
        part(item, &element, typing, (literal, format_args!("value {item}")))
    });
    composed(receiver, parts.collect::<Result<_, _>>()?)
}

fn map(
    items: &[(Term, Term)],
    receiver: &Receiver,
    typing: &mut Typing<'_>,
) -> Result<Expression, CqlError> {
    let CqlType::Map(inner) = receiver.of_type.unfrozen() else {
        return Err(wrong_literal("map", receiver));
    };
    let (key, value) = (receiver.element("key", &inner.0), receiver.element("value", &inner.1));
    let literal = || format!("Invalid map literal for {}", receiver.name);
    let mut parts = Vec::with_capacity(items.len() * 2);
    for (k, v) in items {
        parts.push(part(k, &key, typing, (literal(), format_args!("key {k}")))?);
        parts.push(part(v, &value, typing, (literal(), format_args!("value {v}")))?);
    }
    composed(receiver, parts)
}

fn tuple(
    items: &[Term],
    receiver: &Receiver,
    typing: &mut Typing<'_>,
) -> Result<Expression, CqlError> {
    let types: Vec<CqlType> = match receiver.of_type.unfrozen() {
        CqlType::Tuple(types) => types.to_vec(),
        // In parentheses, a value of a user type is one of a tuple.
        _ if items.len() == 1 => return Expression::new(&items[0], receiver, typing),
        _ => return Err(wrong_literal("tuple type", receiver)),
    };
    let literal = || format!("Invalid tuple literal for {}", receiver.name);
    if items.len() > types.len() {
        return Err(CqlError::invalid(format!(
            "{}: too many elements. Type {} expects {} but got {}",
            literal(),
            receiver.of_type,
            types.len(),
            items.len()
        )));
    }
    let parts = items.iter().zip(types).enumerate().map(|(at, (item, of_type))| {
        let field = receiver.part(format!("{}[{at}]", receiver.name), of_type);
        part(item, &field, typing, (literal(), format_args!("component {at}")))
    });
    composed(receiver, parts.collect::<Result<_, _>>()?)
}

fn user_value(
    given: &[(String, Term)],
    receiver: &Receiver,
    typing: &mut Typing<'_>,
) -> Result<Expression, CqlError> {
    let CqlType::User(user) = receiver.of_type.unfrozen() else {
        return Err(wrong_literal("user type", receiver));
    };
    if let Some((unknown, _)) =
        given.iter().find(|(name, _)| user.fields.iter().all(|(field, _)| field != name))
    {
        return Err(CqlError::invalid(format!(
            "Unknown field '{unknown}' in value of user defined type {}",
            user.name
        )));
    }
    let parts = user.fields.iter().map(|(field, of_type)| {
        let term = given.iter().find(|(name, _)| name == field);
        let Some((_, term)) = term else { return Ok(Expression::Constant(None)) };
        let part = receiver.part(format!("{}.{field}", receiver.name), of_type.clone());
        Expression::new(term, &part, typing)
    });
    composed(receiver, parts.collect::<Result<_, _>>()?)
}

fn hinted(
    name: &TypeName,
    inner: &Term,
    receiver: &Receiver,
    typing: &mut Typing<'_>,
) -> Result<Expression, CqlError> {
    let of_type = typing.types.resolve(name, &receiver.keyspace)?;
    if !receiver.of_type.assignable_from(&of_type) {
        return Err(CqlError::invalid(format!(
            "Cannot assign value {} to {} of type {}",
            of_type, receiver.name, receiver.of_type
        )));
    }
    Expression::new(inner, &receiver.part(receiver.name.clone(), of_type), typing)
}

/// The type of a term by its form alone; `None` if it has several or is a marker.
pub(super) fn natural_type(term: &Term, typing: &Typing<'_>) -> Option<CqlType> {
    match term {
        Term::Constant(kind, text) => Some(kind.preferred_type(text).into()),
        Term::Hint(name, _) => typing.types.resolve(name, "").ok(),
        _ => None,
    }
}
