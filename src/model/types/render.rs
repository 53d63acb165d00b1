//! Values as text for people.

use super::calendar::{show_date, show_time, show_timestamp};
use super::collection::{Kind, elements, entries};
use super::{CqlType, Duration, Native, Number, hex, quoted, tuple};
use std::net::Ipv6Addr;
use uuid::Uuid;

/// Most bytes of a number that is shown in decimal digits: what is longer is no number that anybody
/// reads.
const MOST_DECIMAL_BYTES: usize = 64;

impl CqlType {
    /// The value as a literal of CQL, and bytes that are none in hexadecimal digits.
    pub fn render(&self, value: &[u8]) -> String {
        self.literal(value).unwrap_or_else(|| blob(value))
    }

    /// The value as text without quotes, and bytes that are none in hexadecimal digits.
    pub fn show(&self, value: &[u8]) -> String {
        let shown = match self {
            Self::Native(native) if is_long(*native, value) => None,
            Self::Native(native) => native_text(*native, value),
            _ => self.literal(value),
        };
        shown.unwrap_or_else(|| hex(value))
    }

    fn literal(&self, value: &[u8]) -> Option<String> {
        match self {
            Self::Native(native) => native_literal(*native, value),
            Self::Custom(_) => None,
            Self::Frozen(inner) => inner.literal(value),
            Self::List(of_type) => Some(format!("[{}]", of_type.elements(Kind::List, value)?)),
            Self::Set(of_type) => Some(format!("{{{}}}", of_type.elements(Kind::Set, value)?)),
            Self::Map(types) => {
                let entries = entries(value).map(|entry| {
                    let (key, value) = entry.ok()?;
                    Some(format!("{}: {}", types.0.render(key), types.1.render(value)))
                });
                Some(format!("{{{}}}", joined(entries)?))
            }
            Self::Tuple(types) => {
                let fields = types.iter().zip(tuple::fields(value));
                let fields = fields.map(|(of_type, it)| Some(of_type.render_or_null(it.ok()?)));
                Some(format!("({})", joined(fields)?))
            }
            Self::User(user) => {
                let fields = user.fields.iter().zip(tuple::fields(value));
                let fields = fields.map(|((name, of_type), it)| {
                    Some(format!("{}: {}", quoted(name), of_type.render_or_null(it.ok()?)))
                });
                Some(format!("{{{}}}", joined(fields)?))
            }
        }
    }

    /// Elements of this type with commas between them.
    fn elements(&self, kind: Kind, value: &[u8]) -> Option<String> {
        joined(elements(kind, value).map(|element| Some(self.render_or_null(element.ok()?))))
    }

    fn render_or_null(&self, value: Option<&[u8]>) -> String {
        value.map_or_else(|| "null".to_owned(), |value| self.render(value))
    }
}

fn joined(parts: impl Iterator<Item = Option<String>>) -> Option<String> {
    Some(parts.collect::<Option<Vec<_>>>()?.join(", "))
}

pub(super) fn blob(value: &[u8]) -> String {
    format!("0x{}", hex(value))
}

fn native_literal(native: Native, value: &[u8]) -> Option<String> {
    match native {
        Native::Ascii | Native::Text => Some(in_quotes(&native_text(native, value)?)),
        _ if value.is_empty() && native != Native::Blob => Some("null".to_owned()),
        _ if is_long(native, value) => None,
        Native::Date | Native::Time | Native::Timestamp | Native::OldTimestamp | Native::Inet => {
            Some(in_quotes(&native_text(native, value)?))
        }
        _ => native_text(native, value),
    }
}

/// Whether it is a number of more digits than are shown.
fn is_long(native: Native, value: &[u8]) -> bool {
    matches!(native, Native::Varint | Native::Decimal) && value.len() > MOST_DECIMAL_BYTES
}

fn in_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The value as text without quotes. None if the bytes are no value of the type, or empty and not
/// a text.
pub(super) fn native_text(native: Native, value: &[u8]) -> Option<String> {
    Some(match native {
        Native::Ascii if !value.is_ascii() => return None,
        Native::Ascii | Native::Text => String::from_utf8(value.to_vec()).ok()?,
        Native::Blob => blob(value),
        Native::Boolean => match value {
            [] => return None,
            _ => (value != [0]).to_string(),
        },
        Native::Date => show_date(u32::from_be_bytes(value.try_into().ok()?)),
        Native::Duration => Duration::decode(value).ok()?.to_string(),
        Native::Empty => return None,
        Native::Inet => show_inet(value)?,
        Native::OldTimestamp | Native::Timestamp => {
            show_timestamp(i64::from_be_bytes(value.try_into().ok()?), 'T')
        }
        Native::Time => show_time(i64::from_be_bytes(value.try_into().ok()?)),
        Native::Timeuuid | Native::Uuid => Uuid::from_slice(value).ok()?.to_string(),
        number => Number::decode(number, value)?.to_string(),
    })
}

/// Shows an address as Java does: IPv6 with all its zeros.
fn show_inet(value: &[u8]) -> Option<String> {
    if let Ok([a, b, c, d]) = <[u8; 4]>::try_from(value) {
        return Some(format!("{a}.{b}.{c}.{d}"));
    }
    let address = Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?);
    match address.to_ipv4_mapped() {
        Some(address) => Some(address.to_string()),
        None => Some(address.segments().map(|it| format!("{it:x}")).join(":")),
    }
}
