//! The order of values.
//!
//! It is total for all bytes: values that a type refuses have a place of their own, so that a
//! damaged one never makes a sorted run unsorted. Values may be equal in this order that differ in
//! their bytes, as `varint`s with leading zeros.

use super::collection::{Kind, elements};
use super::{CqlType, Decimal, Native, tuple};
use crate::model::comparator::{compare_lexical_uuids, compare_time_uuids};
use std::cmp::Ordering;

/// An element or field, null, or malformed bytes.
type Part<'a> = Result<Option<&'a [u8]>, ()>;

impl CqlType {
    /// The order of two values of this type. The empty value comes first.
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        if a.is_empty() || b.is_empty() {
            return b.is_empty().cmp(&a.is_empty());
        }
        match self {
            Self::Native(native) => compare_native(*native, a, b),
            Self::List(element) => compare_collections(Kind::List, &[element], a, b),
            Self::Set(element) => compare_collections(Kind::Set, &[element], a, b),
            Self::Map(types) => compare_collections(Kind::Map, &[&types.0, &types.1], a, b),
            Self::Tuple(types) => compare_tuples(types.iter(), a, b),
            Self::User(user) => compare_tuples(user.fields.iter().map(|(_, it)| it), a, b),
            Self::Frozen(inner) => inner.compare(a, b),
            // The only class without a type of its own is `LexicalUUIDType`.
            Self::Custom(_) => compare_lexical_uuids(a, b),
        }
    }

    /// The order of two parts: null first, then values, then all that is malformed.
    fn compare_parts(&self, a: Part<'_>, b: Part<'_>) -> Ordering {
        match (a, b) {
            (Ok(Some(a)), Ok(Some(b))) => self.compare(a, b),
            (Ok(a), Ok(b)) => a.is_some().cmp(&b.is_some()),
            (a, b) => a.is_err().cmp(&b.is_err()),
        }
    }
}

/// Element by element, the shorter first.
fn compare_collections(kind: Kind, types: &[&CqlType], a: &[u8], b: &[u8]) -> Ordering {
    let (mut x, mut y) = (elements(kind, a), elements(kind, b));
    for of_type in types.iter().cycle() {
        let (x, y) = match (x.next(), y.next()) {
            (Some(x), Some(y)) => (x.map_err(|_| ()), y.map_err(|_| ())),
            (x, y) => return x.is_some().cmp(&y.is_some()),
        };
        let order = of_type.compare_parts(x, y);
        if order.is_ne() {
            return order;
        }
        if x.is_err() {
            break;
        }
    }
    // Both are malformed, and alike up to there.
    a.cmp(b)
}

/// Field by field. Missing fields are null. Fields beyond those of the type make a value malformed.
fn compare_tuples<'a>(types: impl Iterator<Item = &'a CqlType>, a: &[u8], b: &[u8]) -> Ordering {
    let (mut x, mut y) = (tuple::fields(a), tuple::fields(b));
    for of_type in types {
        let x = x.next().unwrap_or(Ok(None)).map_err(|_| ());
        let y = y.next().unwrap_or(Ok(None)).map_err(|_| ());
        let order = of_type.compare_parts(x, y);
        if order.is_ne() {
            return order;
        }
        if x.is_err() {
            return a.cmp(b);
        }
    }
    match (x.next().is_some(), y.next().is_some()) {
        (true, true) => a.cmp(b),
        (x, y) => x.cmp(&y),
    }
}

fn compare_native(native: Native, a: &[u8], b: &[u8]) -> Ordering {
    match native {
        Native::Ascii
        | Native::Blob
        | Native::Date
        | Native::Duration
        | Native::Empty
        | Native::Inet
        | Native::Text
        | Native::Time => a.cmp(b),
        Native::Bigint
        | Native::Counter
        | Native::Int
        | Native::OldTimestamp
        | Native::Smallint
        | Native::Timestamp
        | Native::Tinyint => compare_signed(a, b),
        Native::Boolean => (a != [0]).cmp(&(b != [0])),
        Native::Float => {
            compare_sized(a, b, |it: &[u8; 4]| float_rank(f32::from_be_bytes(*it).into()))
        }
        Native::Double => compare_sized(a, b, |it: &[u8; 8]| float_rank(f64::from_be_bytes(*it))),
        Native::Uuid => compare_sized(a, b, uuid_rank),
        Native::Timeuuid => compare_time_uuids(a, b),
        Native::Varint => compare_varints(a, b),
        Native::Decimal => match (Decimal::decode(a), Decimal::decode(b)) {
            (Some(x), Some(y)) => x.compare(&y),
            (x, y) => x.is_some().cmp(&y.is_some()).then_with(|| a.cmp(b)),
        },
    }
}

/// By length, which for numbers of the same type is the same; then a signed first byte and unsigned
/// others: the numeric order of two's complement.
fn compare_signed(a: &[u8], b: &[u8]) -> Ordering {
    let first = |bytes: &[u8]| bytes.first().map(|byte| *byte as i8);
    a.len().cmp(&b.len()).then_with(|| first(a).cmp(&first(b))).then_with(|| a.cmp(b))
}

/// By a rank that values of the right length have; others by length and bytes.
fn compare_sized<const N: usize, R: Ord>(
    a: &[u8],
    b: &[u8],
    rank: impl Fn(&[u8; N]) -> R,
) -> Ordering {
    match (a.try_into(), b.try_into()) {
        (Ok(x), Ok(y)) => rank(x).cmp(&rank(y)),
        _ => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
    }
}

/// A number in the order of Java: below zero before zero, and NaN, of whatever bits, last.
fn float_rank(number: f64) -> i64 {
    let bits = if number.is_nan() { f64::NAN.abs() } else { number }.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// The time of a version 1 UUID with its version before it: the low, middle and high part stand in
/// that order in the first half.
fn uuid_time(uuid: &[u8; 16]) -> u64 {
    let half = (u128::from_be_bytes(*uuid) >> 64) as u64;
    half << 48 | (half & 0xffff_0000) << 16 | half >> 32
}

/// By version, those of version 1 by time, then by unsigned bytes.
fn uuid_rank(uuid: &[u8; 16]) -> (u8, u64, u128) {
    let version = uuid[6] >> 4;
    (version, if version == 1 { uuid_time(uuid) } else { 0 }, u128::from_be_bytes(*uuid))
}

/// By value: what fills up the front makes no difference.
fn compare_varints(a: &[u8], b: &[u8]) -> Ordering {
    let is_negative = |bytes: &[u8]| bytes.first().is_some_and(|first| *first >= 0x80);
    let fill = |bytes: &[u8]| if is_negative(bytes) { 0xff } else { 0 };
    let digits = |bytes: &[u8]| bytes.iter().skip_while(|byte| **byte == fill(bytes)).count();
    let (x, y) = (&a[a.len() - digits(a)..], &b[b.len() - digits(b)..]);
    match (is_negative(a), is_negative(b)) {
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
        (false, false) => x.len().cmp(&y.len()).then_with(|| x.cmp(y)),
        (true, true) => y.len().cmp(&x.len()).then_with(|| x.cmp(y)),
    }
}
