//! Decoding of the binary protocol from bytes at hand, without copies.

use super::dump::Dump;
use super::scan::{Scanner, Step};
use super::schema::{Kind, wire_type};
use crate::base::budget::{Budget, Charge};
use crate::config::settings::Release;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Thrift `binary`: borrowed from the request.
pub type Binary<'a> = &'a [u8];

/// Thrift `string`: borrowed from the request if it is well-formed UTF-8.
pub type Text<'a> = Cow<'a, str>;

/// Thrift `list`.
pub type List<T> = Vec<T>;

/// Memory that the values of a message may take before it is taken from the budget.
const UNCHARGED_BYTES: usize = 16 << 10;

/// Memory of an element of a list and of the key, name or cell made of it, in multiples of the
/// element. All of it is charged when the list is decoded.
const ELEMENT_FACTOR: usize = 3;

/// Bytes taken from the budget at a time, since other threads take from it as well.
const CHARGE_STEP_BYTES: usize = 64 << 10;

/// Maps of up to this size look for repeated keys by comparing all pairs.
const PAIRWISE_KEYS: usize = 16;

/// Why bytes are not (yet) a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The value goes on beyond the bytes at hand: read more.
    #[error("the message goes on beyond the bytes at hand")]
    Incomplete,
    /// A required field is absent; the text is for the client. The rest of the message is sound.
    #[error("{0}")]
    Missing(Box<str>),
    /// The values take more memory than is free. The message is sound.
    #[error("the request takes {0} bytes of memory and more")]
    OverBudget(usize),
    /// These bytes can never become a message: close the connection.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl DecodeError {
    /// The complaint about the first absent one of these fields (name, numeric, absent). Like the
    /// original it looks at the numbers first.
    pub fn missing(dump: Dump, fields: &[(&'static str, bool, bool)]) -> Self {
        let first = |numeric| fields.iter().find(|field| field.1 == numeric && field.2);
        let (name, numeric, _) = first(true).or_else(|| first(false)).copied().unwrap_or_default();
        Self::Missing(dump.into_missing(name, numeric))
    }
}

/// Why a connection cannot be followed any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The first number of a message is neither a version that exists nor a length.
    #[error("unknown protocol version {0:#010x}")]
    Version(u32),
    /// A length or count below zero.
    #[error("negative length {0}")]
    NegativeLength(i32),
    /// A wire type that does not exist.
    #[error("unknown wire type {0}")]
    WireType(u8),
    /// A list or map whose elements are not of the type that the field needs.
    #[error("elements of wire type {found} where {expected} is due")]
    ElementType {
        /// The type in the IDL.
        expected: u8,
        /// The type that was sent.
        found: u8,
    },
    /// More nesting than `MAX_DEPTH`.
    #[error("nested too deeply")]
    TooDeep,
    /// A length that the limits do not allow.
    #[error("a length of {0} bytes")]
    TooLong(u64),
    /// A method name longer than `MAX_METHOD_NAME_BYTES`.
    #[error("a method name of {0} bytes")]
    MethodName(usize),
    /// A number that an enum does not have, where it cannot count as absent.
    #[error("a number outside its enum")]
    EnumNumber,
    /// A frame that ends before its message does.
    #[error("a frame ends in the middle of a message")]
    ShortFrame,
}

/// A type of the IDL as it appears in Rust.
pub trait WireType {
    /// Type byte on the wire.
    const TYPE: u8;
    /// Type in the IDL.
    const KIND: Kind;
    /// Numbers and bools: their absence is detected, and reported, in another way than that of
    /// objects.
    const NUMERIC: bool = false;
    /// The text of an absent required field.
    const ABSENT: &'static str = "null";

    /// Whether clients of a generation may leave out a required field that has a default value.
    fn may_be_left_out(_version: Release) -> bool {
        !Self::NUMERIC
    }
}

/// A value that can be read from the wire.
pub trait Decode<'a>: WireType + Sized {
    /// Reads one value.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Reads one value that is a field. `None` if it counts as absent: a number that the enum does
    /// not have.
    fn decode_field(reader: &mut Reader<'a>) -> Result<Option<Self>, DecodeError> {
        Self::decode(reader).map(Some)
    }

    /// Prints the value as the original does in its error texts.
    fn dump(&self, dump: &mut Dump);
}

/// A type whose values borrow from the message that they are read from, whichever that is.
pub trait Lent: WireType {
    /// The type with the lifetime of a message.
    type In<'m>: Decode<'m>;
}

/// Reads values from the bytes of one message (or of its beginning).
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
    version: Release,
    /// Budget for the memory of the values.
    budget: Option<&'a Arc<Budget>>,
    /// Bytes of memory that the values take.
    held: usize,
    /// Memory taken from the budget, unless the values are small.
    charge: Option<Charge>,
}

impl<'a> Reader<'a> {
    /// A reader at the start of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        let (total, version) = (bytes.len(), Release::V06);
        Self { rest: bytes, total, version, budget: None, held: 0, charge: None }
    }

    /// Sets the generation of the client.
    #[must_use]
    pub fn of(self, version: Release) -> Self {
        Self { version, ..self }
    }

    /// Sets a budget for the memory of the values.
    #[must_use]
    pub fn within(self, budget: &'a Arc<Budget>) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// The memory taken from the budget, to be held as long as the values. The bytes that were read
    /// count as well, since they are copied.
    pub fn into_charge(mut self) -> Result<Option<Charge>, DecodeError> {
        self.hold(self.position())?;
        Ok(self.charge)
    }

    /// Whose client has sent it.
    pub fn version(&self) -> Release {
        self.version
    }

    /// Bytes that have been read.
    pub fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// The next bytes, borrowed from the message.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Incomplete)?;
        self.rest = rest;
        Ok(taken)
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A big-endian number.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.array().map(i32::from_be_bytes)
    }

    /// A big-endian number.
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.array().map(i64::from_be_bytes)
    }

    /// A length or count.
    pub fn length(&mut self) -> Result<usize, DecodeError> {
        let length = self.i32()?;
        usize::try_from(length).map_err(|_| Malformed::NegativeLength(length).into())
    }

    /// A length and that many bytes.
    pub fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.length()?;
        self.take(length)
    }

    /// Type and number of the next field; `None` at the end of the struct.
    pub fn field(&mut self) -> Result<Option<(u8, i16)>, DecodeError> {
        match self.byte()? {
            wire_type::STOP => Ok(None),
            field_type => Ok(Some((field_type, i16::from_be_bytes(self.array()?)))),
        }
    }

    /// Passes over a value of any type.
    pub fn skip(&mut self, value_type: u8) -> Result<(), DecodeError> {
        let mut scanner = Scanner::value(value_type)?;
        match scanner.advance(self.rest)? {
            Step::Done(length) => self.take(length).map(|_| ()),
            Step::More => Err(DecodeError::Incomplete),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Incomplete)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Room for the elements of a list or map. Each takes a byte at least, so that a count alone
    /// takes no memory.
    fn elements<T>(&mut self, count: usize) -> Result<Vec<T>, DecodeError> {
        if count > self.rest.len() {
            return Err(DecodeError::Incomplete);
        }
        self.hold(count.saturating_mul(ELEMENT_FACTOR * size_of::<T>()))?;
        Ok(Vec::with_capacity(count))
    }

    /// Notes that the values take this much more memory.
    fn hold(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.held = self.held.saturating_add(bytes);
        match self.budget {
            Some(budget) if self.held > UNCHARGED_BYTES => self.charge(budget),
            _ => Ok(()),
        }
    }

    fn charge(&mut self, budget: &Arc<Budget>) -> Result<(), DecodeError> {
        let charge = self.charge.get_or_insert_with(|| Charge::new(Arc::clone(budget)));
        if self.held <= charge.bytes() {
            return Ok(());
        }
        let taken = self.held.saturating_add(CHARGE_STEP_BYTES);
        if charge.try_set(taken) { Ok(()) } else { Err(DecodeError::OverBudget(taken)) }
    }
}

fn check_element(count: usize, expected: u8, found: u8) -> Result<(), Malformed> {
    // Some client libraries give an empty container any element type, so only a filled one counts.
    if count > 0 && expected != found {
        return Err(Malformed::ElementType { expected, found });
    }
    Ok(())
}

macro_rules! decode_number {
    ($type:ty, $wire:expr, $kind:expr, $absent:literal, $read:expr) => {
        impl WireType for $type {
            const TYPE: u8 = $wire;
            const KIND: Kind = $kind;
            const NUMERIC: bool = true;
            const ABSENT: &'static str = $absent;
        }

        impl<'a> Decode<'a> for $type {
            fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
                $read(reader)
            }

            fn dump(&self, dump: &mut Dump) {
                dump.text(&self.to_string());
            }
        }

        impl Lent for $type {
            type In<'m> = Self;
        }
    };
}

decode_number!(bool, wire_type::BOOL, Kind::Bool, "false", |r: &mut Reader<'a>| {
    r.byte().map(|byte| byte == 1)
});
decode_number!(i32, wire_type::I32, Kind::I32, "0", Reader::i32);
decode_number!(i64, wire_type::I64, Kind::I64, "0", Reader::i64);

impl WireType for () {
    const TYPE: u8 = wire_type::STOP;
    const KIND: Kind = Kind::Void;
}

impl<'a> Decode<'a> for () {
    fn decode(_reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(())
    }

    fn dump(&self, _dump: &mut Dump) {}
}

impl Lent for () {
    type In<'m> = Self;
}

impl WireType for &[u8] {
    const TYPE: u8 = wire_type::STRING;
    const KIND: Kind = Kind::Binary;
}

impl<'a> Decode<'a> for &'a [u8] {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.binary()
    }

    fn dump(&self, dump: &mut Dump) {
        dump.binary(self);
    }
}

impl Lent for &[u8] {
    type In<'m> = &'m [u8];
}

impl WireType for Cow<'_, str> {
    const TYPE: u8 = wire_type::STRING;
    const KIND: Kind = Kind::String;
}

impl<'a> Decode<'a> for Cow<'a, str> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let text = decode_lossy(reader.binary()?);
        if let Cow::Owned(text) = &text {
            reader.hold(text.capacity())?;
        }
        Ok(text)
    }

    fn dump(&self, dump: &mut Dump) {
        dump.text(self);
    }
}

impl Lent for Cow<'_, str> {
    type In<'m> = Cow<'m, str>;
}

impl<T: WireType> WireType for Vec<T> {
    const TYPE: u8 = wire_type::LIST;
    const KIND: Kind = Kind::List(&T::KIND);
}

impl<'a, T: Decode<'a>> Decode<'a> for Vec<T> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let found = reader.byte()?;
        let count = reader.length()?;
        check_element(count, T::TYPE, found)?;
        let mut list = reader.elements(count)?;
        for _ in 0..count {
            list.push(T::decode(reader)?);
        }
        Ok(list)
    }

    fn dump(&self, dump: &mut Dump) {
        dump.text("[");
        for (i, element) in self.iter().enumerate() {
            if dump.is_full() {
                return;
            }
            dump.text(if i == 0 { "" } else { ", " });
            element.dump(dump);
        }
        dump.text("]");
    }
}

impl<T: Lent> Lent for Vec<T> {
    type In<'m> = Vec<T::In<'m>>;
}

impl<T: WireType> WireType for Box<T> {
    const TYPE: u8 = T::TYPE;
    const KIND: Kind = T::KIND;
}

/// Boxes keep structs small whose field is rarely set.
impl<'a, T: Decode<'a>> Decode<'a> for Box<T> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.hold(size_of::<T>())?;
        T::decode(reader).map(Box::new)
    }

    fn dump(&self, dump: &mut Dump) {
        (**self).dump(dump);
    }
}

/// Thrift `set`, in the order in which it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set<T>(pub Vec<T>);

impl<T: WireType> WireType for Set<T> {
    const TYPE: u8 = wire_type::SET;
    const KIND: Kind = Kind::Set(&T::KIND);
}

/// On the wire a set is a list.
impl<'a, T: Decode<'a>> Decode<'a> for Set<T> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Vec::decode(reader).map(Self)
    }

    fn dump(&self, dump: &mut Dump) {
        self.0.dump(dump);
    }
}

impl<T: Lent> Lent for Set<T> {
    type In<'m> = Set<T::In<'m>>;
}

/// Thrift `map`: entries in the order in which they were sent, without repeated keys. Of entries
/// with the same key the last one stays, as in the original.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Deref)]
pub struct Map<K, V>(#[deref(forward)] pub Vec<(K, V)>);

impl<V> Map<Text<'_>, V> {
    /// The value of a key in a small map.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    fn drop_repeated(&mut self) {
        let entries = &self.0;
        let mut is_repeated: SmallVec<[bool; PAIRWISE_KEYS]> = SmallVec::new();
        if entries.len() <= PAIRWISE_KEYS {
            let repeats = |(i, (key, _)): (usize, &(Text<'_>, V))| {
                entries.iter().skip(i + 1).any(|(later, _)| later == key)
            };
            is_repeated.extend(entries.iter().enumerate().map(repeats));
        } else {
            let keys = entries.iter().map(|(key, _)| key.as_ref());
            let last: HashMap<&str, usize> = keys.clone().zip(0..).collect();
            is_repeated.extend(keys.zip(0..).map(|(key, i)| last.get(key) != Some(&i)));
        }
        if is_repeated.contains(&true) {
            let mut is_repeated = is_repeated.into_iter();
            self.0.retain(|_| is_repeated.next() == Some(false));
        }
    }
}

impl<K: WireType, V: WireType> WireType for Map<K, V> {
    const TYPE: u8 = wire_type::MAP;
    const KIND: Kind = Kind::Map(&K::KIND, &V::KIND);
}

impl<'a, V: Decode<'a>> Decode<'a> for Map<Text<'a>, V> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (key_type, value_type) = (reader.byte()?, reader.byte()?);
        let count = reader.length()?;
        check_element(count, Text::TYPE, key_type)?;
        check_element(count, V::TYPE, value_type)?;
        let mut map = Self(reader.elements(count)?);
        for _ in 0..count {
            map.0.push((Text::decode(reader)?, V::decode(reader)?));
        }
        map.drop_repeated();
        Ok(map)
    }

    fn dump(&self, dump: &mut Dump) {
        dump.text("{");
        for (i, (key, value)) in self.iter().enumerate() {
            if dump.is_full() {
                return;
            }
            dump.text(if i == 0 { "" } else { ", " });
            key.dump(dump);
            dump.text("=");
            value.dump(dump);
        }
        dump.text("}");
    }
}

impl<V: Lent> Lent for Map<Text<'_>, V> {
    type In<'m> = Map<Text<'m>, V::In<'m>>;
}

const REPLACEMENT: &str = "\u{FFFD}";

/// Decodes text; each maximal malformed sequence becomes one U+FFFD.
///
/// An encoded surrogate (`ED A0 80` to `ED BF BF`, also cut short after two bytes) is one such
/// sequence. The standard library replaces each of its bytes, and row keys would then differ from
/// those that the original stored.
pub(super) fn decode_lossy(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(replace_malformed(bytes)),
    }
}

fn replace_malformed(mut bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + REPLACEMENT.len());
    loop {
        let error = match std::str::from_utf8(bytes) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => error,
        };
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        text.push_str(std::str::from_utf8(valid).expect("checked up to here just before"));
        text.push_str(REPLACEMENT);
        let bad = match rest {
            [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..] => 3,
            [0xED, 0xA0..=0xBF, ..] => 2,
            _ => error.error_len().unwrap_or(rest.len()),
        };
        bytes = rest.get(bad..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_malformed_sequence_is_replaced_once() {
        let cases: [(&[u8], &str); 11] = [
            (b"plain", "plain"),
            ("Żółw \u{10348}".as_bytes(), "Żółw \u{10348}"),
            (b"\xFF\xFEk", "\u{FFFD}\u{FFFD}k"),
            (b"a\xED\xA0\x80b", "a\u{FFFD}b"),
            (b"\xED\xA0\x80\xED\xB0\x80", "\u{FFFD}\u{FFFD}"),
            (b"\xED\xA0", "\u{FFFD}"),
            (b"\xED\xA0x", "\u{FFFD}x"),
            (b"\xE2\x82", "\u{FFFD}"),
            (b"\xE0\x80\x80", "\u{FFFD}\u{FFFD}\u{FFFD}"),
            (b"\xF0\x90\x8Dz", "\u{FFFD}z"),
            (b"\xC0\xAF", "\u{FFFD}\u{FFFD}"),
        ];
        for (bytes, text) in cases {
            assert_eq!(decode_lossy(bytes), text, "{bytes:02X?}");
        }
    }

    #[test]
    fn valid_text_is_borrowed() {
        assert!(matches!(decode_lossy(b"Keyspace1"), Cow::Borrowed(_)));
    }
}
