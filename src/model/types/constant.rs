//! Values from the constants of statements.

use super::calendar::{parse_date, parse_time, parse_timestamp};
use super::decimal::parse_integer;
use super::{CqlType, Decimal, Duration, Native, Number, unhex};
use std::net::IpAddr;
use std::str::FromStr;
use uuid::Uuid;

/// Kind of a constant, by its form; shown as it stands in error texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum ConstantKind {
    /// `'…'` or `$$…$$`, without the quotes and with doubled quotes halved.
    #[display("STRING")]
    String,
    /// Digits, with a sign before them.
    #[display("INTEGER")]
    Integer,
    /// A number with a point or an exponent, `NaN` or `Infinity`.
    #[display("FLOAT")]
    Float,
    /// `true` or `false`.
    #[display("BOOLEAN")]
    Boolean,
    /// A UUID.
    #[display("UUID")]
    Uuid,
    /// `0x…`.
    #[display("HEX")]
    Hex,
    /// A duration, such as `1h30m` or `P1Y2M`.
    #[display("DURATION")]
    Duration,
}

/// A constant that is no value of a type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConstant {
    /// The type does not take constants of this kind. The text of Cassandra names the receiver,
    /// which only the caller knows.
    #[error("the type does not take constants of this kind")]
    Kind,
    /// The text is not of the form that the type has.
    #[error("{0}")]
    Text(String),
}

impl ConstantKind {
    /// The type of a constant where nothing else gives it one.
    pub fn preferred_type(self, text: &str) -> Native {
        match self {
            Self::String if text.is_ascii() => Native::Ascii,
            Self::String => Native::Text,
            Self::Integer if text.parse::<i32>().is_ok() => Native::Int,
            Self::Integer if text.parse::<i64>().is_ok() => Native::Bigint,
            Self::Integer => Native::Varint,
            Self::Float => Native::Double,
            Self::Boolean => Native::Boolean,
            Self::Uuid => match Uuid::parse_str(text) {
                Ok(uuid) if uuid.get_version_num() == 1 => Native::Timeuuid,
                _ => Native::Uuid,
            },
            Self::Hex => Native::Blob,
            Self::Duration => Native::Duration,
        }
    }

    fn fits(self, of_type: Native) -> bool {
        use Native::{
            Ascii, Blob, Boolean, Date, Decimal, Double, Duration, Empty, Float, Inet,
            OldTimestamp, Text, Time, Timestamp, Timeuuid, Uuid,
        };
        match self {
            Self::String => {
                matches!(of_type, Ascii | Text | Inet | Date | Time | Timestamp | OldTimestamp)
            }
            Self::Integer => {
                !matches!(of_type, Ascii | Text | Inet | Blob | Boolean | Uuid | Timeuuid | Empty)
            }
            Self::Float => matches!(of_type, Float | Double | Decimal),
            Self::Boolean => of_type == Boolean,
            Self::Uuid => matches!(of_type, Uuid | Timeuuid),
            Self::Hex => of_type == Blob,
            Self::Duration => of_type == Duration,
        }
    }
}

impl CqlType {
    /// Whether the type takes constants of this kind.
    pub fn accepts(&self, kind: ConstantKind) -> bool {
        match self {
            Self::Native(native) => kind.fits(*native),
            Self::Custom(_) => matches!(kind, ConstantKind::Hex | ConstantKind::Uuid),
            _ => false,
        }
    }

    /// The value that a constant stands for.
    pub fn from_constant(
        &self,
        kind: ConstantKind,
        text: &str,
    ) -> Result<Vec<u8>, InvalidConstant> {
        match kind {
            _ if !self.accepts(kind) => Err(InvalidConstant::Kind),
            ConstantKind::Hex => {
                let digits = text.get(2..).unwrap_or_default();
                Self::from(Native::Blob).from_string(digits)
            }
            _ => self.from_string(text),
        }
    }

    /// The value that a text stands for, whatever the kind of constant it was. Most types take an
    /// empty text as the empty value.
    pub fn from_string(&self, text: &str) -> Result<Vec<u8>, InvalidConstant> {
        match self {
            Self::Native(native) => parse_native(*native, text).map_err(InvalidConstant::Text),
            Self::Custom(_) => parse_native(Native::Uuid, text).map_err(InvalidConstant::Text),
            _ => Err(InvalidConstant::Kind),
        }
    }
}

fn parse_native(native: Native, text: &str) -> Result<Vec<u8>, String> {
    let unable = |name: &str| format!("Unable to make {name} from '{text}'");
    match native {
        Native::Ascii if !text.is_ascii() => {
            Err(format!("Invalid ASCII character in string literal: {text}"))
        }
        Native::Ascii | Native::Text => Ok(text.into()),
        Native::Boolean => match text {
            _ if text.eq_ignore_ascii_case("true") => Ok(vec![1]),
            _ if text.is_empty() || text.eq_ignore_ascii_case("false") => Ok(vec![0]),
            _ => Err(unable("boolean")),
        },
        Native::Date => parse_date(text).map(|days| days.to_be_bytes().into()),
        Native::Time => parse_time(text).map(|nanos| nanos.to_be_bytes().into()),
        Native::Duration => Duration::parse(text).map(|it| it.encode()),
        // All others but these have an empty value.
        _ if text.is_empty() && !matches!(native, Native::Tinyint | Native::Smallint) => {
            Ok(Vec::new())
        }
        Native::Blob => unhex(text).ok_or_else(|| format!("cannot parse '{text}' as hex bytes")),
        Native::Inet => text.parse().map(inet_bytes).map_err(|_| unable("inet address")),
        Native::Timestamp | Native::OldTimestamp => {
            parse_timestamp(text).map(|millis| millis.to_be_bytes().into())
        }
        Native::Uuid => {
            parse_uuid(text).map(|it| it.into_bytes().into()).ok_or_else(|| unable("UUID"))
        }
        Native::Timeuuid => match parse_uuid(text) {
            None => Err(format!("Unknown timeuuid representation: {text}")),
            Some(uuid) if uuid.get_version_num() != 1 => {
                Err("TimeUUID supports only version 1 UUIDs".to_owned())
            }
            Some(uuid) => Ok(uuid.into_bytes().into()),
        },
        Native::Empty => Err("EmptyType only accept empty values".to_owned()),
        _ => parse_number(native, text),
    }
}

fn parse_number(native: Native, text: &str) -> Result<Vec<u8>, String> {
    let (number, name) = match native {
        Native::Varint => (parse_integer(text).map(Number::Varint), "unable to make int"),
        Native::Decimal => (Decimal::parse(text).map(Number::Decimal), "unable to make BigDecimal"),
        Native::Float => (parse_float(text).map(Number::Float), "Unable to make float"),
        Native::Double => (parse_float(text).map(Number::Double), "Unable to make double"),
        _ => {
            let number = text.parse().ok().map(|it| (it, Number::integer(native, it)));
            let fits = |(given, kept): &(i64, Number)| kept.to_i64() == *given;
            let name = match native {
                Native::Tinyint => "Unable to make byte",
                Native::Smallint => "Unable to make short",
                Native::Int => "Unable to make int",
                _ => "Unable to make long",
            };
            (number.filter(fits).map(|(_, kept)| kept), name)
        }
    };
    number.map(|it| it.encode()).ok_or_else(|| format!("{name} from '{text}'"))
}

/// Reads a floating-point number as CQL writes it, and not in the other forms that Rust reads.
fn parse_float<T: FromStr>(text: &str) -> Option<T> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if is_number || matches!(unsigned, "NaN" | "Infinity") { text.parse().ok() } else { None }
}

fn parse_uuid(text: &str) -> Option<Uuid> {
    // Without hyphens it would be another form, which only Rust reads.
    if text.len() == 36 { Uuid::parse_str(text).ok() } else { None }
}

/// The bytes of an address. IPv4 in the form of IPv6 becomes IPv4.
fn inet_bytes(address: IpAddr) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}
