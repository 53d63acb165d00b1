//! The order of column names, and which names it accepts.
//!
//! The six types of 0.6 are a closed set; those that later versions brought, and those of an
//! embedding program, are found through a [`ComparatorRegistry`]. The empty name is valid in every
//! type (it is an open slice bound) and sorts before all others.

pub mod composite;
mod typed;

use super::types::{CqlType, Native, millis_of_timeuuid};
use crate::base::hex::hex;
use composite::{Composite, Reversed};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use typed::Typed;
use uuid::Uuid;

/// The package of the comparators of the original; clients see it in `describe_keyspace`.
pub const CLASS_PREFIX: &str = "org.apache.cassandra.db.marshal.";

/// A type of column names.
#[derive(Debug, Clone)]
pub enum Comparator {
    /// Any bytes, unsigned, a prefix before what it begins.
    Bytes,
    /// As `Bytes`; the name promises ASCII but nothing is refused.
    Ascii,
    /// Well-formed UTF-8 in the order of its bytes.
    Utf8,
    /// Eight bytes, a signed number.
    Long,
    /// Sixteen bytes, compared as two signed halves.
    LexicalUuid,
    /// A version 1 UUID in the order of its time, ties by unsigned bytes.
    TimeUuid,
    /// A type that an embedding program registered.
    Custom(Arc<dyn CustomComparator>),
}

/// A type of column names that an embedding program brings.
pub trait CustomComparator: Send + Sync + fmt::Debug {
    /// The full class name under which the configuration names it and clients see it.
    fn class_name(&self) -> &str;
    /// A total order in which the empty name is the least. Names that compare equal are the same
    /// column. Changing it for existing data makes them unreadable.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;
    /// Whether a non-empty name is acceptable; the error is the text that the client gets.
    fn validate(&self, name: &[u8]) -> Result<(), String>;
    /// The name for people.
    fn render(&self, name: &[u8]) -> String;
    /// The name that people write so; the error says why there is none.
    fn parse(&self, text: &str) -> Result<Vec<u8>, String> {
        Ok(text.into())
    }
    /// The types of the components of a name; empty if it has none.
    fn components(&self) -> &[Comparator] {
        &[]
    }
}

/// A name that its comparator does not accept. Displays as the text of the original.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// Not well-formed UTF-8.
    #[error("invalid UTF8 bytes {}", signed_bytes(.0))]
    Utf8(Vec<u8>),
    /// A `LongType` name of another length than 0 or 8.
    #[error("A long is exactly 8 bytes")]
    Long,
    /// A `LexicalUUIDType` name of another length than 0 or 16.
    #[error("UUIDs must be exactly 16 bytes")]
    Uuid,
    /// A `TimeUUIDType` name of another length than 0 or 16.
    #[error("TimeUUID should be 16 or 0 bytes ({0})")]
    TimeUuidLength(usize),
    /// A `TimeUUIDType` name that is a UUID of another version.
    #[error("Invalid version for TimeUUID type.")]
    TimeUuidVersion,
    /// The words of a registered comparator.
    #[error("{0}")]
    Custom(String),
}

/// Bytes as the original prints an array of them: signed decimals in brackets.
fn signed_bytes(bytes: &[u8]) -> String {
    let numbers: Vec<String> = bytes.iter().map(|&b| (b as i8).to_string()).collect();
    format!("[{}]", numbers.join(", "))
}

impl Comparator {
    /// The order of two names of this type. Names that were never validated compare as well.
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Bytes | Self::Ascii | Self::Utf8 => a.cmp(b),
            Self::Long => compare_longs(a, b),
            Self::LexicalUuid => compare_lexical_uuids(a, b),
            Self::TimeUuid => compare_time_uuids(a, b),
            Self::Custom(custom) => custom.compare(a, b),
        }
    }

    /// Whether the name is one of this type.
    pub fn validate(&self, name: &[u8]) -> Result<(), InvalidName> {
        if name.is_empty() {
            return Ok(());
        }
        match self {
            Self::Bytes | Self::Ascii => Ok(()),
            Self::Utf8 => match std::str::from_utf8(name) {
                Ok(_) => Ok(()),
                Err(_) => Err(InvalidName::Utf8(name.to_vec())),
            },
            Self::Long if name.len() != 8 => Err(InvalidName::Long),
            Self::LexicalUuid if name.len() != 16 => Err(InvalidName::Uuid),
            Self::TimeUuid if name.len() != 16 => Err(InvalidName::TimeUuidLength(name.len())),
            Self::TimeUuid if name[6] >> 4 != 1 => Err(InvalidName::TimeUuidVersion),
            Self::Long | Self::LexicalUuid | Self::TimeUuid => Ok(()),
            Self::Custom(custom) => custom.validate(name).map_err(InvalidName::Custom),
        }
    }

    /// Whether names are in the order of their bytes.
    pub fn is_of_bytes(&self) -> bool {
        matches!(self, Self::Bytes | Self::Ascii | Self::Utf8)
    }

    /// Whether the name has a place in this order. Every name has one in the order of bytes, also
    /// one that [`Comparator::validate`] refuses today: see [`Comparator::same_order`].
    pub fn can_sort(&self, name: &[u8]) -> bool {
        self.is_of_bytes() || self.validate(name).is_ok()
    }

    /// The full class name, as clients see it.
    pub fn class_name(&self) -> String {
        match self {
            Self::Custom(custom) => custom.class_name().to_owned(),
            built_in => format!("{CLASS_PREFIX}{}", built_in.short_name()),
        }
    }

    /// Whether two types, given by their class names, sort alike, so that data written under one
    /// can be read under the other.
    pub fn same_order(a: &str, b: &str) -> bool {
        let sorts_by_bytes = |class: &str| {
            let name = class.strip_prefix(CLASS_PREFIX);
            matches!(name, Some("BytesType" | "AsciiType" | "UTF8Type"))
        };
        a == b || sorts_by_bytes(a) && sorts_by_bytes(b)
    }

    fn short_name(&self) -> &str {
        match self {
            Self::Bytes => "BytesType",
            Self::Ascii => "AsciiType",
            Self::Utf8 => "UTF8Type",
            Self::Long => "LongType",
            Self::LexicalUuid => "LexicalUUIDType",
            Self::TimeUuid => "TimeUUIDType",
            Self::Custom(custom) => custom.class_name(),
        }
    }

    /// The name for people, as the command line and the logs show it.
    pub fn render(&self, name: &[u8]) -> String {
        match self {
            Self::Bytes => hex(name),
            Self::Ascii => {
                name.iter().map(|&b| if b < 0x80 { b as char } else { '\u{fffd}' }).collect()
            }
            Self::Utf8 => String::from_utf8_lossy(name).into_owned(),
            Self::Long => match <[u8; 8]>::try_from(name) {
                Ok(bytes) => i64::from_be_bytes(bytes).to_string(),
                Err(_) => hex(name),
            },
            Self::LexicalUuid | Self::TimeUuid => match Uuid::from_slice(name) {
                Ok(uuid) => uuid.to_string(),
                Err(_) => hex(name),
            },
            Self::Custom(custom) => custom.render(name),
        }
    }

    /// The name as text: bytes as the text that they are, or in hexadecimal digits.
    pub fn show(&self, name: &[u8]) -> String {
        match self {
            Self::Bytes => shown_bytes(name),
            _ => self.render(name),
        }
    }

    /// The time of a name that is a time UUID.
    pub fn time_of(&self, name: &[u8]) -> Option<String> {
        let millis = millis_of_timeuuid(name).filter(|_| *self == Self::TimeUuid)?;
        Some(CqlType::Native(Native::Timestamp).show(&millis.to_be_bytes()))
    }

    /// The types of the components of a name; empty if it has none.
    pub fn components(&self) -> &[Self] {
        match self {
            Self::Custom(custom) => custom.components(),
            _ => &[],
        }
    }

    /// The name that people write so: a number, a UUID, or the text itself, of bytes as well.
    pub fn parse(&self, text: &str) -> Result<Vec<u8>, String> {
        let native = match self {
            Self::Bytes | Self::Utf8 => return Ok(text.into()),
            Self::Ascii => Native::Ascii,
            Self::Long => Native::Bigint,
            Self::LexicalUuid => Native::Uuid,
            Self::TimeUuid => Native::Timeuuid,
            Self::Custom(custom) => return custom.parse(text),
        };
        CqlType::Native(native).from_string(text).map_err(|invalid| invalid.to_string())
    }
}

impl PartialEq for Comparator {
    fn eq(&self, other: &Self) -> bool {
        self.short_name() == other.short_name()
    }
}

impl Eq for Comparator {}

/// Bytes as the text that they are, or else in hexadecimal digits.
pub fn shown_bytes(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) if !text.contains(|c: char| c.is_control() && c != '\n' && c != '\t') => {
            text.to_owned()
        }
        _ => format!("0x{}", hex(bytes)),
    }
}

/// A signed first byte and unsigned others: the numeric order of two's complement. Names of other
/// lengths than 8 never pass validation, but still have an order.
fn compare_longs(a: &[u8], b: &[u8]) -> Ordering {
    match (a.first(), b.first()) {
        (Some(&x), Some(&y)) if a.len() == b.len() => {
            (x as i8).cmp(&(y as i8)).then_with(|| a[1..].cmp(&b[1..]))
        }
        _ => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
    }
}

pub(super) fn compare_lexical_uuids(a: &[u8], b: &[u8]) -> Ordering {
    match (halves(a), halves(b)) {
        (Some(x), Some(y)) => x.cmp(&y),
        _ => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
    }
}

fn halves(uuid: &[u8]) -> Option<(i64, i64)> {
    let number = u128::from_be_bytes(uuid.try_into().ok()?);
    Some(((number >> 64) as i64, number as i64))
}

pub(super) fn compare_time_uuids(a: &[u8], b: &[u8]) -> Ordering {
    match (uuid_time(a), uuid_time(b)) {
        (Some(x), Some(y)) => x.cmp(&y).then_with(|| a.cmp(b)),
        _ => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
    }
}

/// The 60-bit count of 100 ns since 1582 that a version 1 UUID holds: low, middle and high part
/// stand in that order in its first eight bytes, the version in front of the high part.
fn uuid_time(uuid: &[u8]) -> Option<u64> {
    let number = u128::from_be_bytes(uuid.try_into().ok()?);
    let (low, mid, high) = (number >> 96, (number >> 80) & 0xffff, (number >> 64) & 0x0fff);
    Some((high << 48 | mid << 32 | low) as u64)
}

/// How deep types may be made of others.
const MAX_DEPTH: usize = 8;

/// Class names to comparators. Starts with the six of 0.6, and some that came later.
#[derive(Debug, Clone)]
pub struct ComparatorRegistry {
    by_class: BTreeMap<String, Comparator>,
}

impl Default for ComparatorRegistry {
    fn default() -> Self {
        let built_in = [
            Comparator::Bytes,
            Comparator::Ascii,
            Comparator::Utf8,
            Comparator::Long,
            Comparator::LexicalUuid,
            Comparator::TimeUuid,
        ];
        let later = Typed::natives().map(|it| Comparator::Custom(Arc::new(it)));
        // Those of 0.6 come last, and stay what they were there.
        let all = later.chain(built_in);
        Self { by_class: all.map(|c| (c.class_name(), c)).collect() }
    }
}

impl ComparatorRegistry {
    /// Adds a comparator under its class name. False, and no change, if the name is taken.
    pub fn register(&mut self, comparator: Arc<dyn CustomComparator>) -> bool {
        let name = comparator.class_name().to_owned();
        if self.by_class.contains_key(&name) {
            return false;
        }
        self.by_class.insert(name, Comparator::Custom(comparator));
        true
    }

    /// The comparator that a configuration names. A name without a dot is one of the original's
    /// package; `ReversedType(T)`, `CompositeType(T,U)`, tuples and frozen types are made of
    /// others.
    pub fn resolve(&self, class: &str) -> Option<Comparator> {
        self.resolve_within(class.trim(), MAX_DEPTH)
    }

    fn resolve_within(&self, class: &str, depth: usize) -> Option<Comparator> {
        let Some((outer, rest)) = class.split_once('(') else {
            return self.by_class.get(&Self::full_class_name(class)).cloned();
        };
        let parts = || -> Option<Vec<Comparator>> {
            let depth = depth.checked_sub(1)?;
            let parts = top_level_parts(rest.strip_suffix(')')?)?.into_iter();
            parts.map(|part| self.resolve_within(part.trim(), depth)).collect()
        };
        let outer = Self::full_class_name(outer.trim_end());
        let made: Arc<dyn CustomComparator> = match outer.strip_prefix(CLASS_PREFIX)? {
            "ReversedType" => {
                let [base] = <[Comparator; 1]>::try_from(parts()?).ok()?;
                Arc::new(Reversed::new(base, depth == MAX_DEPTH))
            }
            "CompositeType" => Arc::new(Composite::new(parts()?)),
            _ => Arc::new(Typed::made(class)?),
        };
        Some(Comparator::Custom(made))
    }

    /// The class name that a configured value stands for.
    pub fn full_class_name(class: &str) -> String {
        if class.contains('.') { class.to_owned() } else { format!("{CLASS_PREFIX}{class}") }
    }

    /// All class names, sorted.
    pub fn class_names(&self) -> impl Iterator<Item = &str> {
        self.by_class.keys().map(String::as_str)
    }
}

/// Parts between commas, but for those within parentheses; none if these do not match.
pub(super) fn top_level_parts(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0usize);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    (depth == 0).then_some(parts)
}

/// Runs the example of the manual.
#[cfg(doctest)]
#[doc = include_str!("../../docs/comparators.md")]
struct Manual;

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn sorted(comparator: &Comparator, names: &[&[u8]]) {
        for pair in names.windows(2) {
            assert_eq!(comparator.compare(pair[0], pair[1]), Ordering::Less, "{pair:02x?}");
            assert_eq!(comparator.compare(pair[1], pair[0]), Ordering::Greater, "{pair:02x?}");
        }
    }

    fn uuid(first: u8) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0] = first;
        bytes
    }

    #[test]
    fn bytes_are_unsigned_and_prefixes_come_first() {
        sorted(&Comparator::Bytes, &[b"", b"a", b"a\0", b"b", b"\x80", b"\xff"]);
    }

    #[test]
    fn longs_are_signed() {
        let numbers: Vec<_> = [i64::MIN, -1, 0, 1, i64::MAX].map(i64::to_be_bytes).to_vec();
        let mut names: Vec<&[u8]> = vec![b""];
        names.extend(numbers.iter().map(|n| n.as_slice()));
        sorted(&Comparator::Long, &names);
        assert_eq!(Comparator::Long.validate(b"abc"), Err(InvalidName::Long));
        assert_eq!(Comparator::Long.render(&(-7i64).to_be_bytes()), "-7");
    }

    #[test]
    fn lexical_uuids_compare_signed_halves() {
        let [a, b, c, d, e] = [0x80, 0xff, 0x00, 0x01, 0x7f].map(uuid);
        sorted(&Comparator::LexicalUuid, &[b"", &a, &b, &c, &d, &e]);
        let (mut low_negative, low_positive) = (uuid(0), uuid(0));
        low_negative[8] = 0x80;
        sorted(&Comparator::LexicalUuid, &[&low_negative, &low_positive]);
    }

    #[test]
    fn time_uuids_sort_by_time_then_bytes() {
        let name = |high: u8, mid: u8, low: u8, node: u8| {
            let mut bytes = uuid(0);
            (bytes[6], bytes[5], bytes[3], bytes[15]) = (0x10 | high, mid, low, node);
            bytes
        };
        let names = [
            name(0, 0, 9, 0),
            name(0, 1, 0, 0),
            name(0, 1, 0, 0x7f),
            name(0, 1, 0, 0x80),
            name(1, 0, 0, 0),
        ];
        let names: Vec<&[u8]> = names.iter().map(|n| n.as_slice()).collect();
        sorted(&Comparator::TimeUuid, &names);
        assert_eq!(Comparator::TimeUuid.validate(&uuid(0)), Err(InvalidName::TimeUuidVersion));
    }

    #[test]
    fn refusals_carry_the_known_texts() {
        let text = |c: Comparator, name: &[u8]| c.validate(name).unwrap_err().to_string();
        assert_eq!(text(Comparator::Utf8, &[97, 0xff, 0x80]), "invalid UTF8 bytes [97, -1, -128]");
        assert_eq!(text(Comparator::TimeUuid, b"abc"), "TimeUUID should be 16 or 0 bytes (3)");
        assert_eq!(text(Comparator::LexicalUuid, b"abc"), "UUIDs must be exactly 16 bytes");
        assert_eq!(Comparator::Ascii.validate(b"\xff"), Ok(()));
    }

    #[test]
    fn names_are_read_as_they_are_shown() {
        let registry = ComparatorRegistry::default();
        for (class, text) in [
            ("AsciiType", "a"),
            ("UTF8Type", "Żółw"),
            ("LongType", "-7"),
            ("LexicalUUIDType", "550e8400-e29b-41d4-a716-446655440000"),
            ("TimeUUIDType", "550e8400-e29b-11d4-a716-446655440000"),
            ("Int32Type", "42"),
            ("ReversedType(LongType)", "5"),
            ("CompositeType(UTF8Type,LongType)", "a:5"),
            ("CompositeType(LongType,UTF8Type)", "5:12:00"),
        ] {
            let comparator = registry.resolve(class).unwrap();
            let name = comparator.parse(text).unwrap();
            assert_eq!(
                (comparator.validate(&name), comparator.render(&name)),
                (Ok(()), text.into())
            );
        }
        assert_eq!(Comparator::Bytes.parse("a").unwrap(), b"a");
        for (class, text) in
            [("AsciiType", "ä"), ("LongType", "a"), ("CompositeType(LongType)", "a")]
        {
            assert!(registry.resolve(class).unwrap().parse(text).is_err(), "{class}");
        }
    }

    #[test]
    fn a_registered_comparator_is_found_by_its_class() {
        #[derive(Debug)]
        struct Backwards;
        impl CustomComparator for Backwards {
            fn class_name(&self) -> &'static str {
                "com.example.Backwards"
            }
            fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
                a.is_empty().cmp(&b.is_empty()).then_with(|| a.cmp(b)).reverse()
            }
            fn validate(&self, _: &[u8]) -> Result<(), String> {
                Ok(())
            }
            fn render(&self, name: &[u8]) -> String {
                hex(name)
            }
        }
        let mut registry = ComparatorRegistry::default();
        assert!(registry.register(Arc::new(Backwards)));
        assert!(!registry.register(Arc::new(Backwards)));
        let found = registry.resolve("com.example.Backwards").unwrap();
        sorted(&found, &[b"", b"b", b"a"]);
        assert_eq!(registry.resolve("UTF8Type"), Some(Comparator::Utf8));
        assert_eq!(registry.resolve("NoSuchType"), None);
    }
}
