//! Notations of the native protocol, such as `[string]` and `[bytes]`: read from a body, and
//! written to one. Numbers are big-endian.

use smallvec::SmallVec;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

/// Bytes that are no request, in words for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub Cow<'static, str>);

impl Malformed {
    /// With words that are made up here.
    pub(super) fn new(why: impl Into<Cow<'static, str>>) -> Self {
        Self(why.into())
    }
}

/// Names or texts of one request: seldom more.
pub type Few<T> = SmallVec<[T; 8]>;

/// A value that is bound to a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// No value: what is there is deleted.
    Null,
    /// The present value stays.
    Unset,
    /// A value in the form of its type.
    Bytes(&'a [u8]),
}

/// A consistency level of CQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub enum Level {
    Any,
    One,
    Two,
    Three,
    Quorum,
    All,
    LocalQuorum,
    EachQuorum,
    Serial,
    LocalSerial,
    LocalOne,
}

impl Level {
    /// All of them with their names. The position of a level is its number in the protocol: never
    /// change it.
    const ALL: [(Self, &'static str); 11] = [
        (Self::Any, "ANY"),
        (Self::One, "ONE"),
        (Self::Two, "TWO"),
        (Self::Three, "THREE"),
        (Self::Quorum, "QUORUM"),
        (Self::All, "ALL"),
        (Self::LocalQuorum, "LOCAL_QUORUM"),
        (Self::EachQuorum, "EACH_QUORUM"),
        (Self::Serial, "SERIAL"),
        (Self::LocalSerial, "LOCAL_SERIAL"),
        (Self::LocalOne, "LOCAL_ONE"),
    ];

    /// The names of all, by number.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(_, name)| *name)
    }

    fn from_code(code: u16) -> Result<Self, Malformed> {
        let found = Self::ALL.get(usize::from(code));
        let unknown = || Malformed::new(format!("Unknown code {code} for a consistency level"));
        found.map(|(level, _)| *level).ok_or_else(unknown)
    }

    /// Whether it is one of changes under a condition, and of reads that see all of them.
    pub fn is_serial(self) -> bool {
        matches!(self, Self::Serial | Self::LocalSerial)
    }

    /// The name in texts.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(level, _)| *level == self).map_or("", |(_, name)| name)
    }

    pub(super) fn code(self) -> u16 {
        self as u16
    }
}

/// Reads the body of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            let left = self.rest.len();
            let why = format!("The body ends too early: {count} bytes expected, {left} are left");
            return Err(Malformed::new(why));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| Malformed::new("The body ends too early"))
    }

    /// `[byte]`.
    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    /// `[short]`.
    pub(super) fn short(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// `[int]`.
    pub(super) fn int(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    /// `[long]`.
    pub(super) fn long(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    fn text(&mut self, length: usize) -> Result<&'a str, Malformed> {
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes)
            .map_err(|error| Malformed::new(format!("Cannot decode string as UTF8: {error}")))
    }

    /// `[string]`.
    pub(super) fn string(&mut self) -> Result<&'a str, Malformed> {
        let length = self.short()?;
        self.text(length.into())
    }

    /// `[long string]`.
    pub(super) fn long_string(&mut self) -> Result<&'a str, Malformed> {
        let length = self.int()?;
        let length = usize::try_from(length)
            .map_err(|_| Malformed::new(format!("Negative length of a string: {length}")))?;
        self.text(length)
    }

    /// `[bytes]`: `None` for a negative length.
    pub(super) fn bytes(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        usize::try_from(self.int()?).ok().map(|length| self.take(length)).transpose()
    }

    /// `[short bytes]`.
    pub(super) fn short_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.short()?;
        self.take(length.into())
    }

    /// `[value]`. Unset values came with version 4.
    pub(super) fn value(&mut self, version: u8) -> Result<Value<'a>, Malformed> {
        match self.int()? {
            length @ 0.. => self.take(length as usize).map(Value::Bytes),
            -1 => Ok(Value::Null),
            -2 if version >= 4 => Ok(Value::Unset),
            length if version >= 4 => {
                Err(Malformed::new(format!("Invalid length of a value: {length}")))
            }
            _ => Ok(Value::Null),
        }
    }

    /// `[consistency]`.
    pub(super) fn level(&mut self) -> Result<Level, Malformed> {
        self.short().and_then(Level::from_code)
    }

    /// `[string list]`.
    pub(super) fn string_list(&mut self) -> Result<Few<&'a str>, Malformed> {
        let count = self.short()?;
        (0..count).map(|_| self.string()).collect()
    }

    /// `[string map]`.
    pub(super) fn string_map(&mut self) -> Result<Few<(&'a str, &'a str)>, Malformed> {
        let count = self.short()?;
        (0..count).map(|_| Ok((self.string()?, self.string()?))).collect()
    }

    /// Passes over a `[bytes map]`.
    pub(super) fn skip_bytes_map(&mut self) -> Result<(), Malformed> {
        let count = self.short()?;
        (0..count).try_for_each(|_| self.string().and(self.bytes()).map(drop))
    }

    /// Fails if something is left.
    pub(super) fn end(self) -> Result<(), Malformed> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(Malformed::new(format!("{left} bytes are left after the request"))),
        }
    }
}

/// Writes `[short]`.
pub(super) fn put_short(value: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Writes `[int]`.
pub(super) fn put_int(value: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Writes `[string]`. Longer texts than its length can say are cut.
pub(super) fn put_string(text: &str, out: &mut Vec<u8>) {
    let end = text.floor_char_boundary(u16::MAX.into());
    put_short(end as u16, out);
    out.extend_from_slice(text.get(..end).unwrap_or_default().as_bytes());
}

/// Writes `[string list]`.
pub(super) fn put_string_list(texts: &[&str], out: &mut Vec<u8>) {
    put_short(texts.len() as u16, out);
    for text in texts {
        put_string(text, out);
    }
}

/// Writes `[bytes]`, of a value that is shorter than a frame.
pub(super) fn put_bytes(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    let Some(bytes) = bytes else { return put_int(-1, out) };
    put_int(bytes.len() as i32, out);
    out.extend_from_slice(bytes);
}

/// Writes `[short bytes]`, of an id.
pub(super) fn put_short_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_short(bytes.len() as u16, out);
    out.extend_from_slice(bytes);
}

/// Writes `[inet]`.
pub(super) fn put_inet(address: SocketAddr, out: &mut Vec<u8>) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(16);
            out.extend_from_slice(&ip.octets());
        }
    }
    put_int(address.port().into(), out);
}
