//! The types of CQL. Values are bytes everywhere, as on the wire and on disk; a type says what
//! they mean: it checks them, compares them, and reads and shows them as text.
//!
//! Forms, orders and error texts are those of Cassandra 3.11.

mod calendar;
mod cast;
mod class_name;
pub mod collection;
mod constant;
mod decimal;
mod duration;
mod json;
mod native;
mod number;
mod order;
mod render;
mod scanner;
#[cfg(test)]
mod tests;
pub mod tuple;
mod validate;

pub use calendar::{days_of_millis, millis_of_days, millis_of_timeuuid};
pub use cast::can_cast;
pub use class_name::MAX_TYPE_DEPTH;
pub use constant::{ConstantKind, InvalidConstant};
pub use decimal::Decimal;
pub use duration::Duration;
pub use json::{InvalidJson, document};
pub use native::{CLASS_PREFIX, Native};
pub use number::{Arithmetic, ArithmeticError, Number, Sum, calculate, result_type};
pub use validate::InvalidValue;

use crate::base::hex::{hex, unhex};
use std::fmt;
use std::sync::Arc;

/// Most bytes of a `varint` or `decimal`. Longer ones would take quadratic time to show.
pub const MAX_NUMBER_BYTES: usize = 65_535;

/// A type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CqlType {
    /// A native type.
    Native(Native),
    /// A list.
    List(Arc<CqlType>),
    /// A set, in the order of its elements.
    Set(Arc<CqlType>),
    /// A map, in the order of its keys.
    Map(Arc<(CqlType, CqlType)>),
    /// A tuple.
    Tuple(Arc<[CqlType]>),
    /// A user type.
    User(Arc<UserType>),
    /// A list, set, map or user type whose values are written as a whole.
    Frozen(Arc<CqlType>),
    /// A class that CQL has no name for, such as `LexicalUUIDType`. Its values are any bytes.
    Custom(Arc<str>),
}

/// A type with named fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserType {
    /// Keyspace of the type.
    pub keyspace: String,
    /// Name of the type.
    pub name: String,
    /// Names and types of its fields.
    pub fields: Vec<(String, CqlType)>,
}

impl From<Native> for CqlType {
    fn from(native: Native) -> Self {
        Self::Native(native)
    }
}

impl CqlType {
    /// Whether a column of this type has a cell for each element or field.
    pub fn is_multicell(&self) -> bool {
        matches!(self, Self::List(_) | Self::Set(_) | Self::Map(_) | Self::User(_))
    }

    /// The type with itself and all types within it frozen. The fields of a user type stay as they
    /// were declared.
    #[must_use]
    pub fn frozen(&self) -> Self {
        let inner = match self {
            Self::List(element) => Self::List(Arc::new(element.frozen())),
            Self::Set(element) => Self::Set(Arc::new(element.frozen())),
            Self::Map(types) => Self::Map(Arc::new((types.0.frozen(), types.1.frozen()))),
            Self::Tuple(types) => return Self::Tuple(types.iter().map(Self::frozen).collect()),
            Self::User(_) => self.clone(),
            Self::Frozen(inner) => return inner.frozen(),
            Self::Native(_) | Self::Custom(_) => return self.clone(),
        };
        Self::Frozen(Arc::new(inner))
    }

    /// The type without its outermost `frozen`.
    pub fn unfrozen(&self) -> &Self {
        match self {
            Self::Frozen(inner) => inner.unfrozen(),
            other => other,
        }
    }

    /// The plural of the type if durations, which have no order, are among its values.
    pub fn durations(&self) -> Option<&'static str> {
        let has = |inner: &Self| inner.durations().is_some();
        let (holds, plural) = match self.unfrozen() {
            Self::Native(Native::Duration) => (true, "durations"),
            Self::List(inner) | Self::Set(inner) => {
                (has(inner), "collections containing durations")
            }
            Self::Map(inner) => {
                (has(&inner.0) || has(&inner.1), "collections containing durations")
            }
            Self::Tuple(fields) => (fields.iter().any(has), "tuples containing durations"),
            Self::User(user) => {
                (user.fields.iter().any(|(_, of_type)| has(of_type)), "UDTs containing durations")
            }
            _ => (false, ""),
        };
        holds.then_some(plural)
    }

    /// The native type, if it is one.
    pub fn native(&self) -> Option<Native> {
        match self {
            Self::Native(native) => Some(*native),
            _ => None,
        }
    }

    /// Whether values of another type are values of this one without a change of their bytes.
    pub fn assignable_from(&self, other: &Self) -> bool {
        use Native::{
            Ascii, Bigint, Blob, Date, Int, OldTimestamp, Text, Time, Timestamp, Timeuuid, Uuid,
            Varint,
        };
        match (self.unfrozen(), other.unfrozen()) {
            (Self::Native(Blob), _) => true,
            (Self::Native(native), Self::Native(of)) => {
                native == of
                    || matches!(
                        (native, of),
                        (Text, Ascii)
                            | (Bigint, Timestamp | OldTimestamp)
                            | (Varint, Int | Bigint | Timestamp | OldTimestamp)
                            | (Timestamp | OldTimestamp, Timestamp | OldTimestamp | Bigint)
                            | (Time, Bigint)
                            | (Date, Int)
                            | (Uuid, Timeuuid)
                    )
            }
            (Self::List(a), Self::List(b)) | (Self::Set(a), Self::Set(b)) => a.assignable_from(b),
            (Self::Map(a), Self::Map(b)) => a.0.assignable_from(&b.0) && a.1.assignable_from(&b.1),
            (Self::Tuple(a), Self::Tuple(b)) => {
                a.len() >= b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.assignable_from(b))
            }
            (Self::User(a), Self::User(b)) => a.is_extension_of(b),
            (a, b) => a == b,
        }
    }
}

impl UserType {
    /// Index of a field.
    pub fn position(&self, field: &str) -> Option<usize> {
        self.fields.iter().position(|(name, _)| name == field)
    }

    /// Whether it is the other type, or has more fields than it after the same ones.
    fn is_extension_of(&self, other: &Self) -> bool {
        self.keyspace == other.keyspace
            && self.name == other.name
            && self.fields.len() >= other.fields.len()
            && self.fields.iter().zip(&other.fields).all(|(a, b)| a.1.assignable_from(&b.1))
    }
}

/// A name as a statement has to write it: quoted if it is not all lower-case letters, digits and
/// underscores after a letter.
pub fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Shows the type as CQL.
impl fmt::Display for CqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native(native) => native.fmt(f),
            Self::List(element) => write!(f, "list<{element}>"),
            Self::Set(element) => write!(f, "set<{element}>"),
            Self::Map(types) => write!(f, "map<{}, {}>", types.0, types.1),
            Self::Tuple(types) => {
                f.write_str("frozen<tuple<")?;
                for (at, of_type) in types.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{of_type}")?;
                }
                f.write_str(">>")
            }
            Self::User(user) => f.write_str(&quoted(&user.name)),
            Self::Frozen(inner) => write!(f, "frozen<{inner}>"),
            Self::Custom(class) => write!(f, "'{class}'"),
        }
    }
}
