//! Names, keys and values: from terms to bytes, and from bytes to text and JSON.

use super::lexer::Span;
use super::mistake::Mistake;
use super::statement::{Term, TermKind};
use crate::base::clock::{Clock, SystemClock};
use crate::model::comparator::{Comparator, ComparatorRegistry, composite, shown_bytes};
use crate::model::types::{CqlType, Native};
use serde_json::value::RawValue;
use std::borrow::Cow;
use uuid::{Builder, timestamp::UUID_TICKS_BETWEEN_EPOCHS as GREGORIAN};

/// Names of types that the original tools had, besides those of CQL and of classes.
const ALIASES: [(&str, Native); 6] = [
    ("bytes", Native::Blob),
    ("utf8", Native::Text),
    ("long", Native::Bigint),
    ("integer", Native::Varint),
    ("lexicaluuid", Native::Uuid),
    ("bool", Native::Boolean),
];

/// Place of a name in a slice. A time or the first components stand for many names there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Exact,
    From,
    To,
}

/// The type of a name: an alias, one of CQL, or a class.
pub(super) fn type_named(name: &str) -> Option<CqlType> {
    let lower = name.to_ascii_lowercase();
    let alias = ALIASES.iter().find(|(alias, _)| *alias == lower).map(|(_, native)| *native);
    let native = alias.or_else(|| Native::from_name(&lower));
    native.map(CqlType::Native).or_else(|| CqlType::from_class(name))
}

/// A name of a type that does not exist.
pub(super) fn unknown_type(span: Span, name: &str) -> Mistake {
    let known = Native::ALL.iter().map(|it| it.name());
    let known = known.chain(ALIASES.map(|(alias, _)| alias)).chain(["composite"]);
    Mistake::at(span, format!("no type '{name}'")).or_meant(name, known)
}

/// The comparator of the name of a type.
pub(super) fn comparator_named(name: &str) -> Option<Comparator> {
    let class = type_named(name).map_or_else(|| name.to_owned(), |it| it.class_name());
    ComparatorRegistry::default().resolve(&class)
}

/// The name that a term stands for.
pub(super) fn name(comparator: &Comparator, term: &Term, place: Place) -> Result<Vec<u8>, Mistake> {
    let components = comparator.components();
    let mut bytes = match &term.kind {
        TermKind::Text(text) => match comparator.parse(text) {
            Ok(bytes) => bytes,
            Err(error) => {
                let bound = time(text).filter(|_| *comparator == Comparator::TimeUuid);
                match bound {
                    Some(millis) if place != Place::Exact => time_uuid(millis, place),
                    Some(_) => {
                        let text = "a time alone is no name: many columns may have it";
                        let hint = "in 'from' and 'to' a time will do; a new name is timeuuid(now)";
                        return Err(Mistake::at(term.span.clone(), text).hinted(hint));
                    }
                    None => return Err(no_value(term, text, &short_class(comparator), &error)),
                }
            }
        },
        TermKind::Typed { type_name, arguments } if type_name.eq_ignore_ascii_case("composite") => {
            if arguments.is_empty() || arguments.len() > components.len() {
                let text =
                    format!("names of this column family have {} parts", components.len().max(1));
                return Err(Mistake::at(term.span.clone(), text));
            }
            let parts = components.iter().zip(arguments).map(|(it, part)| name(it, part, place));
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            composite::encode(parts.iter().map(Vec::as_slice), 0)
        }
        TermKind::Typed { type_name, arguments } => typed(term, type_name, arguments, place)?,
    };
    if let Some(last) = bytes.last_mut().filter(|_| !components.is_empty() && place == Place::To) {
        // All names that begin with these components.
        *last = 1;
    }
    comparator
        .validate(&bytes)
        .map_err(|error| Mistake::at(term.span.clone(), error.to_string()))?;
    Ok(bytes)
}

/// The value that a term stands for. Without a type it is text.
pub(super) fn value(of_type: Option<&CqlType>, term: &Term) -> Result<Vec<u8>, Mistake> {
    let of_type = of_type.filter(|it| **it != CqlType::Native(Native::Blob));
    let bytes = match (&term.kind, of_type) {
        (TermKind::Text(text), None) => text.as_bytes().to_vec(),
        (TermKind::Text(text), Some(of_type)) => parse(of_type, text)
            .map_err(|error| no_value(term, text, &of_type.to_string(), &error))?,
        (TermKind::Typed { type_name, arguments }, _) => {
            typed(term, type_name, arguments, Place::Exact)?
        }
    };
    if let Some(of_type) = of_type {
        let invalid = |error| Mistake::at(term.span.clone(), format!("no {of_type}: {error}"));
        of_type.validate(&bytes).map_err(invalid)?;
    }
    Ok(bytes)
}

fn no_value(term: &Term, text: &str, type_name: &str, error: &str) -> Mistake {
    Mistake::at(term.span.clone(), format!("'{text}' is no {type_name}: {error}"))
}

fn parse(of_type: &CqlType, text: &str) -> Result<Vec<u8>, String> {
    match of_type {
        CqlType::Native(Native::Blob) => {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            of_type.from_string(digits).map_err(|error| error.to_string())
        }
        CqlType::Native(_) | CqlType::Custom(_) => {
            of_type.from_string(text).map_err(|error| error.to_string())
        }
        _ => match of_type.from_json(text) {
            Ok(value) => value.ok_or_else(|| "null is no value".to_owned()),
            Err(error) => Err(error.to_string()),
        },
    }
}

/// The value of `type(…)`.
fn typed(
    term: &Term,
    type_name: &str,
    arguments: &[Term],
    place: Place,
) -> Result<Vec<u8>, Mistake> {
    let unknown = || unknown_type(term.span.clone(), type_name);
    let of_type = type_named(type_name).ok_or_else(unknown)?;
    let is_time_uuid = of_type == CqlType::Native(Native::Timeuuid);
    let text = match arguments {
        [] if is_time_uuid => "now",
        [Term { kind: TermKind::Text(text), .. }] => text,
        _ => {
            let text = format!("{type_name}(…) takes one text or number");
            return Err(Mistake::at(term.span.clone(), text));
        }
    };
    if is_time_uuid {
        if text.eq_ignore_ascii_case("now") {
            return Ok(new_time_uuid());
        }
        if let Some(millis) = time(text) {
            return Ok(time_uuid(millis, place));
        }
    }
    parse(&of_type, text).map_err(|error| no_value(term, text, type_name, &error))
}

/// The milliseconds of a time that is written as a date; a number is none.
fn time(text: &str) -> Option<i64> {
    let is_date = text.contains('-') && text.len() < 36;
    let bytes = CqlType::Native(Native::Timestamp).from_string(text).ok().filter(|_| is_date)?;
    bytes.first_chunk().map(|bytes| i64::from_be_bytes(*bytes))
}

/// The least UUID of a millisecond, or at the end of a slice the greatest.
fn time_uuid(millis: i64, place: Place) -> Vec<u8> {
    let (more, counter, node) =
        if place == Place::To { (9_999, 0x3fff, [0xff; 6]) } else { (0, 0, [0; 6]) };
    let ticks = millis.saturating_mul(10_000).saturating_add(more);
    let ticks = (ticks as u64).wrapping_add(GREGORIAN);
    Builder::from_gregorian_timestamp(ticks, counter, &node).into_uuid().as_bytes().to_vec()
}

fn new_time_uuid() -> Vec<u8> {
    let ticks = (SystemClock::new().now_micros() as u64).wrapping_mul(10).wrapping_add(GREGORIAN);
    let random = fastrand::u64(..).to_be_bytes();
    let node: [u8; 6] = random.first_chunk().copied().unwrap_or_default();
    let counter = u16::from_be_bytes([random[6], random[7]]) & 0x3fff;
    Builder::from_gregorian_timestamp(ticks, counter, &node).into_uuid().as_bytes().to_vec()
}

/// Class name of a comparator, without the package of the original.
pub(super) fn short_class(comparator: &Comparator) -> String {
    comparator.class_name().replace(crate::model::comparator::CLASS_PREFIX, "")
}

/// A value as text. Without a type it is text, as in the original.
pub(super) fn shown_value<'v>(of_type: Option<&CqlType>, value: &'v [u8]) -> Cow<'v, str> {
    match of_type {
        Some(CqlType::Native(Native::Blob)) => Cow::Owned(shown_bytes(value)),
        Some(of_type) => Cow::Owned(of_type.show(value)),
        None => String::from_utf8_lossy(value),
    }
}

/// A name as JSON: numbers as such, others as text.
pub(super) fn json_name(comparator: &Comparator, name: &[u8]) -> String {
    let of_type = CqlType::from_class(&comparator.class_name());
    let number = of_type.filter(|it| it.native().is_some_and(Native::is_number));
    match number {
        Some(number) => json_of(&number, name),
        None => json_text(comparator.show(name)),
    }
}

/// A value as JSON.
pub(super) fn json_value(of_type: Option<&CqlType>, value: &[u8]) -> String {
    match of_type.filter(|it| **it != CqlType::Native(Native::Blob)) {
        Some(of_type) => json_of(of_type, value),
        None => json_text(shown_bytes(value)),
    }
}

/// A value as JSON with all digits of its numbers.
fn json_of(of_type: &CqlType, value: &[u8]) -> String {
    let json = of_type.to_json(value);
    if serde_json::from_str::<&RawValue>(&json).is_ok() { json } else { json_text(json) }
}

/// A text as JSON.
pub(super) fn json_text(text: impl Into<String>) -> String {
    serde_json::Value::String(text.into()).to_string()
}
