//! Checks of values.

use super::collection::{Elements, Kind, elements};
use super::tuple::{self, Cut};
use super::{CqlType, Duration, MAX_NUMBER_BYTES, Native, hex};

/// A value that its type does not accept. Displays as the text of Cassandra 3.11.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(String);

impl InvalidValue {
    /// A value that is wrong for this reason.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl CqlType {
    /// Checks that the bytes are a value of this type.
    pub fn validate(&self, value: &[u8]) -> Result<(), InvalidValue> {
        match self {
            Self::Native(native) => validate_native(*native, value),
            Self::List(element) => validate_elements(elements(Kind::List, value), &[element]),
            Self::Set(element) => validate_elements(elements(Kind::Set, value), &[element]),
            Self::Map(types) => {
                validate_elements(elements(Kind::Map, value), &[&types.0, &types.1])
            }
            Self::Tuple(types) => {
                let types = types.iter().map(|of_type| ("component".to_owned(), of_type));
                validate_fields("tuple", types, value)
            }
            Self::User(user) => {
                let types = user.fields.iter().map(|(name, it)| (format!("field {name}"), it));
                validate_fields("UDT", types, value)
            }
            Self::Frozen(inner) => inner.validate(value),
            Self::Custom(_) => Ok(()),
        }
    }
}

/// Checks elements whose types take turns.
fn validate_elements(mut elements: Elements<'_>, types: &[&CqlType]) -> Result<(), InvalidValue> {
    for of_type in types.iter().cycle() {
        let Some(element) = elements.next_present() else { break };
        of_type.validate(element?)?;
    }
    Ok(())
}

/// Checks fields. Those at the end may be missing.
fn validate_fields<'a>(
    kind: &str,
    types: impl Iterator<Item = (String, &'a CqlType)>,
    value: &[u8],
) -> Result<(), InvalidValue> {
    let mut fields = tuple::fields(value);
    for (at, (name, of_type)) in types.enumerate() {
        let field = fields.next().unwrap_or(Ok(None)).map_err(|cut| {
            let part = if cut == Cut::Length { "size of " } else { "" };
            InvalidValue(format!("Not enough bytes to read {part}{at}th {name}"))
        })?;
        field.map_or(Ok(()), |field| of_type.validate(field))?;
    }
    if fields.next().is_some() {
        let text = format!("Invalid remaining data after end of {kind} value");
        return Err(InvalidValue(text));
    }
    Ok(())
}

fn validate_native(native: Native, value: &[u8]) -> Result<(), InvalidValue> {
    let length = value.len();
    let refusal = match native {
        Native::Blob => None,
        Native::Ascii => value
            .iter()
            .find(|byte| !byte.is_ascii())
            .map(|byte| format!("Invalid byte for ascii: {}", *byte as i8)),
        Native::Text => std::str::from_utf8(value).err().map(|_| "String didn't validate.".into()),
        Native::Tinyint if length != 1 => Some(format!("Expected 1 byte for a tinyint ({length})")),
        Native::Smallint if length != 2 => {
            Some(format!("Expected 2 bytes for a smallint ({length})"))
        }
        Native::Date if length != 4 => Some(format!("Expected 4 byte long for date ({length})")),
        Native::Time if length != 8 => Some(format!("Expected 8 byte long for time ({length})")),
        Native::Duration => return Duration::decode(value).map(|_| ()),
        _ if length == 0 => None,
        Native::Empty => Some("EmptyType only accept empty values".into()),
        Native::Boolean if length != 1 => Some(format!("Expected 1 or 0 byte value ({length})")),
        Native::Int if length != 4 => Some(format!("Expected 4 or 0 byte int ({length})")),
        Native::Bigint | Native::Counter if length != 8 => {
            Some(format!("Expected 8 or 0 byte long ({length})"))
        }
        Native::Timestamp | Native::OldTimestamp if length != 8 => {
            Some(format!("Expected 8 or 0 byte long for date ({length})"))
        }
        Native::Float if length != 4 => {
            Some(format!("Expected 4 or 0 byte value for a float ({length})"))
        }
        Native::Double if length != 8 => {
            Some(format!("Expected 8 or 0 byte value for a double ({length})"))
        }
        Native::Decimal if length < 4 => Some(format!("Expected 0 or at least 4 bytes ({length})")),
        Native::Decimal | Native::Varint if length > MAX_NUMBER_BYTES => {
            Some(format!("Expected at most {MAX_NUMBER_BYTES} bytes for a {native} ({length})"))
        }
        Native::Inet if length != 4 && length != 16 => {
            Some(format!("Expected 4 or 16 byte inetaddress; got {}", hex(value)))
        }
        Native::Uuid | Native::Timeuuid if length != 16 => {
            Some(format!("UUID should be 16 or 0 bytes ({length})"))
        }
        Native::Timeuuid if value.get(6).is_some_and(|byte| byte >> 4 != 1) => {
            Some("Invalid version for TimeUUID type.".into())
        }
        _ => None,
    };
    refusal.map_or(Ok(()), |text| Err(InvalidValue(text)))
}
