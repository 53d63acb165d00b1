//! Values as JSON, and back.
//!
//! JSON is read along the type: each level of it is split into the texts of its parts. So numbers
//! keep all their digits.

use super::calendar::show_timestamp;
use super::collection::{self, Kind, elements, entries};
use super::render::{blob, native_text};
use super::{CqlType, InvalidConstant, Native, UserType, tuple};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// JSON that is no value of a type. Displays as the text of Cassandra 3.11.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidJson(String);

/// The texts of the fields of an object.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// Splits the document of an INSERT: JSON texts by the names of their columns. A name in quotes
/// within the quotes keeps its case, another is in lower case.
pub fn document(json: &str) -> Result<BTreeMap<String, &str>, InvalidJson> {
    if json.trim() == "null" {
        return Err(InvalidJson("Got null for INSERT JSON values".to_owned()));
    }
    let fields: Fields<'_> = serde_json::from_str(json).map_err(|error| {
        let text = format!("Could not decode JSON string as a map: {error}. (String was: {json})");
        InvalidJson(text)
    })?;
    Ok(by_name(fields).map(|(name, json)| (name, json.get())).collect())
}

/// Fields by the names that their keys stand for.
fn by_name(fields: Fields<'_>) -> impl Iterator<Item = (String, &RawValue)> {
    fields.into_iter().map(|(key, json)| {
        let inner = key.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        (inner.map_or_else(|| key.to_lowercase(), str::to_owned), json)
    })
}

/// The simple name of the Java class that a JSON text is read as.
fn class_of(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'"') => "String",
        Some(b'[') => "ArrayList",
        Some(b'{') => "LinkedHashMap",
        Some(b't' | b'f') => "Boolean",
        _ if json.contains(['.', 'e', 'E']) => "Double",
        _ if json.parse::<i32>().is_ok() => "Integer",
        _ if json.parse::<i64>().is_ok() => "Long",
        _ => "BigInteger",
    }
}

fn expected(what: &str, json: &str) -> InvalidJson {
    let class = class_of(json);
    let shown = if class == "String" { parse(json).unwrap_or_default() } else { json.to_owned() };
    InvalidJson(format!("Expected {what}, but got a {class}: {shown}"))
}

/// Reads one level of JSON.
fn parse<'a, T: serde::Deserialize<'a>>(json: &'a str) -> Result<T, InvalidJson> {
    serde_json::from_str(json)
        .map_err(|error| InvalidJson(format!("Could not decode JSON string '{json}': {error}")))
}

impl CqlType {
    /// The value that a JSON text stands for; none for null.
    pub fn from_json(&self, json: &str) -> Result<Option<Vec<u8>>, InvalidJson> {
        let json: &RawValue = parse(json)?;
        self.read(json)
    }

    fn read(&self, json: &RawValue) -> Result<Option<Vec<u8>>, InvalidJson> {
        match json.get() {
            "null" => Ok(None),
            json if json.starts_with('"') => self.read_string(&parse::<String>(json)?).map(Some),
            json => self.read_present(json).map(Some),
        }
    }

    /// Reads a string. For a type made of others it has JSON in it.
    fn read_string(&self, text: &str) -> Result<Vec<u8>, InvalidJson> {
        match self {
            Self::Frozen(inner) => inner.read_string(text),
            Self::Native(native) => read_native_string(*native, text),
            Self::Custom(_) => {
                self.from_string(text).map_err(|error| InvalidJson(error.to_string()))
            }
            _ => self.read_present(parse::<&RawValue>(text)?.get()),
        }
    }

    /// Reads JSON that is neither null nor, for a native type, a string.
    fn read_present(&self, json: &str) -> Result<Vec<u8>, InvalidJson> {
        match self {
            Self::Native(native) => read_native(*native, json),
            Self::Frozen(inner) => inner.read_present(json),
            Self::List(element) => {
                let elements = read_array(json, "a list")?.into_iter();
                let elements = elements.map(|it| element.read_element(it, "element in list"));
                Ok(collection::pack(&elements.collect::<Result<Vec<_>, _>>()?))
            }
            Self::Set(element) => {
                let elements = read_array(json, "a list (representing a set)")?.into_iter();
                let elements = elements.map(|it| element.read_element(it, "element in set"));
                let mut elements = elements.collect::<Result<Vec<_>, _>>()?;
                elements.sort_by(|a, b| element.compare(a, b));
                elements.dedup_by(|a, b| element.compare(a, b).is_eq());
                Ok(collection::pack(&elements))
            }
            Self::Map(types) => read_map(&types.0, &types.1, json),
            Self::Tuple(types) => read_tuple(types, json),
            Self::User(user) => read_user_type(user, json),
            Self::Custom(class) => {
                Err(expected(&format!("a string representation of {class}"), json))
            }
        }
    }

    fn read_element(&self, json: &RawValue, role: &str) -> Result<Vec<u8>, InvalidJson> {
        self.read(json)?.ok_or_else(|| InvalidJson(format!("Invalid null {role}")))
    }

    /// The value as JSON. Bytes that are no value of the type become a string of hexadecimal
    /// digits.
    pub fn to_json(&self, value: &[u8]) -> String {
        self.json(value).unwrap_or_else(|| string(&blob(value)))
    }

    fn json(&self, value: &[u8]) -> Option<String> {
        let of_field = |of_type: &Self, field: Option<Result<Option<&[u8]>, _>>| {
            let field = field.transpose().map_err(|_: tuple::Cut| ()).ok()?.flatten();
            Some(field.map_or_else(|| "null".to_owned(), |field| of_type.to_json(field)))
        };
        let mut parts = Vec::new();
        Some(match self {
            Self::Native(native) => return native_json(*native, value),
            Self::Custom(_) => return None,
            Self::Frozen(inner) => return inner.json(value),
            Self::List(element) | Self::Set(element) => {
                let mut elements = elements(Kind::List, value);
                while let Some(it) = elements.next_present() {
                    parts.push(element.to_json(it.ok()?));
                }
                format!("[{}]", parts.join(", "))
            }
            Self::Map(types) => {
                for entry in entries(value) {
                    let (key, value) = entry.ok()?;
                    let key = types.0.to_json(key);
                    let key = if key.starts_with('"') { key } else { string(&key) };
                    parts.push(format!("{key}: {}", types.1.to_json(value)));
                }
                format!("{{{}}}", parts.join(", "))
            }
            Self::Tuple(types) => {
                let mut fields = tuple::fields(value);
                for of_type in types.iter() {
                    parts.push(of_field(of_type, fields.next())?);
                }
                format!("[{}]", parts.join(", "))
            }
            Self::User(user) => {
                let mut fields = tuple::fields(value);
                for (name, of_type) in &user.fields {
                    let has_case = *name != name.to_lowercase();
                    let key = if has_case { string(&format!("\"{name}\"")) } else { string(name) };
                    parts.push(format!("{key}: {}", of_field(of_type, fields.next())?));
                }
                format!("{{{}}}", parts.join(", "))
            }
        })
    }
}

fn read_array<'a>(json: &'a str, what: &str) -> Result<Vec<&'a RawValue>, InvalidJson> {
    if json.starts_with('[') { parse(json) } else { Err(expected(what, json)) }
}

fn read_map(key_type: &CqlType, value_type: &CqlType, json: &str) -> Result<Vec<u8>, InvalidJson> {
    if !json.starts_with('{') {
        return Err(expected("a map", json));
    }
    let mut entries = Vec::new();
    for (key, value) in parse::<Fields<'_>>(json)? {
        let key = key_type.read_string(&key)?;
        entries.push((key, value_type.read_element(value, "value in map")?));
    }
    entries.sort_by(|a, b| key_type.compare(&a.0, &b.0));
    entries.dedup_by(|a, b| key_type.compare(&a.0, &b.0).is_eq());
    Ok(collection::pack_map(&entries))
}

fn read_tuple(types: &[CqlType], json: &str) -> Result<Vec<u8>, InvalidJson> {
    let fields = read_array(json, "a list representation of a tuple")?;
    if fields.len() != types.len() {
        let wrong = if fields.len() > types.len() { "contains extra" } else { "is missing" };
        let text = format!("Tuple {wrong} items (expected {}): {json}", types.len());
        return Err(InvalidJson(text));
    }
    let fields = types.iter().zip(fields).map(|(of_type, field)| of_type.read(field));
    Ok(tuple::pack(&fields.collect::<Result<Vec<_>, _>>()?))
}

fn read_user_type(user: &UserType, json: &str) -> Result<Vec<u8>, InvalidJson> {
    if !json.starts_with('{') {
        return Err(expected("a map", json));
    }
    let mut given: Fields<'_> = by_name(parse(json)?).collect();
    let mut fields = Vec::with_capacity(user.fields.len());
    for (name, of_type) in &user.fields {
        fields.push(given.remove(name).map_or(Ok(None), |json| of_type.read(json))?);
    }
    match given.first_key_value() {
        None => Ok(tuple::pack(&fields)),
        Some((field, _)) => {
            let name = &user.name;
            let text = format!("Unknown field '{field}' in value of user defined type {name}");
            Err(InvalidJson(text))
        }
    }
}

fn read_native_string(native: Native, text: &str) -> Result<Vec<u8>, InvalidJson> {
    let parse = |text: &str| CqlType::from(native).from_string(text);
    let wrong = |reason: &str| InvalidJson(format!("Value '{text}' is not a valid {reason}"));
    match native {
        Native::Varint | Native::Decimal => {
            let number = parse(text).ok().filter(|it| !it.is_empty());
            number.ok_or_else(|| wrong(&format!("representation of a {native} value")))
        }
        Native::Blob => match text.strip_prefix("0x") {
            Some(digits) => {
                parse(digits).map_err(|it| wrong(&format!("blob representation: {it}")))
            }
            None => Err(wrong(&format!(
                "blob representation: String representation of blob is missing 0x prefix: {text}"
            ))),
        },
        _ => parse(text).map_err(|error: InvalidConstant| InvalidJson(error.to_string())),
    }
}

/// Reads a number, a truth value, or what a native type never is.
fn read_native(native: Native, json: &str) -> Result<Vec<u8>, InvalidJson> {
    let class = class_of(json);
    let takes = match native {
        Native::Boolean => class == "Boolean",
        Native::Int => class == "Integer",
        Native::Bigint | Native::Counter | Native::Timestamp | Native::OldTimestamp => {
            matches!(class, "Integer" | "Long")
        }
        Native::Tinyint | Native::Smallint | Native::Float | Native::Double => {
            matches!(class, "Integer" | "Long" | "BigInteger" | "Double")
        }
        Native::Varint | Native::Decimal => true,
        Native::Blob => {
            let text = format!(
                "Value '{json}' is not a valid blob representation: {class} is not a String"
            );
            return Err(InvalidJson(text));
        }
        _ => false,
    };
    if takes { read_native_string(native, json) } else { Err(expected(expectation(native), json)) }
}

fn expectation(native: Native) -> &'static str {
    match native {
        Native::Ascii => "an ascii string",
        Native::Text => "a UTF-8 string",
        Native::Date => "a string representation of a date value",
        Native::Time => "a string representation of a time value",
        Native::Inet => "a string representation of an inet value",
        Native::Uuid => "a string representation of a uuid",
        Native::Timeuuid => "a string representation of a timeuuid",
        Native::Duration => "a string representation of a duration",
        Native::Timestamp | Native::OldTimestamp => {
            "a long or a datestring representation of a timestamp value"
        }
        Native::Bigint | Native::Counter => "a bigint value",
        Native::Int => "an int value",
        Native::Smallint => "a short value",
        Native::Tinyint => "a byte value",
        Native::Float => "a float value",
        Native::Double => "a double value",
        Native::Boolean => "a boolean value",
        Native::Blob | Native::Decimal | Native::Empty | Native::Varint => "another value",
    }
}

/// A JSON string of a text.
fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn native_json(native: Native, value: &[u8]) -> Option<String> {
    if value.is_empty() && native != Native::Blob {
        return Some("\"\"".to_owned());
    }
    let text = match native {
        Native::Timestamp | Native::OldTimestamp => {
            show_timestamp(i64::from_be_bytes(value.try_into().ok()?), ' ')
        }
        _ => native_text(native, value)?,
    };
    Some(match native {
        Native::Float | Native::Double if text.ends_with(['N', 'y']) => "null".to_owned(),
        Native::Boolean => text,
        _ if native.is_number() => text,
        _ => string(&text),
    })
}
