//! Types by their Java class names, such as
//! `org.apache.cassandra.db.marshal.ListType(org.apache.cassandra.db.marshal.Int32Type)`.

use super::native::CLASS_PREFIX;
use super::scanner::Scanner;
use super::{CqlType, Native, UserType, hex, unhex};
use std::sync::Arc;

/// Greatest depth of nested class names, and of types that the schema holds. A statement has half
/// as many levels, each of which may be a class and its `FrozenType`.
pub const MAX_TYPE_DEPTH: usize = 128;

/// The one class of old column families that has no name in CQL.
const LEXICAL_UUID: &str = "LexicalUUIDType";

impl CqlType {
    /// The type of a class. The package may be left out. Classes that are no types of values, such
    /// as `ReversedType` and `CompositeType`, are unknown here.
    pub fn from_class(class: &str) -> Option<Self> {
        let mut scanner = Scanner::new(class);
        scanner.skip_blanks();
        let of_type = read_type(&mut scanner, MAX_TYPE_DEPTH)?;
        scanner.is_at_end().then_some(of_type)
    }

    /// The full class name.
    pub fn class_name(&self) -> String {
        let mut text = String::new();
        write_class(&mut text, self, false);
        text
    }
}

fn read_type(scanner: &mut Scanner<'_>, depth: usize) -> Option<CqlType> {
    let depth = depth.checked_sub(1)?;
    let class = read_word(scanner);
    let class = class.strip_prefix(CLASS_PREFIX).unwrap_or(class);
    if !eat(scanner, '(') {
        return match class {
            LEXICAL_UUID => Some(CqlType::Custom(format!("{CLASS_PREFIX}{class}").into())),
            _ => Native::from_short_class(class).map(CqlType::Native),
        };
    }
    if class == "UserType" {
        return read_user_type(scanner, depth);
    }
    let mut parts = vec![read_type(scanner, depth)?];
    while !eat(scanner, ')') {
        if !eat(scanner, ',') {
            return None;
        }
        parts.push(read_type(scanner, depth)?);
    }
    made_of(class, parts)
}

fn made_of(class: &str, mut parts: Vec<CqlType>) -> Option<CqlType> {
    if class == "TupleType" {
        return Some(CqlType::Tuple(parts.into()).frozen());
    }
    let last = parts.pop()?;
    match (class, parts.pop()) {
        ("ListType", None) => Some(CqlType::List(Arc::new(last))),
        ("SetType", None) => Some(CqlType::Set(Arc::new(last))),
        ("MapType", Some(key)) if parts.is_empty() => Some(CqlType::Map(Arc::new((key, last)))),
        ("FrozenType", None) => Some(last.frozen()),
        _ => None,
    }
}

/// Reads `keyspace,name,field:type,…)`: the name of the type and those of its fields in
/// hexadecimal digits.
fn read_user_type(scanner: &mut Scanner<'_>, depth: usize) -> Option<CqlType> {
    let name = |scanner: &mut Scanner<'_>| String::from_utf8(unhex(read_word(scanner))?).ok();
    let keyspace = read_word(scanner).to_owned();
    if !eat(scanner, ',') {
        return None;
    }
    let type_name = name(scanner)?;
    let mut fields = Vec::new();
    while !eat(scanner, ')') {
        if !eat(scanner, ',') {
            return None;
        }
        let field = name(scanner)?;
        if !eat(scanner, ':') {
            return None;
        }
        fields.push((field, read_type(scanner, depth)?));
    }
    Some(CqlType::User(Arc::new(UserType { keyspace, name: type_name, fields })))
}

fn read_word<'a>(scanner: &mut Scanner<'a>) -> &'a str {
    let word = scanner.take_while(|c| c.is_ascii_alphanumeric() || "-+._&".contains(c));
    scanner.skip_blanks();
    word
}

fn eat(scanner: &mut Scanner<'_>, punctuation: char) -> bool {
    let is_next = scanner.eat(punctuation);
    if is_next {
        scanner.skip_blanks();
    }
    is_next
}

/// Writes a class. Within a frozen type and within a tuple all is frozen, and `FrozenType` is left
/// out.
fn write_class(text: &mut String, of_type: &CqlType, is_frozen: bool) {
    match of_type {
        CqlType::Native(native) => {
            text.push_str(CLASS_PREFIX);
            text.push_str(native.short_class());
        }
        CqlType::Custom(class) => text.push_str(class),
        CqlType::Frozen(inner) if is_frozen => write_class(text, inner, true),
        CqlType::Frozen(inner) => write_made(text, "FrozenType", [&**inner], true),
        CqlType::List(element) => write_made(text, "ListType", [&**element], is_frozen),
        CqlType::Set(element) => write_made(text, "SetType", [&**element], is_frozen),
        CqlType::Map(types) => write_made(text, "MapType", [&types.0, &types.1], is_frozen),
        CqlType::Tuple(types) => write_made(text, "TupleType", types.iter(), true),
        CqlType::User(user) => {
            text.push_str(CLASS_PREFIX);
            text.push_str("UserType(");
            text.push_str(&user.keyspace);
            text.push(',');
            text.push_str(&hex(user.name.as_bytes()));
            for (field, of_type) in &user.fields {
                text.push(',');
                text.push_str(&hex(field.as_bytes()));
                text.push(':');
                write_class(text, of_type, is_frozen);
            }
            text.push(')');
        }
    }
}

fn write_made<'a>(
    text: &mut String,
    class: &str,
    parts: impl IntoIterator<Item = &'a CqlType>,
    is_frozen: bool,
) {
    text.push_str(CLASS_PREFIX);
    text.push_str(class);
    for (at, part) in parts.into_iter().enumerate() {
        text.push(if at == 0 { '(' } else { ',' });
        write_class(text, part, is_frozen);
    }
    text.push(')');
}
